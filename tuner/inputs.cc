// Inputs: ladder, targets, sessions, samples, the clock.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"

namespace vuda::tuner {
namespace {

// Wide enough for the difference of any two TimeNs.
__extension__ typedef __int128 Wide;

// The most that one call may move the tuner's own time on: a machine that slept has not learned anything meanwhile.
constexpr TimeNs kLongestStep = 10 * kSecond;
constexpr int64_t kLongestDuration = 3600 * kSecond;
constexpr double kGraphicsFloor = 0.5;  // TPCs' worth that graphics has even when compute has all of a ladder

int64_t to_ns(double ms) { return static_cast<int64_t>(std::llround(ms * 1e6)); }

}  // namespace

Tuner::Impl::Impl(Ladder ladder, TimeNs now, size_t start, Settings settings)
    : ladder_(std::move(ladder)), settings_(settings), raw_now_(now), level_(start) {
    if (ladder_.total_tpcs == 0) ladder_.total_tpcs = ladder_.tpcs.back() + 1;
    frame_speed_.reset(graphics_capacity());
    frame_rate_.reset(graphics_capacity());
    frame_speed_.enter(level_, now_);
    frame_rate_.enter(level_, now_);
    bans_.assign(ladder_.tpcs.size(), {});
    forecasts_.assign(ladder_.tpcs.size(), {});
    frames_.begin_transient(now_);
    decision_.level = ladder_.tpcs[level_];
    decision_.index = level_;
    Event start_event = event(EventKind::kLevel);
    start_event.cause = Cause::kStart;
    start_event.old_level = 0;
    push(start_event);
}

std::vector<double> Tuner::Impl::graphics_capacity() const {
    std::vector<double> capacity;
    for (const uint32_t tpcs : ladder_.tpcs)
        capacity.push_back(std::max(kGraphicsFloor, static_cast<double>(ladder_.total_tpcs) - tpcs));
    return capacity;
}

std::vector<double> Tuner::Impl::compute_capacity() const { return {ladder_.tpcs.begin(), ladder_.tpcs.end()}; }

void Tuner::Impl::reset_curves(Session& session) const {
    session.latency.reset(compute_capacity());
    session.rate.reset(compute_capacity());
    session.latency.enter(level_, now_);
    session.rate.enter(level_, now_);
}

void Tuner::Impl::advance_clock(TimeNs now) {
    // Differences in a wider type: the caller's clock may jump from one end of its range to the other.
    const Wide step = static_cast<Wide>(now) - raw_now_;
    if (step < 0) {
        ++counters_.clock_backwards;
        Event back = event(EventKind::kClock);
        back.observed = static_cast<double>(-step) / 1e6;
        raw_now_ = now;
        back.time = now;
        // A clock that flips to and fro says so once a second, not at each call.
        if (counters_.clock_backwards == 1 || now_ - last_clock_event_ > kSecond) {
            last_clock_event_ = now_;
            push(back);
        }
        return;
    }
    raw_now_ = now;
    now_ += static_cast<TimeNs>(std::min<Wide>(step, kLongestStep));
}

Event Tuner::Impl::event(EventKind kind) const {
    Event event;
    event.kind = kind;
    event.time = raw_now_;
    event.regime = regime();
    event.old_level = event.new_level = ladder_.tpcs[level_];
    return event;
}

void Tuner::Impl::push(Event event) {
    if (events_.size() == kMaxEvents) {
        events_.pop_front();
        ++counters_.events_lost;
    }
    events_.push_back(event);
}

std::vector<Event> Tuner::Impl::take_events() {
    std::vector<Event> out(events_.begin(), events_.end());
    events_.clear();
    return out;
}

size_t Tuner::Impl::nearest(uint32_t tpcs) const {
    size_t best = 0;
    const auto distance = [&](size_t i) {
        return std::abs(static_cast<int64_t>(ladder_.tpcs[i]) - static_cast<int64_t>(tpcs));
    };
    for (size_t i = 1; i < ladder_.tpcs.size(); ++i) {
        if (distance(i) < distance(best)) best = i;
    }
    return best;
}

Status Tuner::Impl::set_ladder(Ladder ladder, TimeNs now) {
    if (Status valid = ladder.validate(); !valid) return valid;
    advance_clock(now);
    if (ladder.total_tpcs == 0) ladder.total_tpcs = ladder.tpcs.back() + 1;
    if (ladder == ladder_) return {};
    const Ladder old = std::exchange(ladder_, std::move(ladder));
    std::vector<size_t> from(ladder_.tpcs.size(), SIZE_MAX);
    for (size_t i = 0; i < from.size(); ++i) {
        const auto it = std::lower_bound(old.tpcs.begin(), old.tpcs.end(), ladder_.tpcs[i]);
        if (it != old.tpcs.end() && *it == ladder_.tpcs[i]) from[i] = static_cast<size_t>(it - old.tpcs.begin());
    }
    const uint32_t before = old.tpcs[level_];
    level_ = nearest(before);
    const auto renew = [&](LevelCurve& curve, std::vector<double> capacity) {
        const LevelCurve learned = std::exchange(curve, {});
        curve.reset(std::move(capacity));
        curve.adopt(learned, from);
        curve.enter(level_, now_);
    };
    renew(frame_speed_, graphics_capacity());
    renew(frame_rate_, graphics_capacity());
    for (auto& [id, session] : sessions_) {
        renew(session.latency, compute_capacity());
        renew(session.rate, compute_capacity());
    }
    bans_.assign(ladder_.tpcs.size(), {});
    forecasts_.assign(ladder_.tpcs.size(), {});
    sweep_ = Sweep::kIdle;
    infeasible_ = false;
    searched_ = 0;
    last_direction_ = 0;
    probing_ = false;
    Event changed = event(EventKind::kLadder);
    changed.cause = Cause::kLadder;
    changed.old_level = before;
    push(changed);
    if (ladder_.tpcs[level_] != before) {
        changed.kind = EventKind::kLevel;
        push(changed);
        ++counters_.level_changes;
        level_since_ = now_;
        note_applied(now);
    }
    decision_.level = ladder_.tpcs[level_];
    decision_.index = level_;
    update_shares();
    return {};
}

void Tuner::Impl::target_changed() {
    reported_ = -1;
    target_changes_ = std::min<uint32_t>(target_changes_ + 1, 16);
    target_changed_ = now_;
    infeasible_ = false;
    searched_ = 0;
    last_alarm_ = -1;
    sweep_ = Sweep::kIdle;
    probe_tokens_ = std::max(probe_tokens_, 4.0);
    // What failed under other targets may do now; how often it failed is not forgotten, or flapping targets would make
    // the level flap with them.
    for (Ban& ban : bans_) {
        ban.until = std::min(ban.until, now_ + kSecond);
        ban.early = std::min(ban.early, now_ + kSecond);
    }
}

Status Tuner::Impl::set_graphics_target(const GraphicsTarget& target, TimeNs now) {
    if (Status valid = target.validate(); !valid) return valid;
    advance_clock(now);
    if (target == graphics_target_) return {};
    graphics_target_ = target;
    frames_.set_bound(to_ns(target.frame_ms), target.miss);
    target_changed();
    frame_alarm_ = -1;
    Event changed = event(EventKind::kTarget);
    changed.bound = target.frame_ms;
    changed.allowed_miss = target.miss;
    push(changed);
    return {};
}

Status Tuner::Impl::set_compute_target(SessionId id, const ComputeTarget& target, TimeNs now) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return Error{Code::kNotFound, "no session " + std::to_string(id) + " is attached", {}};
    if (Status valid = target.validate(); !valid) return valid;
    advance_clock(now);
    Session& session = it->second;
    if (target == session.target) return {};
    const ComputeTarget old = std::exchange(session.target, target);
    session.stream.set_bound(to_ns(target.latency_ms), target.latency_miss);
    session.latency_alarm = session.rate_alarm = -1;
    session.low_since = -1;
    session.rate_low = false;
    target_changed();
    Event changed = event(EventKind::kTarget);
    changed.session = id;
    if (target.latency_ms != old.latency_ms || target.latency_miss != old.latency_miss) {
        changed.target = TargetKind::kLatency;
        changed.bound = target.latency_ms;
        changed.allowed_miss = target.latency_miss;
        push(changed);
    }
    if (target.throughput != old.throughput) {
        changed.target = TargetKind::kThroughput;
        changed.bound = target.throughput;
        changed.allowed_miss = 0;
        push(changed);
    }
    return {};
}

Status Tuner::Impl::add_session(SessionId id, TimeNs now, double weight) {
    if (id == kGraphicsSide) return Error{Code::kInvalidArgument, "session 0 is the graphics side", {}};
    if (Status valid = validate_weight(weight); !valid) return valid;
    if (sessions_.contains(id))
        return Error{Code::kAlreadyExists, "session " + std::to_string(id) + " is there already", {}};
    if (sessions_.size() >= kMaxSessions)
        return Error{
            Code::kResourceExhausted, "the tuner already follows " + std::to_string(kMaxSessions) + " processes", {}};
    advance_clock(now);
    Session& session = sessions_.try_emplace(id, id).first->second;
    session.weight = weight;
    session.added = now_;
    reset_curves(session);
    session.stream.begin_transient(now_);
    Event added = event(EventKind::kSession);
    added.session = id;
    added.new_state = TargetState::kTuning;
    push(added);
    update_shares();
    return {};
}

Status Tuner::Impl::remove_session(SessionId id, TimeNs now) {
    advance_clock(now);
    if (sessions_.erase(id) == 0)
        return Error{Code::kNotFound, "no session " + std::to_string(id) + " is attached", {}};
    Event removed = event(EventKind::kSession);
    removed.session = id;
    push(removed);
    reported_ = -1;
    // Nobody can miss a target any more that was this process's.
    infeasible_ = false;
    searched_ = 0;
    update_shares();
    return {};
}

Status Tuner::Impl::set_weight(SessionId id, double weight, TimeNs now) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return Error{Code::kNotFound, "no session " + std::to_string(id) + " is attached", {}};
    if (Status valid = validate_weight(weight); !valid) return valid;
    advance_clock(now);
    if (it->second.weight == weight) return {};
    it->second.weight = weight;
    update_shares();
    return {};
}

void Tuner::Impl::add(TimeNs now, std::span<const Sample> samples) {
    advance_clock(now);
    Session* session = nullptr;
    SessionId last_id = kGraphicsSide;
    for (const Sample& sample : samples) {
        const bool timed = sample.kind != SampleKind::kSteps;
        if (sample.kind != SampleKind::kFrame && (session == nullptr || sample.session != last_id)) {
            const auto it = sessions_.find(sample.session);
            session = it == sessions_.end() ? nullptr : &it->second;
            last_id = sample.session;
        }
        if ((timed && sample.duration <= 0) || (!timed && sample.count == 0) ||
            (sample.kind != SampleKind::kFrame && session == nullptr)) {
            ++counters_.dropped_bad;
            continue;
        }
        // As an age, so that the caller's clock may have jumped.
        const Wide age = static_cast<Wide>(now) - sample.end;
        if (age >= SlidingWindow::kLength) {
            ++counters_.dropped_old;
            continue;
        }
        if (age < 0) ++counters_.clamped_future;
        const TimeNs end = now_ - std::max<TimeNs>(0, static_cast<TimeNs>(age));
        if (end < 0) {
            ++counters_.dropped_old;
            continue;
        }
        const int64_t duration = std::min(sample.duration, kLongestDuration);
        switch (sample.kind) {
            case SampleKind::kFrame:
                ++counters_.frames;
                frames_.add(end, duration);
                break;
            case SampleKind::kStep:
                ++counters_.steps;
                session->stream.add(end, duration);
                break;
            case SampleKind::kSteps:
                counters_.steps += sample.count;
                session->stream.add_count(end, sample.count);
                break;
        }
    }
}

void Tuner::Impl::force_level(uint32_t tpcs, TimeNs now) {
    advance_clock(now);
    const size_t to = nearest(tpcs);
    if (to == level_) return;
    Event forced = event(EventKind::kLevel);
    forced.cause = Cause::kForced;
    move(to, forced);
    last_direction_ = 0;
}

void Tuner::Impl::note_applied(TimeNs now) {
    advance_clock(now);
    frames_.begin_transient(now_);
    for (auto& [id, session] : sessions_) session.stream.begin_transient(now_);
}

size_t Tuner::Impl::memory_bytes() const {
    size_t bytes = sizeof *this + events_.size() * sizeof(Event) + frame_speed_.memory_bytes() +
                   frame_rate_.memory_bytes() + ladder_.tpcs.capacity() * sizeof(uint32_t) +
                   bans_.capacity() * sizeof(Ban) + forecasts_.size() * (3 * sizeof(double) + 2 * sizeof(Knowledge)) +
                   forecasts_.capacity() * sizeof(Forecast) + claims_.capacity() * sizeof(Claim) +
                   (shares_.capacity() + decision_.shares.capacity()) * sizeof(SessionShare) +
                   decision_.targets.capacity() * sizeof(TargetReport) + sweep_levels_.capacity() * sizeof(size_t);
    for (const auto& [id, session] : sessions_)
        bytes += sizeof(session) + 64 + session.latency.memory_bytes() + session.rate.memory_bytes();
    return bytes;
}

const Decision& Tuner::Impl::tick(TimeNs now) {
    advance_clock(now);
    decision_.changed = false;
    busy_ = false;
    decision_.regime = regime();
    frames_.advance(now_);
    refresh_sessions();
    credit_good_time();
    const Alarm alarm = alarms();
    observe(alarm);
    if (alarm.graphics || alarm.compute) {
        decision_.holding = false;
        handle_alarm(alarm);
    } else {
        const size_t before = level_;
        leave_tight_level();
        if (level_ == before) optimise();
    }
    decision_.infeasible = infeasible_;
    report();
    return decision_;
}

}  // namespace vuda::tuner
