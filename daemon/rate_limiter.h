// Keeps a peer from filling the log: one line, or `burst` of them, for each (user, cause) and interval.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/clock.h"

namespace vuda::daemon {

class RateLimiter {
 public:
    explicit RateLimiter(Clock clock, Milliseconds interval = std::chrono::seconds(10), uint32_t burst = 1)
        : clock_(std::move(clock)), interval_(interval), burst_(burst) {}

    // How many lines were held back since the last one, when this one may be written; nullopt when it must not. `cause`
    // comes from a fixed set of strings, so what is kept stays small; users beyond kEntries are not told apart.
    std::optional<uint64_t> admit(uid_t uid, const char* cause);

 private:
    static constexpr size_t kEntries = 1024;
    struct Entry {
        TimePoint next;
        uint64_t held = 0;
        uint32_t admitted = 0;  // since the interval began
    };
    Clock clock_;
    Milliseconds interval_;
    uint32_t burst_;
    std::map<std::pair<uid_t, std::string>, Entry> entries_;
};

}  // namespace vuda::daemon
