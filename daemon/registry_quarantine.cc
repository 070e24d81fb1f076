// Who is held off from which name after a fault: refusals, the end of it, and what the status says.
#include <algorithm>

#include "daemon/fault_text.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"

namespace vuda::daemon {

void Registry::emit_quarantined(const std::string& name, Milliseconds time) {
    const NameFaults* entry = faults_.find(name);
    if (!hooks_.event || time.count() == 0 || entry == nullptr || !entry->culprit) return;
    v1::Event event = fault_event("quarantined", name, clock_());
    v1::PeerInfo& peer = *event.mutable_peer();
    peer.set_pid(static_cast<uint32_t>(entry->culprit_pid));
    peer.set_uid(entry->culprit->uid);
    peer.set_program(clean_text(entry->culprit->program, kTextLimit));
    event.mutable_reason()->set_text("held off for " + time_text(time) + ": taken for the cause of " + entry->text);
    (*event.mutable_fields())["VUDA_HELD_MS"] = std::to_string(time.count());
    hooks_.event(event);
}

Status Registry::not_held_off(const Session& session, const Tsg& tsg) const {
    const TimePoint now = clock_();
    const Suspect who = suspect_of(session.peer);
    const Hold* hold = faults_.held(tsg.name, who, now);
    if (hold == nullptr) return {};
    const NameFaults& entry = *faults_.find(tsg.name);
    return Error{Code::kFailedPrecondition,
                 clean_text(who.program, kTextLimit / 2) + " is held off from '" + tsg.name + "' for " +
                     time_text(left_of(hold->until, now)) + " more, taken for the cause of " + entry.text,
                 "vudactl unquarantine " + tsg.name + " lets it in at once"};
}

std::string Registry::dead_text(const std::string& name) const {
    const NameFaults* entry = faults_.find(name);
    std::string text = "the TSG '" + name + "' died";
    if (entry == nullptr) return text;
    text += ": " + entry->text;
    if (entry->culprit) text += "; taken for the cause: " + who_text(*entry->culprit, entry->culprit_pid);
    return text;
}

void Registry::end_quarantines() {
    const FaultBook::Over over = faults_.take_ended(settings_.faults, settings_.unshare, clock_());
    end_unshares(over.unfit);
    for (const std::string& name : over.faults) {
        if (hooks_.event) {
            v1::Event event = fault_event("quarantine-over", name, clock_());
            event.mutable_reason()->set_text("nobody is held off any more");
            hooks_.event(event);
        }
        faults_changed();
    }
}

Result<v1::UnquarantineReply> Registry::unquarantine(const v1::UnquarantineRequest& request, const Peer& caller) {
    if (request.all() != request.name().empty()) return Error{Code::kInvalidArgument, "a name, or all", ""};
    std::vector<std::string> names;
    if (request.all()) {
        for (const auto& [name, entry] : faults_.names()) names.push_back(name);
    } else if (faults_.find(request.name()) != nullptr) {
        names.push_back(request.name());
    } else {
        return Error{Code::kNotFound,
                     "no fault is known under '" + clean_text(request.name(), 64) + "', and nobody is held off",
                     "see vudactl status"};
    }
    v1::UnquarantineReply reply;
    std::optional<Error> denied;
    for (const std::string& name : names) {
        Peer owner;
        owner.uid = faults_.find(name)->uid;
        if (!may_split(caller, owner, settings_.partition)) {
            denied =
                Error{Code::kPermissionDenied,
                      "uid " + std::to_string(caller.uid) + " may not steer a TSG of uid " + std::to_string(owner.uid),
                      std::string("its user, root and members of group ") + kPartitionAdmins + " may"};
            emit_refused("unquarantine-refused", name, caller, 0, *denied);
            continue;
        }
        const bool dead = faults_.find(name)->dead;
        const uint32_t lifted = faults_.lift(name, clock_()).value_or(0);
        reply.set_lifted(reply.lifted() + lifted);
        reply.add_names(name);
        if (dead) {
            reply.set_note(reply.note() + (reply.note().empty() ? "" : "; ") + "the TSG '" + name +
                           "' is dead until its renderer is restarted");
        }
        const Error what{Code::kOk, std::to_string(lifted) + " held off may attach again", ""};
        emit_refused("unquarantined", name, caller, 0, what);
    }
    if (denied && reply.names().empty()) return *denied;
    faults_changed();
    update_deadline();
    return reply;
}

size_t Registry::load_faults(std::string_view text) {
    const size_t bad = faults_.load(text, settings_.faults, settings_.unshare, clock_(), unix_ms());
    update_deadline();
    return bad;
}

std::string Registry::faults_text() const { return faults_.to_text(clock_(), unix_ms()); }

void Registry::fill_fault(const NameFaults& entry, v1::FaultInfo& out) const {
    const TimePoint now = clock_();
    out.set_state(entry.dead        ? v1::FAULT_STATE_FAULTED
                  : entry.held(now) ? v1::FAULT_STATE_QUARANTINED
                                    : v1::FAULT_STATE_SHARING);
    out.set_xid(entry.xid);
    out.set_text(entry.text);
    out.set_unix_ms(static_cast<uint64_t>(entry.unix_ms));
    out.set_owner_uid(entry.uid);
    out.set_age_ms(static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(now - entry.at).count()));
    if (entry.culprit) {
        v1::PeerInfo& culprit = *out.mutable_culprit();
        culprit.set_pid(static_cast<uint32_t>(entry.culprit_pid));
        culprit.set_uid(entry.culprit->uid);
        culprit.set_program(clean_text(entry.culprit->program, kTextLimit));
    }
    for (const auto& [who, hold] : entry.holds) {
        v1::Quarantine& one = *out.add_quarantines();
        one.set_uid(who.uid);
        one.set_program(clean_text(who.program, kTextLimit));
        one.set_faults(hold.times);
        one.set_left_ms(static_cast<uint64_t>(left_of(hold.until, now).count()));
    }
}

void Registry::faults_changed() {
    if (hooks_.faults) hooks_.faults();
}

}  // namespace vuda::daemon
