// What the samples say: rates, who is active, what the present level brings, and whether a target is missed.
#include <algorithm>

#include "tuner/impl.h"

namespace vuda::tuner {
namespace {

constexpr TimeNs kObserveEvery = 100 * kMs;
constexpr size_t kFewSessions = 8;
constexpr TimeNs kRateOver = kSecond;          // a floor is judged on the last second
constexpr double kRateSteps = 6;               // or on this many steps of the floor's pace, when that takes longer
constexpr TimeNs kIdleAfter = 2 * kSecond;     // a process without samples for longer claims no share
constexpr double kPaced = 0.85;                // steps under way on average, below which the process paces itself
constexpr double kFarBelow = 0.85;             // of the floor: no need to watch for a whole second
constexpr TimeNs kGraphicsGone = 5 * kSecond;  // without a frame for longer, the frame target binds nobody

}  // namespace

void Tuner::Impl::refresh_rates(Session& session) {
    const Stream& stream = session.stream;
    const double floor = session.target.throughput;
    const TimeNs wanted = floor > 0 ? static_cast<TimeNs>(std::min(1e9 * kRateSteps / floor, 3.9e9)) : 0;
    const RateMeter::Rate rate = stream.rate(now_, std::max(kRateOver, wanted));
    session.rate_now = rate.per_second;
    const double median = stream.recent_median();
    session.paced = median > 0 && rate.count >= 8 && rate.per_second * median / 1e9 < kPaced;
    if (floor <= 0) return;
    session.rate_low = false;
    const double over = static_cast<double>(rate.over) / 1e9;
    const double expected = floor * over;
    // One more step than was counted: the one that has not ended yet.
    const double at_most = over > 0 ? std::max(rate.per_second, (rate.count + 1) / over) : floor;
    const bool far = expected >= kRateSteps && over >= 0.3 && at_most < kFarBelow * floor;
    const bool below = expected >= kRateSteps && over >= 0.9 && rate.per_second < 0.98 * floor && at_most < floor;
    if (!stream.fresh(now_) || !(far || below)) {
        session.low_since = -1;
        return;
    }
    if (session.low_since < 0) session.low_since = now_;
    session.rate_low = far || now_ - session.low_since >= 100 * kMs;
}

void Tuner::Impl::refresh_sessions() {
    bool changed = false;
    for (auto& [id, session] : sessions_) {
        session.stream.advance(now_);
        refresh_rates(session);
        const TimeNs last = session.stream.last();
        const bool counted =
            now_ - std::max(last, session.added) < kIdleAfter || (last >= 0 && session.stream.fresh(now_));
        changed |= counted != session.counted;
        session.counted = counted;
    }
    if (changed) update_shares();
}

void Tuner::Impl::update_shares() {
    claims_.clear();
    for (auto& [id, session] : sessions_)
        claims_.push_back({id, session.weight, session.counted || session.share == 0});
    divide(ladder_.tpcs[level_], claims_, shares_);
    if (shares_ == decision_.shares) return;
    bool divided = shares_.size() != decision_.shares.size();
    for (size_t i = 0; i < shares_.size(); ++i) {
        Session& session = sessions_.at(shares_[i].session);
        session.counted = shares_[i].counted;
        const double share = shares_[i].share;
        if (session.share == share) continue;
        divided = true;
        if (session.share > 0) {
            session.latency.scale(share / session.share);
            session.rate.scale(share / session.share);
            session.stream.begin_transient(now_);
        }
        session.share = share;
    }
    std::swap(decision_.shares, shares_);
    decision_.changed = true;
    if (divided) {
        Event shares = event(EventKind::kShares);
        shares.samples = static_cast<uint64_t>(std::count_if(decision_.shares.begin(), decision_.shares.end(),
                                                             [](const SessionShare& s) { return s.counted; }));
        push(shares);
    }
}

bool Tuner::Impl::graphics_usable() const {
    return frames_.fresh(now_) || (frames_.last() >= 0 && now_ - frames_.last() < kGraphicsGone);
}

Tuner::Impl::Alarm Tuner::Impl::alarms() {
    Alarm alarm;
    if (graphics_target_.any() && frames_.fresh(now_) && frames_.detector().alarm()) {
        alarm.graphics = true;
        frame_alarm_ = now_;
    }
    double worst = 0;
    for (auto& [id, session] : sessions_) {
        if (!session.stream.fresh(now_)) continue;
        const auto note = [&, session_id = id](TargetKind kind, double ratio) {
            alarm.compute = true;
            if (ratio <= worst) return;
            worst = ratio;
            alarm.session = session_id;
            alarm.kind = kind;
        };
        if (session.target.latency_ms > 0 && session.stream.detector().alarm()) {
            session.latency_alarm = now_;
            note(TargetKind::kLatency,
                 std::max(1.0, session.stream.recent_median() / (session.target.latency_ms * 1e6)));
        }
        if (session.rate_low) {
            session.rate_alarm = now_;
            note(TargetKind::kThroughput, session.rate_now > 0 ? session.target.throughput / session.rate_now : 1e9);
        }
    }
    return alarm;
}

// Not by the curve's factor, which follows the few samples of an alarm.
void Tuner::Impl::watch_for_bursts(Stream& stream, const LevelCurve& curve) const {
    const double shape = curve.shape(level_);
    stream.set_shape(shape);
    if (shape > 0) stream.bursts().observe(1 / stream.recent_median() / shape, now_);
}

void Tuner::Impl::observe(const Alarm& alarm) {
    const bool due = observed_ < 0 || now_ - observed_ >= kObserveEvery;
    if (!due && !alarm.graphics && !alarm.compute) return;
    // An alarm is urgent: with many processes it is not the time to look at all of them, which is done often enough.
    const bool everything = due || sessions_.size() <= kFewSessions;
    if (everything) observed_ = now_;
    busy_ = true;
    // Of an alarm only the samples that raised it: older ones are from before the load grew.
    const auto evidence = [](const Stream& stream) {
        return static_cast<size_t>(std::clamp<uint64_t>(stream.detector().samples(), 3, Stream::kRecent));
    };
    const auto speed_of = [this](const Stream& stream, const LevelCurve& curve) {
        const double speed = 1 / stream.recent_median();
        return curve.doubtful(level_, speed) ? 1 / stream.recent_median(Stream::kLong) : speed;
    };
    bool compute_active = false;
    for (auto& [id, session] : sessions_) compute_active |= session.counted && session.stream.fresh(now_);
    // Without compute, graphics has the whole GPU at any level: nothing to learn.
    if (compute_active && frames_.fresh(now_) && (everything || alarm.graphics)) {
        if (alarm.graphics) {
            frame_speed_.observe_miss(level_, 1 / frames_.recent_median(evidence(frames_)), now_);
        } else if (frames_.settled_count() >= 6) {
            if (frame_speed_.observe(level_, speed_of(frames_, frame_speed_), now_)) frames_.load_changed();
        }
        if (frames_.settled_count() >= 6) watch_for_bursts(frames_, frame_speed_);
        const RateMeter::Rate rate = frames_.rate(now_, kSecond);
        if (rate.count >= 6 && rate.over >= 250 * kMs) frame_rate_.observe(level_, rate.per_second, now_);
    }
    for (auto& [id, session] : sessions_) {
        Stream& stream = session.stream;
        if (!stream.fresh(now_)) continue;
        if (!everything && !stream.detector().alarm() && !session.rate_low) continue;
        if (stream.settled_count() >= 3 && stream.detector().alarm() && session.target.latency_ms > 0) {
            session.latency.observe_miss(level_, 1 / stream.recent_median(evidence(stream)), now_);
        } else if (stream.settled_count() >= 4) {
            if (session.latency.observe(level_, speed_of(stream, session.latency), now_)) session.stream.load_changed();
        }
        if (stream.settled_count() >= 4) watch_for_bursts(stream, session.latency);
        const RateMeter::Rate rate = stream.rate(now_, kSecond);
        if (session.rate_low && session.rate_now > 0) {
            session.rate.observe_miss(level_, session.rate_now, now_);
        } else if (rate.count >= 4 && rate.over >= 300 * kMs) {
            session.rate.observe(level_, rate.per_second, now_);
        } else if (const RateMeter::Rate slow = stream.rate(now_, 4 * kSecond);
                   slow.count >= 3 && slow.over >= kSecond) {
            session.rate.observe(level_, slow.per_second, now_);
        }
    }
}

}  // namespace vuda::tuner
