#include "daemon/rate_limiter.h"

namespace vuda::daemon {

std::optional<uint64_t> RateLimiter::admit(uid_t uid, const char* cause) {
    const TimePoint now = clock_();
    if (entries_.size() >= kEntries) {
        std::erase_if(entries_, [now](const auto& entry) { return entry.second.next <= now; });
        if (entries_.size() >= kEntries) uid = static_cast<uid_t>(-1);
    }
    const auto [found, fresh] = entries_.try_emplace({uid, cause});
    Entry& entry = found->second;
    if (!fresh && now < entry.next) {
        if (entry.admitted < burst_) {
            ++entry.admitted;
            return 0;
        }
        ++entry.held;
        return std::nullopt;
    }
    entry.next = now + interval_;
    entry.admitted = 1;
    return std::exchange(entry.held, 0);
}

}  // namespace vuda::daemon
