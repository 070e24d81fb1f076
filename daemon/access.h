// Who may attach to a named TSG. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/peer.h"

namespace vuda::daemon {

struct AllowList {
    std::vector<uid_t> uids;
    std::vector<gid_t> gids;

    bool empty() const { return uids.empty() && gids.empty(); }
    bool operator==(const AllowList&) const = default;

    // True when the peer's uid, primary group or a supplementary group is listed.
    bool admits(const Peer& peer) const;
};

// "1000,1001", as VUDA_ALLOW_UIDS has it.
std::string ids_text(const std::vector<uint32_t>& ids);

// The owner's own uid and root always; otherwise whom the owner named when it registered, or the administrator in
// vudad.toml. PERMISSION_DENIED tells both uids and the remedy.
Status may_attach(const Peer& peer, const Peer& owner, const AllowList& by_owner, const AllowList& by_config);

// Who may change a session from outside (vudactl detach): its own uid and root.
bool may_control(const Peer& caller, const Peer& target);

}  // namespace vuda::daemon
