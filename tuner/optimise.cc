// No target is missed: slowly to where there is more, with room to spare.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"
#include "tuner/rules.h"

namespace vuda::tuner {

void Tuner::Impl::credit_good_time() {
    const TimeNs step = now_ - good_credited_;
    good_credited_ = now_;
    Ban& ban = bans_[level_];
    if (!infeasible_ && frames_.settled_since() >= 0) {
        const TimeNs before = ban.good_for / kForgiveEvery;
        ban.good_for += step;
        if (ban.good_for / kForgiveEvery > before && ban.fails > 0) --ban.fails;
    }
    if (reversal_steps_ > 0 && now_ - last_reversal_ >= kForgiveEvery) {
        --reversal_steps_;
        last_reversal_ = now_;
    }
    if (target_changes_ > 0 && now_ - target_changed_ >= 5 * kSecond) {
        --target_changes_;
        target_changed_ = now_;
    }
    double allowed =
        graphics_target_.any() ? graphics_target_.miss * static_cast<double>(counters_.frames - tokens_frames_) : 0;
    tokens_frames_ = counters_.frames;
    if (!graphics_target_.any()) {
        for (const auto& [id, session] : sessions_)
            allowed =
                std::max(allowed, session.target.latency_miss * session.rate_now * static_cast<double>(step) / 1e9);
    }
    const double refill = std::max(kProbeShare * allowed, kProbeRefill * static_cast<double>(step) / 1e9);
    probe_tokens_ = std::min(kProbeBudget, probe_tokens_ + refill);
}

bool Tuner::Impl::affords_bursts(size_t level) const {
    const auto affords = [&](const Stream& stream, const LevelCurve& curve) {
        const double shape = curve.at(level, now_).speed / curve.factor();
        return stream.bursts().affords(static_cast<double>(stream.bound_ns()) * shape, kBurstShare);
    };
    if (graphics_target_.any() && !affords(frames_, frame_speed_)) return false;
    return std::all_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        const Session& session = entry.second;
        return session.target.latency_ms <= 0 || affords(session.stream, session.latency);
    });
}

size_t Tuner::Impl::better_known() const {
    size_t best = kNoLevel;
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        const Forecast& f = forecasts_[level];
        if (level == level_ || !f.measured || banned(level) || !holds(level, kRoomKnown, kRoomKnown)) continue;
        if (!affords_bursts(level)) continue;
        if (f.utility <= forecasts_[best == kNoLevel ? level_ : best].utility + (best == kNoLevel ? kGain : 0))
            continue;
        best = level;
    }
    return best;
}

size_t Tuner::Impl::better_probe() const {
    if (probe_tokens_ < kProbeCost) return kNoLevel;
    const double slack = 1 - forecasts_[level_].worst();
    if (slack < kProbeSlackLine) return kNoLevel;
    const size_t stride = std::max<size_t>(1, forecasts_.size() / 8);
    size_t best = kNoLevel;
    double best_score = 0;
    for (size_t level = level_ - std::min(level_, stride); level <= std::min(level_ + stride, forecasts_.size() - 1);
         ++level) {
        const Forecast& f = forecasts_[level];
        if (level == level_ || banned(level) || f.utility <= forecasts_[level_].utility + kGain) continue;
        if (!affords_bursts(level)) continue;
        const double distance = std::abs(static_cast<double>(level) - static_cast<double>(level_));
        if (f.judged && f.worst() > 1 - kRoomKnown) {
            // Known to fail, but that was long ago.
            if (bans_[level].fails == 0 || now_ < bans_[level].until || slack < kProbeSlack || f.worst() > kRetryWorst)
                continue;
        } else if (f.worst() > 1 - kRoomCut) {
            // A forecast from few levels, or from far ones, may be much too dark: the next step is worth a try.
            const size_t beyond =
                level > level_ ? std::min(level + 1, forecasts_.size() - 1) : level - std::min<size_t>(level, 1);
            const bool vague = f.guessed || !forecasts_[beyond].judged || slack >= kProbeSlackWide;
            if (!vague || distance > 1 || slack < kProbeSlack) continue;
        }
        // The farthest that is expected to hold; a step into the unknown is a short one.
        const double score = f.worst() > 1 ? -distance : distance;
        if (best != kNoLevel && score <= best_score) continue;
        best = level;
        best_score = score;
    }
    return best;
}

size_t Tuner::Impl::more_margin() const {
    const double room = 1 - forecasts_[level_].worst();
    if (room >= kTight || now_ - level_since_ < doubled(kMarginDwell, reversal_steps_, kLongestDwell * 4))
        return kNoLevel;
    size_t best = kNoLevel;
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        const Forecast& f = forecasts_[level];
        if (level == level_ || banned(level) || f.guessed || (!f.measured && probe_tokens_ < kProbeCost)) continue;
        if (1 - f.worst() < room + kMarginStep || f.utility < forecasts_[level_].utility + kMarginGain) continue;
        if (best != kNoLevel && f.utility <= forecasts_[best].utility) continue;
        best = level;
    }
    return best;
}

void Tuner::Impl::improve_compromise() {
    bool calm = last_alarm_ < 0 || now_ - last_alarm_ >= kCalm;
    if (graphics_target_.any()) calm &= frames_.fresh(now_) && frames_.settled_count() >= 20;
    if (calm) {
        infeasible_ = false;
        searched_ = 0;
        return;
    }
    // At first every second, while the levels around it are still guesses.
    const TimeNs dwell = now_ - infeasible_since_ < kFirstCompromises
                             ? kSecond
                             : doubled(kCompromiseDwell, reversal_steps_, kLongestDwell * 4);
    if (now_ - level_since_ < dwell || !settled(false)) return;
    forecast_all();
    Event why = event(EventKind::kLevel);
    size_t to = feasible_level();
    why.cause = Cause::kSlack;
    if (to == kNoLevel) {
        to = compromise_level();
        why.cause = Cause::kCompromise;
        // The side that goes first has room: what does the next level bring the other one?
        const bool graphics_first = settings_.priority == Priority::kGraphicsFirst;
        const size_t next = graphics_first ? level_ + 1 : level_ - 1;
        if (to == level_ && next < forecasts_.size() && !forecasts_[next].judged && !failed_first(next) &&
            priorities(level_).first <= 1 - kProbeSlack && probe_tokens_ >= kProbeCost) {
            to = next;
            why.cause = Cause::kProbe;
        }
        // It is missed here, so there is little to lose: the next level for it may be better than what was learned of
        // it under another load.
        const size_t back = graphics_first ? level_ - 1 : level_ + 1;
        if (to == level_ && back < forecasts_.size() && priorities(level_).first > 1 &&
            now_ - bans_[back].left >= kForgotten) {
            to = back;
            why.cause = Cause::kProbe;
        }
    } else {
        infeasible_ = false;
        searched_ = 0;
    }
    if (to == level_) return;
    describe_slack(why);
    describe_expected(to, why);
    move(to, why);
}

// `calm`: and no evidence of misses is growing.
bool Tuner::Impl::settled(bool calm) const {
    bool active = false;
    for (const auto& [id, session] : sessions_) {
        const bool fresh = session.stream.fresh(now_);
        if (!session.counted || !fresh) {
            // What this process needs is not known, so nothing may be taken from it.
            if (session.target.any() && decision_.regime == Regime::kCompute) return false;
            continue;
        }
        const RateMeter::Rate rate = session.stream.rate(now_, 4 * kSecond);
        const bool enough =
            rate.over >= 300 * kMs && (rate.count >= 8 || (rate.count >= 3 && rate.over >= 2 * kSecond));
        if (!enough) return false;
        if (session.target.latency_ms > 0 && (session.stream.settled_count() < 4 || !session.stream.steady() ||
                                              (calm && session.stream.detector().uneasy())))
            return false;
        active = true;
    }
    if (!active) return false;
    if (!graphics_target_.any() && decision_.regime == Regime::kCompute)
        return frames_.fresh(now_) && frames_.settled_count() >= 6;
    if (graphics_target_.any()) {
        if (!frames_.fresh(now_) || !frames_.steady() || (calm && frames_.detector().uneasy())) return false;
        return frames_.settled_count() >= 20 || (frames_.settled_count() >= 8 && now_ - level_since_ >= 2 * kSecond);
    }
    return true;
}

void Tuner::Impl::optimise() {
    if (infeasible_) {
        improve_compromise();
        return;
    }
    if (now_ - level_since_ < doubled(kDwell, reversal_steps_, kLongestDwell)) return;
    if (target_changes_ > 0 && now_ - target_changed_ < doubled(kDwell / 2, target_changes_, 10 * kSecond)) return;
    if (decision_.regime == Regime::kNone) {
        sweep();
        return;
    }
    if (optimised_ >= 0 && now_ - optimised_ < (busy_ ? 2 : 1) * kOptimiseEvery) return;
    optimised_ = now_;
    busy_ = true;
    decision_.holding = !settled();
    if (decision_.holding) return;
    searched_ = 0;
    probing_ = false;
    forecast_all();
    Event why = event(EventKind::kLevel);
    size_t to = better_known();
    why.cause = Cause::kSlack;
    // Where a miss has just led to, the targets shall first be held for a while.
    const bool rescued = last_alarm_ >= 0 && last_alarm_ >= level_since_ && now_ - level_since_ < kProbeDwell;
    if (to == kNoLevel && !rescued) {
        to = better_probe();
        why.cause = Cause::kProbe;
    }
    if (to == kNoLevel) {
        to = more_margin();
        why.cause = Cause::kMargin;
    }
    if (to == kNoLevel) return;
    describe_slack(why);
    describe_expected(to, why);
    move(to, why);
}

}  // namespace vuda::tuner
