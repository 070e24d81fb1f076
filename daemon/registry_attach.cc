// The attach turn: admission, hand-over of the owner's handles, and the ways in which it can end.
#include <algorithm>
#include <utility>

#include "base/fault_point.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"
#include "rm/va_layout.h"

namespace vuda::daemon {
namespace {

std::string ms_text(Milliseconds time) { return std::to_string(time.count()) + " ms"; }

std::string pid_and_program(const Peer& peer, const std::string& program) {
    return "pid " + std::to_string(peer.pid()) + " (" + program + ")";
}

}  // namespace

// What must hold when the request comes and again when its turn comes: names change hands and TSGs fill up in between.
Status Registry::admissible(const Session& session, const Waiter& waiter, const Tsg& tsg) {
    const Session& owner = *find(tsg.owner);
    if (Status ok = may_attach(session.peer, owner.peer, tsg.allow, settings_.attach); !ok) return ok;
    // Nobody waits for an answer that did not come before.
    if (owner.silent) return silent_error(owner);
    if (tsg.faulted) return Error{Code::kFailedPrecondition, dead_text(tsg.name), "restart the renderer"};
    if (Status free = not_held_off(session, tsg); !free) return free;
    if (Status small = fits(session, waiter, tsg); !small) return small;
    if (waiter.gpu != tsg.gpu) {
        return Error{
            Code::kFailedPrecondition,
            "'" + tsg.name + "' is on " + tsg.gpu.to_string() + ", this program uses " + waiter.gpu.to_string(),
            "set CUDA_VISIBLE_DEVICES to the renderer's GPU"};
    }
    if (session.driver_version != owner.driver_version) {
        return Error{Code::kFailedPrecondition,
                     "driver versions differ: '" + tsg.name + "' uses " + owner.driver_version + ", this program " +
                         session.driver_version,
                     "restart the program that was started before the driver was updated"};
    }
    if (session.tsg != 0 && session.tsg != tsg.id && tsgs_.contains(session.attached_name) &&
        tsgs_.find(session.attached_name)->second->id == session.tsg) {
        return Error{Code::kFailedPrecondition, "this process shares '" + session.attached_name + "' already",
                     "detach from it first"};
    }
    if (tsg.attached.size() - tsg.attached.count(session.id) >= settings_.programs_per_tsg) {
        const auto other = std::find_if(tsg.attached.begin(), tsg.attached.end(),
                                        [&](const auto& attached) { return attached.first != session.id; });
        const Session* sharer = find(other->first);
        return Error{Code::kResourceExhausted,
                     "'" + tsg.name + "' is shared by " +
                         (sharer != nullptr ? pid_and_program(sharer->peer, sharer->program) : "another program") +
                         ", and " +
                         (settings_.programs_per_tsg == 1 ? "one program"
                                                          : std::to_string(settings_.programs_per_tsg) + " programs") +
                         " at a time may",
                     "end that one first; [limits] programs_per_tsg in vudad.toml says why"};
    }
    if (Status apart = addresses_apart(session, tsg); !apart) return apart;
    const uint32_t used = tsg.channels_in_use();
    if (used + waiter.channels > kChannelsPerTsg) {
        return Error{Code::kResourceExhausted,
                     "the TSG '" + tsg.name + "' is full: " + std::to_string(used) + " of " +
                         std::to_string(kChannelsPerTsg) + " channels in use, " + std::to_string(waiter.channels) +
                         " wanted",
                     "reserve fewer channels (VUDA_RESERVE) or end another attached program"};
    }
    return {};
}

// The GPU tells the launch descriptors of a TSG apart by their addresses (docs/compatibility.md).
Status Registry::addresses_apart(const Session& session, const Tsg& tsg) {
    if (settings_.same_addresses) return {};
    const auto apart = [](uint64_t one, uint64_t other) {
        return one != 0 && other != 0 && (one > other ? one - other : other - one) >= rm::kVaStride;
    };
    const auto refused = [&](const std::string& who) {
        return Error{Code::kFailedPrecondition,
                     "the launch descriptors of this program lie where those of " + who + " lie, which shares '" +
                         tsg.name + "' already",
                     "start it with vudactl run --attach, or end the other one"};
    };
    for (const auto& [id, attached] : tsg.attached) {
        const Session* other = find(id);
        if (id == session.id || other == nullptr || apart(session.va_base, other->va_base)) continue;
        return refused(pid_and_program(other->peer, other->program));
    }
    const Session& owner = *find(tsg.owner);
    // CUDA in the renderer's process is where it always is.
    if (owner.id != session.id && owner.state == v1::SHARING_STATE_SHARING && !apart(session.va_base, rm::kUsualVaBase))
        return refused(pid_and_program(owner.peer, owner.program));
    return {};
}

void Registry::on_attach(Session& session, uint64_t id, const v1::AttachRequest& request) {
    const auto refuse = [&](const Error& error) {
        ++counters_.attach_failures;
        session.reason = error;
        if (session.state != v1::SHARING_STATE_FAULTED) session.state = v1::SHARING_STATE_UNSHARED;
        emit("attach-failed", valid_name(request.name()) ? request.name() : "", session, &error);
        reply_error(session, id, error);
    };
    if (id == 0) return;  // nobody could use the answer
    if (!session.pending.empty()) {
        // Not a failure of the one that is under way: its state stays.
        return reply_error(session, id,
                           {Code::kFailedPrecondition, "an attach of this process is in progress already", ""});
    }
    session.compute = true;
    session.overdue.reset();
    if (!valid_name(request.name())) {
        return refuse({Code::kInvalidArgument, "'" + clean_text(request.name(), 64) + "' is not a valid name", ""});
    }
    Waiter waiter{session.id, id, request.channels(), {}, {}};
    waiter.unshares = request.over_limit() == v1::OVER_LIMIT_UNSHARE;
    waiter.fitted = request.fitted();
    session.va_base = request.va_base();
    if (request.gpu_uuid().size() == waiter.gpu.bytes.size()) {
        std::copy(request.gpu_uuid().begin(), request.gpu_uuid().end(), waiter.gpu.bytes.begin());
    }
    if (waiter.gpu.is_nil()) return refuse({Code::kInvalidArgument, "the GPU UUID must be 16 bytes, not all zero", ""});
    if (waiter.channels < 1 || waiter.channels > kChannelsPerTsg) {
        return refuse({Code::kInvalidArgument, std::to_string(waiter.channels) + " channels asked for",
                       "1 to " + std::to_string(kChannelsPerTsg)});
    }
    const auto found = tsgs_.find(request.name());
    if (found == tsgs_.end()) {
        return refuse({Code::kNotFound, "no TSG is registered as '" + request.name() + "'",
                       "start the renderer first (VUDA_REGISTER)"});
    }
    Tsg& tsg = *found->second;
    if (Status ok = admissible(session, waiter, tsg); !ok) return refuse(ok.error());

    const Milliseconds wanted =
        request.deadline_ms() == 0 ? settings_.attach_default : Milliseconds(request.deadline_ms());
    waiter.deadline = clock_() + std::min(wanted, settings_.attach_max);
    session.pending = tsg.name;
    tsg.queue.push_back(waiter);
    VUDA_FAULT_POINT(daemon_attach_queued);
    start_next(tsg);
}

void Registry::start_next(Tsg& tsg) {
    while (!tsg.turn && !tsg.queue.empty()) {
        const Waiter waiter = tsg.queue.front();
        tsg.queue.pop_front();
        Session& session = *find(waiter.session);
        if (Status ok = admissible(session, waiter, tsg); !ok) {
            fail_waiter(waiter, tsg, ok.error());
            continue;
        }
        begin_turn(tsg, waiter);
    }
}

void Registry::begin_turn(Tsg& tsg, const Waiter& waiter) {
    const TimePoint now = clock_();
    const Session& owner = *find(tsg.owner);
    Turn turn;
    turn.serial = ++last_turn_;
    turn.waiter = waiter;
    turn.deadline = std::min(waiter.deadline, now + settings_.export_limit);
    turn.token = tokens_.issue({Grant::Purpose::kPush, owner.peer.process, owner.peer.uid, turn.deadline, turn.serial});
    tsg.turn = turn;
    VUDA_FAULT_POINT(daemon_push_token_issued);
    v1::ServerMessage message;
    v1::ExportRequest& request = *message.mutable_export_request();
    request.set_token(token_bytes(turn.token));
    request.set_deadline_ms(static_cast<uint32_t>(
        std::max<int64_t>(1, std::chrono::duration_cast<Milliseconds>(turn.deadline - now).count())));
    if ((owner.features & v1::FEATURE_EXPORT_REFRESH) != 0) request.set_held(tsg.live.generation());
    request.set_live_ms(live_ms(tsg));
    owner.sink->send(message);
}

// An export takes the owner tens of milliseconds, which the first attacher need not wait for. Should it fail, nobody is
// told: the first attacher asks again.
void Registry::export_ahead(Tsg& tsg) {
    if (tsg.turn || (find(tsg.owner)->features & v1::FEATURE_EXPORT_REFRESH) == 0) return;
    Waiter nobody;
    nobody.deadline = clock_() + settings_.export_limit;
    begin_turn(tsg, nobody);
}

Result<PushTicket> Registry::begin_push(std::string_view token, const Peer& peer) {
    const Result<Grant> grant = tokens_.redeem(token, Grant::Purpose::kPush, peer, clock_());
    if (!grant) {
        ++counters_.tokens_refused;
        emit_refused("token-refused", "", peer, 0, grant.error());
        return grant.error();
    }
    const Tsg* tsg = find_turn(grant->turn);
    if (tsg == nullptr) return Error{Code::kAborted, "the attach that wanted these handles has ended", ""};
    heard(*find(tsg->owner));
    VUDA_FAULT_POINT(daemon_push_token_redeemed);
    return PushTicket{grant->turn, handle_room(*tsg, peer.uid)};
}

Status Registry::complete_push(const PushTicket& ticket, HandleSetPtr handles, uint32_t channels_in_use,
                               uint64_t generation) {
    Tsg* tsg = find_turn(ticket.turn);
    if (tsg == nullptr || tsg->turn->phase != Turn::Phase::kExport) {
        return Error{Code::kAborted, "the attach that wanted these handles has ended", ""};
    }
    if (!handles || handles->size() == 0) {
        const Error error{Code::kInvalidArgument, "the owner sent no handles", ""};
        abandon_push(ticket, error);
        return error;
    }
    ++counters_.exports;
    tsg->live.replace(std::move(handles), generation);  // the old set's fds close when no transfer uses them any more
    for (const auto& [id, attached] : tsg->attached) {
        if (Session* sharer = find(id)) sharer->mirror_of = 0;  // and may have missed what led there
    }
    tsg->owner_channels = std::min(channels_in_use, kChannelsPerTsg);
    VUDA_FAULT_POINT(daemon_handles_stored);
    hand_over(*tsg);
    return {};
}

// The set is complete: the attacher whose turn it is may pull it.
void Registry::hand_over(Tsg& tsg) {
    const Waiter waiter = tsg.turn->waiter;
    Session* session = find(waiter.session);
    // The owner's channel count may be news: judge again.
    Status admitted;
    if (session != nullptr) admitted = admissible(*session, waiter, tsg);
    if (session == nullptr || !admitted) {
        fail_turn(tsg, admitted ? Error{Code::kCancelled, "exported ahead", ""} : admitted.error());
        start_next(tsg);
        return update_deadline();
    }
    const Session& owner = *find(tsg.owner);
    Turn& turn = *tsg.turn;
    tokens_.revoke(turn.token);
    turn.phase = Turn::Phase::kImport;
    turn.deadline = clock_() + settings_.turn_limit;
    // Of this moment: what changes from now on goes to the attacher's session.
    turn.pull = {tsg.live.set(), tsg.owner_channels, tsg.live.generation()};
    if (!tsg.attached.contains(session->id)) {
        session->mirror_of = tsg.id;
        session->mirror_sent = session->mirror_done = tsg.live.generation();
        session->mirror_parts = 0;
        caught_up(*session);
    }
    turn.token =
        tokens_.issue({Grant::Purpose::kPull, session->peer.process, session->peer.uid, turn.deadline, turn.serial});
    VUDA_FAULT_POINT(daemon_pull_token_issued);
    refresh_split(tsg, session);  // in force before its first launch
    v1::ServerMessage message;
    v1::AttachReply& answer = *message.mutable_attach_reply();
    answer.set_token(token_bytes(turn.token));
    answer.set_handles(static_cast<uint32_t>(turn.pull.handles->size()));
    answer.set_owner_pid(static_cast<uint32_t>(owner.peer.pid()));
    answer.set_veids_used(tsg.veids_used());
    answer.set_stale_veids(tsg.stale_veids());
    answer.set_unknown_veids(tsg.unknown);
    reply(*session, waiter.request, std::move(message));
    VUDA_FAULT_POINT(daemon_attach_answered);
    update_deadline();
}

void Registry::abandon_push(const PushTicket& ticket, const Error& reason) {
    Tsg* tsg = find_turn(ticket.turn);
    if (tsg == nullptr || tsg->turn->phase != Turn::Phase::kExport) return;
    fail_turn(*tsg, {reason.code, "the owner of '" + tsg->name + "' could not hand over its TSG: " + reason.text,
                     reason.hint});
    start_next(*tsg);
    update_deadline();
}

// The name whose export this session is asked for. The token tells an answer to this turn from one to a turn that is
// over.
Registry::Tsg* Registry::exporting(const Session& session, const std::string& token) {
    const auto owned = tsgs_.find(session.owned);
    if (owned == tsgs_.end()) return nullptr;
    Tsg& tsg = *owned->second;
    if (!tsg.turn || tsg.turn->phase != Turn::Phase::kExport || token != token_bytes(tsg.turn->token)) return nullptr;
    return &tsg;
}

void Registry::on_export_refused(Session& session, const v1::ExportRefused& refused) {
    Tsg* tsg = exporting(session, refused.token());
    if (tsg == nullptr) return;
    const Error error = from_proto(refused.error());
    fail_turn(*tsg, {error.code, "the owner of '" + tsg->name + "' refused: " + error.text, error.hint});
    start_next(*tsg);
}

void Registry::on_export_current(Session& session, const v1::ExportCurrent& current) {
    Tsg* tsg = exporting(session, current.token());
    if (tsg == nullptr) return;
    if (tsg->live.generation() == 0) {
        const Error error{Code::kDataLoss, "the owner of '" + tsg->name + "' spoke of a set that it never sent", ""};
        fail_turn(*tsg, error);
        return start_next(*tsg);
    }
    hand_over(*tsg);
}

Result<PullTicket> Registry::redeem_pull(std::string_view token, const Peer& peer) {
    const Result<Grant> grant = tokens_.redeem(token, Grant::Purpose::kPull, peer, clock_());
    if (!grant) {
        ++counters_.tokens_refused;
        emit_refused("token-refused", "", peer, 0, grant.error());
        return grant.error();
    }
    const Tsg* tsg = find_turn(grant->turn);
    if (tsg == nullptr) return Error{Code::kAborted, "the attach has ended", ""};
    VUDA_FAULT_POINT(daemon_pull_token_redeemed);
    return tsg->turn->pull;
}

void Registry::on_attach_done(Session& session, uint64_t id, const v1::AttachDone& done) {
    VUDA_FAULT_POINT(daemon_grant_reported);
    const auto found = tsgs_.find(session.pending);
    Tsg* tsg = found == tsgs_.end() ? nullptr : found->second.get();
    uint32_t asked = 0;
    uint64_t tsg_id = 0;
    std::string name;
    bool imported = false;
    if (tsg != nullptr) {
        if (tsg->turn && tsg->turn->waiter.session == session.id) {
            imported = tsg->turn->phase == Turn::Phase::kImport;
            asked = tsg->turn->waiter.channels;
            tokens_.revoke(tsg->turn->token);
            tsg->turn.reset();
        } else {
            // Gave up while it was still waiting.
            std::erase_if(tsg->queue, [&](const Waiter& waiter) { return waiter.session == session.id; });
        }
        tsg_id = tsg->id;
        name = tsg->name;
        session.pending.clear();
    } else if (session.overdue) {
        imported = true;
        asked = session.overdue->channels;
        tsg_id = session.overdue->tsg;
        name = session.overdue->name;
        session.overdue.reset();
        const auto late = tsgs_.find(name);
        if (late != tsgs_.end() && late->second->id == tsg_id) tsg = late->second.get();
    } else {
        return reply_error(session, id, {Code::kFailedPrecondition, "no attach of this process is in progress", ""});
    }

    if (done.state() == v1::SHARING_STATE_SHARING && imported && done.channels_moved() > 0) {
        const uint32_t moved = std::min(done.channels_moved(), asked);
        if (tsg != nullptr) {
            Tsg::Attached& attached = tsg->attached[session.id];
            attached.since = clock_();
            if (attached.channels == 0) attached.joined = attached.since;
            attached.channels += moved;
            tsg->take_veids(attached, done.veids() | (done.veid() < kVeidLimit ? uint64_t{1} << done.veid() : 0));
            session.reason.reset();
        }
        session.channels_moved = session.tsg == tsg_id ? session.channels_moved + moved : moved;
        session.tsg = tsg_id;
        session.attached_name = name;
        session.dead_name.clear();
        session.state = v1::SHARING_STATE_SHARING;
        session.veid = std::min(done.veid(), kVeidLimit - 1);
        session.control_buffers = done.control_buffers();
        session.attach_us = done.attach_us();
        ++counters_.attaches;
        counters_.attach_us_sum += done.attach_us();
        VUDA_FAULT_POINT(daemon_grant_counted);
        emit("attach", name, session);
    } else {
        const Error error =
            done.has_reason() ? from_proto(done.reason()) : Error{Code::kUnknown, "the program gave no reason", ""};
        session.reason = error;
        if (session.tsg == 0) session.state = v1::SHARING_STATE_UNSHARED;
        ++counters_.attach_failures;
        emit("attach-failed", name, session, &error);
    }
    if (tsg != nullptr) refresh_split(*tsg, &session);
    sync_page(session);
    v1::ServerMessage message;
    message.mutable_attach_done_reply();
    reply(session, id, std::move(message));
    if (tsg != nullptr) start_next(*tsg);
}

void Registry::on_detach_notice(Session& session, const v1::DetachNotice& notice) {
    if (session.tsg == 0 && session.state != v1::SHARING_STATE_SHARING) return;
    std::optional<Error> reason;
    if (notice.has_reason()) reason = from_proto(notice.reason());
    emit("detach", session.attached_name, session, reason ? &*reason : nullptr);
    leave_tsg(session);
    VUDA_FAULT_POINT(daemon_share_left);
    session.state = reason ? v1::SHARING_STATE_UNSHARED : v1::SHARING_STATE_IDLE;
    session.reason = std::move(reason);
}

void Registry::leave_tsg(Session& session) {
    left(session);
    const auto found = tsgs_.find(session.attached_name);
    if (found != tsgs_.end() && found->second->id == session.tsg) found->second->attached.erase(session.id);
    session.tsg = 0;
    session.attached_name.clear();
    session.stuck.reset();
    caught_up(session);
    session.channels_moved = session.veid = session.control_buffers = session.attach_us = 0;
    session.claim.reset();
    sync_page(session);
}

void Registry::fail_waiter(const Waiter& waiter, const Tsg& tsg, const Error& error) {
    Session* session = find(waiter.session);
    if (session == nullptr) return;
    session->pending.clear();
    session->reason = error;
    if (session->tsg == 0) session->state = v1::SHARING_STATE_UNSHARED;
    ++counters_.attach_failures;
    emit("attach-failed", tsg.name, *session, &error);
    reply_error(*session, waiter.request, error);
}

void Registry::fail_turn(Tsg& tsg, const Error& error) {
    const Turn turn = *std::exchange(tsg.turn, std::nullopt);
    tokens_.revoke(turn.token);
    if (turn.phase == Turn::Phase::kExport) return fail_waiter(turn.waiter, tsg, error);
    // AttachReply is out: the request has its answer. The import may be under way, so AttachDone stays welcome.
    Session* session = find(turn.waiter.session);
    if (session == nullptr) return;
    session->pending.clear();
    session->overdue = Session::Overdue{tsg.name, tsg.id, turn.waiter.channels};
    session->reason = error;
    if (session->tsg == 0) session->state = v1::SHARING_STATE_UNSHARED;
    sync_page(*session);
    ++counters_.attach_failures;
    emit("attach-failed", tsg.name, *session, &error);
}

void Registry::expire() {
    const TimePoint now = clock_();
    for (auto& [name, entry] : tsgs_) {
        Tsg& tsg = *entry;
        std::deque<Waiter> late;
        for (auto waiter = tsg.queue.begin(); waiter != tsg.queue.end();) {
            if (waiter->deadline > now) {
                ++waiter;
                continue;
            }
            late.push_back(*waiter);
            waiter = tsg.queue.erase(waiter);
        }
        const Session& owner = *find(tsg.owner);
        std::string blame;
        if (tsg.turn) {
            const Session* holder = find(tsg.turn->waiter.session);
            blame = tsg.turn->phase == Turn::Phase::kExport || holder == nullptr
                        ? "; the owner, " + pid_and_program(owner.peer, owner.program) + ", is being asked for its TSG"
                        : "; " + pid_and_program(holder->peer, holder->program) + " is still attaching";
        }
        for (const Waiter& waiter : late) {
            fail_waiter(waiter, tsg, {Code::kDeadlineExceeded, "no turn on '" + tsg.name + "' in time" + blame, ""});
        }
        if (tsg.turn && tsg.turn->deadline <= now) {
            const bool exporting = tsg.turn->phase == Turn::Phase::kExport;
            // Not a word for so long, while somebody waits for it. Who began to push is slow; who was asked ahead is
            // asked again.
            const bool silent =
                exporting && tsg.turn->waiter.session != 0 && now - owner.heard >= settings_.export_limit;
            const Error error =
                exporting
                    // Handles of an earlier export may be at hand, but not those of buffers made since, and one missing
                    // control buffer faults the whole TSG, renderer included: running unshared is the better outcome.
                    ? Error{Code::kDeadlineExceeded,
                            "the owner of '" + tsg.name + "', " + pid_and_program(owner.peer, owner.program) +
                                ", did not hand over its TSG within " + ms_text(settings_.export_limit),
                            "is it stopped or in a debugger?"}
                    : Error{Code::kDeadlineExceeded,
                            "attaching to '" + tsg.name + "' took longer than " + ms_text(settings_.turn_limit), ""};
            fail_turn(tsg, error);
            if (silent) fall_silent(*find(tsg.owner));
        }
        expire_mirrors(tsg);
        start_next(tsg);
    }
    end_quarantines();
    beat();
    update_deadline();
}

}  // namespace vuda::daemon
