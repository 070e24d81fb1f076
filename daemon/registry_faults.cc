// A TSG that died: who says so, who is told, who is taken for the cause, and who may come back when.
//
//   sharing --owner says so--> faulted --owner registers a TSG that works--> quarantined --time--> sharing
//
// While a name is faulted nobody attaches; while it is quarantined one program does not. The error notifiers of all
// channels of a TSG say the same, so that nobody can tell from them whose work it was: whoever joined or changed last
// is taken for the cause, unless somebody says that it was his own, or is stuck. Nobody can accuse another.
#include <algorithm>
#include <tuple>

#include "daemon/fault_text.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"
#include "rm/xid.h"

namespace vuda::daemon {
namespace {

// Everybody in a TSG notices its end within 100 ms; a program that ends of it takes longer than that to go. What is
// further apart has nothing to do with it.
constexpr Milliseconds kTogether{2000};
// A grant that is reported after its TSG died is recognised for as long as a program may take to attach.
constexpr Milliseconds kEndedKept{30'000};
constexpr size_t kEndedLimit = 256;
constexpr size_t kLeftLimit = 16;

// Reports of one process: one a TSG that dies is what there can be.
constexpr uint32_t kReports = 8;
constexpr Milliseconds kReportWindow{10'000};

}  // namespace

Registry::Sharer Registry::sharer_of(const Session& session, TimePoint joined, TimePoint since) const {
    Sharer sharer;
    sharer.session = session.id;
    sharer.who = suspect_of(session.peer);
    sharer.pid = session.peer.pid();
    sharer.joined = joined;
    sharer.since = since;
    if (session.stuck) sharer.stuck = session.stuck->since;
    return sharer;
}

// Those in it, whoever is just coming in, and those who went a moment ago.
std::vector<Registry::Sharer> Registry::sharers_of(const Tsg& tsg) const {
    std::vector<Sharer> sharers;
    const TimePoint now = clock_();
    for (const Sharer& gone : tsg.left) {
        if (now - gone.left <= kTogether) sharers.push_back(gone);
    }
    for (const auto& [id, attached] : tsg.attached) {
        if (const auto session = sessions_.find(id); session != sessions_.end())
            sharers.push_back(sharer_of(*session->second, attached.joined, attached.since));
    }
    if (tsg.turn && tsg.turn->phase == Turn::Phase::kImport) {
        if (const auto session = sessions_.find(tsg.turn->waiter.session); session != sessions_.end())
            sharers.push_back(sharer_of(*session->second, now, now));
    }
    return sharers;
}

// Called before a session is taken out of its TSG.
void Registry::left(const Session& session) {
    if (session.tsg == 0) return;
    const auto found = tsgs_.find(session.attached_name);
    if (found == tsgs_.end() || found->second->id != session.tsg) return;
    Tsg& tsg = *found->second;
    const auto attached = tsg.attached.find(session.id);
    if (attached == tsg.attached.end()) return;
    if (tsg.left.size() >= kLeftLimit) tsg.left.erase(tsg.left.begin());
    Sharer sharer = sharer_of(session, attached->second.joined, attached->second.since);
    sharer.left = clock_();
    tsg.left.push_back(std::move(sharer));
}

void Registry::on_fault(Session& session, uint64_t id, const v1::Fault& fault) {
    if (Status taken = take_fault(session, fault); !taken) {
        emit("fault-refused", valid_name(fault.name()) ? fault.name() : "", session, &taken.error());
        return reply_error(session, id, taken.error());
    }
    v1::ServerMessage message;
    message.mutable_fault_reply();
    reply(session, id, std::move(message));
}

Status Registry::take_fault(Session& session, const v1::Fault& fault) {
    const TimePoint now = clock_();
    if (now - session.fault_window >= kReportWindow) {
        session.fault_window = now;
        session.fault_reports = session.stuck_reports = 0;
    }
    const bool stuck = fault.kind() == v1::FAULT_KIND_STUCK;
    if (++(stuck ? session.stuck_reports : session.fault_reports) > kReports) {
        return Error{Code::kResourceExhausted,
                     "more than " + std::to_string(kReports) + " reports of faults in " + time_text(kReportWindow), ""};
    }
    if (fault.kind() != v1::FAULT_KIND_CHANNEL && fault.kind() != v1::FAULT_KIND_DEVICE_LOST && !stuck)
        return Error{Code::kInvalidArgument, "kind: unknown",
                     "FAULT_KIND_CHANNEL, FAULT_KIND_DEVICE_LOST or FAULT_KIND_STUCK"};
    if (fault.xid() > rm::kXidLimit)
        return Error{Code::kInvalidArgument, "xid: " + std::to_string(fault.xid()) + " is no error of a channel",
                     "0 to " + std::to_string(rm::kXidLimit)};
    if (!rm::is_fault(fault.xid()))
        return Error{Code::kInvalidArgument, "xid: 45 says that a channel was stopped, which is no fault", ""};
    if (!fault.name().empty() && !valid_name(fault.name()))
        return Error{Code::kInvalidArgument, "name: '" + clean_text(fault.name(), 64) + "' is not a valid name", ""};
    if (stuck) return take_stuck(session, fault);

    const std::string shared = !session.attached_name.empty() ? session.attached_name
                               : session.overdue              ? session.overdue->name
                                                              : session.pending;
    const std::string name = !fault.name().empty() ? fault.name() : !shared.empty() ? shared : session.owned;
    const auto found = tsgs_.find(name);
    if (found != tsgs_.end() && found->second->owner == session.id) {
        ++counters_.fault_reports;
        Tsg& tsg = *found->second;
        if (!tsg.faulted) {
            tsg_died(tsg, fault, session);
        } else if (fault.xid() != 0) {
            faults_.complete(name, fault.xid(), cause_text(fault));
            faults_changed();
        }
        return {};
    }
    // It was told already, and its own word crossed that on the way.
    if (!name.empty() && name == session.dead_name) {
        ++counters_.fault_reports;
        if (fault.own()) blame_self(session, name);
        if (fault.xid() != 0) {
            faults_.complete(name, fault.xid(), cause_text(fault));
            faults_changed();
        }
        return {};
    }
    const bool importing = found != tsgs_.end() && found->second->turn &&
                           found->second->turn->phase == Turn::Phase::kImport &&
                           found->second->turn->waiter.session == session.id;
    const bool shares = (session.tsg != 0 && session.attached_name == name) || importing ||
                        (session.overdue && session.overdue->name == name);
    if (name.empty() || !shares) {
        return Error{Code::kFailedPrecondition,
                     "this process neither owns nor shares " + (name.empty() ? "a TSG" : "'" + name + "'"),
                     "a program can report its own faults only"};
    }
    ++counters_.fault_reports;
    sharer_died(session, name, fault);
    return {};
}

// One that shares a TSG says that it is dead. For itself it is; what of the TSG, its owner says.
void Registry::sharer_died(Session& session, const std::string& name, const v1::Fault& fault) {
    const TimePoint now = clock_();
    const Error reason{Code::kFailedPrecondition, "the TSG '" + name + "' died: " + cause_text(fault),
                       "start the program again; it shares when the renderer does"};
    const auto found = tsgs_.find(name);
    Tsg* tsg = found == tsgs_.end() ? nullptr : found->second.get();
    // Of what it has, might have by now, or has its turn with, in this order.
    const uint64_t its_turn = tsg != nullptr ? tsg->id : 0;
    const uint64_t id = session.tsg != 0 ? session.tsg : session.overdue ? session.overdue->tsg : its_turn;
    if (tsg != nullptr && tsg->id != id) tsg = nullptr;  // another one by now

    if (tsg != nullptr && tsg->turn && tsg->turn->waiter.session == session.id) {
        Sharer sharer = sharer_of(session, now, now);
        sharer.left = now;
        tsg->left.push_back(std::move(sharer));
        fail_turn(*tsg, reason);
    }
    leave_tsg(session);
    session.overdue.reset();
    session.dead_name = name;
    session.state = v1::SHARING_STATE_FAULTED;
    session.reason = reason;
    emit("fault-reported", name, session, &reason);

    if (tsg != nullptr) {
        for (Sharer& sharer : tsg->left) sharer.own = sharer.own || (sharer.session == session.id && fault.own());
        tsg->said = Tsg::Said{fault, session.id, now};
        Session& owner = *find(tsg->owner);
        if ((owner.features & v1::FEATURE_FAULTS) != 0) {
            v1::ServerMessage message;
            v1::FaultNotice& notice = *message.mutable_fault_notice();
            notice.set_name(name);
            notice.set_xid(fault.xid());
            notice.set_text(reason.text);
            notice.set_look(true);
            owner.sink->send(message);
        }
        return start_next(*tsg);
    }
    // Its owner has gone: of the same fault, if that was a moment ago.
    const auto ended = std::find_if(ended_.begin(), ended_.end(), [id](const Ended& one) { return one.tsg == id; });
    if (ended == ended_.end()) return;
    if (ended->written_down) {
        if (fault.own()) blame_self(session, name);
        return;
    }
    if (now - ended->at > kTogether) return;
    ended->written_down = true;
    for (Sharer& sharer : ended->sharers) sharer.own = sharer.own || (sharer.session == session.id && fault.own());
    write_down(name, ended->uid, ended->sharers, fault, session);
    if (!tsgs_.contains(name) || !tsgs_.find(name)->second->faulted) faults_.recovered(name);
}

void Registry::tsg_died(Tsg& tsg, const v1::Fault& fault, Session& reporter) {
    std::vector<Sharer> sharers = sharers_of(tsg);
    Session& owner = *find(tsg.owner);
    tsg.faulted = true;
    tsg.said.reset();
    write_down(tsg.name, owner.peer.uid, sharers, fault, reporter);
    const Error error{Code::kFailedPrecondition, dead_text(tsg.name), "restart the renderer"};
    if (tsg.turn) fail_turn(tsg, error);
    for (const Waiter& waiter : std::exchange(tsg.queue, {})) fail_waiter(waiter, tsg, error);
    // Nobody can use them any more, and what they keep alive is dead.
    tsg.live.replace(nullptr, 0);
    tsg.mirroring.clear();
    tsg.following = false;
    tsg.owner_channels = 0;
    tsg.left.clear();
    std::vector<SessionId> in_it;
    for (const auto& [id, attached] : tsg.attached) in_it.push_back(id);
    for (const SessionId id : in_it) {
        if (Session* session = find(id)) tell_dead(*session, tsg.name);
    }
    tsg.attached.clear();
    tsg.left.clear();
    ended_.push_back({tsg.id, tsg.name, owner.peer.uid, clock_(), true, {}});
    while (ended_.size() > kEndedLimit) ended_.erase(ended_.begin());
    // A grant that is reported late is one of the dead TSG.
    tsg.id = ++last_tsg_;
    owner.state = v1::SHARING_STATE_FAULTED;
    owner.stuck.reset();
    owner.reason = error;
    refresh_split(tsg, nullptr);
}

// Who is taken for the cause. Everybody sees the GPU repeat the page faults of one: those who joined after it began did
// not do it, and a TSG that dies after all does so because the one that did has ended.
std::vector<Registry::Sharer>::const_iterator Registry::likeliest(const std::vector<Sharer>& sharers) {
    TimePoint began = TimePoint::max();
    for (const Sharer& sharer : sharers) began = std::min(began, sharer.stuck.value_or(TimePoint::max()));
    const auto weight = [began](const Sharer& sharer) {
        const bool stuck = sharer.stuck && sharer.joined <= began;
        return std::tuple(sharer.own, stuck, stuck ? sharer.left : TimePoint{}, sharer.since);
    };
    return std::max_element(sharers.begin(), sharers.end(),
                            [&](const Sharer& a, const Sharer& b) { return weight(a) < weight(b); });
}

// The fault goes into the book, with whoever is taken for its cause.
void Registry::write_down(const std::string& name, uid_t owner, const std::vector<Sharer>& sharers,
                          const v1::Fault& fault, const Session& reporter) {
    ++counters_.faults;
    const auto culprit = likeliest(sharers);
    FaultBook::Report report;
    report.xid = fault.xid();
    report.text = cause_text(fault);
    report.unix_ms = unix_ms() - std::min<int64_t>(fault.age_ms(), kTogether.count());
    if (culprit != sharers.end()) {
        report.culprit = culprit->who;
        report.pid = culprit->pid;
    }
    const Milliseconds held = faults_.record(name, owner, report, settings_.faults, clock_());
    if (hooks_.event) {
        const Error reason{Code::kFailedPrecondition, dead_text(name), "restart the renderer"};
        v1::Event event = fault_event("faulted", name, clock_());
        event.set_session_id(reporter.id);
        v1::PeerInfo& peer = *event.mutable_peer();
        peer.set_pid(static_cast<uint32_t>(reporter.peer.pid()));
        peer.set_uid(reporter.peer.uid);
        peer.set_gid(reporter.peer.gid);
        peer.set_program(reporter.program);
        *event.mutable_reason() = to_proto(reason);
        auto& fields = *event.mutable_fields();
        fields["VUDA_XID"] = std::to_string(report.xid);
        if (report.culprit) {
            fields["VUDA_CULPRIT"] = clean_text(report.culprit->program, kTextLimit);
            fields["VUDA_CULPRIT_UID"] = std::to_string(report.culprit->uid);
            fields["VUDA_CULPRIT_PID"] = std::to_string(report.pid);
            fields["VUDA_HELD_MS"] = std::to_string(held.count());
        }
        hooks_.event(event);
    }
    emit_quarantined(name, held);
    faults_changed();
}

// To a program whose channels died with the TSG `name`. It keeps its session.
void Registry::tell_dead(Session& session, const std::string& name) {
    const NameFaults* entry = faults_.find(name);
    const Error reason{Code::kFailedPrecondition, dead_text(name), "start the program again"};
    if (session.owned != name) {
        leave_tsg(session);
        session.dead_name = name;
    }
    session.state = v1::SHARING_STATE_FAULTED;
    session.reason = reason;
    v1::ServerMessage message;
    if ((session.features & v1::FEATURE_FAULTS) != 0) {
        v1::FaultNotice& notice = *message.mutable_fault_notice();
        notice.set_name(name);
        notice.set_xid(entry != nullptr ? entry->xid : 0);
        notice.set_text(reason.text);
        notice.set_culprit(entry != nullptr && entry->culprit == suspect_of(session.peer));
    } else {
        *message.mutable_detach_command()->mutable_reason() = to_proto({Code::kUnavailable, reason.text, reason.hint});
    }
    session.sink->send(message);
}

// "It was me", after another one was taken for the cause.
void Registry::blame_self(Session& session, const std::string& name) {
    const NameFaults* entry = faults_.find(name);
    const Suspect self = suspect_of(session.peer);
    if (entry == nullptr || entry->culprit == self || clock_() - entry->at > kTogether) return;
    emit_quarantined(name, faults_.blame(name, self, session.peer.pid(), settings_.faults, clock_()));
    faults_changed();
}

// The owner is going, or gives the name back.
void Registry::name_ends(Tsg& tsg) {
    const TimePoint now = clock_();
    const Session* owner = find(tsg.owner);
    const uid_t uid = owner == nullptr ? 0 : owner->peer.uid;
    std::erase_if(ended_, [now](const Ended& one) { return now - one.at > kEndedKept; });
    while (ended_.size() >= kEndedLimit) ended_.erase(ended_.begin());
    Ended ended{tsg.id, tsg.name, uid, now, tsg.faulted, {}};
    if (tsg.faulted) {
        faults_.recovered(tsg.name);
    } else if (owner != nullptr) {
        ended.sharers = sharers_of(tsg);
        if (tsg.said && now - tsg.said->at <= kTogether) {
            // It died of what a sharer had said already.
            ended.written_down = true;
            const Session* by = find(tsg.said->by);
            write_down(tsg.name, uid, ended.sharers, tsg.said->fault, by != nullptr ? *by : *owner);
            faults_.recovered(tsg.name);
        }
    }
    ended_.push_back(std::move(ended));
}

// The owner registered again what had died.
void Registry::name_works(Tsg& tsg) {
    Session& owner = *find(tsg.owner);
    tsg.faulted = false;
    tsg.said.reset();
    tsg.since = clock_();
    owner.reason.reset();
    owner.dead_name.clear();
    if (owner.state == v1::SHARING_STATE_FAULTED) owner.state = v1::SHARING_STATE_IDLE;
    faults_.recovered(tsg.name);
    emit("recovered", tsg.name, owner);
    faults_changed();
}

}  // namespace vuda::daemon
