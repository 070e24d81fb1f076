// Targets of each named TSG, and the tuner that chooses the split for them.
#include <algorithm>

#include "daemon/registry.h"
#include "daemon/registry_state.h"

namespace vuda::daemon {
namespace {

int64_t ns_of(TimePoint time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

void Registry::open_targets(Tsg& tsg) {
    slo_.open(tsg.name, find(tsg.owner)->peer.uid);
    const NameTargets* targets = slo_.targets(tsg.name);
    if (targets == nullptr || !targets->automatic) return;
    // From before this daemon's start: the choice of the tuner is part of what was kept.
    NamedSplit& named = split_of(tsg);
    if (named.wish.quota) return;
    named.wish.quota = Quota{Quota::Kind::kAutomatic, 0};
    refresh_split(tsg, nullptr);
}

Result<v1::SetSloReply> Registry::set_slo(const v1::SetSloRequest& request, const Writer& by) {
    const Result<Tsg*> found = splittable(request.name(), by.peer, "slo-refused");
    if (!found) return found.error();
    Tsg& tsg = **found;
    const ProcessKey* process = nullptr;
    if (request.session_id() != 0) {
        const Session* session = find(request.session_id());
        if (session == nullptr || !shares(*session, tsg)) {
            return Error{Code::kNotFound,
                         "session " + std::to_string(request.session_id()) + " does not share " + tsg.name,
                         "see vudactl status"};
        }
        process = &session->peer.process;
    }
    if (Status done = slo_.set(tsg.name, find(tsg.owner)->peer.uid, request, process); !done) return done.error();

    v1::SetSloReply reply;
    reply.set_note(follow_targets(tsg, by));
    slo_.fill(tsg.name, *reply.mutable_slo());
    return reply;
}

void Registry::on_set_targets(Session& session, uint64_t id, const v1::SetTargetsRequest& request) {
    // A process may own one name and share another: frames are the one's, steps the other's.
    std::vector<std::string> names;
    if (!session.owned.empty()) names.push_back(session.owned);
    if (!session.attached_name.empty() && session.attached_name != session.owned)
        names.push_back(session.attached_name);
    if (names.empty())
        return reply_error(session, id, {Code::kNotFound, "this process owns and shares no TSG", "see vudactl status"});
    v1::SetTargetsReply done;
    for (const std::string& name : names) {
        const Result<Tsg*> found = splittable(name, session.peer, "slo-refused");
        if (!found) return reply_error(session, id, found.error());
        Tsg& tsg = **found;
        const bool owner = tsg.owner == session.id;
        const bool steps = shares(session, tsg) && (names.size() == 1 || !owner);
        const ProcessKey* process = steps ? &session.peer.process : nullptr;
        v1::SetTargetsRequest part = request;
        if (names.size() > 1 && !owner) {
            part.clear_frame_ms();
            part.clear_frame_miss();
        } else if (names.size() > 1) {
            part.Clear();
            part.set_frame_ms(request.frame_ms());
            part.set_frame_miss(request.frame_miss());
        }
        if (Status set = slo_.set(name, find(tsg.owner)->peer.uid, part, owner, process); !set)
            return reply_error(session, id, set.error());
        const std::string note = follow_targets(tsg, {session.peer, session.program, session.id});
        if (!note.empty()) done.set_note(done.note() + (done.note().empty() ? "" : "; ") + note);
    }
    v1::ServerMessage message;
    *message.mutable_set_targets_reply() = std::move(done);
    reply(session, id, std::move(message));
}

// Targets of the name have changed: leaves the quota to the tuner for them, or takes it back. What a person should
// know.
std::string Registry::follow_targets(Tsg& tsg, const Writer& by) {
    std::string note;
    NamedSplit& named = split_of(tsg);
    if (NameTargets* targets = slo_.targets(tsg.name)) {
        const Quota::Kind kind = named.split.quota.kind;
        if (kind == Quota::Kind::kNone) {
            targets->automatic = true;
            SplitWish wish = named.wish;
            wish.quota = Quota{Quota::Kind::kAutomatic, 0};
            note = grant_wish(tsg, wish, by);
        } else if (kind != Quota::Kind::kAutomatic) {
            note = "the quota is fixed at " + quota_text(named.split.quota) +
                   (kind == Quota::Kind::kTpcs ? " TPCs" : "") + ": vudactl quota " + tsg.name +
                   " auto leaves it to the tuner";
        }
    } else if (named.wish.quota && named.wish.quota->kind == Quota::Kind::kAutomatic && named.tuned_for_targets) {
        SplitWish wish = named.wish;
        wish.quota.reset();
        note = grant_wish(tsg, wish, by);
    }
    named.tuned_for_targets = slo_.targets(tsg.name) != nullptr && slo_.targets(tsg.name)->automatic;
    // Frames that take turns come as often as their target wants.
    if (named.split.mode == v1::MODE_SLICED) refresh_split(tsg, nullptr);
    tune(tsg);
    if (hooks_.targets) hooks_.targets();
    return note;
}

// Its steps count: it has channels in the TSG.
bool Registry::shares(const Session& session, const Tsg& tsg) const {
    return tsg.attached.contains(session.id) || (tsg.owner == session.id && session.state == v1::SHARING_STATE_SHARING);
}

Milliseconds Registry::drain_interval() const { return slo_.running() ? kTunerInterval : kDrainInterval; }

void Registry::drain_into_tuner(Session& session, const std::vector<page::Sample>& samples) {
    const std::string& name = session.split_name();
    const uint64_t lost = session.page->lost();
    const uint64_t newly = lost > session.lost_seen ? lost - session.lost_seen : 0;
    session.lost_seen = lost;
    const auto found = tsgs_.find(name);
    if (found == tsgs_.end()) return;
    const Tsg& tsg = *found->second;
    const int64_t now = ns_of(clock_());
    const bool steps = shares(session, tsg);
    for (const page::Sample& sample : samples) {
        const bool frame = sample.kind == page::SampleKind::kFrame || sample.kind == page::SampleKind::kInterval;
        if (frame && tsg.owner == session.id) slo_.take_frame(name, sample, now);
        const bool step = sample.kind == page::SampleKind::kStep || sample.kind == page::SampleKind::kSync;
        if (step && steps) slo_.take_step(name, session.id, sample, now);
    }
    // Which kind they were nobody knows; a program that only computes takes no frames.
    if (newly > 0 && steps && tsg.owner != session.id)
        slo_.lost_steps(name, session.id, std::min<uint64_t>(newly, UINT32_MAX), now);
}

void Registry::tune() {
    for (auto& [name, tsg] : tsgs_) tune(*tsg);
}

void Registry::tune(Tsg& tsg) {
    const auto split = splits_.find(tsg.name);
    if (split == splits_.end()) return;
    NamedSplit& named = split->second;
    SloTuner::View view;
    const bool left_to_it = named.split.quota.kind == Quota::Kind::kAutomatic;
    if (!left_to_it && slo_.targets(tsg.name) == nullptr && !slo_.runs(tsg.name) && named.portions.empty()) return;
    const bool sliced = named.split.mode == v1::MODE_SLICED;
    const Session* owner = find(tsg.owner);
    const bool paced = owner != nullptr && owner->page && owner->page->paces();
    view.automatic = left_to_it && (sliced ? paced : named.backend && !named.split.levels.empty());
    // Time is shared out like TPCs, of which there are a hundred then.
    view.total_tpcs = sliced ? 100 : static_cast<uint32_t>(named.topology.tpcs_size());
    view.levels = sliced ? sliced_levels() : named.split.levels;
    view.applied_tpcs = sliced ? named.split.compute_percent : named.split.applied_tpcs;
    view.in_force = !sliced || (paced && owner->page->applied_generation() >= named.generation);
    each_sharer(tsg, [&](Session& session) {
        if (!sliced && session.page && session.page->applied_generation() < named.generation) view.in_force = false;
        if (shares(session, tsg)) view.sharers.push_back({session.id, session.peer.process});
    });
    std::vector<tuner::Event> events;
    const std::optional<uint32_t> level = slo_.tick(tsg.name, view, ns_of(clock_()), events);
    for (const tuner::Event& event : events) emit_tuner(tsg, event);
    const std::optional<uint32_t> tuned = view.automatic ? level : std::nullopt;
    std::map<SessionId, Portion> portions;
    if (const auto* shares = slo_.shares(tsg.name); tuned && shares != nullptr && !sliced) {
        for (const tuner::SessionShare& share : *shares) {
            if (share.counted && share.tpcs < *tuned) portions[share.session] = {share.first_tpc, share.tpcs};
        }
    }
    const bool divided = portions != named.portions;
    if (tuned == named.tuned && !divided) return;
    named.tuned = tuned;
    named.portions = std::move(portions);
    // The same TPCs for all of them together may be other ones for each.
    if (divided) named.generation = ++last_generation_;
    refresh_split(tsg, nullptr);
}

void Registry::emit_tuner(const Tsg& tsg, const tuner::Event& told) {
    if (!hooks_.event) return;
    v1::Event event;
    event.set_monotonic_us(static_cast<uint64_t>(ns_of(clock_()) / 1000));
    event.set_kind(std::string(tuner::to_string(told.kind)));
    event.set_name(tsg.name);
    event.set_session_id(told.session);
    event.mutable_reason()->set_text(told.text());
    for (auto& [key, value] : told.fields()) (*event.mutable_fields())[key] = value;
    hooks_.event(event);
}

void Registry::fill_slo(const Tsg& tsg, v1::TsgInfo& out) const {
    v1::SloInfo info;
    if (slo_.fill(tsg.name, info)) *out.mutable_slo() = std::move(info);
}

}  // namespace vuda::daemon
