// How many things a second ended lately: a ring of short buckets over four seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tuner/settings.h"

namespace vuda::tuner {

class RateMeter {
 public:
    static constexpr size_t kBuckets = 64;
    static constexpr TimeNs kBucket = 62'500'000;
    static constexpr TimeNs kLength = static_cast<TimeNs>(kBuckets) * kBucket;

    void add(TimeNs when, uint64_t count);
    // Forgets everything before `when`.
    void restart(TimeNs when);

    struct Rate {
        double per_second = 0;
        double count = 0;  // on which it rests
        TimeNs over = 0;   // time on which it rests
    };
    // Over the last `length` (at most kLength), or since restart() if that is later.
    Rate measure(TimeNs now, TimeNs length) const;

 private:
    struct Bucket {
        int64_t number = -1;
        uint64_t count = 0;
        uint64_t first_count = 0;  // of the first report in it, which ended at `first`
        TimeNs first = 0, last = 0;
    };
    std::array<Bucket, kBuckets> buckets_{};
    TimeNs since_ = 0;
};

}  // namespace vuda::tuner
