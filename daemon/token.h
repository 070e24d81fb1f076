// One-time tokens: what ties a transfer on the handle socket to the session that was told to make it.
//
// A token is a promise to one process. It is checked against the kernel's word on who presents it, so that reading one
// (from memory, a log, a core file) gives another process nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/clock.h"
#include "daemon/peer.h"

namespace vuda::daemon {

using Token = std::array<uint8_t, 16>;

// Fills a token with unpredictable bytes. Replaced in tests only.
using TokenSource = std::function<Token()>;

// From getrandom(2). Blocks only before the kernel's generator is seeded, early in boot.
Token random_token();

std::string token_bytes(const Token& token);

struct Grant {
    enum class Purpose { kPush, kPull };
    Purpose purpose = Purpose::kPush;
    ProcessKey process;
    uid_t uid = 0;
    TimePoint expires;
    uint64_t turn = 0;  // the attach turn it belongs to
};

class TokenTable {
 public:
    explicit TokenTable(TokenSource source) : source_(std::move(source)) {}

    Token issue(const Grant& grant);

    // Takes the token out and returns its grant. UNAUTHENTICATED: unknown, used before, or expired. PERMISSION_DENIED:
    // it belongs to another process, user or purpose; it then stays valid, else a thief could at least spend it for its
    // owner.
    Result<Grant> redeem(std::string_view token, Grant::Purpose purpose, const Peer& peer, TimePoint now);

    void revoke(const Token& token) { grants_.erase(token); }
    size_t size() const { return grants_.size(); }

 private:
    TokenSource source_;
    std::map<Token, Grant> grants_;
};

}  // namespace vuda::daemon
