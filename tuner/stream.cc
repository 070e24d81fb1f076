#include "tuner/stream.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner {
namespace {

constexpr uint64_t kTailSamples = 40;     // fewer say little about a tail
constexpr uint64_t kHistoryLimit = 4096;  // older samples of a long stay count half from here on
constexpr double kLeastTail = 0.02;       // percentiles above the 98th need more samples than a visit brings
constexpr double kLargestTailRatio = 2.0;
// After so many samples, so many times what is allowed: the fewer, the more clearly it must be seen.
struct Look {
    uint64_t samples;
    double times;
};
constexpr Look kLooks[] = {{25, 5}, {40, 3}, {60, 2.2}, {Stream::kLook, 1.6}};
constexpr Look kLastLook = {320, 1.4};
constexpr double kLeastMiss = 0.002;
constexpr double kDrains = 0.995;  // each late sample this much shorter than the one before

}  // namespace

void Stream::Sums::start(std::span<const int64_t, kLook> ring, size_t first, size_t n) {
    std::array<int64_t, kLook> sorted;
    for (size_t i = 0; i < n; ++i) sorted[i] = ring[(first + i) % kLook];
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(n);
    std::sort(sorted.begin(), end);
    const auto at = [&](double share) {
        return static_cast<double>(sorted[static_cast<size_t>(share * static_cast<double>(n - 1))]);
    };
    middle = at(0.5);
    reach = kOutlier * std::max(1.0, (at(0.8413) - at(0.1587)) / 2);
    count = sum = squares = 0;
    for (auto it = sorted.begin(); it != end; ++it) add(*it);
}

void Stream::Sums::add(int64_t duration_ns) {
    const double off = static_cast<double>(duration_ns) - middle;
    if (std::abs(off) > reach) return;
    ++count;
    sum += off;
    squares += off * off;
}

double Stream::Sums::over(int64_t bound_ns) const {
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(1.0, (squares - sum * mean) / std::max(1.0, count - 1)));
    const double room = (static_cast<double>(bound_ns) - middle - mean) / deviation;
    return 0.5 * std::erfc(room / std::sqrt(2.0));
}

void Stream::set_bound(int64_t bound_ns, double allowed_miss) {
    if (bound_ns == bound_ns_ && allowed_miss == allowed_miss_) return;
    bound_ns_ = bound_ns;
    allowed_miss_ = allowed_miss;
    window_.set_bound(bound_ns);
    settled_over_ = bound_ns > 0 ? static_cast<double>(settled_histogram_.count_above(bound_ns)) : 0;
    detector_.set_allowed(allowed_miss);
    bursts_.set_allowed(allowed_miss);
    update_tail();
}

void Stream::begin_transient(TimeNs now) {
    const auto usual = static_cast<TimeNs>(std::min(usual_, static_cast<double>(kLongestTransient)));
    change_ = now;
    transient_end_ = now + std::clamp(usual, kShortestTransient, kLongestTransient / 2);
    settled_since_ = -1;
    settled_ = 0;
    settled_over_ = 0;
    since_change_ = 0;
    recent_count_ = recent_next_ = 0;
    median_kept_ = false;
    shape_ = 0;
    draining_ = INT64_MAX;
    settled_histogram_.clear();
    tail_histogram_.clear();
    detector_.reset();
    tight_ = false;
    meter_.restart(transient_end_);
}

void Stream::add_count(TimeNs end, uint64_t count) {
    meter_.add(end, count);
    last_ = std::max(last_, end);
}

void Stream::add(TimeNs end, int64_t duration_ns) {
    window_.add(end, duration_ns);
    add_count(end, 1);
    usual_ = usual_ == 0 ? static_cast<double>(duration_ns) : usual_ + (static_cast<double>(duration_ns) - usual_) / 16;

    const bool late = bound_ns_ > 0 && duration_ns > bound_ns_;
    // What is this long under way after a change tells of the new level too, whenever it began.
    if (end < change_ + kLongestTransient) {
        if (end - duration_ns < transient_end_) return;
        if (draining_ != 0) {
            if (late && static_cast<double>(duration_ns) < kDrains * static_cast<double>(draining_)) {
                // The first late one may be the steady state as well: only what follows shows which.
                const bool first = draining_ == INT64_MAX;
                draining_ = duration_ns;
                if (!first) return;
            } else {
                draining_ = 0;
            }
        }
    } else {
        draining_ = 0;
    }
    if (bound_ns_ > 0) bursts_.add(shape_ * static_cast<double>(duration_ns));
    if (settled_since_ < 0) settled_since_ = end;
    ++settled_;
    ++since_change_;
    recent_[recent_next_] = duration_ns;
    recent_next_ = (recent_next_ + 1) % kLook;
    recent_count_ = std::min(recent_count_ + 1, kLook);
    median_kept_ = false;
    settled_histogram_.add(LogHistogram::bin_of(duration_ns));
    if (late) ++settled_over_;
    if (settled_histogram_.count() > kHistoryLimit) {
        settled_histogram_.halve();
        settled_over_ /= 2;
    }
    tail_histogram_.add(LogHistogram::bin_of(duration_ns));
    if (tail_histogram_.count() > kHistoryLimit) tail_histogram_.halve();
    if (settled_ % kTailSamples == 0) update_tail();
    if (bound_ns_ > 0) look(duration_ns, late);
    if (bound_ns_ > 0) detector_.add(late, duration_ns / 2 > bound_ns_);
}

double Stream::tail_quantile() const {
    // Never the longest of all: one outlier is not a tail.
    const double second = 1.5 / static_cast<double>(tail_histogram_.count());
    return tail_histogram_.quantile(1 - std::max({allowed_miss_, kLeastTail, second}));
}

void Stream::update_tail() {
    if (tail_histogram_.count() < kTailSamples) return;
    const double median = tail_histogram_.quantile(0.5);
    const double tail = tail_quantile();
    if (median > 0) tail_ratio_ = std::clamp(tail / median, 1.0, kLargestTailRatio);
}

void Stream::look(int64_t duration_ns, bool late) {
    if (since_change_ == 1) late_since_change_ = 0;
    if (late) ++late_since_change_;
    const double allowed = std::max(allowed_miss_, kLeastMiss);
    if (since_change_ <= kLook) {
        const auto* const now = std::find_if(std::begin(kLooks), std::end(kLooks),
                                             [this](const Look& one) { return one.samples == since_change_; });
        if (now == std::end(kLooks) || recent_count_ < since_change_) return;
        sums_.start(recent_, (recent_next_ + kLook - since_change_) % kLook, since_change_);
        expected_miss_ = sums_.over(bound_ns_);
        // A load that has just become another may be a burst.
        tight_ = expected_miss_ > now->times * allowed && (now != kLooks || settled_ == since_change_);
    } else if (since_change_ <= kLastLook.samples && sums_.count > 0) {
        sums_.add(duration_ns);
        if (since_change_ < kLastLook.samples) return;
        expected_miss_ = sums_.over(bound_ns_);
        // By now the late ones themselves must agree.
        tight_ = expected_miss_ > kLastLook.times * allowed &&
                 static_cast<double>(late_since_change_) > allowed * static_cast<double>(kLastLook.samples);
    }
}

double Stream::settled_miss() const {
    const auto count = static_cast<double>(settled_histogram_.count());
    return count > 0 ? std::min(1.0, settled_over_ / count) : 0;
}

bool Stream::fresh(TimeNs now) const {
    if (last_ < 0) return false;
    const auto usual = static_cast<TimeNs>(std::min(8 * usual_, 8.0 * kSecond));
    return now - last_ <= std::max(kSecond, usual);
}

double Stream::recent_median() const {
    if (!median_kept_) {
        median_ = recent_median(kRecent);
        median_kept_ = true;
    }
    return median_;
}

double Stream::recent_median(size_t n) const {
    n = std::min(n, recent_count_);
    if (n == 0) return 0;
    std::array<int64_t, kLook> sorted;
    for (size_t i = 0; i < n; ++i) sorted[i] = recent_[(recent_next_ + kLook - 1 - i) % kLook];
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(n / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<double>(*middle);
}

}  // namespace vuda::tuner
