// Programs that went on sharing while the daemon was away, or while their renderer had no name: their channels are in
// the TSG, and count.
#include <algorithm>

#include "base/fault_point.h"
#include "daemon/registry.h"
#include "daemon/registry_state.h"

namespace vuda::daemon {
namespace {

// The owner comes back within seconds, if at all: a renderer that takes the name much later has another TSG.
constexpr Milliseconds kClaimLife{30'000};

}  // namespace

void Registry::claim_share(Session& session, const v1::StateReport& report) {
    if (report.channels_moved() == 0 || !valid_name(report.name()) || report.name() == session.owned) return;
    const auto tsg = tsgs_.find(report.name());
    if (session.tsg != 0) {
        // What the registry saw itself it knows better. But a program may have begun to attach, once more, when an
        // earlier daemon lived: those channels come on top.
        const bool same = tsg != tsgs_.end() && tsg->second->id == session.tsg;
        if (!same || report.channels_moved() <= session.channels_moved) return;
    }
    session.compute = true;
    session.attached_name = report.name();
    session.channels_moved = std::min(report.channels_moved(), kChannelsPerTsg);
    session.veid = std::min(report.veid(), kVeidLimit - 1);
    session.control_buffers = report.control_buffers();
    session.va_base = report.va_base();
    const uint64_t veids = report.veids() != 0 ? report.veids() : uint64_t{1} << session.veid;
    session.claim = Session::Claim{report.name(), session.channels_moved, veids, clock_() + kClaimLife, {}, 0};
    if (tsg != tsgs_.end()) settle_claims(*tsg->second);
}

// Counts those who said that they share `tsg`. Only who could attach is believed: the channels of a claim are taken
// from the room of others.
void Registry::settle_claims(Tsg& tsg) {
    const Session& owner = *find(tsg.owner);
    for (const auto& [id, session] : sessions_) {
        if (!session->claim || session->claim->name != tsg.name) continue;
        const Session::Claim claim = *session->claim;
        session->claim.reset();
        if (claim.tsg != 0) {
            // Whether it is the same TSG only the owner can say.
            if (session->tsg != claim.tsg || owner.peer.process != claim.owner || !tsg.again) continue;
            session->reason.reset();
        }
        if (clock_() > claim.until || session->driver_version != owner.driver_version ||
            !may_attach(session->peer, owner.peer, tsg.allow, settings_.attach)) {
            continue;
        }
        const uint32_t used = tsg.channels_in_use();
        Tsg::Attached& attached = tsg.attached[id];
        const uint32_t others = used - std::min(used, attached.channels);
        attached.channels = std::min(claim.channels, kChannelsPerTsg - std::min(others, kChannelsPerTsg));
        tsg.take_veids(attached, claim.veids);
        attached.since = clock_();
        session->tsg = tsg.id;
        VUDA_FAULT_POINT(daemon_claim_settled);
        emit("resume", tsg.name, *session);
    }
    refresh_split(tsg, nullptr);
}

}  // namespace vuda::daemon
