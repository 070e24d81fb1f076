// What a person sees: each target, what was attained, and its state.
#include <algorithm>
#include <cmath>

#include "tuner/impl.h"

namespace vuda::tuner {
namespace {

constexpr TimeNs kReportEvery = 100 * kMs;
constexpr uint64_t kFewest = 4;              // samples in the window
constexpr uint64_t kEnough = 20;             // samples at this level
constexpr TimeNs kAfterAlarm = 2 * kSecond;  // a target that was just missed is not called met

constexpr double kBeyondChance = 1.5;
constexpr double kFewMisses = 5;

double margin_of(double gain, double bound) { return bound > 0 ? std::clamp(gain / bound, -10.0, 1.0) : 0; }

}  // namespace

TargetState Tuner::Impl::state_of(const Stream& stream, TimeNs last_alarm, TargetState before, double miss) const {
    if (!stream.fresh(now_) || stream.window().count() < kFewest) return TargetState::kNoData;
    const bool alarmed = last_alarm >= 0 && now_ - last_alarm < kAfterAlarm;
    if (alarmed) return infeasible_ ? TargetState::kInfeasible : TargetState::kTuning;
    const bool enough =
        stream.settled_count() >= kEnough || (stream.settled_count() >= kFewest && now_ - level_since_ >= kAfterAlarm);
    // A change for the better is no reason to call a target unmet meanwhile.
    if (!enough) return before == TargetState::kMeeting ? before : TargetState::kTuning;
    // Once met, only an alarm takes that back: a fraction near the allowed one would flicker.
    const bool met = before == TargetState::kMeeting || miss <= kBeyondChance * stream.allowed_miss() ||
                     miss * static_cast<double>(stream.settled_count()) < kFewMisses;
    return met ? TargetState::kMeeting : TargetState::kTuning;
}

void Tuner::Impl::set_state(TargetState& state, TargetState next, const TargetReport& report) {
    if (state == next) return;
    Event changed = event(EventKind::kState);
    changed.session = report.session;
    changed.target = report.kind;
    changed.old_state = state;
    changed.new_state = next;
    changed.bound = report.bound;
    changed.allowed_miss = report.allowed_miss;
    changed.observed = report.attained;
    changed.samples = report.samples;
    changed.misses = static_cast<uint64_t>(std::llround(report.miss * static_cast<double>(report.samples)));
    state = next;
    push(changed);
}

void Tuner::Impl::report() {
    if (reported_ >= 0 && !decision_.changed && now_ - reported_ < (busy_ ? 2 : 1) * kReportEvery) return;
    reported_ = now_;
    decision_.targets.clear();
    const auto durations = [&](TargetKind kind, SessionId id, const Stream& stream, double bound_ms, double allowed,
                               TargetState& state, TimeNs alarm) {
        TargetReport report;
        report.kind = kind;
        report.session = id;
        report.bound = bound_ms;
        report.allowed_miss = allowed;
        report.samples = stream.window().count();
        // The window; while it still holds another level's samples, those of this level once there are enough.
        const bool whole = stream.settled_count() < kEnough || now_ - stream.settled_since() >= SlidingWindow::kLength;
        report.attained = (whole ? stream.window().quantile(1 - allowed) : stream.settled_quantile(1 - allowed)) / 1e6;
        if (report.samples > 0) {
            report.miss = whole ? static_cast<double>(stream.window().over()) / static_cast<double>(report.samples)
                                : stream.settled_miss();
            report.margin = margin_of(bound_ms - report.attained, bound_ms);
        }
        const TargetState next = state_of(stream, alarm, state, report.miss);
        report.state = next;
        set_state(state, next, report);
        decision_.targets.push_back(report);
    };
    if (graphics_target_.any())
        durations(TargetKind::kFrame, kGraphicsSide, frames_, graphics_target_.frame_ms, graphics_target_.miss,
                  frame_state_, frame_alarm_);
    for (auto& [id, session] : sessions_) {
        if (session.target.latency_ms > 0)
            durations(TargetKind::kLatency, id, session.stream, session.target.latency_ms, session.target.latency_miss,
                      session.latency_state, session.latency_alarm);
        if (session.target.throughput <= 0) continue;
        TargetReport report;
        report.kind = TargetKind::kThroughput;
        report.session = id;
        report.bound = session.target.throughput;
        report.attained = session.rate_now;
        report.miss = session.rate_now < session.target.throughput ? 1 : 0;
        report.margin = margin_of(session.rate_now - report.bound, report.bound);
        report.samples = static_cast<uint64_t>(session.stream.rate(now_, kSecond).count);
        const bool fresh = session.stream.fresh(now_);
        const bool alarmed = session.rate_alarm >= 0 && now_ - session.rate_alarm < kAfterAlarm;
        const bool soon = now_ - level_since_ < kSecond;
        report.state = !fresh    ? TargetState::kNoData
                       : alarmed ? (infeasible_ ? TargetState::kInfeasible : TargetState::kTuning)
                       : soon    ? TargetState::kTuning
                                 : TargetState::kMeeting;
        set_state(session.rate_state, report.state, report);
        decision_.targets.push_back(report);
    }
}

}  // namespace vuda::tuner
