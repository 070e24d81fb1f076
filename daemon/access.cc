#include "daemon/access.h"

#include <algorithm>

namespace vuda::daemon {

bool AllowList::admits(const Peer& peer) const {
    const auto has = [](const auto& list, auto value) {
        return std::find(list.begin(), list.end(), value) != list.end();
    };
    if (has(uids, peer.uid) || has(gids, peer.gid)) return true;
    return std::any_of(peer.groups.begin(), peer.groups.end(), [&](gid_t gid) { return has(gids, gid); });
}

std::string ids_text(const std::vector<uint32_t>& ids) {
    std::string text;
    for (const uint32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    return text;
}

Status may_attach(const Peer& peer, const Peer& owner, const AllowList& by_owner, const AllowList& by_config) {
    if (peer.uid == 0 || peer.uid == owner.uid || by_owner.admits(peer) || by_config.admits(peer)) return {};
    return Error{Code::kPermissionDenied,
                 "uid " + std::to_string(peer.uid) + " may not attach to a TSG of uid " + std::to_string(owner.uid),
                 "the owner can let it in (vudactl run --allow-user), or an administrator ([access] of vudad.toml)"};
}

bool may_control(const Peer& caller, const Peer& target) { return caller.uid == 0 || caller.uid == target.uid; }

}  // namespace vuda::daemon
