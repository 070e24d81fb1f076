// Who may attach to a named TSG. Pure.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/result.h"
#include "daemon/peer.h"

namespace vuda::daemon {

struct AllowList {
    std::vector<uid_t> uids;
    std::vector<gid_t> gids;

    // True when the peer's uid, primary group or a supplementary group is listed.
    bool admits(const Peer& peer) const;
};

// The owner's own uid and root always; otherwise whom the owner named when it registered, or the administrator in
// vudad.toml. PERMISSION_DENIED tells both uids and the remedy.
Status may_attach(const Peer& peer, const Peer& owner, const AllowList& by_owner, const AllowList& by_config);

// Who may change a session from outside (vudactl detach): its own uid and root.
bool may_control(const Peer& caller, const Peer& target);

}  // namespace vuda::daemon
