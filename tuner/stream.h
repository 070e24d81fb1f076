// One stream of durations (the frames, or one process's steps): what the window says, what the present level says, and
// whether the bound is missed.  Times are the tuner's own, which never go back.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

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

    // Once in a stay at a level, after kLook samples of it: their median and spread say that more than twice the
    // allowed fraction will be late, long before the late ones themselves could prove it.  Reading clears it.
    bool take_tight() { return std::exchange(tight_, false); }
    // Fraction that would be late if the last kLook samples came from a normal distribution.
    double expected_miss() const;

    const SlidingWindow& window() const { return window_; }
    MissDetector& detector() { return detector_; }
    const MissDetector& detector() const { return detector_; }

    // At this level, transient left out.
    uint64_t settled_count() const { return settled_; }
    TimeNs settled_since() const { return settled_since_; }  // -1: still transient
    // Median of the last `n` of them (at most kRecent), nanoseconds; 0 without any.
    static constexpr size_t kRecent = 16;
    static constexpr size_t kLook = 80;
    double recent_median(size_t n = kRecent) const;
    size_t recent_count() const { return recent_count_; }
    // Of them all, lately: how many were over the bound, and a percentile.
    double settled_miss() const;
    double settled_quantile(double share) const { return settled_histogram_.quantile(share); }
    // Percentile that the bound names against the median, for forecasts: at least 1.
    double tail_ratio() const { return tail_ratio_; }
    // Rate at this level over at most `length`.
    RateMeter::Rate rate(TimeNs now, TimeNs length) const { return meter_.measure(now, length); }

 private:
    static constexpr TimeNs kShortestTransient = 20 * kMs;
    static constexpr TimeNs kLongestTransient = kSecond;

    void update_tail();

    int64_t bound_ns_ = 0;
    double allowed_miss_ = 0;
    SlidingWindow window_;
    MissDetector detector_;
    RateMeter meter_;
    LogHistogram settled_histogram_;
    LogHistogram tail_histogram_;  // at this level and this load
    std::array<int64_t, kLook> recent_{};
    bool tight_ = false;
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
