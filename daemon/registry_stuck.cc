// Programs whose kernel can neither go on nor end, because the GPU repeats its page faults: nothing is dead, and
// nothing is ended. It is shown, and if the TSG dies after all, whoever said so of itself is taken for the cause.
#include <algorithm>

#include "daemon/registry.h"
#include "daemon/registry_state.h"
#include "daemon/text.h"

namespace vuda::daemon {
namespace {

constexpr Milliseconds kAgeLimit{std::chrono::hours(24)};

}  // namespace

Status Registry::take_stuck(Session& session, const v1::Fault& fault) {
    if (fault.xid() != 0)
        return Error{Code::kInvalidArgument, "xid: " + std::to_string(fault.xid()) + " is of a TSG that died",
                     "FAULT_KIND_STUCK has none"};
    const std::string& name = !fault.name().empty()            ? fault.name()
                              : !session.attached_name.empty() ? session.attached_name
                                                               : session.owned;
    // Also one that shared before this daemon, and CUDA in the renderer's own process.
    const bool attached = session.attached_name == name && (session.tsg != 0 || session.claim);
    const bool within = session.owned == name && session.state == v1::SHARING_STATE_SHARING;
    if (name.empty() || (!attached && !within))
        return Error{Code::kFailedPrecondition,
                     "this process does not share " + (name.empty() ? "a TSG" : "'" + name + "'"),
                     "only a program that shares can be stuck"};
    ++counters_.fault_reports;
    if (fault.over()) {
        if (!session.stuck) return {};
        session.stuck.reset();
        const Error reason{Code::kOk, "the GPU no longer repeats page faults", ""};
        emit("stuck-over", name, session, &reason);
        return {};
    }
    if (session.stuck || began_before(session)) return {};
    const std::string said = clean_text(fault.text(), kTextLimit / 2);
    const Milliseconds age = std::min(Milliseconds(fault.age_ms()), kAgeLimit);
    session.stuck = Session::Stuck{clock_() - age, said};
    const Error reason{Code::kOk,
                       "a kernel seems to wait for ever: the GPU repeats page faults, as after a bad access" +
                           (said.empty() ? "" : "; " + said),
                       ""};
    emit("stuck", name, session, &reason);
    return {};
}

// The GPU repeated another's page faults when this one came: each program hears of everybody's.
bool Registry::began_before(const Session& session) const {
    const auto found = tsgs_.find(session.attached_name);
    if (found == tsgs_.end() || found->second->id != session.tsg) return false;
    const auto& attached = found->second->attached;
    const auto own = attached.find(session.id);
    if (own == attached.end()) return false;
    return std::any_of(attached.begin(), attached.end(), [&](const auto& entry) {
        const auto other = sessions_.find(entry.first);
        return other != sessions_.end() && other->second->stuck && other->second->stuck->since < own->second.joined;
    });
}

void Registry::fill_stuck(const Session& session, v1::SessionInfo& out) const {
    if (!session.stuck) return;
    v1::Stuck& stuck = *out.mutable_stuck();
    stuck.set_since_ms(
        static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(clock_() - session.stuck->since).count()));
    stuck.set_text(session.stuck->text);
}

size_t Registry::sessions_stuck() const {
    return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(),
                                             [](const auto& entry) { return entry.second->stuck.has_value(); }));
}

}  // namespace vuda::daemon
