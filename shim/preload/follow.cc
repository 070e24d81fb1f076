// Keeping up with a renderer's control buffers, mapping by mapping, for those who hold them.
#include "shim/preload/state.h"

namespace vuda::shim {

namespace {

std::shared_ptr<const VaSpace> space_of(const Client& owner, const Tsg& tsg) {
    const auto found = owner.va_spaces.find(tsg.va_space);
    return found == owner.va_spaces.end() ? nullptr : found->second;
}

}  // namespace

void Redirector::State::follow(Followed& followed, uint64_t order) {
    followed = {};
    for (const auto& [client_handle, owner] : clients) {
        for (const auto& [handle, tsg] : owner.tsgs) {
            if (tsg.order != order) continue;
            followed.client = client_handle;
            followed.tsg = handle;
            followed.order = order;
            followed.space = space_of(owner, tsg);
            mapping_changed(followed, 0);
        }
    }
}

const Tsg* Redirector::State::current(Followed& followed) {
    const Tsg* const found = followed.order != 0 ? tsg(followed.client, followed.tsg) : nullptr;
    if (found == nullptr || found->order != followed.order) {
        followed = {};
        return nullptr;
    }
    std::shared_ptr<const VaSpace> space = space_of(clients.at(followed.client), *found);
    if (space != followed.space) {
        // Rare, and every mapping may be another's or its own now.
        followed.space = std::move(space);
        for (const auto& [va, mapping] : clients.at(followed.client).mappings) mapping_changed(followed, va);
    }
    return found;
}

void Redirector::State::mapping_changed(uint32_t client_handle, uint64_t va) {
    for (Followed* followed : {&exported, &local}) {
        if (followed->client == client_handle && current(*followed) != nullptr) mapping_changed(*followed, va);
    }
}

// Buffers lie behind each other, so a mapping that comes or goes may change what the next ones make; that ends with the
// first one for which it does not.
void Redirector::State::mapping_changed(Followed& followed, uint64_t va) {
    const Client& owner = clients.at(followed.client);
    const Tsg& tsg = owner.tsgs.at(followed.tsg);
    const std::map<uint64_t, DmaMapping>& mappings = owner.mappings.by_address();
    uint64_t end = followed.buffers.end_before(va);
    if (!mappings.contains(va)) followed.buffers.set(va, {});
    for (auto at = mappings.lower_bound(va); at != mappings.end(); ++at) {
        const std::optional<HostBuffer> buffer = control_buffer(owner, tsg, at->first, at->second, end);
        const bool changed = followed.buffers.set(at->first, buffer);
        if (!buffer) continue;
        if (!changed) return;
        end = buffer->va + buffer->length;
    }
}

Host Redirector::told_host() {
    State& s = *state_;
    const Tsg* const tsg = s.current(s.exported);
    return tsg != nullptr ? s.host_of(s.exported.client, s.exported.tsg, *tsg) : Host{};
}

void Redirector::told(uint64_t order, const std::vector<HostBuffer>& buffers) {
    State& s = *state_;
    if (s.exported.order != order || s.current(s.exported) == nullptr) s.follow(s.exported, order);
    s.exported.buffers.told(buffers);
}

void Redirector::told(const HostDelta& change) { state_->exported.buffers.told(change); }

HostDelta Redirector::untold(size_t added, size_t removed) {
    State& s = *state_;
    return s.current(s.exported) != nullptr ? s.exported.buffers.untold(added, removed) : HostDelta{};
}

HostDelta Redirector::untold_rest(size_t removed) {
    State& s = *state_;
    return s.current(s.exported) != nullptr ? s.exported.buffers.rest(removed) : HostDelta{};
}

bool Redirector::is_untold(const HostBuffer& buffer) {
    State& s = *state_;
    return s.current(s.exported) != nullptr && s.exported.buffers.is_untold(buffer);
}

bool Redirector::all_told() {
    State& s = *state_;
    return s.current(s.exported) != nullptr && s.exported.buffers.all_told();
}

}  // namespace vuda::shim
