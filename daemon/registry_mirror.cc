// Following the owner's control buffers while others share them. docs/wire-protocol.md, "Mirrors that follow".
#include <algorithm>
#include <string>
#include <utility>

#include "base/fault_point.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"

namespace vuda::daemon {
namespace {

// What the owner waits beyond our own deadline: the way back.
constexpr Milliseconds kWayBack{10};

}  // namespace

size_t Registry::handle_room(const Tsg& tsg, uid_t uid) {
    size_t held = 0;
    for (const auto& [name, other] : tsgs_) {
        if (other.get() != &tsg && find(other->owner)->peer.uid == uid) held += other->live.size();
    }
    const size_t left = settings_.handles_per_uid > held ? settings_.handles_per_uid - held : 0;
    return std::min(left, kHandlesPerSet);
}

// Those who are told of changes: programs that share, and the one that imports the set.
template <typename Visit>
void Registry::each_mirror(Tsg& tsg, Visit visit) {
    const auto told = [&](SessionId id) {
        Session* session = find(id);
        if (session != nullptr && (session->features & v1::FEATURE_LIVE_MIRROR) != 0) visit(*session);
    };
    for (const auto& [id, attached] : tsg.attached) told(id);
    if (tsg.turn && tsg.turn->phase == Turn::Phase::kImport && !tsg.attached.contains(tsg.turn->waiter.session))
        told(tsg.turn->waiter.session);
}

// Somebody shares, or is on the way to it, who can follow.
bool Registry::has_mirrors(Tsg& tsg) {
    const auto follows = [&](SessionId id) {
        const Session* session = find(id);
        return session != nullptr && (session->features & v1::FEATURE_LIVE_MIRROR) != 0;
    };
    return std::ranges::any_of(tsg.attached, [&](const auto& entry) { return follows(entry.first); }) ||
           std::ranges::any_of(tsg.queue, [&](const Waiter& waiter) { return follows(waiter.session); }) ||
           (tsg.turn && follows(tsg.turn->waiter.session));
}

bool Registry::may_follow(const Tsg& tsg) {
    return (find(tsg.owner)->features & v1::FEATURE_LIVE_MIRROR) != 0 && settings_.mirror_limit.count() > 0 &&
           !tsg.faulted;
}

uint32_t Registry::live_ms(Tsg& tsg) {
    if (!may_follow(tsg) || !has_mirrors(tsg)) return 0;
    tsg.following = true;
    return static_cast<uint32_t>((settings_.mirror_limit + kWayBack).count());
}

void Registry::receive_mirror(SessionId id, const v1::ClientMessage& message, std::vector<HeldPtr> added) {
    Session* session = find(id);
    if (session == nullptr) return;
    heard(*session);
    if (Status taken = on_mirror_update(*session, message.id(), message.mirror_update(), std::move(added)); !taken) {
        ++counters_.mirrors_refused;
        emit("mirror-refused", session->owned, *session, &taken.error());
        reply_error(*session, message.id(), taken.error());
    }
    update_deadline();
}

Status Registry::on_mirror_update(Session& owner, uint64_t id, const v1::MirrorUpdate& update,
                                  std::vector<HeldPtr> added) {
    const auto owned = tsgs_.find(owner.owned);
    if (owned == tsgs_.end()) return Error{Code::kFailedPrecondition, "this process owns no name", ""};
    Tsg& tsg = *owned->second;
    if (Status changed = tsg.live.update(update, added, handle_room(tsg, owner.peer.uid)); !changed) {
        // Whoever shares needs the set all the same: the owner is asked for a whole one.
        if (changed.error().code != Code::kResourceExhausted) tsg.following = false;
        return changed.error();
    }
    ++counters_.mirror_updates;
    VUDA_FAULT_POINT(daemon_mirror_stored);
    Mirroring mirroring;
    mirroring.id = id;
    mirroring.to = update.to();
    mirroring.adds = update.added_size() > 0;
    mirroring.deadline = clock_() + settings_.mirror_limit;
    v1::ServerMessage message;
    *message.mutable_mirror_update() = update;
    each_mirror(tsg, [&](Session& session) {
        session.sink->send_with(message, added);
        session.mirror_sent = update.to();
        // Nobody waits for one that was late, until it has caught up.
        if (session.mirror_late) {
            ++mirroring.late;
        } else {
            mirroring.waits_for.insert(session.id);
        }
    });
    VUDA_FAULT_POINT(daemon_mirror_forwarded);
    tsg.mirroring.push_back(std::move(mirroring));
    return {};
}

void Registry::on_mirror_done(Session& session, const v1::MirrorDone& done) {
    const auto found = tsgs_.find(session.tsg != 0 ? session.attached_name : session.pending);
    if (done.has_reason()) {
        const Error error = from_proto(done.reason());
        ++counters_.mirrors_failed;
        emit("mirror-failed", found == tsgs_.end() ? "" : found->first, session, &error);
    }
    session.mirror_done = std::max(session.mirror_done, done.to());
    if (done.to() > session.mirror_set) session.mirror_parts = 0;
    if (done.to() == session.mirror_set && session.mirror_parts > 0) --session.mirror_parts;
    if (done.to() >= session.mirror_sent && session.mirror_parts == 0) caught_up(session);
    if (found == tsgs_.end()) return;
    if (session.tsg != 0 && !done.has_reason() && done.to() == found->second->live.generation())
        session.control_buffers = static_cast<uint32_t>(found->second->live.size() - 1);
    for (Mirroring& mirroring : found->second->mirroring) {
        if (mirroring.to > done.to() || mirroring.waits_for.erase(session.id) == 0) continue;
        ++(done.has_reason() ? mirroring.late : mirroring.mirrored);
    }
}

// The renderer goes on without it: until it has what it lacks, its next kernel could end the TSG.
void Registry::hold(Session& session) {
    if (session.page) session.page->hold();
}

void Registry::caught_up(Session& session) {
    session.mirror_late = false;
    if (session.page) session.page->release();
}

bool Registry::awaits_mirror(SessionId id, uint64_t to) const {
    const auto found = sessions_.find(id);
    return found != sessions_.end() && to > found->second->mirror_done && to <= found->second->mirror_sent;
}

// Sends `session` the set as it is: it may have missed any number of changes.
void Registry::send_mirrors(Session& session, Tsg& tsg) {
    session.mirror_of = tsg.id;
    session.mirror_late = false;
    session.mirror_sent = tsg.live.generation();
    session.mirror_set = tsg.live.generation();
    session.mirror_parts = 0;
    session.mirror_done = 0;
    const HandleSetPtr set = tsg.live.set();
    for (size_t at = 1; at < set->size(); at += kHandlesPerFrame) {
        v1::ServerMessage message;
        v1::MirrorUpdate& update = *message.mutable_mirror_update();
        update.set_to(tsg.live.generation());
        std::vector<HeldPtr> part;
        for (size_t i = at; i < std::min(at + kHandlesPerFrame, set->size()); ++i) {
            *update.add_added() = set->items()[i]->message();
            part.push_back(set->items()[i]);
        }
        session.sink->send_with(message, std::move(part));
        if (session.mirror_parts++ == 0) hold(session);
    }
}

// What follows from whatever happened just now: answers that are due, sharers who need the whole set, an owner that is
// to begin or need not go on.
void Registry::follow(Tsg& tsg) {
    Session& owner = *find(tsg.owner);
    std::erase_if(tsg.mirroring, [&](Mirroring& mirroring) {
        std::erase_if(mirroring.waits_for, [&](SessionId id) {
            bool told = false;
            each_mirror(tsg, [&](Session& session) { told = told || session.id == id; });
            return !told;
        });
        if (!mirroring.waits_for.empty()) return false;
        v1::ServerMessage message;
        v1::MirrorUpdateReply& answer = *message.mutable_mirror_update_reply();
        answer.set_mirrored(mirroring.mirrored);
        answer.set_late(mirroring.late);
        reply(owner, mirroring.id, std::move(message));
        return true;
    });
    if (!may_follow(tsg)) return;
    if (!tsg.following) {
        if (!tsg.turn && has_mirrors(tsg)) export_ahead(tsg);
        return;
    }
    if (!has_mirrors(tsg)) {
        tsg.following = false;
        v1::ServerMessage message;
        message.mutable_mirror_idle();
        owner.sink->send(message);
        return;
    }
    if (tsg.live.empty()) return;
    each_mirror(tsg, [&](Session& session) {
        if (session.mirror_of != tsg.id) send_mirrors(session, tsg);
    });
}

void Registry::expire_mirrors(Tsg& tsg) {
    for (Mirroring& mirroring : tsg.mirroring) {
        if (mirroring.deadline > clock_()) continue;
        for (const SessionId id : mirroring.waits_for) {
            Session* session = find(id);
            if (session == nullptr) continue;
            // What it has too much does no harm; the owner hears of it, and sends no more that nobody waits for.
            if (!mirroring.adds) {
                ++mirroring.late;
                continue;
            }
            session->mirror_late = true;
            hold(*session);
            ++mirroring.late;
            ++counters_.mirrors_late;
            const Error error{Code::kDeadlineExceeded,
                              "did not mirror a control buffer of '" + tsg.name + "' within " +
                                  std::to_string(settings_.mirror_limit.count()) + " ms; the renderer went on",
                              "is it stopped or in a debugger?"};
            emit("mirror-late", tsg.name, *session, &error);
        }
        mirroring.waits_for.clear();
    }
}

}  // namespace vuda::daemon
