// One stream of durations (the frames, or one process's steps): what the window says, what the present level says, and
// whether the bound is missed.  Times are the tuner's own, which never go back.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "tuner/bursts.h"
#include "tuner/miss_detector.h"
#include "tuner/rate_meter.h"
#include "tuner/window.h"

namespace vuda::tuner {

class Stream {
 public:
    explicit Stream(TimeNs phase = 0) : window_(phase) {}

    // bound 0: no bound.  A change counts the window anew and starts the detector over.
    void set_bound(int64_t bound_ns, double allowed_miss);
    int64_t bound_ns() const { return bound_ns_; }
    double allowed_miss() const { return allowed_miss_; }

    // The level (or the share) changed.  Samples that began before now + a settling time are transient: they count in
    // the window but say nothing about the new level.  So do late ones while they get shorter: a queue that drains.
    void begin_transient(TimeNs now);

    // The load changed while the level stayed: a mixture of both would look like a long tail.
    void load_changed() {
        tail_histogram_.clear();
        since_change_ = 0;
    }
    // The last kRecent samples are all from after the change.
    bool steady() const { return since_change_ >= std::min<uint64_t>(kRecent, settled_); }

    void advance(TimeNs now) { window_.advance(now); }
    void add(TimeNs end, int64_t duration_ns);
    void add_count(TimeNs end, uint64_t count);

    // Time of the last sample, -1: never.
    TimeNs last() const { return last_; }
    // True when samples came lately: within a second, or eight usual durations (at most 8 s).
    bool fresh(TimeNs now) const;

    // Several times in a stay at a level: mean and spread of its samples so far say that more than the allowed fraction
    // will be late, long before the late ones themselves could prove it.  Reading clears it.
    bool take_tight() { return std::exchange(tight_, false); }
    // Fraction that would be late if the samples looked at last came from a normal distribution.
    double expected_miss() const { return expected_miss_; }

    const SlidingWindow& window() const { return window_; }
    MissDetector& detector() { return detector_; }
    const MissDetector& detector() const { return detector_; }
    Bursts& bursts() { return bursts_; }
    const Bursts& bursts() const { return bursts_; }
    // What a duration at the present level is worth at another: LevelCurve's shape; 0: not known.
    void set_shape(double shape) { shape_ = shape; }

    // At this level, transient left out.
    uint64_t settled_count() const { return settled_; }
    TimeNs settled_since() const { return settled_since_; }  // -1: still transient
    // Median of the last `n` of them (at most kLook), nanoseconds; 0 without any.
    static constexpr size_t kRecent = 16;
    static constexpr size_t kLook = 100;
    static constexpr size_t kLong = 64;
    double recent_median(size_t n) const;
    double recent_median() const;  // of the last kRecent, kept until the next sample
    size_t recent_count() const { return recent_count_; }
    // Of them all, lately: how many were over the bound, and a percentile.
    double settled_miss() const;
    double settled_quantile(double share) const { return settled_histogram_.quantile(share); }
    // Percentile that the bound names against the median, for forecasts: at least 1.
    double tail_ratio() const { return tail_ratio_; }
    // The percentile itself, once there are enough samples of this level and load to tell; 0 until then.
    double measured_tail() const { return tail_histogram_.count() >= kMeasured ? tail_quantile() : 0; }
    // Rate at this level over at most `length`.
    RateMeter::Rate rate(TimeNs now, TimeNs length) const { return meter_.measure(now, length); }

 private:
    // Mean and deviation of durations.  The median and the quartiles of one deviation tell outliers, which say nothing
    // about the others; of the rest mean and deviation need half as many samples as quartiles do.
    struct Sums {
        static constexpr double kOutlier = 4;  // deviations from the median
        double middle = 0, reach = 0;          // nanoseconds
        double count = 0, sum = 0, squares = 0;
        void start(std::span<const int64_t, kLook> ring, size_t first, size_t n);
        void add(int64_t duration_ns);
        double over(int64_t bound_ns) const;  // fraction, if all came from a normal distribution
    };
    static constexpr TimeNs kShortestTransient = 20 * kMs;
    static constexpr TimeNs kLongestTransient = kSecond;

    static constexpr uint64_t kMeasured = 120;

    void update_tail();
    void look(int64_t duration_ns, bool late);
    double tail_quantile() const;

    int64_t bound_ns_ = 0;
    double allowed_miss_ = 0;
    SlidingWindow window_;
    MissDetector detector_;
    Bursts bursts_;
    double shape_ = 0;
    RateMeter meter_;
    LogHistogram settled_histogram_;
    LogHistogram tail_histogram_;  // at this level and this load
    std::array<int64_t, kLook> recent_{};
    mutable double median_ = 0;
    mutable bool median_kept_ = false;
    bool tight_ = false;
    double expected_miss_ = 0;
    Sums sums_;
    uint64_t late_since_change_ = 0;
    size_t recent_next_ = 0, recent_count_ = 0;
    uint64_t settled_ = 0;
    uint64_t since_change_ = 0;
    double settled_over_ = 0;
    TimeNs last_ = -1;
    TimeNs change_ = 0, transient_end_ = 0;
    TimeNs settled_since_ = -1;
    int64_t draining_ = 0;  // duration of the last late sample of a queue that drains; 0: not draining
    double tail_ratio_ = 1.1;
    double usual_ = 0;  // nanoseconds, slow average
};

}  // namespace vuda::tuner
