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

// The compute side of all levels.  Loops over the levels without a branch, one for each quantity, which the compiler
// makes vectors of: with 64 processes this is most of what a tick may cost.
double Tuner::Impl::sum_up(Session& session) {
    const size_t count = forecasts_.size();
    const ComputeTarget& target = session.target;
    const Estimates& latency = session.latency.all(now_);
    const Estimates& rate = session.rate.all(now_);
    const double latency_factor = session.latency.factor(), rate_factor = session.rate.factor();
    const bool latency_known = session.latency.best_known() > 0;
    const double best = session.rate.best_known();
    const auto least_known = [count](std::vector<Knowledge>& least, const std::vector<Knowledge>& of) {
        Knowledge* const out = least.data();
        const Knowledge* const known = of.data();
        for (size_t level = 0; level < count; ++level)
            out[level] = known[level] < out[level] ? known[level] : out[level];
    };
    double* const rates = rates_.data();
    for (size_t level = 0; level < count; ++level) rates[level] = rate_factor * rate.speed[level];
    if (session.paced) {
        const double now = session.rate_now, able = kPacedUse * 1e9 * latency_factor;
        for (size_t level = 0; level < count; ++level) {
            const double able_here = latency_known ? able * latency.speed[level] : HUGE_VAL;
            const double guess = able_here < now ? able_here : now;
            rates[level] = rate.knowledge[level] == Knowledge::kMeasured ? rates[level] : guess;
        }
    } else {
        least_known(sums_.rated, rate.knowledge);
    }
    // Speed against what the target needs; the forecast is the inverse of the least.
    const auto need = [&](const double* speed, double per_speed) {
        double* const out = sums_.speed.data();
        for (size_t level = 0; level < count; ++level) {
            const double one = per_speed * speed[level];
            out[level] = one < out[level] ? one : out[level];
        }
    };
    if (target.latency_ms > 0) {
        least_known(sums_.judged, latency.knowledge);
        const double here = tail_here(session.stream), speed = sums_.speed[level_];
        if (latency_known)
            need(latency.speed.data(), latency_factor * target.latency_ms * 1e6 / session.stream.tail_ratio());
        if (here > 0) sums_.speed[level_] = std::min(speed, target.latency_ms * 1e6 / here);
    }
    if (target.throughput > 0) {
        least_known(sums_.judged, rate.knowledge);
        if (best > 0) need(rates, 1 / target.throughput);
    }
    if (best > 0) {
        const double worth = session.weight / best;
        double* const out = sums_.rate.data();
        for (size_t level = 0; level < count; ++level) out[level] += worth * rates[level];
    }
    return session.weight;
}

// Where the tuner is and holds its target, the tail itself is there to be seen.  A tail over the bound is not compared
// with what is forecast for others: the load may have just grown.
double Tuner::Impl::tail_here(const Stream& stream) {
    const double tail = stream.detector().alarm() ? 0 : stream.measured_tail();
    return tail <= static_cast<double>(stream.bound_ns()) ? tail : 0;
}

void Tuner::Impl::forecast_all() {
    const size_t count = forecasts_.size();
    sums_.speed.assign(count, HUGE_VAL);
    sums_.rate.assign(count, 0);
    sums_.judged.assign(count, Knowledge::kMeasured);
    sums_.rated.assign(count, Knowledge::kMeasured);
    rates_.resize(count);
    double weights = 0;
    for (auto& [id, session] : sessions_) {
        if (session.counted && session.stream.fresh(now_)) weights += sum_up(session);
    }
    const Estimates& frames = frame_speed_.all(now_);
    const Estimates& frame_rates = frame_rate_.all(now_);
    const double frame_best = frame_speed_.best_known();
    const bool frames_bound = graphics_target_.any() && graphics_usable();
    const double frame_tail = frames_.tail_ratio() / (graphics_target_.frame_ms * 1e6);
    const double here = tail_here(frames_);
    const double alone = settings_.graphics_alone_fps > 0 ? settings_.graphics_alone_fps : frame_rate_.best_known();
    for (size_t level = 0; level < count; ++level) {
        Forecast& f = forecasts_[level] = {};
        const double frame = frame_speed_.factor() * frames.speed[level];
        const Knowledge frame_known = frames.knowledge[level];
        f.compute = 1 / sums_.speed[level];
        Knowledge judged = sums_.judged[level];
        if (frames_bound) {
            judged = std::min(judged, frame_known);
            if (frame > 0)
                f.graphics =
                    level == level_ && here > 0 ? here / (graphics_target_.frame_ms * 1e6) : frame_tail / frame;
        }
        f.judged = judged == Knowledge::kMeasured;
        f.guessed = judged <= Knowledge::kGuess;
        f.measured = f.judged && sums_.rated[level] == Knowledge::kMeasured;
        if (weights > 0) f.utility = sums_.rate[level] / weights;
        if (decision_.regime == Regime::kCompute) {
            f.utility = frame_best > 0 ? frame / frame_best : 0;
            f.measured &= frame_best == 0 || frame_known == Knowledge::kMeasured;
        } else if (decision_.regime == Regime::kNone && alone > 0) {
            f.utility += frame_rate_.factor() * frame_rates.speed[level] / alone;
        }
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
