// Changing the level, and saying why.
#include <algorithm>

#include "tuner/impl.h"
#include "tuner/rules.h"

namespace vuda::tuner {

void Tuner::Impl::move(size_t to, Event why) {
    why.old_level = ladder_.tpcs[level_];
    why.new_level = ladder_.tpcs[to];
    push(why);
    const int direction = to > level_ ? 1 : -1;
    ++counters_.level_changes;
    if (last_direction_ != 0 && direction != last_direction_) {
        ++counters_.reversals;
        reversal_steps_ = std::min<uint32_t>(reversal_steps_ + 1, 7);
        last_reversal_ = now_;
    }
    last_direction_ = direction;
    bans_[level_].left = now_;
    probing_ = why.cause == Cause::kProbe;
    level_ = to;
    level_since_ = now_;
    decision_.level = ladder_.tpcs[level_];
    decision_.index = level_;
    decision_.changed = true;
    frames_.begin_transient(now_);
    // Nothing forced this change, so the load is as it was and what differs is the level's doing.
    const bool calm = why.cause == Cause::kSlack || why.cause == Cause::kProbe || why.cause == Cause::kMargin ||
                      why.cause == Cause::kSweep || why.cause == Cause::kBest;
    frame_speed_.enter(level_, now_, calm);
    frame_rate_.enter(level_, now_, calm);
    for (auto& [id, session] : sessions_) {
        session.stream.begin_transient(now_);
        session.latency.enter(level_, now_, calm);
        session.rate.enter(level_, now_, calm);
        session.rate_low = false;
        session.low_since = -1;
    }
    update_shares();
}

void Tuner::Impl::describe_alarm(const Alarm& alarm, Event& event) const {
    const auto durations = [&](const Stream& stream, double bound_ms, double allowed) {
        event.bound = bound_ms;
        event.allowed_miss = allowed;
        event.misses = stream.detector().misses();
        event.samples = stream.detector().samples();
        event.observed =
            stream.recent_median(std::max<uint64_t>(3, std::min<uint64_t>(event.samples, Stream::kRecent))) / 1e6;
    };
    if (alarm.graphics) {
        event.target = TargetKind::kFrame;
        durations(frames_, graphics_target_.frame_ms, graphics_target_.miss);
        return;
    }
    const Session& session = sessions_.at(alarm.session);
    event.session = alarm.session;
    event.target = alarm.kind;
    if (alarm.kind == TargetKind::kLatency) {
        durations(session.stream, session.target.latency_ms, session.target.latency_miss);
    } else {
        event.bound = session.target.throughput;
        event.observed = session.rate_now;
    }
}

void Tuner::Impl::describe_expected(size_t to, Event& event) const {
    const auto ms = [](const Estimate& e) { return e.speed > 0 ? 1 / e.speed / 1e6 : 0.0; };
    const auto it = sessions_.find(event.session);
    switch (event.target) {
        case TargetKind::kFrame: event.expected = ms(frame_speed_.at(to, now_)); break;
        case TargetKind::kLatency:
            if (it != sessions_.end()) event.expected = ms(it->second.latency.at(to, now_));
            break;
        case TargetKind::kThroughput:
            if (it != sessions_.end()) event.expected = it->second.rate.at(to, now_).speed;
            break;
    }
    event.utility_old = forecasts_[level_].utility;
    event.utility_new = forecasts_[to].utility;
}

void Tuner::Impl::describe_slack(Event& event) const {
    if (graphics_target_.any()) {
        event.target = TargetKind::kFrame;
        event.bound = graphics_target_.frame_ms;
        event.allowed_miss = graphics_target_.miss;
        event.observed = frames_.recent_median() / 1e6;
        return;
    }
    for (const auto& [id, session] : sessions_) {
        if (!session.target.any()) continue;
        event.session = id;
        event.target = session.target.latency_ms > 0 ? TargetKind::kLatency : TargetKind::kThroughput;
        event.bound = session.target.latency_ms > 0 ? session.target.latency_ms : session.target.throughput;
        event.allowed_miss = session.target.latency_miss;
        event.observed = session.target.latency_ms > 0 ? session.stream.recent_median() / 1e6 : session.rate_now;
        return;
    }
}

}  // namespace vuda::tuner
