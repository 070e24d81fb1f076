// Without a target: measure the sum of normalised rates at several levels, then stay at the best.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"

namespace vuda::tuner {
namespace {

constexpr size_t kMostLevels = 9;
constexpr TimeNs kMeasure = 600 * kMs;
constexpr TimeNs kMeasureSlow = 2500 * kMs;
constexpr TimeNs kNextSweep = 60 * kSecond;  // doubles each time
constexpr TimeNs kLongestWait = 1800 * kSecond;
constexpr TimeNs kOffFor = 2 * kSecond;
constexpr double kOff = 0.2;  // change of a rate that makes what was measured doubtful
constexpr double kSweepGain = 0.02;

}  // namespace

bool Tuner::Impl::measured_here() const {
    const TimeNs here = now_ - level_since_;
    if (here < kMeasure || !frames_.fresh(now_)) return false;
    bool enough = frames_.settled_count() >= 12;
    bool active = false;
    for (const auto& [id, session] : sessions_) {
        if (!session.counted || !session.stream.fresh(now_)) continue;
        active = true;
        const RateMeter::Rate rate = session.stream.rate(now_, 4 * kSecond);
        enough &= rate.count >= 8 && rate.over >= 400 * kMs;
    }
    return active && (enough || here >= kMeasureSlow);
}

void Tuner::Impl::start_sweep() {
    sweep_levels_.clear();
    const size_t count = ladder_.tpcs.size(), shown = std::min(count, kMostLevels);
    for (size_t i = 0; i < shown; ++i) {
        const size_t level = shown == 1 ? 0 : i * (count - 1) / (shown - 1);
        if (level != level_) sweep_levels_.push_back(level);
    }
    // To the nearer end first and then to the other: two reversals at most.
    const bool down_first = level_ * 2 < count;
    std::stable_sort(sweep_levels_.begin(), sweep_levels_.end(), [&](size_t a, size_t b) {
        const bool a_first = (a < level_) == down_first, b_first = (b < level_) == down_first;
        if (a_first != b_first) return a_first;
        return a < level_ ? a > b : a < b;
    });
    std::reverse(sweep_levels_.begin(), sweep_levels_.end());  // taken from the back
    sweep_ = Sweep::kRunning;
    next_sweep_ = now_ + std::min(kLongestWait, kNextSweep << std::min<uint32_t>(sweeps_, 10));
    ++sweeps_;
}

void Tuner::Impl::sweep() {
    decision_.holding = !measured_here();
    if (decision_.holding) return;
    const double graphics = frames_.rate(now_, 2 * kSecond).per_second;
    double compute = 0;
    for (const auto& [id, session] : sessions_) compute += session.rate_now;
    if (sweep_ == Sweep::kIdle && now_ >= next_sweep_) start_sweep();
    if (sweep_ == Sweep::kDone) {
        if (sweep_graphics_ == 0) {
            sweep_graphics_ = graphics;
            sweep_compute_ = compute;
            return;
        }
        const bool off =
            std::abs(graphics / sweep_graphics_ - 1) > kOff || std::abs(compute / sweep_compute_ - 1) > kOff;
        if (!off) sweep_off_since_ = -1;
        if (off && sweep_off_since_ < 0) sweep_off_since_ = now_;
        if (off && now_ - sweep_off_since_ >= kOffFor && now_ >= next_sweep_) start_sweep();
    }
    if (sweep_ != Sweep::kRunning) return;
    forecast_all();
    Event why = event(EventKind::kLevel);
    size_t to = level_;
    if (!sweep_levels_.empty()) {
        to = sweep_levels_.back();
        sweep_levels_.pop_back();
        why.cause = Cause::kSweep;
    } else {
        for (size_t level = 0; level < forecasts_.size(); ++level) {
            if (!forecasts_[level].measured) continue;
            if (forecasts_[level].utility > forecasts_[to].utility + (to == level_ ? kSweepGain : 0)) to = level;
        }
        why.cause = Cause::kBest;
        sweep_ = Sweep::kDone;
        sweep_graphics_ = sweep_compute_ = 0;
        sweep_off_since_ = -1;
        if (to == level_) return;
    }
    why.observed = graphics;
    why.expected = compute;
    why.utility_old = forecasts_[level_].utility;
    why.utility_new = forecasts_[to].utility;
    move(to, why);
}

}  // namespace vuda::tuner
