#include "shim/preload/state.h"

#include <algorithm>

namespace vuda::shim {

bool Client::has_handle(uint32_t handle) const {
    return devices.contains(handle) || subdevices.contains(handle) || va_spaces.contains(handle) ||
           tsgs.contains(handle) || ctxshares.contains(handle) || channels.contains(handle) ||
           context_dmas.contains(handle) || virtual_memory.contains(handle) || partitions.contains(handle);
}

size_t Client::size() const {
    return devices.size() + subdevices.size() + va_spaces.size() + tsgs.size() + ctxshares.size() + channels.size() +
           context_dmas.size() + virtual_memory.size() + mappings.size() + partitions.size();
}

const DmaMapping& DmaMappings::put(uint64_t va, DmaMapping mapping) {
    erase(va);
    by_object_.insert({{mapping.memory, va}, {mapping.dma, va}});
    return by_address_[va] = std::move(mapping);
}

bool DmaMappings::erase(uint64_t va) {
    const auto found = by_address_.find(va);
    if (found == by_address_.end()) return false;
    by_object_.erase({found->second.memory, va});
    by_object_.erase({found->second.dma, va});
    by_address_.erase(found);
    return true;
}

std::vector<uint64_t> DmaMappings::of(uint32_t object) const {
    std::vector<uint64_t> found;
    for (auto at = by_object_.lower_bound({object, 0}); at != by_object_.end() && at->first == object; ++at)
        found.push_back(at->second);
    return found;
}

Client* Redirector::State::client(uint32_t handle) {
    const auto found = clients.find(handle);
    return found == clients.end() ? nullptr : &found->second;
}

Tsg* Redirector::State::tsg(uint32_t client_handle, uint32_t handle) {
    Client* owner = client(client_handle);
    if (owner == nullptr) return nullptr;
    const auto found = owner->tsgs.find(handle);
    return found == owner->tsgs.end() ? nullptr : &found->second;
}

VaSpace* Redirector::State::va_space(uint32_t client_handle, uint32_t handle) {
    Client* owner = client(client_handle);
    if (owner == nullptr) return nullptr;
    const auto found = owner->va_spaces.find(handle);
    return found == owner->va_spaces.end() ? nullptr : found->second.get();
}

uint32_t Redirector::State::fresh_handle(const Client& owner) {
    uint32_t handle = 0;
    do {
        handle = options.first_handle + (handles_made++ & 0xffffu);
    } while (owner.has_handle(handle));
    return handle;
}

const Tsg* Redirector::State::host_tsg(uint32_t* client_handle, uint32_t* handle) const {
    const Tsg* newest = nullptr;
    for (const auto& [owner_handle, owner] : clients) {
        for (const auto& [tsg_handle, candidate] : owner.tsgs) {
            if (!candidate.has_3d || candidate.merge != nullptr) continue;
            if (newest != nullptr && newest->order > candidate.order) continue;
            newest = &candidate;
            *client_handle = owner_handle;
            *handle = tsg_handle;
        }
    }
    return newest;
}

uint32_t Redirector::State::channels_in(uint32_t client_handle, uint32_t tsg_handle) const {
    const auto owner = clients.find(client_handle);
    if (owner == clients.end()) return 0;
    return static_cast<uint32_t>(std::ranges::count_if(
        owner->second.channels, [tsg_handle](const auto& entry) { return entry.second.tsg == tsg_handle; }));
}

Host Redirector::State::host_only() const {
    uint32_t client_handle = 0;
    uint32_t handle = 0;
    const Tsg* tsg = host_tsg(&client_handle, &handle);
    return tsg != nullptr ? host_of(client_handle, handle, *tsg) : Host{};
}

Host Redirector::State::host() const {
    Host host = host_only();
    if (host.client == 0) return host;
    const Client& owner = clients.at(host.client);
    const Tsg& tsg = owner.tsgs.at(host.tsg);
    uint64_t end = 0;
    for (const auto& [va, mapping] : owner.mappings) {
        const std::optional<HostBuffer> buffer = control_buffer(owner, tsg, va, mapping, end);
        if (!buffer) continue;
        end = buffer->va + buffer->length;
        host.buffers.push_back(*buffer);
    }
    return host;
}

// In address order, nothing twice: what UVM_CREATE_EXTERNAL_RANGE accepts.
std::optional<HostBuffer> Redirector::State::control_buffer(const Client& owner, const Tsg& tsg, uint64_t va,
                                                            const DmaMapping& mapping, uint64_t end) const {
    const uint64_t into_page = va % kPage;
    if (mapping.length == 0 || into_page > mapping.offset || (mapping.offset - into_page) % kPage != 0) return {};
    if (!covers(owner, tsg, va, mapping)) return {};
    HostBuffer buffer{mapping.memory, va - into_page, 0, mapping.offset - into_page, mapping.order};
    const uint64_t stop = std::min((va + mapping.length + kPage - 1) / kPage * kPage, options.mirror_rule.limit);
    if (buffer.va < end) {
        buffer.offset += end - buffer.va;
        buffer.va = end;
    }
    if (buffer.va >= stop) return {};
    buffer.length = stop - buffer.va;
    return buffer;
}

bool Redirector::State::covers(const Client& owner, const Tsg& tsg, uint64_t va, const DmaMapping& mapping) const {
    ++looks;
    const auto space = owner.va_spaces.find(tsg.va_space);
    const bool same = mapping.space == nullptr || space == owner.va_spaces.end() || mapping.space == space->second;
    return options.mirror_rule.covers(true, same, va);
}

Host Redirector::State::host_of(uint32_t client_handle, uint32_t tsg_handle, const Tsg& of) const {
    const Tsg* const tsg = &of;
    Host host;
    host.client = client_handle;
    host.tsg = tsg_handle;
    const Client& owner = clients.at(host.client);
    host.file = owner.file;
    host.device = tsg->device;
    host.va_space = tsg->va_space;
    for (const auto& [subdevice, device] : owner.subdevices) {
        if (device == tsg->device) host.subdevice = subdevice;
    }
    host.ctxshare = tsg->injected;
    for (const auto& [handle, ctxshare] : owner.ctxshares) {
        if (ctxshare.tsg == host.tsg && ctxshare.veid == 0) host.ctxshare = handle;
    }
    host.order = tsg->order;
    const auto device = owner.devices.find(tsg->device);
    if (device != owner.devices.end()) host.device_instance = device->second;
    if (tsg->legacy) host.unfit = Reason::kHostLegacy;
    if (tsg->saves_zcull) host.unfit = Reason::kHostEarlier;
    host.channels = channels_in(host.client, host.tsg);
    for (const auto& [handle, other] : clients) {
        for (const auto& [channel_handle, channel] : other.channels) {
            if (!channel.moved) continue;
            const auto group = other.tsgs.find(channel.tsg);
            if (group != other.tsgs.end() && group->second.merge != nullptr && !group->second.merge->attach)
                ++host.channels;
        }
    }
    host.settled_at_ns = settled ? 0 : last_change_ns + options.settle_ns;
    return host;
}

Subdevice Redirector::State::sharing_subdevice() const {
    for (const auto& [handle, owner] : clients) {
        for (const auto& [group, tsg] : owner.tsgs) {
            if (tsg.stage != Tsg::Stage::kMerged) continue;
            for (const auto& [subdevice, device] : owner.subdevices) {
                if (device == tsg.device) return {owner.file, handle, subdevice};
            }
        }
    }
    return {};
}

// Of each channel that is in the renderer's TSG or in one that vudad handed over.
std::vector<Notifier> Redirector::State::notifiers() const {
    std::vector<Notifier> found;
    uint32_t host_client = 0;
    uint32_t host_handle = 0;
    const Tsg* host = host_tsg(&host_client, &host_handle);
    for (const auto& [client_handle, owner] : clients) {
        for (const auto& [handle, channel] : owner.channels) {
            const auto group = owner.tsgs.find(channel.tsg);
            if (group == owner.tsgs.end() || channel.error_notifier == 0) continue;
            const Tsg& tsg = group->second;
            const bool hosted = host != nullptr && &tsg == host;
            const bool moved = channel.moved && tsg.merge != nullptr;
            if (!hosted && !moved) continue;
            Notifier notifier{owner.file, client_handle, tsg.device, channel.error_notifier,
                              0,          channel.order, tsg.order,  hosted || !tsg.merge->attach};
            const auto dma = owner.context_dmas.find(channel.error_notifier);
            if (dma != owner.context_dmas.end()) {
                notifier.memory = dma->second.memory;
                notifier.offset = dma->second.offset;
            }
            // Channels that share one need one look.
            const bool known = std::ranges::any_of(found, [&](const Notifier& other) {
                return other.client == notifier.client && other.memory == notifier.memory &&
                       other.offset == notifier.offset && other.host == notifier.host;
            });
            if (!known) found.push_back(notifier);
        }
    }
    return found;
}

void Redirector::State::host_changed(uint64_t now_ns) {
    last_change_ns = now_ns;
    settled = false;
    announce_host();
}

void Redirector::State::announce_host() {
    if (!wishes.share_renderer) return;
    uint32_t client_handle = 0;
    uint32_t handle = 0;
    const Tsg* tsg = host_tsg(&client_handle, &handle);
    if (tsg == nullptr || tsg->order == dead_host || (client_handle == announced_client && dead_host == 0)) return;
    dead_host = 0;
    announced_client = client_handle;
    if (tsg->saves_zcull) return notice(Notice::Kind::kUnshared, {Reason::kHostEarlier, 0, 0, 0});
    const Client& owner = clients.at(client_handle);
    Notice notice;
    notice.kind = Notice::Kind::kHost;
    notice.file = owner.file;
    notice.client = client_handle;
    for (const auto& [subdevice, device] : owner.subdevices) {
        if (device == tsg->device) notice.subdevice = subdevice;
    }
    notices.push_back(notice);
}

void Redirector::State::notice(Notice::Kind kind, const Refusal& refusal) {
    Notice notice;
    notice.kind = kind;
    notice.refusal = refusal;
    notices.push_back(notice);
}

}  // namespace vuda::shim
