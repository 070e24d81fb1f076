#include "tuner/rate_meter.h"

#include <algorithm>

namespace vuda::tuner {

void RateMeter::add(TimeNs when, uint64_t count) {
    if (when < since_ || when < 0) return;
    const int64_t number = when / kBucket;
    Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
    if (bucket.number > number) return;  // late by more than the ring
    if (bucket.number < number) bucket = {number, 0, count, when, when};
    if (when < bucket.first) {
        bucket.first = when;
        bucket.first_count = count;
    }
    bucket.last = std::max(bucket.last, when);
    bucket.count += std::min(count, UINT64_MAX / (2 * kBuckets) - std::min(bucket.count, UINT64_MAX / (2 * kBuckets)));
}

void RateMeter::restart(TimeNs when) {
    since_ = when;
    for (Bucket& bucket : buckets_) bucket = {};
}

RateMeter::Rate RateMeter::measure(TimeNs now, TimeNs length) const {
    const TimeNs from = std::max(since_, now - std::min(length, kLength - kBucket));
    uint64_t count = 0, first_count = 0;
    TimeNs first = INT64_MAX, last = -1;
    for (int64_t number = std::max<int64_t>(0, from / kBucket); number <= now / kBucket; ++number) {
        const Bucket& bucket = buckets_[static_cast<size_t>(number) % kBuckets];
        if (bucket.number != number || bucket.first < from || bucket.last > now) continue;
        count += bucket.count;
        if (bucket.first < first) {
            first = bucket.first;
            first_count = bucket.first_count;
        }
        last = std::max(last, bucket.last);
    }
    Rate rate;
    rate.count = static_cast<double>(count);
    rate.over = std::max<TimeNs>(0, now - from);
    if (rate.over == 0) return rate;
    rate.per_second = 1e9 * rate.count / static_cast<double>(rate.over);
    const auto between = static_cast<double>(count - first_count);
    if (last > first && between >= 2) {
        // From one end to another there is no rounding by the edges of the window, unless the stream has stopped.
        const double gap = static_cast<double>(last - first) / between;
        if (static_cast<double>(now - last) <= 2 * gap + static_cast<double>(kBucket))
            rate.per_second = 1e9 * between / static_cast<double>(last - first);
    }
    return rate;
}

}  // namespace vuda::tuner
