// How fast one user may ask: a token bucket a user, with a second's worth in it. Who takes more than there is owes the
// rest and waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

#include "daemon/clock.h"

namespace vuda::daemon {

class RequestRate {
 public:
    explicit RequestRate(Clock clock) : clock_(std::move(clock)) {}

    // Requests a second for each user; 0: no limit.
    void set_limit(uint32_t per_second);

    // nullopt: go ahead, and charge() what it was. Else when to ask again, at least a millisecond from now.
    std::optional<TimePoint> wait_until(uid_t uid);
    void charge(uid_t uid, uint32_t requests);

    // Users of whom anything is kept; those who have not asked for a second are forgotten.
    size_t users() const { return buckets_.size(); }
    // Times that somebody was told to wait.
    uint64_t waits() const { return waits_; }

 private:
    // When a bucket of this user's would be full again. Now or in the past: it is full. A second ahead: it is empty;
    // more: the user is in debt.
    using Full = TimePoint;
    std::chrono::nanoseconds cost(uint32_t requests) const;

    Clock clock_;
    uint32_t limit_ = 0;
    std::map<uid_t, Full> buckets_;
    uint64_t waits_ = 0;
};

}  // namespace vuda::daemon
