// The split of each named TSG: who changes it, whom it reaches, and the timing samples that come back.
#include <algorithm>
#include <utility>

#include "base/fault_point.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"

namespace vuda::daemon {
namespace {

// Splits kept for names that nobody owns at the moment.
constexpr size_t kSplitsKept = 1024;
// Cells taken out of all rings at one time: some milliseconds at most, whatever the processes do.
constexpr size_t kDrainBudget = 65'536;

}  // namespace

Registry::NamedSplit& Registry::split_of(const Tsg& tsg) {
    NamedSplit& named = splits_[tsg.name];
    named.used = clock_();
    return named;
}

void Registry::open_split(Tsg& tsg) {
    const uid_t uid = find(tsg.owner)->peer.uid;
    const auto kept = splits_.find(tsg.name);
    // What one user chose is nothing to another; another GPU has other levels.
    if (kept != splits_.end() && (kept->second.uid != uid || kept->second.gpu != tsg.gpu)) splits_.erase(kept);
    NamedSplit& named = split_of(tsg);
    named.uid = uid;
    named.gpu = tsg.gpu;
    refresh_split(tsg, nullptr);
    open_targets(tsg);
}

void Registry::close_split(const Tsg& tsg) {
    slo_.close(tsg.name);
    const auto found = splits_.find(tsg.name);
    if (found == splits_.end()) return;
    if (!found->second.wish.mode && !found->second.wish.quota) {
        splits_.erase(found);
        return;
    }
    size_t unowned = 0;
    auto oldest = splits_.end();
    for (auto it = splits_.begin(); it != splits_.end(); ++it) {
        if (tsgs_.contains(it->first)) continue;
        ++unowned;
        if (oldest == splits_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (unowned > kSplitsKept) splits_.erase(oldest);
}

SplitFacts Registry::split_facts(Tsg& tsg) {
    NamedSplit& named = split_of(tsg);
    SplitFacts facts;
    bool spoke = false;
    bool layout = false;
    const auto learn = [&](const Session& session) {
        if (session.topology.tpcs_size() == 0 || layout) return;
        named.topology = session.topology;
        layout = true;
    };
    // The owner's word on the GPU goes first: it has most to lose.
    const Session& owner = *find(tsg.owner);
    learn(owner);
    // Its methods steer the whole TSG, whoever joins.
    if (owner.backend == v1::BACKEND_SCG) facts.backend = spoke = true;
    each_sharer(tsg, [&](const Session& session) {
        learn(session);
        const bool speaks = (session.features & v1::FEATURE_QUOTA) != 0;
        if (session.backend == v1::BACKEND_SCG || session.backend == v1::BACKEND_QMD_MASK) {
            facts.backend = spoke = true;
        } else if (session.backend == v1::BACKEND_NONE || !speaks) {
            spoke = true;
            if (!facts.no_backend.empty()) return;
            const std::string why = session.backend_reason ? session.backend_reason->text
                                    : speaks               ? "it gives no reason"
                                                           : "its libvuda.so knows no splits";
            facts.no_backend = "pid " + std::to_string(session.peer.pid()) + " (" + session.program + "): " + why;
        }
    });
    // Between the last program's end and the next one's first word nothing changes.
    if (spoke) named.backend = facts.backend;
    facts.backend = named.backend;
    facts.topology = named.topology;
    facts.tuned = named.tuned;
    facts.paced = owner.page && owner.page->paces();
    if (const NameTargets* targets = slo_.targets(tsg.name); targets != nullptr && targets->frames.any())
        facts.frame_ns = static_cast<uint64_t>(targets->frames.frame_ms * 1e6);
    if (facts.topology.tpcs_size() == 0 && facts.no_backend.empty()) {
        if (owner.backend_reason)
            facts.no_backend =
                "pid " + std::to_string(owner.peer.pid()) + " (" + owner.program + "): " + owner.backend_reason->text;
    }
    return facts;
}

void Registry::refresh_split(Tsg& tsg, const Session* cause) {
    const SplitFacts facts = split_facts(tsg);
    NamedSplit& named = split_of(tsg);
    Split split = decide(named.wish, facts, settings_.partition);
    const bool changed = !split.same_effect(named.split);
    named.split = std::move(split);
    if (changed) {
        named.generation = ++last_generation_;
        ++counters_.splits;
    }
    each_sharer(tsg, [this](Session& session) { sync_page(session); });
    // Which has a part in it where its methods steer the TSG, or its frames take turns.
    if (Session* owner = find(tsg.owner)) sync_page(*owner);
    if (changed && cause != nullptr) {
        emit_split(tsg, cause->peer, cause->program, cause->id);
    }
}

void Registry::sync_page(Session& session) {
    if (!session.page) return;
    const NamedSplit* named = nullptr;
    bool in_force = false;
    bool steered = false;  // by the owner, for all channels of the TSG
    const auto consider = [&](const std::string& name, auto shares) {
        const auto tsg = tsgs_.find(name);
        if (in_force || tsg == tsgs_.end() || !shares(*tsg->second)) return;
        const auto found = splits_.find(name);
        if (found == splits_.end()) return;
        named = &found->second;
        in_force = true;
        const Session* owner = find(tsg->second->owner);
        steered = owner != nullptr && owner->backend == v1::BACKEND_SCG;
    };
    consider(session.pending, [&](const Tsg& tsg) {
        return tsg.turn && tsg.turn->phase == Turn::Phase::kImport && tsg.turn->waiter.session == session.id;
    });
    consider(session.attached_name, [&](const Tsg& tsg) { return tsg.id == session.tsg; });
    consider(session.owned, [&](const Tsg& tsg) {
        if (session.state == v1::SHARING_STATE_SHARING || session.backend == v1::BACKEND_SCG) return true;
        const auto split = splits_.find(tsg.name);
        return split != splits_.end() && split->second.split.mode == v1::MODE_SLICED;
    });
    const page::Split& told = session.page->split();
    if (named != nullptr) {
        Portion portion;
        if (const auto part = named->portions.find(session.id);
            part != named->portions.end() && named->split.quota.kind == Quota::Kind::kAutomatic)
            portion = part->second;
        page::Split split = to_page(named->split, named->generation, portion);
        // Two ways at once would leave compute what both allow. The methods choose TPCs by themselves.
        if (steered) std::fill(std::begin(split.disable), std::end(split.disable), 0);
        if (told.generation != named->generation) session.page->publish(split);
        return;
    }
    // Native again, or alone in a TSG whose renderer has ended: nothing to keep off.
    if (told.mode == page::SplitMode::kUnspecified) return;
    page::Split free;
    free.generation = ++last_generation_;
    session.page->publish(free);
}

void Registry::emit_split(const Tsg& tsg, const Peer& by, const std::string& program, SessionId session) {
    if (!hooks_.event) return;
    const NamedSplit& named = splits_.at(tsg.name);
    v1::Event event;
    event.set_monotonic_us(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(clock_().time_since_epoch()).count()));
    event.set_kind("partition");
    event.set_name(tsg.name);
    event.set_session_id(session);
    v1::PeerInfo& peer = *event.mutable_peer();
    peer.set_pid(static_cast<uint32_t>(by.pid()));
    peer.set_uid(by.uid);
    peer.set_gid(by.gid);
    peer.set_program(program);
    std::string text = describe(named.split, named.topology);
    if (!named.split.note.empty()) text += "; " + named.split.note;
    event.mutable_reason()->set_text(text);
    hooks_.event(event);
}

void Registry::on_partition_report(Session& session, uint64_t id, const v1::PartitionReport& report) {
    switch (report.backend()) {
        case v1::BACKEND_NONE:
        case v1::BACKEND_SCG:
        case v1::BACKEND_QMD_MASK: break;
        default:
            return reply_error(session, id, {Code::kInvalidArgument, "a backend that this vudad does not know", ""});
    }
    if (Status ok = check_topology(report.topology()); !ok) return reply_error(session, id, ok.error());
    session.backend = report.backend();
    session.backend_reason.reset();
    session.shared_limit = report.shared_memory_limit();
    session.over_limit = v1::OverLimit_IsValid(report.over_limit()) ? report.over_limit() : v1::OVER_LIMIT_UNSPECIFIED;
    session.native_launches = report.native_launches();
    session.native_reason = clean_text(report.native_reason(), kTextLimit);
    if (report.has_reason() && report.reason().code() != 0) session.backend_reason = from_proto(report.reason());
    if (report.topology().tpcs_size() > 0) session.topology = report.topology();
    sync_page(session);
    for (const std::string& name : {session.pending, session.attached_name, session.owned}) {
        if (const auto tsg = tsgs_.find(name); tsg != tsgs_.end()) refresh_split(*tsg->second, &session);
    }
}

Result<Registry::Tsg*> Registry::splittable(const std::string& name, const Peer& caller, const char* refused) {
    const auto found = tsgs_.find(name);
    if (found == tsgs_.end()) {
        return Error{Code::kNotFound, "no TSG is registered as '" + clean_text(name, 64) + "'", "see vudactl status"};
    }
    const Peer& owner = find(found->second->owner)->peer;
    if (!may_split(caller, owner, settings_.partition)) {
        const Error error{
            Code::kPermissionDenied,
            "uid " + std::to_string(caller.uid) + " may not split a TSG of uid " + std::to_string(owner.uid),
            std::string("its user, root and members of group ") + kPartitionAdmins + " may"};
        emit_refused(refused, found->second->name, caller, 0, error);
        return error;
    }
    return found->second.get();
}

std::string Registry::grant_wish(Tsg& tsg, SplitWish wish, const Writer& by) {
    NamedSplit& named = split_of(tsg);
    const std::string before = describe(named.split, named.topology);
    const std::string before_by = std::exchange(named.writer, by.peer.describe());
    named.wish = wish;
    VUDA_FAULT_POINT(daemon_split_chosen);
    refresh_split(tsg, nullptr);
    VUDA_FAULT_POINT(daemon_split_published);
    emit_split(tsg, by.peer, by.program, by.session);
    std::string note = named.split.note;
    if (!before_by.empty() && before_by != named.writer) {
        note += (note.empty() ? "" : "; ") + ("was " + before + ", set by " + before_by);
    }
    return note;
}

Result<v1::SetModeReply> Registry::set_mode(const v1::SetModeRequest& request, const Writer& by) {
    const Result<Tsg*> tsg = splittable(request.name(), by.peer);
    if (!tsg) return tsg.error();
    if (Status ok = check_mode(request.mode(), split_facts(**tsg)); !ok) return ok.error();
    NamedSplit& before = split_of(**tsg);
    // What was tuned counts TPCs in one mode and time in the other.
    if ((before.split.mode == v1::MODE_SLICED) != (request.mode() == v1::MODE_SLICED)) {
        before.tuned.reset();
        before.portions.clear();
    }
    SplitWish wish = before.wish;
    wish.mode = request.mode();
    v1::SetModeReply reply;
    reply.set_note(grant_wish(**tsg, wish, by));
    const Split& split = split_of(**tsg).split;
    reply.set_applied(split.mode);
    reply.set_applied_tpcs(split.applied_tpcs);
    return reply;
}

Result<v1::SetQuotaReply> Registry::set_quota(const v1::SetQuotaRequest& request, const Writer& by) {
    const Result<Tsg*> tsg = splittable(request.name(), by.peer);
    if (!tsg) return tsg.error();
    Quota quota;
    switch (request.quota_case()) {
        case v1::SetQuotaRequest::kTpcs: quota = {Quota::Kind::kTpcs, request.tpcs()}; break;
        case v1::SetQuotaRequest::kPercent: quota = {Quota::Kind::kPercent, request.percent()}; break;
        case v1::SetQuotaRequest::kAutomatic: quota.kind = Quota::Kind::kAutomatic; break;
        case v1::SetQuotaRequest::kNone: break;
        case v1::SetQuotaRequest::QUOTA_NOT_SET:
            return Error{Code::kInvalidArgument, "no quota was given",
                         "a number of TPCs, a percentage, automatic or none"};
    }
    if (Status ok = check_quota(quota, split_facts(**tsg), split_of(**tsg).split.mode); !ok) return ok.error();
    SplitWish wish = split_of(**tsg).wish;
    wish.quota = quota;
    v1::SetQuotaReply reply;
    std::string note = grant_wish(**tsg, wish, by);
    // A person's choice, whatever targets there are.
    split_of(**tsg).tuned_for_targets = false;
    NameTargets* targets = slo_.targets(request.name());
    if (quota.kind == Quota::Kind::kAutomatic) {
        tune(**tsg);
        if (targets == nullptr)
            note +=
                std::string(note.empty() ? "" : "; ") + "no targets: the best sum of both sides' rates is looked for";
    } else if (targets != nullptr) {
        note += std::string(note.empty() ? "" : "; ") + "its targets are watched, nothing is tuned for them";
    }
    if (targets != nullptr &&
        std::exchange(targets->automatic, quota.kind == Quota::Kind::kAutomatic) != targets->automatic &&
        hooks_.targets)
        hooks_.targets();
    reply.set_note(std::move(note));
    const NamedSplit& named = split_of(**tsg);
    reply.set_applied_tpcs(named.split.applied_tpcs);
    reply.set_applied_percent(named.split.compute_percent);
    reply.set_generation(named.generation);
    return reply;
}

void Registry::on_set_mode(Session& session, uint64_t id, v1::SetModeRequest request) {
    if (request.name().empty()) request.set_name(session.split_name());
    const Result<v1::SetModeReply> done = set_mode(request, {session.peer, session.program, session.id});
    if (!done) return reply_error(session, id, done.error());
    v1::ServerMessage message;
    *message.mutable_set_mode_reply() = *done;
    reply(session, id, std::move(message));
}

void Registry::on_set_quota(Session& session, uint64_t id, v1::SetQuotaRequest request) {
    if (request.name().empty()) request.set_name(session.split_name());
    const Result<v1::SetQuotaReply> done = set_quota(request, {session.peer, session.program, session.id});
    if (!done) return reply_error(session, id, done.error());
    v1::ServerMessage message;
    *message.mutable_set_quota_reply() = *done;
    reply(session, id, std::move(message));
}

void Registry::refresh_splits() {
    for (auto& [name, tsg] : tsgs_) refresh_split(*tsg, find(tsg->owner));
}

bool Registry::has_pages() const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [](const auto& entry) { return entry.second->page != nullptr; });
}

void Registry::drain_pages() {
    const TimePoint now = clock_();
    if (now < next_look_ && !slo_.running()) return;
    next_look_ = TimePoint::max();
    size_t taken = 0;
    auto next = sessions_.upper_bound(last_drained_);
    // Each session once, those first that the budget left out last time.
    for (size_t left = sessions_.size(); left > 0 && taken < kDrainBudget; --left, ++next) {
        if (next == sessions_.end()) next = sessions_.begin();
        Session& session = *next->second;
        // A tuner wants to know at once.
        if (session.page && (now >= session.page->due() || slo_.runs(session.split_name()))) {
            drained_.clear();
            taken += session.page->drain(now, slo_.running() ? &drained_ : nullptr);
            drain_into_tuner(session, drained_);
        }
        if (session.page) next_look_ = std::min(next_look_, session.page->due());
        last_drained_ = next->first;
    }
    if (taken >= kDrainBudget) next_look_ = now;
}

std::vector<Registry::Samples> Registry::samples() const {
    std::vector<Samples> out;
    const TimePoint now = clock_();
    for (const auto& [id, session] : sessions_) {
        if (!session->page) continue;
        for (uint32_t kind = 1; kind <= page::kSampleKinds; ++kind) {
            const auto sample_kind = static_cast<page::SampleKind>(kind);
            if (const auto summary = session->page->summary(sample_kind, now)) {
                out.push_back({id, session->split_name(), sample_kind, *summary});
            }
        }
    }
    return out;
}

void Registry::fill_split(const Tsg& tsg, v1::TsgInfo& out) const {
    const auto found = splits_.find(tsg.name);
    if (found == splits_.end()) return;
    const NamedSplit& named = found->second;
    v1::PartitionInfo& info = *out.mutable_partition();
    info.set_mode(named.split.mode);
    info.set_automatic(named.split.quota.kind == Quota::Kind::kAutomatic);
    if (named.split.quota.kind == Quota::Kind::kTpcs) info.set_quota_tpcs(named.split.quota.amount);
    if (named.split.quota.kind == Quota::Kind::kPercent) info.set_quota_percent(named.split.quota.amount);
    info.set_compute_percent(named.split.compute_percent);
    info.set_frame_us(static_cast<uint32_t>(named.split.frame_ns / 1000));
    info.set_applied_tpcs(named.split.applied_tpcs);
    for (const uint32_t level : named.split.inter_sm_levels) info.add_levels(level);
    *info.mutable_topology() = named.topology;
    info.set_generation(named.generation);
    info.set_note(named.split.note);
}

void Registry::fill_split(const Session& session, v1::SessionInfo& out) const {
    out.set_backend(session.backend);
    if (session.backend_reason) *out.mutable_backend_reason() = to_proto(*session.backend_reason);
    out.set_shared_memory_limit(session.shared_limit);
    out.set_over_limit(session.over_limit);
    out.set_launches_native(session.native_launches);
    out.set_native_reason(session.native_reason);
    if (!session.page) return;
    out.set_applied_generation(session.page->applied_generation());
    out.set_launches(session.page->launches());
    out.set_launches_refused(session.page->refused());
    out.set_launches_native(std::max(session.native_launches, session.page->native()));
    out.set_samples(session.page->samples());
    out.set_samples_lost(session.page->lost());
}

}  // namespace vuda::daemon
