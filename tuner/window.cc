#include "tuner/window.h"

#include <algorithm>

namespace vuda::tuner {

void SlidingWindow::set_bound(int64_t bound_ns) {
    if (bound_ns == bound_ns_) return;
    bound_ns_ = bound_ns;
    over_ = 0;
    for (Bucket& bucket : buckets_) {
        bucket.over = bound_ns > 0 ? bucket.histogram.count_above(bound_ns) : 0;
        over_ += bucket.over;
    }
}

void SlidingWindow::advance(TimeNs now) {
    const int64_t number = (now + phase_) / kBucket;
    if (number <= newest_) return;
    const int64_t steps = std::min<int64_t>(number - newest_, kBuckets);
    for (int64_t i = 0; i < steps; ++i) {
        Bucket& bucket = buckets_[static_cast<size_t>((number - i) % static_cast<int64_t>(kBuckets))];
        if (bucket.histogram.count() == 0) continue;
        total_.subtract(bucket.histogram);
        over_ -= bucket.over;
        bucket.histogram.clear();
        bucket.over = 0;
    }
    newest_ = number;
}

void SlidingWindow::add(TimeNs when, int64_t duration_ns) {
    advance(when);
    const int64_t number = std::max<int64_t>(0, (when + phase_) / kBucket);
    if (newest_ - number >= static_cast<int64_t>(kBuckets)) return;
    Bucket& bucket = buckets_[static_cast<size_t>(number % static_cast<int64_t>(kBuckets))];
    const size_t bin = LogHistogram::bin_of(duration_ns);
    bucket.histogram.add(bin);
    total_.add(bin);
    if (bound_ns_ > 0 && duration_ns > bound_ns_) {
        ++bucket.over;
        ++over_;
    }
}

}  // namespace vuda::tuner
