#include "daemon/request_rate.h"

#include <algorithm>

namespace vuda::daemon {
namespace {

constexpr std::chrono::seconds kBurst{1};
// Beyond this many users the full buckets are thrown away; only users with something owed are ever needed.
constexpr size_t kUsers = 256;

}  // namespace

void RequestRate::set_limit(uint32_t per_second) {
    limit_ = per_second;
    if (limit_ == 0) buckets_.clear();
}

std::chrono::nanoseconds RequestRate::cost(uint32_t requests) const {
    return std::chrono::nanoseconds(uint64_t{1'000'000'000} * requests / limit_);
}

std::optional<TimePoint> RequestRate::wait_until(uid_t uid) {
    if (limit_ == 0) return std::nullopt;
    const auto found = buckets_.find(uid);
    if (found == buckets_.end()) return std::nullopt;
    const TimePoint now = clock_();
    const TimePoint ready = found->second + cost(1) - kBurst;
    if (ready <= now) return std::nullopt;
    ++waits_;
    return std::max(ready, now + Milliseconds(1));
}

void RequestRate::charge(uid_t uid, uint32_t requests) {
    if (limit_ == 0) return;
    const TimePoint now = clock_();
    if (buckets_.size() >= kUsers && !buckets_.contains(uid))
        std::erase_if(buckets_, [now](const auto& bucket) { return bucket.second <= now; });
    Full& full = buckets_.try_emplace(uid, now).first->second;
    full = std::max(full, now) + cost(requests);
}

}  // namespace vuda::daemon
