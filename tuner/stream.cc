#include "tuner/stream.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner {
namespace {

constexpr uint64_t kTailSamples = 40;     // fewer say little about a tail
constexpr uint64_t kHistoryLimit = 4096;  // older samples of a long stay count half from here on
constexpr double kLeastTail = 0.02;       // percentiles above the 98th need more samples than a visit brings
constexpr double kLargestTailRatio = 2.0;
constexpr double kTimesTight = 2;  // times what is allowed
constexpr double kLeastMiss = 0.002;
constexpr double kDrains = 0.995;  // each late sample this much shorter than the one before

}  // namespace

void Stream::set_bound(int64_t bound_ns, double allowed_miss) {
    if (bound_ns == bound_ns_ && allowed_miss == allowed_miss_) return;
    bound_ns_ = bound_ns;
    allowed_miss_ = allowed_miss;
    window_.set_bound(bound_ns);
    settled_over_ = bound_ns > 0 ? static_cast<double>(settled_histogram_.count_above(bound_ns)) : 0;
    detector_.set_allowed(allowed_miss);
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
    if (settled_since_ < 0) settled_since_ = end;
    ++settled_;
    ++since_change_;
    recent_[recent_next_] = duration_ns;
    recent_next_ = (recent_next_ + 1) % kLook;
    recent_count_ = std::min(recent_count_ + 1, kLook);
    settled_histogram_.add(LogHistogram::bin_of(duration_ns));
    if (late) ++settled_over_;
    if (settled_histogram_.count() > kHistoryLimit) {
        settled_histogram_.halve();
        settled_over_ /= 2;
    }
    tail_histogram_.add(LogHistogram::bin_of(duration_ns));
    if (tail_histogram_.count() > kHistoryLimit) tail_histogram_.halve();
    if (settled_ % kTailSamples == 0) update_tail();
    if (bound_ns_ > 0 && since_change_ == kLook && recent_count_ == kLook)
        tight_ = expected_miss() > kTimesTight * std::max(allowed_miss_, kLeastMiss);
    if (bound_ns_ > 0) detector_.add(late, duration_ns / 2 > bound_ns_);
}

void Stream::update_tail() {
    if (tail_histogram_.count() < kTailSamples) return;
    const double median = tail_histogram_.quantile(0.5);
    const double tail = tail_histogram_.quantile(1 - std::max(allowed_miss_, kLeastTail));
    if (median > 0) tail_ratio_ = std::clamp(tail / median, 1.0, kLargestTailRatio);
}

double Stream::expected_miss() const {
    if (recent_count_ < kLook || bound_ns_ <= 0) return 0;
    std::array<int64_t, kLook> sorted = recent_;
    std::sort(sorted.begin(), sorted.end());
    // Quartiles of one deviation: a few outliers do not move them.
    const auto at = [&](double share) { return static_cast<double>(sorted[static_cast<size_t>(share * (kLook - 1))]); };
    const double deviation = std::max(1.0, (at(0.8413) - at(0.1587)) / 2);
    const double room = (static_cast<double>(bound_ns_) - at(0.5)) / deviation;
    return 0.5 * std::erfc(room / std::sqrt(2.0));
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

double Stream::recent_median(size_t n) const {
    n = std::min({n, recent_count_, kRecent});
    if (n == 0) return 0;
    std::array<int64_t, kRecent> sorted{};
    for (size_t i = 0; i < n; ++i) sorted[i] = recent_[(recent_next_ + kLook - 1 - i) % kLook];
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(n / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<double>(*middle);
}

}  // namespace vuda::tuner
