// A target is missed: where to go, at once.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"
#include "tuner/rules.h"

namespace vuda::tuner {

void Tuner::Impl::ban_current(const Alarm& alarm) {
    Ban& ban = bans_[level_];
    const bool proven = ban.good_for >= kProven;
    ban.good_for = 0;
    ban.until = now_ + doubled(proven ? kBanProven : kBan, ban.fails, kLongestBan);
    ban.early = std::min(ban.until, now_ + doubled(kEarly, 2 * ban.fails, kLongestBan));
    ban.fails = std::min(ban.fails + 1, kMostFails);
    ban.graphics_factor = alarm.graphics ? frame_speed_.factor() : 0;
    ban.session = alarm.session;
    const auto it = sessions_.find(alarm.session);
    ban.compute_factor = it != sessions_.end() ? it->second.latency.factor() : 0;
    if (!probing_) return;
    probing_ = false;
    probe_tokens_ -= std::max(kProbeCost, static_cast<double>(frames_.detector().misses()));
}

size_t Tuner::Impl::feasible_level() const {
    size_t best = kNoLevel;
    double best_score = 0;
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        if (level == level_ || banned(level) || !holds(level, kRoomCut, kRoomGuess)) continue;
        const Forecast& f = forecasts_[level];
        // Where it was good before is safer than where it was never measured; of those the nearest.
        const double score =
            f.judged ? 1000 + f.utility : -std::abs(static_cast<double>(level) - static_cast<double>(level_));
        if (best != kNoLevel && score <= best_score) continue;
        best = level;
        best_score = score;
    }
    return best;
}

size_t Tuner::Impl::search_level() const {
    if (searched_ >= kMostSearched) return kNoLevel;
    // Not where all that is known says that it would be much worse than here.
    const double hopeless = kHopeless * std::max(1.0, forecasts_[level_].worst());
    size_t best = kNoLevel;
    double best_score = 0;
    size_t before = kNoLevel;  // nearest measured level below
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        const Forecast& f = forecasts_[level];
        if (f.judged) before = level;
        if (f.judged || level == level_ || banned(level) || f.worst() > hopeless) continue;
        size_t after = level + 1;
        while (after < forecasts_.size() && !forecasts_[after].judged) ++after;
        const size_t down = before == kNoLevel ? forecasts_.size() : level - before;
        const size_t up = after == forecasts_.size() ? forecasts_.size() : after - level;
        const double score = kSpread * static_cast<double>(std::min(down, up)) - f.worst();
        if (best != kNoLevel && score <= best_score) continue;
        best = level;
        best_score = score;
    }
    return best;
}

std::pair<double, double> Tuner::Impl::priorities(size_t level) const {
    double graphics = forecasts_[level].graphics, compute = forecasts_[level].compute;
    const Ban& ban = bans_[level];
    if (now_ < ban.until) {
        double& failed = ban.graphics_factor > 0 ? graphics : compute;
        failed = std::max(failed, kMissed);
    }
    return settings_.priority == Priority::kGraphicsFirst ? std::pair(graphics, compute) : std::pair(compute, graphics);
}

// The side that goes first has failed at this level, and that still counts.
bool Tuner::Impl::failed_first(size_t level) const {
    const Ban& ban = bans_[level];
    return now_ < ban.until && (ban.graphics_factor > 0) == (settings_.priority == Priority::kGraphicsFirst);
}

// No level holds all targets, and none that was measured holds the one that goes first: another may.
size_t Tuner::Impl::search_first_priority() const {
    if (searched_ >= kMostSearched) return kNoLevel;
    const bool graphics_first = settings_.priority == Priority::kGraphicsFirst;
    size_t best = kNoLevel;
    double least_judged = HUGE_VAL;
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        if (forecasts_[level].judged) least_judged = std::min(least_judged, priorities(level).first);
    }
    if (least_judged <= 1) return kNoLevel;
    for (size_t i = 0; i < forecasts_.size(); ++i) {
        // From the end where that side has most.
        const size_t level = graphics_first ? i : forecasts_.size() - 1 - i;
        if (forecasts_[level].judged || priorities(level).first > kNear * least_judged) continue;
        // Equals: the nearer one, and best of all this very level, which is not judged yet.
        if (best == kNoLevel || priorities(level).first <= kSame * priorities(best).first)
            best = level == level_ || best != level_ ? level : best;
    }
    return best;
}

size_t Tuner::Impl::compromise_level() const {
    const auto ratios = [&](size_t level) {
        // From a level that holds the first target to others with some room only, or noise would send it to and fro.
        const double room = level == level_ || priorities(level_).first > 1 ? 1 : 1 + kRoomKnown;
        const auto [first, second] = priorities(level);
        return std::pair(std::max(1.0, first * room), std::max(1.0, second * room));
    };
    double least_first = HUGE_VAL, least_second = HUGE_VAL;
    // What was never measured counts as forecast: going there measures it.
    const auto known = [&](size_t level) { return level == level_ || forecasts_[level].worst() > 0; };
    const auto near_best = [](double value, double best) { return best <= 1 ? value <= 1 : value <= best * kSame; };
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        if (known(level)) least_first = std::min(least_first, ratios(level).first);
    }
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        if (known(level) && near_best(ratios(level).first, least_first))
            least_second = std::min(least_second, ratios(level).second);
    }
    size_t best = level_;
    bool found = false;
    for (size_t level = 0; level < forecasts_.size(); ++level) {
        const auto [first, second] = ratios(level);
        if (!known(level) || !near_best(first, least_first) || !near_best(second, least_second)) continue;
        if (level == level_) return level_;
        if (found && forecasts_[level].utility <= forecasts_[best].utility) continue;
        best = level;
        found = true;
    }
    return best;
}

// A burst of load that will pass by itself, as others did.
bool Tuner::Impl::waits_for_the_end(const Alarm& alarm) {
    if (alarm.graphics == alarm.compute || alarm.kind == TargetKind::kThroughput || infeasible_) return false;
    Session* session = alarm.graphics ? nullptr : &sessions_.at(alarm.session);
    Stream& stream = alarm.graphics ? frames_ : session->stream;
    const LevelCurve& curve = alarm.graphics ? frame_speed_ : session->latency;
    const bool first = !stream.bursts().waiting();
    if (!stream.bursts().wait(static_cast<double>(stream.bound_ns()) * curve.shape(level_), now_)) return false;
    if (first) {
        Event wait = event(EventKind::kWait);
        describe_alarm(alarm, wait);
        push(wait);
    }
    return true;
}

void Tuner::Impl::handle_alarm(const Alarm& alarm) {
    last_alarm_ = now_;
    const bool protected_side = settings_.priority == Priority::kGraphicsFirst ? alarm.graphics : alarm.compute;
    // Of those that have spoken only: what grows in the others is evidence of its own.
    const auto start_over = [&] {
        if (frames_.detector().alarm()) frames_.detector().reset();
        for (auto& [id, session] : sessions_) {
            if (session.stream.detector().alarm()) session.stream.detector().reset();
        }
    };
    if (infeasible_ && !protected_side &&
        now_ - level_since_ < doubled(kCompromiseDwell, reversal_steps_, kLongestDwell * 4)) {
        start_over();
        return;
    }
    if (waits_for_the_end(alarm)) {
        start_over();
        return;
    }
    Event why = event(EventKind::kLevel);
    describe_alarm(alarm, why);
    if (!infeasible_ || (protected_side && !failed_first(level_))) ban_current(alarm);
    forecast_all();
    // While frames are missing, nobody knows what a raise would do to them.
    const bool frames_missing = graphics_target_.any() && graphics_usable() && !frames_.fresh(now_);

    why.cause = alarm.graphics ? Cause::kGraphicsMiss : Cause::kComputeMiss;
    size_t to = feasible_level();
    if (to == kNoLevel && !infeasible_) {
        to = search_level();
        why.cause = Cause::kSearch;
        if (to != kNoLevel) ++searched_;
    }
    if (to == kNoLevel && !infeasible_) {
        to = search_first_priority();
        if (to != kNoLevel) ++searched_;
    }
    if (to == kNoLevel) {
        if (!infeasible_) infeasible_since_ = now_;
        infeasible_ = true;
        to = compromise_level();
        why.cause = Cause::kCompromise;
    } else if (infeasible_) {
        infeasible_ = false;
        searched_ = 0;
    }
    if (to == level_ || (frames_missing && to > level_)) {
        start_over();
        return;
    }
    describe_expected(to, why);
    move(to, why);
}

// Not missed yet, but it will be: goes to where there is more room, if that is known or expected.
void Tuner::Impl::leave_tight_level() {
    Alarm alarm;
    double miss = 0;
    if (frames_.take_tight() && graphics_target_.any()) {
        alarm.graphics = true;
        miss = frames_.expected_miss();
    }
    for (auto& [id, session] : sessions_) {
        if (!session.stream.take_tight() || session.target.latency_ms <= 0 || alarm.graphics || alarm.compute) continue;
        alarm.compute = true;
        alarm.session = id;
        alarm.kind = TargetKind::kLatency;
        miss = session.stream.expected_miss();
    }
    if (infeasible_ || (!alarm.graphics && !alarm.compute)) return;
    forecast_all();
    const size_t to = feasible_level();
    if (to == kNoLevel) return;
    Event why = event(EventKind::kLevel);
    why.cause = Cause::kTight;
    describe_alarm(alarm, why);
    why.misses = why.samples = 0;
    why.observed_miss = miss;
    ban_current(alarm);
    describe_expected(to, why);
    move(to, why);
}

}  // namespace vuda::tuner
