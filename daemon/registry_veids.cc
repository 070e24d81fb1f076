// Subcontexts (VEIDs) of a TSG: in whose address space the GPU looks. docs/compatibility.md, "More than one program".
#include <utility>

#include "daemon/registry.h"
#include "daemon/registry_state.h"

namespace vuda::daemon {
namespace {

constexpr uint64_t kForGraphics = 1;  // subcontext 0

}  // namespace

void Registry::on_subcontexts(Session& session, const v1::Subcontexts& now) {
    const auto found = tsgs_.find(now.name());
    if (found == tsgs_.end()) return;
    Tsg& tsg = *found->second;
    const uint64_t taken = now.taken() & ~kForGraphics;
    if (tsg.owner == session.id) {
        // It knows what its own contexts left there, and what an earlier vudad told it.
        tsg.owner_veids = taken;
        tsg.computed_in(taken | (now.stale() & ~kForGraphics));
        return;
    }
    const auto attached = tsg.attached.find(session.id);
    if (attached == tsg.attached.end()) return;
    attached->second.veids = taken;
    tsg.computed_in(taken);
    if (now.channels() < attached->second.channels) session.channels_moved = attached->second.channels = now.channels();
}

// What the owner is to know of others, for contexts that it makes itself in its TSG.
void Registry::follow_veids(Tsg& tsg) {
    const Session& owner = *find(tsg.owner);
    const std::pair<uint64_t, uint64_t> now{tsg.veids_taken(), tsg.stale_veids()};
    if ((owner.features & v1::FEATURE_SUBCONTEXTS) == 0 || tsg.faulted || tsg.told == now) return;
    tsg.told = now;
    v1::ServerMessage message;
    v1::Subcontexts& others = *message.mutable_subcontexts();
    others.set_name(tsg.name);
    others.set_taken(now.first);
    others.set_stale(now.second);
    owner.sink->send(message);
}

}  // namespace vuda::daemon
