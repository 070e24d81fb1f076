#include "daemon/registry.h"

#include <algorithm>
#include <utility>

#include "base/fault_point.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"
#include "rm/va_layout.h"

namespace vuda::daemon {
namespace {

constexpr int kAllowListLimit = 64;
constexpr size_t kPathOfProgram = 1024;

Result<Uuid> gpu_of(const std::string& bytes) {
    Uuid uuid;
    if (bytes.size() == uuid.bytes.size()) std::copy(bytes.begin(), bytes.end(), uuid.bytes.begin());
    if (uuid.is_nil()) return Error{Code::kInvalidArgument, "the GPU UUID must be 16 bytes, not all zero", ""};
    return uuid;
}

std::string who(const Peer& peer, const std::string& program) {
    return "pid " + std::to_string(peer.pid()) + " (" + program + "), uid " + std::to_string(peer.uid);
}

v1::Event event_of(const char* kind, std::string_view name, const Peer& by, SessionId session, TimePoint now) {
    v1::Event event;
    event.set_monotonic_us(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count()));
    event.set_kind(kind);
    event.set_name(std::string(name));
    event.set_session_id(session);
    v1::PeerInfo& peer = *event.mutable_peer();
    peer.set_pid(static_cast<uint32_t>(by.pid()));
    peer.set_uid(by.uid);
    peer.set_gid(by.gid);
    peer.set_program(by.program);
    return event;
}

}  // namespace

bool valid_name(std::string_view name) {
    if (name.empty() || name.size() > 64 || name.front() == '.' || name.front() == '-') return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    });
}

Registry::Registry(Identity identity, Settings settings, Clock clock, TokenSource tokens, Hooks hooks)
    : identity_(std::move(identity)),
      settings_(std::move(settings)),
      clock_(std::move(clock)),
      tokens_(std::move(tokens)),
      hooks_(std::move(hooks)) {
    faults_.set_limit(settings_.names_per_uid);
}

Registry::~Registry() = default;

void Registry::set_settings(const Settings& settings) {
    settings_ = settings;
    faults_.set_limit(settings_.names_per_uid);
    // The pace may be another.
    if (!tsgs_.empty()) next_beat_ = clock_();
    update_deadline();
}

Registry::Session* Registry::find(SessionId id) {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second.get();
}

Registry::Tsg* Registry::find_turn(uint64_t serial) {
    for (auto& [name, tsg] : tsgs_) {
        if (tsg->turn && tsg->turn->serial == serial) return tsg.get();
    }
    return nullptr;
}

void Registry::reply(Session& session, uint64_t id, v1::ServerMessage message) {
    if (id == 0) return;  // the client wants no answer
    message.set_id(id);
    session.sink->send(message);
}

void Registry::reply_error(Session& session, uint64_t id, const Error& error) {
    v1::ServerMessage message;
    *message.mutable_error() = to_proto(error);
    reply(session, id, std::move(message));
}

void Registry::emit(const char* kind, std::string_view name, const Session& session, const Error* reason) {
    if (!hooks_.event) return;
    v1::Event event = event_of(kind, name, session.peer, session.id, clock_());
    event.mutable_peer()->set_program(session.program);
    if (reason != nullptr) *event.mutable_reason() = to_proto(*reason);
    hooks_.event(event);
}

void Registry::emit_access(const char* kind, const Tsg& tsg, const Session& owner) {
    if (!hooks_.event) return;
    v1::Event event = event_of(kind, tsg.name, owner.peer, owner.id, clock_());
    event.mutable_peer()->set_program(owner.program);
    const std::string uids = ids_text(tsg.allow.uids), gids = ids_text(tsg.allow.gids);
    std::string text;
    if (!uids.empty()) text = "uids " + uids;
    if (!gids.empty()) text += (text.empty() ? "gids " : ", gids ") + gids;
    if (!tsg.allow.empty()) {
        event.mutable_reason()->set_text("open to " + text);
        if (!uids.empty()) (*event.mutable_fields())["VUDA_ALLOW_UIDS"] = uids;
        if (!gids.empty()) (*event.mutable_fields())["VUDA_ALLOW_GIDS"] = gids;
    } else if (std::string_view(kind) == "access") {
        event.mutable_reason()->set_text("open to its owner's user only");
    }
    hooks_.event(event);
}

void Registry::emit_refused(const char* kind, std::string_view name, const Peer& peer, SessionId session,
                            const Error& reason) {
    if (!hooks_.event) return;
    v1::Event event = event_of(kind, name, peer, session, clock_());
    *event.mutable_reason() = to_proto(reason);
    hooks_.event(event);
}

void Registry::update_deadline() {
    for (auto& [name, tsg] : tsgs_) {
        follow(*tsg);
        follow_veids(*tsg);
    }
    const std::optional<TimePoint> next = next_deadline();
    if (next == announced_deadline_) return;
    announced_deadline_ = next;
    if (hooks_.deadline) hooks_.deadline(next);
}

// The lowest that no program has that will attach to `name`, or does: 0 for the first, which so keeps its addresses.
// `held`: one more than the slot that it has already.
uint32_t Registry::free_va_slot(const std::string& name, uint32_t held) const {
    if (name.empty()) return 0;
    std::set<uint32_t> taken;
    for (const auto& [id, session] : sessions_) {
        if (session->attach_name == name) taken.insert(session->va_slot);
    }
    if (held > 0 && held <= rm::kVaSlots && !taken.contains(held - 1)) return held - 1;
    uint32_t slot = 0;
    while (taken.contains(slot)) ++slot;
    return slot < rm::kVaSlots ? slot : 0;
}

Result<SessionId> Registry::open_session(const Peer& peer, Transport transport, const v1::Hello& hello,
                                         uint64_t request_id, SessionSink& sink, std::unique_ptr<SessionPage> page) {
    const auto others = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        return entry.second->peer.uid == peer.uid && entry.second->peer.process != peer.process;
    });
    if (static_cast<uint64_t>(others) >= settings_.sessions_per_uid) {
        const Error error{Code::kResourceExhausted,
                          "uid " + std::to_string(peer.uid) + " has " + std::to_string(others) + " sessions, the limit",
                          "raise [limits] sessions_per_uid in vudad.toml"};
        emit_refused("session-refused", "", peer, 0, error);
        return error;
    }
    replace_sessions_of(peer.process);

    auto session = std::make_unique<Session>();
    session->id = ++last_session_;
    session->peer = peer;
    // The kernel's word where it gives it; else the program's, which can only be about itself.
    if (session->peer.exe.empty() && hello.executable().starts_with('/'))
        session->peer.exe = clean_text(hello.executable(), kPathOfProgram);
    session->transport = transport;
    session->sink = &sink;
    session->program = hello.program().empty() ? peer.program : clean_text(hello.program(), kProgramLimit);
    session->client_version = clean_text(hello.client_version(), kProgramLimit);
    session->driver_version = clean_text(hello.driver_version(), kProgramLimit);
    session->features = identity_.features & hello.features();
    // gRPC carries no descriptors.
    if (transport == Transport::kGrpc) session->features &= ~static_cast<uint64_t>(v1::FEATURE_LIVE_MIRROR);
    session->page = std::move(page);
    if (session->page) next_look_ = TimePoint::min();
    if (!session->page) session->features &= ~static_cast<uint64_t>(v1::FEATURE_SHARED_PAGE);
    session->since = session->heard = clock_();

    v1::ServerMessage message;
    v1::HelloReply& answer = *message.mutable_hello_reply();
    answer.set_features(session->features);
    if (session->page) answer.set_page_bytes(page::kPageBytes);
    answer.set_daemon_version(identity_.version);
    answer.set_session_id(session->id);
    answer.set_simulated(identity_.simulated);
    session->attach_name = valid_name(hello.attach_name()) ? hello.attach_name() : "";
    session->va_slot = free_va_slot(session->attach_name, hello.va_slot());
    answer.set_va_slot(session->va_slot);
    answer.set_handle_socket(identity_.handle_socket);
    reply(*session, request_id, std::move(message));

    ++counters_.sessions_opened;
    Session& kept = *(sessions_[session->id] = std::move(session));
    VUDA_FAULT_POINT(daemon_session_stored);
    emit("session-open", "", kept);
    update_deadline();
    return kept.id;
}

void Registry::replace_sessions_of(const ProcessKey& process) {
    std::vector<SessionId> old;
    for (const auto& [id, session] : sessions_) {
        if (session->peer.process == process) old.push_back(id);
    }
    const Error reason{Code::kAborted, "replaced by a newer session of the same process", ""};
    for (const SessionId id : old) {
        SessionSink* sink = find(id)->sink;
        close_session(id, reason);
        sink->close(reason);
    }
}

void Registry::close_session(SessionId id, const Error& reason) {
    Session* session = find(id);
    if (session == nullptr) return;
    VUDA_FAULT_POINT(daemon_session_ending);
    // Its own name first, so that no turn on it starts below.
    if (!session->owned.empty()) {
        remove_tsg(session->owned, Error{Code::kUnavailable,
                                         "the owner of '" + session->owned + "', " +
                                             who(session->peer, session->program) + ", went away",
                                         "start the renderer again"});
    }
    if (const auto waits = tsgs_.find(session->pending); waits != tsgs_.end()) {
        Tsg& tsg = *waits->second;
        if (tsg.turn && tsg.turn->waiter.session == id) {
            tokens_.revoke(tsg.turn->token);
            tsg.turn.reset();
            ++counters_.attach_failures;
            emit("attach-failed", tsg.name, *session, &reason);
        }
        std::erase_if(tsg.queue, [id](const Waiter& waiter) { return waiter.session == id; });
        session->pending.clear();
        start_next(tsg);
    }
    if (session->tsg != 0) {
        emit("detach", session->attached_name, *session, &reason);
        leave_tsg(*session);
    }
    emit("session-close", "", *session, &reason);
    sessions_.erase(id);
    update_deadline();
}

void Registry::remove_tsg(const std::string& name, const Error& reason) {
    const auto found = tsgs_.find(name);
    if (found == tsgs_.end()) return;
    // Taken out first: what follows must not find the name any more.
    const std::unique_ptr<Tsg> tsg = std::move(found->second);
    tsgs_.erase(found);
    VUDA_FAULT_POINT(daemon_name_removed);
    name_ends(*tsg);
    close_split(*tsg);
    if (tsg->turn) fail_turn(*tsg, reason);
    for (const Waiter& waiter : tsg->queue) fail_waiter(waiter, *tsg, reason);
    for (const auto& [id, attached] : tsg->attached) {
        // Their channels live on in the TSG, which RM keeps for them: this is news, not an order to stop.
        Session* session = find(id);
        if (session == nullptr) continue;
        session->reason = reason;
        caught_up(*session);
        if (const Session* owner = find(tsg->owner); owner != nullptr && session->tsg == tsg->id && !tsg->faulted) {
            session->claim =
                Session::Claim{name, attached.channels, attached.veids, TimePoint::max(), owner->peer.process, tsg->id};
        }
        sync_page(*session);
        v1::ServerMessage message;
        *message.mutable_detach_command()->mutable_reason() = to_proto(reason);
        session->sink->send(message);
    }
    if (Session* owner = find(tsg->owner); owner != nullptr) {
        owner->owned.clear();
        owner->state = v1::SHARING_STATE_IDLE;
        emit("unregister", tsg->name, *owner, &reason);
    }
}

void Registry::receive(SessionId id, const v1::ClientMessage& message) {
    Session* session = find(id);
    if (session == nullptr) return;
    heard(*session);
    switch (message.body_case()) {
        case v1::ClientMessage::kPong: break;
        case v1::ClientMessage::kRegisterRequest:
            on_register(*session, message.id(), message.register_request());
            break;
        case v1::ClientMessage::kUnregisterRequest:
            on_unregister(*session, message.id(), message.unregister_request());
            break;
        case v1::ClientMessage::kAttachRequest: on_attach(*session, message.id(), message.attach_request()); break;
        case v1::ClientMessage::kAttachDone: on_attach_done(*session, message.id(), message.attach_done()); break;
        case v1::ClientMessage::kDetachNotice: on_detach_notice(*session, message.detach_notice()); break;
        case v1::ClientMessage::kStateReport: on_state_report(*session, message.state_report()); break;
        case v1::ClientMessage::kExportRefused: on_export_refused(*session, message.export_refused()); break;
        case v1::ClientMessage::kExportCurrent: on_export_current(*session, message.export_current()); break;
        case v1::ClientMessage::kPartitionReport:
            on_partition_report(*session, message.id(), message.partition_report());
            break;
        case v1::ClientMessage::kSetMode: on_set_mode(*session, message.id(), message.set_mode()); break;
        case v1::ClientMessage::kSetQuota: on_set_quota(*session, message.id(), message.set_quota()); break;
        case v1::ClientMessage::kFault: on_fault(*session, message.id(), message.fault()); break;
        case v1::ClientMessage::kDoesNotFit: on_does_not_fit(*session, message.id(), message.does_not_fit()); break;
        case v1::ClientMessage::kSetTargets: on_set_targets(*session, message.id(), message.set_targets()); break;
        case v1::ClientMessage::kMirrorDone: on_mirror_done(*session, message.mirror_done()); break;
        case v1::ClientMessage::kSubcontexts: on_subcontexts(*session, message.subcontexts()); break;
        case v1::ClientMessage::kMirrorUpdate:
            reply_error(*session, message.id(), {Code::kUnimplemented, "this session carries no descriptors", ""});
            break;
        case v1::ClientMessage::kHello:
            reply_error(*session, message.id(),
                        {Code::kFailedPrecondition, "Hello was said already in this session", ""});
            break;
        case v1::ClientMessage::BODY_NOT_SET:
            // A newer client: it is told, and the session goes on.
            reply_error(*session, message.id(),
                        {Code::kUnimplemented, "this vudad (" + identity_.version + ") does not know the request", ""});
            break;
    }
    update_deadline();
}

void Registry::on_register(Session& session, uint64_t id, const v1::RegisterRequest& request) {
    const auto refuse = [&](const Error& error) {
        emit("register-refused", valid_name(request.name()) ? request.name() : "", session, &error);
        reply_error(session, id, error);
    };
    if (!valid_name(request.name())) {
        return refuse({Code::kInvalidArgument, "'" + clean_text(request.name(), 64) + "' is not a valid name",
                       "1 to 64 of A-Z a-z 0-9 . _ - and neither '.' nor '-' first"});
    }
    const Result<Uuid> gpu = gpu_of(request.gpu_uuid());
    if (!gpu) return refuse(gpu.error());
    if (request.allow_uids_size() > kAllowListLimit || request.allow_gids_size() > kAllowListLimit) {
        return refuse({Code::kResourceExhausted,
                       "more than " + std::to_string(kAllowListLimit) + " allowed users or groups", "use a group"});
    }
    if (!session.owned.empty() && session.owned != request.name()) {
        return refuse({Code::kFailedPrecondition, "this process owns '" + session.owned + "' already",
                       "unregister that name first"});
    }
    const AllowList allow{{request.allow_uids().begin(), request.allow_uids().end()},
                          {request.allow_gids().begin(), request.allow_gids().end()}};

    // A program that is stopped does not keep a name from its own user.
    if (const auto taken = tsgs_.find(request.name()); taken != tsgs_.end()) {
        const Session& owner = *find(taken->second->owner);
        if (owner.silent && owner.id != session.id && may_control(session.peer, owner.peer)) end_silent(owner.id);
    }
    if (const auto taken = tsgs_.find(request.name()); taken != tsgs_.end()) {
        Tsg& tsg = *taken->second;
        if (tsg.owner != session.id) {
            const Session& owner = *find(tsg.owner);
            return refuse({Code::kAlreadyExists,
                           "the name '" + tsg.name + "' is taken by " + who(owner.peer, owner.program) +
                               (owner.silent ? ", which does not answer" : ""),
                           "choose another name or end that program"});
        }
        if (tsg.gpu == *gpu) {
            if (tsg.allow != allow) {
                tsg.allow = allow;
                emit_access("access", tsg, session);
            }
            const bool works_again = tsg.faulted;
            if (works_again) {
                name_works(tsg);
                tsg.forget_veids();
            }
            v1::ServerMessage message;
            message.mutable_register_reply();
            reply(session, id, std::move(message));
            if (works_again) export_ahead(tsg);
            return;
        }
        // Another GPU is another TSG.
        remove_tsg(request.name(),
                   {Code::kUnavailable, "'" + request.name() + "' moved to " + gpu->to_string(), "attach again"});
    }

    if (const std::optional<uid_t> kept = faults_.reserved(request.name(), clock_());
        kept && *kept != session.peer.uid && session.peer.uid != 0) {
        return refuse({Code::kAlreadyExists,
                       "the name '" + request.name() + "' is kept for uid " + std::to_string(*kept) +
                           " after a fault: " + faults_.find(request.name())->text,
                       "choose another name, or wait (vudactl status)"});
    }

    const auto names = std::count_if(tsgs_.begin(), tsgs_.end(), [&](const auto& entry) {
        return find(entry.second->owner)->peer.uid == session.peer.uid;
    });
    if (static_cast<uint64_t>(names) >= settings_.names_per_uid) {
        return refuse(
            {Code::kResourceExhausted,
             "uid " + std::to_string(session.peer.uid) + " has " + std::to_string(names) + " names, the limit",
             "raise [limits] names_per_uid in vudad.toml"});
    }
    auto tsg = std::make_unique<Tsg>();
    tsg->id = ++last_tsg_;
    tsg->name = request.name();
    tsg->gpu = *gpu;
    tsg->owner = session.id;
    tsg->allow = allow;
    tsg->since = clock_();
    tsg->again = request.again();
    if (tsg->again) tsg->unknown = kVeidsNotKnown;
    Tsg& kept = *(tsgs_[request.name()] = std::move(tsg));
    session.owned = request.name();
    expect_words(session);
    VUDA_FAULT_POINT(daemon_name_stored);
    session.reason.reset();
    session.dead_name.clear();
    if (session.state == v1::SHARING_STATE_FAULTED) session.state = v1::SHARING_STATE_IDLE;
    ++counters_.registrations;
    emit_access("register", kept, session);
    open_split(kept);
    settle_claims(kept);
    v1::ServerMessage message;
    message.mutable_register_reply();
    reply(session, id, std::move(message));
    VUDA_FAULT_POINT(daemon_name_answered);
    export_ahead(kept);
}

void Registry::on_unregister(Session& session, uint64_t id, const v1::UnregisterRequest& request) {
    if (session.owned.empty() || session.owned != request.name()) {
        return reply_error(session, id,
                           {Code::kNotFound, "this process does not own '" + clean_text(request.name(), 64) + "'", ""});
    }
    remove_tsg(request.name(), {Code::kUnavailable, "the owner withdrew '" + request.name() + "'", ""});
    v1::ServerMessage message;
    message.mutable_unregister_reply();
    reply(session, id, std::move(message));
}

void Registry::on_state_report(Session& session, const v1::StateReport& report) {
    std::optional<Error> reason;
    if (report.has_reason()) reason = from_proto(report.reason());
    switch (report.state()) {
        case v1::SHARING_STATE_IDLE:
        case v1::SHARING_STATE_UNSHARED: break;
        case v1::SHARING_STATE_SHARING: claim_share(session, report); break;
        case v1::SHARING_STATE_FAULTED: {
            v1::Fault fault;
            fault.set_kind(v1::FAULT_KIND_DEVICE_LOST);
            if (reason) fault.set_text(reason->text);
            // Refused: it says so of itself all the same.
            if (take_fault(session, fault)) return;
            break;
        }
        default: return;  // the registry knows the others better than the client
    }
    if (report.state() != v1::SHARING_STATE_SHARING && session.tsg == 0) leave_tsg(session);
    session.state = report.state();
    session.reason = std::move(reason);
    // CUDA in the renderer's own process shares from now on, or no longer.
    if (const auto owned = tsgs_.find(session.owned); owned != tsgs_.end()) refresh_split(*owned->second, &session);
    sync_page(session);
}

Status Registry::detach(SessionId id, const Peer& caller) {
    Session* session = find(id);
    if (session == nullptr) return Error{Code::kNotFound, "no session " + std::to_string(id), "see vudactl status"};
    if (!may_control(caller, session->peer)) {
        const Error error{Code::kPermissionDenied,
                          "session " + std::to_string(id) + " belongs to uid " + std::to_string(session->peer.uid),
                          "only that user and root may detach it"};
        emit_refused("detach-refused", session->split_name(), caller, id, error);
        return error;
    }
    const Error reason{Code::kCancelled, "detached by uid " + std::to_string(caller.uid), ""};
    if (const auto waits = tsgs_.find(session->pending); waits != tsgs_.end()) {
        Tsg& tsg = *waits->second;
        if (tsg.turn && tsg.turn->waiter.session == id) fail_turn(tsg, reason);
        for (auto waiter = tsg.queue.begin(); waiter != tsg.queue.end(); ++waiter) {
            if (waiter->session != id) continue;
            const Waiter copy = *waiter;
            tsg.queue.erase(waiter);
            fail_waiter(copy, tsg, reason);
            break;
        }
        start_next(tsg);
    }
    if (!session->owned.empty()) {
        remove_tsg(session->owned, {Code::kUnavailable, "an operator withdrew '" + session->owned + "'", ""});
    }
    v1::ServerMessage message;
    *message.mutable_detach_command()->mutable_reason() = to_proto(reason);
    session->sink->send(message);
    session->reason = reason;
    emit("detach-command", session->attached_name, *session, &reason);
    update_deadline();
    return {};
}

std::optional<TimePoint> Registry::next_deadline() const {
    std::optional<TimePoint> next;
    const auto consider = [&](TimePoint t) {
        if (!next || t < *next) next = t;
    };
    for (const auto& [name, tsg] : tsgs_) {
        if (tsg->turn) consider(tsg->turn->deadline);
        for (const Waiter& waiter : tsg->queue) consider(waiter.deadline);
        for (const Mirroring& mirroring : tsg->mirroring) consider(mirroring.deadline);
    }
    if (next_beat_) consider(*next_beat_);
    if (const auto end = faults_.next_end()) consider(*end);
    return next;
}

size_t Registry::sessions_sharing() const {
    return static_cast<size_t>(
        std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second->tsg != 0; }));
}

size_t Registry::handle_count() const {
    size_t sum = 0;
    for (const auto& [name, tsg] : tsgs_) sum += tsg->live.size();
    return sum;
}

size_t Registry::waiting_count() const {
    size_t sum = 0;
    for (const auto& [name, tsg] : tsgs_)
        sum += tsg->queue.size() + (tsg->turn && tsg->turn->waiter.session != 0 ? 1 : 0);
    return sum;
}

void Registry::fill_status(v1::StatusReply& out) const {
    const TimePoint now = clock_();
    const auto age = [now](TimePoint since) {
        return static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(now - since).count());
    };
    const auto fill_peer = [](v1::PeerInfo& info, const Session& session) {
        info.set_pid(static_cast<uint32_t>(session.peer.pid()));
        info.set_uid(session.peer.uid);
        info.set_gid(session.peer.gid);
        info.set_program(session.program);
    };
    for (const auto& [name, tsg] : tsgs_) {
        v1::TsgInfo& info = *out.add_tsgs();
        info.set_name(name);
        info.set_gpu_uuid(std::string(tsg->gpu.bytes.begin(), tsg->gpu.bytes.end()));
        info.set_owner_session(tsg->owner);
        fill_peer(*info.mutable_owner(), *sessions_.at(tsg->owner));
        info.set_exported(!tsg->live.empty());
        info.set_control_buffers(tsg->live.empty() ? 0 : static_cast<uint32_t>(tsg->live.size() - 1));
        info.set_channels(tsg->channels_in_use());
        for (const auto& [id, attached] : tsg->attached) info.add_attached_sessions(id);
        info.set_since_ms(age(tsg->since));
        for (const uid_t uid : tsg->allow.uids) info.add_allow_uids(uid);
        for (const gid_t gid : tsg->allow.gids) info.add_allow_gids(gid);
        fill_split(*tsg, info);
        fill_slo(*tsg, info);
        if (const NameFaults* entry = faults_.find(name); entry != nullptr && entry->fault()) {
            info.mutable_fault()->set_name(name);
            fill_fault(*entry, *info.mutable_fault());
        }
    }
    for (const auto& [name, entry] : faults_.names()) {
        if (tsgs_.contains(name) || !entry.held(now)) continue;
        v1::FaultInfo& info = *out.add_faults();
        info.set_name(name);
        fill_fault(entry, info);
    }
    fill_unfit(out);
    for (const auto& [id, session] : sessions_) {
        v1::SessionInfo& info = *out.add_sessions();
        info.set_session_id(id);
        fill_peer(*info.mutable_peer(), *session);
        info.set_role(session->role());
        info.set_state(session->shown_state());
        info.set_name(!session->attached_name.empty() ? session->attached_name
                      : !session->pending.empty()     ? session->pending
                      : !session->dead_name.empty()   ? session->dead_name
                                                      : session->owned);
        info.set_channels_moved(session->channels_moved);
        info.set_veid(session->veid);
        info.set_control_buffers(session->control_buffers);
        info.set_attach_us(session->attach_us);
        if (session->reason) *info.mutable_reason() = to_proto(*session->reason);
        info.set_client_version(session->client_version);
        info.set_driver_version(session->driver_version);
        info.set_transport(session->transport == Transport::kFrames ? "frames" : "grpc");
        info.set_since_ms(age(session->since));
        fill_split(*session, info);
        fill_stuck(*session, info);
    }
}

}  // namespace vuda::daemon
