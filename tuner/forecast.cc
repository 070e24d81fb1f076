// What each level would bring, by what was learned.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"

namespace vuda::tuner {
namespace {

constexpr double kLighter = 0.92;      // of the load at which a level failed: worth another try before its ban ends
constexpr double kMarginWorth = 0.02;  // in units of utility, for a quarter of room to the targets
constexpr double kMarginCap = 0.25;
constexpr double kPacedUse = 0.9;  // of its time that a process which paces itself can fill before it falls behind

}  // namespace

Regime Tuner::Impl::regime() const {
    const bool compute =
        std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second.target.any(); });
    if (graphics_target_.any()) return compute ? Regime::kBoth : Regime::kGraphics;
    return compute ? Regime::kCompute : Regime::kNone;
}

void Tuner::Impl::forecast_all() {
    const size_t count = forecasts_.size();
    forecasts_.assign(count, {});
    for (Forecast& f : forecasts_) {
        f.judged = f.measured = true;
        f.compute = HUGE_VAL;
    }
    const auto take = [](Forecast& f, const Estimate& estimate) {
        f.judged &= estimate.knowledge == Knowledge::kMeasured;
        f.guessed |= estimate.knowledge == Knowledge::kGuess || estimate.knowledge == Knowledge::kNone;
        return estimate.speed;
    };
    // Compute first, as a sum of rates in `utility`.
    double weights = 0;
    for (auto& [id, session] : sessions_) {
        if (!session.counted || !session.stream.fresh(now_)) continue;
        const ComputeTarget& target = session.target;
        // Speed against what the target needs; the forecast is the inverse of the least.
        const double per_speed = target.latency_ms * 1e6 / session.stream.tail_ratio();
        const double per_rate = target.throughput > 0 ? 1 / target.throughput : 0;
        const double best = session.rate.best_known();
        const double worth = best > 0 ? session.weight / best : 0;
        session.latency.all(now_, estimates_);
        session.rate.all(now_, more_estimates_);
        for (size_t level = 0; level < count; ++level) {
            Forecast& f = forecasts_[level];
            const Estimate& latency = estimates_[level];
            Estimate& rate = more_estimates_[level];
            const bool rate_measured = rate.knowledge == Knowledge::kMeasured;
            if (session.paced && !rate_measured) {
                rate.speed = session.rate_now;
                if (latency.speed > 0) rate.speed = std::min(rate.speed, kPacedUse * latency.speed * 1e9);
            }
            if (target.latency_ms > 0) {
                if (const double speed = take(f, latency); speed > 0)
                    f.compute = std::min(f.compute, speed * per_speed);
            }
            if (target.throughput > 0) {
                if (const double speed = take(f, rate); speed > 0) f.compute = std::min(f.compute, speed * per_rate);
            }
            f.utility += worth * rate.speed;
            f.measured &= session.paced || rate_measured;
        }
        weights += session.weight;
    }
    frame_speed_.all(now_, estimates_);
    const double frame_best = frame_speed_.best_known();
    const bool frames_bound = graphics_target_.any() && graphics_usable();
    const double frame_tail = frames_.tail_ratio() / (graphics_target_.frame_ms * 1e6);
    if (decision_.regime == Regime::kNone) frame_rate_.all(now_, more_estimates_);
    const double alone = settings_.graphics_alone_fps > 0 ? settings_.graphics_alone_fps : frame_rate_.best_known();
    for (size_t level = 0; level < count; ++level) {
        Forecast& f = forecasts_[level];
        const Estimate& frame = estimates_[level];
        f.compute = 1 / f.compute;
        if (frames_bound) {
            if (const double speed = take(f, frame); speed > 0) f.graphics = frame_tail / speed;
        }
        if (weights > 0) f.utility /= weights;
        if (decision_.regime == Regime::kCompute) {
            f.utility = frame_best > 0 ? frame.speed / frame_best : 0;
            f.measured &= frame_best == 0 || frame.knowledge == Knowledge::kMeasured;
        } else if (decision_.regime == Regime::kNone && alone > 0) {
            f.utility += more_estimates_[level].speed / alone;
        }
        f.measured &= f.judged;
        if (f.worst() > 0) f.utility += kMarginWorth / kMarginCap * std::clamp(1 - f.worst(), 0.0, kMarginCap);
    }
}

bool Tuner::Impl::banned(size_t level) const {
    const Ban& ban = bans_[level];
    if (now_ >= ban.until) return false;
    if (now_ < ban.early) return true;
    if (ban.graphics_factor > 0) return frame_speed_.factor() * kLighter < ban.graphics_factor;
    const auto it = sessions_.find(ban.session);
    return it != sessions_.end() && it->second.latency.factor() * kLighter < ban.compute_factor;
}

bool Tuner::Impl::holds(size_t level, double room_judged, double room_guessed) const {
    const Forecast& f = forecasts_[level];
    return f.worst() <= 1 - (f.judged ? room_judged : room_guessed);
}

}  // namespace vuda::tuner
