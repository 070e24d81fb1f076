// Following the renderer's control buffers in the address spaces of contexts that share.
#include <algorithm>

#include "shim/preload/state.h"

namespace vuda::shim {
namespace {

// In one process the renderer's thread lets go of what it unmapped, with each of its mapping calls: so few that a call
// takes a few milliseconds more at most, and enough that what piles up goes.
constexpr size_t kLocalDrops = 8;

}  // namespace

// Maps one buffer into `space`. `host`: the renderer is in this process, and buffer.fd its memory handle.
std::vector<Action> Redirector::State::mirror_actions(const Client& owner, uint32_t client_handle, const Tsg& t,
                                                      const VaSpace& space, const OfferedBuffer& buffer,
                                                      const Host* host) {
    std::vector<Action> actions;
    uint32_t memory_client = client_handle;
    uint32_t memory = 0;
    if (host != nullptr && !space.by_transfer) {
        memory_client = host->client;
        memory = static_cast<uint32_t>(buffer.fd);
    } else {
        memory = fresh_handle(owner);
        if (host != nullptr) {
            actions.push_back(TransferObject{host->file, host->client, host->device, static_cast<uint32_t>(buffer.fd),
                                             owner.file, client_handle, t.device, memory});
        } else {
            actions.push_back(ImportObject{owner.file, client_handle, t.device, memory, buffer.fd});
        }
    }
    actions.push_back(UvmCreateRange{space.uvm, buffer.va, buffer.length, buffer.mapping});
    const FileId memory_file = memory_client == client_handle ? owner.file : host->file;
    actions.push_back(
        UvmMapRange{space.uvm, buffer.va, buffer.length, buffer.offset, memory_file, memory_client, memory, space.gpu});
    // UVM holds its own reference from here on.
    if (memory_client == client_handle) actions.push_back(FreeObject{owner.file, client_handle, memory});
    return actions;
}

MirrorWork Redirector::State::begin_mirror(const MirrorUpdate& update, const MirroredSpaces& handled, bool local) {
    MirrorWork work;
    const Host renderer = local ? host_only() : Host{};
    if (local && renderer.client == 0) return work;
    for (auto& [client_handle, owner] : clients) {
        for (auto& [handle, t] : owner.tsgs) {
            if (t.merge == nullptr || t.merge->attach == local || t.merge->uvm == 0) continue;
            const std::shared_ptr<VaSpace>& space = t.merge->va_space;
            const bool seen = std::ranges::any_of(handled, [&](const auto& other) { return other == space; });
            if (seen || space->uvm == 0) continue;
            if (space->updating || (space->merging && !space->awaiting)) {
                work.state = MirrorWork::State::kBusy;
                return work;
            }
            const MirrorTable::Steps steps = space->mirrors.plan(update);
            for (const MirrorRange& range : steps.drops)
                work.steps.push_back({true, range, {UvmFreeRange{space->uvm, range.va, range.length}}});
            for (const size_t i : steps.adds) {
                const OfferedBuffer& buffer = update.added[i];
                work.steps.push_back(
                    {false,
                     {buffer.va, buffer.length, buffer.mapping},
                     mirror_actions(owner, client_handle, t, *space, buffer, local ? &renderer : nullptr)});
            }
            work.state = MirrorWork::State::kReady;
            work.space = space;
            space->updating = true;
            return work;
        }
    }
    return work;
}

std::vector<Action> Redirector::State::end_mirror(const MirrorWork& work, const std::vector<bool>& done) {
    std::vector<Action> clean_up;
    if (work.state != MirrorWork::State::kReady) return clean_up;
    VaSpace& space = *std::static_pointer_cast<VaSpace>(work.space);
    space.updating = false;
    for (size_t i = 0; i < work.steps.size() && i < done.size(); ++i) {
        const MirrorRange& range = work.steps[i].range;
        if (!done[i]) continue;
        if (work.steps[i].drop) {
            space.mirrors.drop(range.va);
        } else if (space.mirror_users > 0) {
            space.mirrors.put(range.va, {range.length, range.mapping});
        } else if (space.uvm != 0) {
            // The last context left meanwhile, without what it did not know of.
            clean_up.push_back(UvmFreeRange{space.uvm, range.va, range.length});
        }
    }
    return clean_up;
}

MirrorWork Redirector::begin_mirror(const MirrorUpdate& update, const MirroredSpaces& handled, bool local) {
    return state_->begin_mirror(update, handled, local);
}

std::vector<Action> Redirector::end_mirror(const MirrorWork& work, const std::vector<bool>& done) {
    return state_->end_mirror(work, done);
}

bool Redirector::has_left(const MirrorWork& work) {
    return std::static_pointer_cast<VaSpace>(work.space)->mirror_users == 0;
}

bool Redirector::attaching() const {
    return std::ranges::any_of(state_->clients, [](const auto& client) {
        return std::ranges::any_of(client.second.va_spaces, [](const auto& entry) { return entry.second->merging; });
    });
}

bool Redirector::shares_locally() const {
    return std::ranges::any_of(state_->clients, [](const auto& client) {
        return std::ranges::any_of(client.second.tsgs, [](const auto& entry) {
            return entry.second.merge != nullptr && !entry.second.merge->attach;
        });
    });
}

MirrorUpdate Redirector::local_update(HostDelta* change) {
    State& s = *state_;
    MirrorUpdate update;
    // Another TSG: they have nothing of it yet.
    const Host host = s.host_only();
    if (host.client != 0 && s.local.order != host.order) s.follow(s.local, host.order);
    if (s.current(s.local) == nullptr) return update;
    *change = s.local.buffers.untold(SIZE_MAX, SIZE_MAX, kLocalDrops);
    for (const HostBuffer& buffer : change->removed) update.removed.push_back({buffer.va, buffer.length, buffer.order});
    for (const HostBuffer& buffer : change->added) {
        update.added.push_back(
            {static_cast<int>(buffer.memory), buffer.va, buffer.length, buffer.offset, buffer.order});
    }
    return update;
}

void Redirector::local_told(const HostDelta& change) {
    // A context that is about to share brings the buffers of the moment when it began.
    if (!attaching()) state_->local.buffers.told(change);
}

}  // namespace vuda::shim
