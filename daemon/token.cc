#include "daemon/token.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace vuda::daemon {

Token random_token() {
    Token token;
    // Up to 256 bytes are never cut short (getrandom(2)), so only a signal before the seed can interrupt.
    while (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
        if (errno != EINTR) std::abort();  // a kernel without getrandom: no token would be safe
    }
    return token;
}

std::string token_bytes(const Token& token) { return std::string(token.begin(), token.end()); }

Token TokenTable::issue(const Grant& grant) {
    for (;;) {
        const Token token = source_();
        if (grants_.emplace(token, grant).second) return token;
    }
}

Result<Grant> TokenTable::redeem(std::string_view bytes, Grant::Purpose purpose, const Peer& peer, TimePoint now) {
    const Error unknown{Code::kUnauthenticated, "the token is unknown, used already, or expired", ""};
    Token token;
    if (bytes.size() != token.size()) return unknown;
    std::copy(bytes.begin(), bytes.end(), token.begin());
    const auto found = grants_.find(token);
    if (found == grants_.end()) return unknown;
    const Grant grant = found->second;
    if (grant.process != peer.process || grant.uid != peer.uid || grant.purpose != purpose) {
        return Error{Code::kPermissionDenied, "the token was given to another process or for another use", ""};
    }
    grants_.erase(found);
    if (grant.expires <= now) return unknown;
    return grant;
}

}  // namespace vuda::daemon
