// The last ten seconds of a stream of durations: one histogram a second, their sum, and exact counts over the bound.
#pragma once

#include <array>

#include "tuner/histogram.h"
#include "tuner/settings.h"

namespace vuda::tuner {

class SlidingWindow {
 public:
    static constexpr size_t kBuckets = 10;
    static constexpr TimeNs kBucket = kSecond;
    static constexpr TimeNs kLength = static_cast<TimeNs>(kBuckets) * kBucket;

    // `phase` shifts the ends of the buckets, so that of many windows not all move on in the same tick.
    explicit SlidingWindow(TimeNs phase = 0) : phase_(phase) {}

    // Counts against another bound from now on.  What is in the window is counted anew from the histograms, so a sample
    // within a bin (6 %) above the bound may be taken as under it.  0: no bound.
    void set_bound(int64_t bound_ns);

    // Drops buckets that are older than the window.  `now` never goes back.
    void advance(TimeNs now);
    // `when` in (now - kLength, now].
    void add(TimeNs when, int64_t duration_ns);

    uint64_t count() const { return total_.count(); }
    uint64_t over() const { return over_; }
    double quantile(double share) const { return total_.quantile(share); }

 private:
    struct Bucket {
        LogHistogram histogram;
        uint64_t over = 0;
    };
    std::array<Bucket, kBuckets> buckets_;
    LogHistogram total_;
    uint64_t over_ = 0;
    int64_t bound_ns_ = 0;
    TimeNs phase_;
    int64_t newest_ = 0;  // number of the newest bucket, (time + phase) / kBucket
};

}  // namespace vuda::tuner
