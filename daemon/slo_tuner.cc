#include "daemon/slo_tuner.h"

#include <algorithm>
#include <utility>

namespace vuda::daemon {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kOtherClock = 5 * kSecond;
// What a name keeps between two ticks: a ring's worth of each of some processes.
constexpr size_t kPending = 1 << 20;

int64_t end_of(const page::Sample& sample, int64_t now) {
    const auto end = static_cast<int64_t>(std::min<uint64_t>(sample.end_ns, INT64_MAX));
    return end < now - kOtherClock || end > now + kOtherClock ? now : end;
}

v1::SloKind to_proto(tuner::TargetKind kind) {
    switch (kind) {
        case tuner::TargetKind::kFrame: return v1::SLO_KIND_FRAME;
        case tuner::TargetKind::kLatency: return v1::SLO_KIND_LATENCY;
        case tuner::TargetKind::kThroughput: return v1::SLO_KIND_THROUGHPUT;
    }
    return v1::SLO_KIND_UNSPECIFIED;
}

v1::SloState to_proto(tuner::TargetState state) {
    switch (state) {
        case tuner::TargetState::kNoData: return v1::SLO_STATE_NO_DATA;
        case tuner::TargetState::kTuning: return v1::SLO_STATE_TUNING;
        case tuner::TargetState::kMeeting: return v1::SLO_STATE_MEETING;
        case tuner::TargetState::kInfeasible: return v1::SLO_STATE_INFEASIBLE;
    }
    return v1::SLO_STATE_UNSPECIFIED;
}

// Without a tuner there is nothing to measure by.
void add_untold(v1::SloInfo& out, v1::SloKind kind, double bound, double allowed) {
    v1::SloTarget& target = *out.add_targets();
    target.set_kind(kind);
    target.set_state(v1::SLO_STATE_NO_DATA);
    target.set_bound(bound);
    target.set_allowed_miss(allowed);
}

}  // namespace

void SloTuner::open(const std::string& name, uid_t uid) {
    const auto found = table_.find(name);
    if (found != table_.end() && found->second.uid != uid) table_.erase(found);
    close(name);
}

void SloTuner::close(const std::string& name) {
    if (const auto found = running_.find(name); found != running_.end()) running_.erase(found);
}

template <typename Change>
Status SloTuner::change(const std::string& name, uid_t uid, Change change) {
    NameTargets targets;
    if (const auto before = table_.find(name); before != table_.end()) targets = before->second;
    targets.uid = uid;
    if (Status done = change(targets); !done) return done;
    if (targets.empty()) {
        table_.erase(name);
    } else {
        table_[name] = std::move(targets);
    }
    return {};
}

Status SloTuner::set(const std::string& name, uid_t uid, const v1::SetSloRequest& request, const ProcessKey* process) {
    return change(name, uid, [&](NameTargets& targets) { return apply(request, process, targets); });
}

Status SloTuner::set(const std::string& name, uid_t uid, const v1::SetTargetsRequest& request, bool owner,
                     const ProcessKey* process) {
    return change(name, uid, [&](NameTargets& targets) { return apply(request, owner, process, targets); });
}

NameTargets* SloTuner::targets(std::string_view name) {
    const auto found = table_.find(name);
    return found == table_.end() || !found->second.any() ? nullptr : &found->second;
}

const std::vector<tuner::SessionShare>* SloTuner::shares(std::string_view name) const {
    const auto found = running_.find(name);
    return found == running_.end() ? nullptr : &found->second.tuner.decision().shares;
}

void SloTuner::take_frame(const std::string& name, const page::Sample& sample, int64_t now) {
    const auto found = running_.find(name);
    if (found == running_.end()) return;
    Running& running = found->second;
    // The time up to a frame's fence; from frame to frame only where nothing better comes.
    if (sample.kind == page::SampleKind::kFrame) running.last_fenced = now;
    if (sample.kind == page::SampleKind::kInterval && running.last_fenced > now - 10 * kSecond) return;
    if (running.pending.size() >= kPending) return;
    running.pending.push_back({tuner::SampleKind::kFrame, tuner::kGraphicsSide, end_of(sample, now),
                               static_cast<int64_t>(sample.duration_ns), 1});
}

void SloTuner::take_step(const std::string& name, uint64_t session, const page::Sample& sample, int64_t now) {
    const auto found = running_.find(name);
    if (found == running_.end()) return;
    const auto known = found->second.sessions.find(session);
    if (known == found->second.sessions.end() || found->second.pending.size() >= kPending) return;
    // Steps that the program marks; waits for the GPU only where it marks none.
    if (sample.kind == page::SampleKind::kStep) known->second.last_marked = now;
    if (sample.kind == page::SampleKind::kSync && known->second.last_marked > now - 10 * kSecond) return;
    found->second.pending.push_back(
        {tuner::SampleKind::kStep, session, end_of(sample, now), static_cast<int64_t>(sample.duration_ns), 1});
}

void SloTuner::lost_steps(const std::string& name, uint64_t session, uint64_t count, int64_t now) {
    const auto found = running_.find(name);
    if (found == running_.end() || !found->second.sessions.contains(session)) return;
    found->second.pending.push_back({tuner::SampleKind::kSteps, session, now, 0, count});
}

void SloTuner::sync(Running& running, const NameTargets* targets, const View& view, int64_t now) {
    static const NameTargets kNone;
    const NameTargets& wanted = targets != nullptr ? *targets : kNone;
    tuner::Tuner& tuner = running.tuner;
    // Values that were checked when they were set.
    (void)tuner.set_graphics_target(wanted.frames, now);
    for (auto it = running.sessions.begin(); it != running.sessions.end();) {
        const bool stays = std::any_of(view.sharers.begin(), view.sharers.end(),
                                       [&](const Sharer& sharer) { return sharer.session == it->first; });
        if (stays) {
            ++it;
            continue;
        }
        (void)tuner.remove_session(it->first, now);
        it = running.sessions.erase(it);
    }
    for (const Sharer& sharer : view.sharers) {
        if (!running.sessions.contains(sharer.session)) {
            // More processes than a tuner follows are not tuned for.
            if (!tuner.add_session(sharer.session, now)) continue;
            running.sessions[sharer.session].process = sharer.process;
        }
        (void)tuner.set_compute_target(sharer.session, wanted.of(sharer.process), now);
        (void)tuner.set_weight(sharer.session, wanted.weight_of(sharer.process), now);
    }
}

std::optional<uint32_t> SloTuner::tick(const std::string& name, const View& view, int64_t now,
                                       std::vector<tuner::Event>& events) {
    const NameTargets* wanted = targets(name);
    if (view.total_tpcs == 0 || view.applied_tpcs == 0 || (wanted == nullptr && !view.automatic)) {
        close(name);
        return std::nullopt;
    }
    // A quota that somebody fixed leaves one level: targets are watched, nothing is chosen.
    tuner::Ladder ladder{view.automatic ? view.levels : std::vector<uint32_t>{view.applied_tpcs}, view.total_tpcs};
    auto found = running_.find(name);
    if (found == running_.end()) {
        Result<tuner::Tuner> made = tuner::Tuner::make(std::move(ladder), now, view.applied_tpcs);
        if (!made) return std::nullopt;
        found = running_.emplace(name, *std::move(made)).first;
    } else if (!found->second.tuner.set_ladder(std::move(ladder), now)) {
        return std::nullopt;
    }
    Running& running = found->second;
    running.automatic = view.automatic;
    // Weights count without any target too.
    const auto kept = table_.find(name);
    sync(running, kept == table_.end() ? nullptr : &kept->second, view, now);
    running.tuner.add(now, running.pending);
    running.pending.clear();
    if (running.to_be_applied && view.in_force) {
        running.to_be_applied = false;
        running.tuner.note_applied(now);
    }
    const uint32_t before = running.tuner.decision().level;
    const uint32_t level = running.tuner.tick(now).level;
    if (level != before) running.to_be_applied = true;
    for (tuner::Event& event : running.tuner.take_events()) {
        if (event.kind == tuner::EventKind::kLevel) running.last_change = event.text();
        events.push_back(event);
    }
    return level;
}

bool SloTuner::fill(std::string_view name, v1::SloInfo& out) const {
    const auto table = table_.find(name);
    const auto found = running_.find(name);
    if (found == running_.end()) {
        if (table == table_.end() || !table->second.any()) return false;
        const NameTargets& targets = table->second;
        if (targets.frames.any()) add_untold(out, v1::SLO_KIND_FRAME, targets.frames.frame_ms, targets.frames.miss);
        if (targets.steps.latency_ms > 0)
            add_untold(out, v1::SLO_KIND_LATENCY, targets.steps.latency_ms, targets.steps.latency_miss);
        if (targets.steps.throughput > 0) add_untold(out, v1::SLO_KIND_THROUGHPUT, targets.steps.throughput, 0);
        return true;
    }
    const Running& running = found->second;
    const tuner::Decision& decision = running.tuner.decision();
    out.set_regime(std::string(tuner::to_string(decision.regime)));
    out.set_level_tpcs(decision.level);
    out.set_automatic(running.automatic);
    out.set_holding(decision.holding);
    out.set_infeasible(decision.infeasible);
    out.set_last_change(running.last_change);
    for (const tuner::SessionShare& share : decision.shares) {
        v1::SloShare& told = *out.add_shares();
        told.set_session_id(share.session);
        told.set_tpcs(share.tpcs);
        told.set_idle(!share.counted);
        const auto known = running.sessions.find(share.session);
        if (known != running.sessions.end() && table != table_.end())
            told.set_weight(table->second.weight_of(known->second.process));
        else
            told.set_weight(1);
    }
    for (const tuner::TargetReport& report : decision.targets) {
        v1::SloTarget& target = *out.add_targets();
        target.set_kind(to_proto(report.kind));
        target.set_session_id(report.session);
        target.set_state(to_proto(report.state));
        target.set_bound(report.bound);
        target.set_allowed_miss(report.allowed_miss);
        target.set_attained(report.attained);
        target.set_miss(report.miss);
        target.set_margin(report.margin);
        target.set_samples(report.samples);
    }
    return true;
}

}  // namespace vuda::daemon
