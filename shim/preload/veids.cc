// Subcontexts (VEIDs) of a shared TSG: none in which a program computed may be nobody's.
#include "shim/preload/state.h"

namespace vuda::shim {
namespace {

constexpr uint64_t bit(uint32_t veid) { return uint64_t{1} << veid; }

}  // namespace

// The subcontexts in which programs computed that are gone. Whenever another one begins to compute, the GPU's front end
// writes to a control buffer in the address space of each that ever did, also of these, whose address space went with
// its program: Xid 31 at 0x51f2000 (seen on an H200: attached, ended, and the next in another VEID). So none may be
// nobody's: CUDA gets one of them, which is returned, and its address space, with all mirrors, stands in for the rest.
std::optional<uint32_t> Redirector::State::take_stale(Client& owner, uint64_t stale, uint64_t unknown, Plan& plan) {
    std::optional<uint32_t> own;
    for (uint32_t veid = 64; veid-- > 1;) {  // 0 is for graphics
        const bool known = (stale & bit(veid)) != 0;
        if (!known && (unknown & bit(veid)) == 0) continue;
        const uint32_t handle = fresh_handle(owner);
        const Intent& intent = plan.intent;
        plan.before.push_back(AllocCtxshare{owner.file, intent.client, intent.shared, handle, intent.va_space,
                                            rm::kCtxShareSpecified, veid, known, !known});
        if (own || !known) continue;
        // Free, or free by now: the call that goes on takes it.
        own = veid;
        plan.before.push_back(FreeObject{owner.file, intent.client, handle});
    }
    return own;
}

// Of the renderer's TSG in this process; 0: there is none.
uint64_t Redirector::State::host_order() const {
    uint32_t client_handle = 0;
    uint32_t handle = 0;
    const Tsg* host = host_tsg(&client_handle, &handle);
    return host != nullptr ? host->order : 0;
}

// Another renderer's TSG: nobody computed there yet.
void Redirector::State::same_host() {
    const uint64_t order = host_order();
    if (order == computed_order) return;
    computed_order = order;
    computed = others_have = 0;
}

uint64_t Redirector::State::sharing_veids(bool attached) const {
    uint64_t taken = 0;
    for (const auto& [handle, one] : clients) {
        for (const auto& [group, tsg] : one.tsgs) {
            // One whose turn is open is told of at its end.
            if (tsg.merge == nullptr || tsg.merge->attach != attached || (attached && tsg.merge->turn_open)) continue;
            taken |= tsg.merge->veids_had();
        }
    }
    return taken;
}

uint32_t Redirector::State::sharing_channels(bool attached) const {
    uint32_t sum = 0;
    for (const auto& [handle, one] : clients) {
        for (const auto& [group, tsg] : one.tsgs) {
            if (tsg.merge != nullptr && tsg.merge->attach == attached && !tsg.merge->turn_open) sum += tsg.merge->moved;
        }
    }
    return sum;
}

uint64_t Redirector::State::stale_veids() const {
    return host_order() == computed_order ? computed & ~sharing_veids(false) & ~others_have : 0;
}

void Redirector::others_subcontexts(uint64_t taken, uint64_t stale) {
    state_->same_host();
    if (state_->computed_order == 0) return;
    state_->computed |= taken | stale;
    state_->others_have = taken;
}

TurnSlice::Tsg Redirector::turn_tsg() const {
    TurnSlice::Tsg at;
    const Tsg* host = state_->host_tsg(&at.client, &at.tsg);
    if (host == nullptr) return {};
    at.file = state_->clients.at(at.client).file;
    at.order = host->order;
    const bool others = state_->computed_order == host->order && state_->others_have != 0;
    at.shared = others || state_->sharing_channels(false) != 0;
    return at;
}

std::pair<uint64_t, uint64_t> Redirector::own_subcontexts() const {
    return {state_->sharing_veids(false), state_->stale_veids()};
}

}  // namespace vuda::shim
