// Follows what RM and UVM did, from the calls that succeeded.
#include <algorithm>

#include "rm/va_layout.h"
#include "shim/preload/decode.h"
#include "shim/preload/state.h"

namespace vuda::shim {

namespace {

template <typename Map, typename Predicate>
void erase_where(Map& map, Predicate predicate) {
    std::erase_if(map, [&](const auto& entry) { return predicate(entry.second); });
}

}  // namespace

void Redirector::State::track(const Call& call, const Outcome& outcome) {
    const size_t status_at = status_offset(call.role, call.request, *abi);
    if (outcome.result != 0 || load<uint32_t>(outcome.arg, status_at) != kNvOk) return;
    if (call.role == FileRole::kUvm) return track_uvm(call, outcome);

    switch (rm::ioctl_number(call.request)) {
        case rm::escape::kAlloc: return track_alloc(call, outcome);
        case rm::escape::kControl: return track_control(call, outcome);
        case rm::escape::kFree: {
            const auto args = load<rm::FreeArgs>(call.arg);
            return forget_object(args.hRoot, args.hObjectOld);
        }
        case rm::escape::kVidHeapControl: {
            const auto args = load<rm::VidHeapArgs>(call.arg);
            if (args.function == rm::kVidHeapFree) forget_object(args.hRoot, args.allocSize.hMemory);
            if (args.function == rm::kVidHeapAllocSize && args.hVASpace != 0) {
                // Addresses without memory: what a mapping goes to.
                if (Client* owner = client(args.hRoot))
                    owner->virtual_memory[load<rm::VidHeapArgs>(outcome.arg).allocSize.hMemory] = args.hVASpace;
            }
            return;
        }
        case rm::escape::kDupObject: {
            const auto args = load<rm::DupArgs>(call.arg);
            Client* source = client(args.hClientSrc);
            Client* target = client(args.hClient);
            if (source == nullptr || target == nullptr) return;
            const auto space = source->va_spaces.find(args.hObjectSrc);
            if (space == source->va_spaces.end()) return;
            const auto made = load<rm::DupArgs>(outcome.arg);
            const std::shared_ptr<VaSpace> shared = space->second;
            if (made.hObject == args.hClient) return;
            if (target->has_handle(made.hObject)) forget_object(args.hClient, made.hObject);
            target->va_spaces[made.hObject] = shared;
            target->va_space_device[made.hObject] = args.hParent;
            return;
        }
        case rm::escape::kAllocContextDma2: {
            const auto args = load<rm::ContextDmaArgs>(call.arg);
            const auto made = load<rm::ContextDmaArgs>(outcome.arg).hObjectNew;
            Client* owner = client(args.hObjectParent);
            if (owner == nullptr || made == args.hObjectParent) return;
            if (owner->has_handle(made)) forget_object(args.hObjectParent, made);
            owner->context_dmas[made] = {args.hMemory, args.offset};
            return;
        }
        case rm::escape::kMapMemoryDma: {
            const auto args = load<rm::MapDmaArgs>(call.arg);
            const auto va = load<uint64_t>(outcome.arg, abi->map_dma_va);
            Client* owner = client(args.hClient);
            if (owner == nullptr || va >= options.mirror_rule.limit) return;
            const auto reserved = owner->virtual_memory.find(args.hDma);
            const auto space =
                owner->va_spaces.find(reserved != owner->virtual_memory.end() ? reserved->second : args.hDma);
            const DmaMapping& made =
                owner->mappings.put(va, {args.hDevice, args.hDma, args.hMemory, args.length, args.offset,
                                         space != owner->va_spaces.end() ? space->second : nullptr, ++mappings_made});
            mapping_changed(args.hClient, va);
            if (call.maps_control != nullptr) {
                *call.maps_control = std::ranges::any_of(owner->tsgs, [&](const auto& entry) {
                    return entry.second.has_3d && entry.second.merge == nullptr &&
                           covers(*owner, entry.second, va, made);
                });
            }
            return;
        }
        case rm::escape::kUnmapMemoryDma: {
            const auto args = load<rm::UnmapDmaArgs>(call.arg);
            unmapped(args.hClient, args.dmaOffset);
            return;
        }
        default: return;
    }
}

void Redirector::State::track_alloc(const Call& call, const Outcome& outcome) {
    const auto args = load<rm::AllocArgs>(call.arg);
    const auto object = load<uint32_t>(outcome.arg, offsetof(rm::AllocArgs, hObjectNew));
    if (args.hClass == rm::cls::kRootClient || args.hClass == rm::cls::kRoot) {
        forget_client(object);  // a number that RM gives out again is a new client
        clients[object].file = call.file;
        return;
    }
    Client* owner = client(args.hRoot);
    if (owner == nullptr || object == args.hRoot) return;
    // RM never gives out a handle that is in use: a known one means that its free went by unseen.
    if (owner->has_handle(object)) forget_object(args.hRoot, object);

    switch (args.hClass) {
        case rm::cls::kDevice: owner->devices[object] = load<uint32_t>(call.params); return;
        case rm::cls::kSubdevice: owner->subdevices[object] = args.hObjectParent; return;
        case rm::cls::kSmcPartition: owner->partitions.insert(object); return;
        case rm::cls::kVaSpace: {
            auto space = std::make_shared<VaSpace>();
            space->external = (load<rm::VaSpaceParams>(call.params).flags & rm::kVaSpaceExternallyOwned) != 0;
            owner->va_spaces[object] = std::move(space);
            owner->va_space_device[object] = args.hObjectParent;
            return;
        }
        case rm::cls::kChannelGroup: {
            const auto params = load<rm::ChannelGroupParams>(call.params);
            Tsg& made = owner->tsgs[object];
            made = Tsg{};
            made.device = args.hObjectParent;
            made.va_space = params.hVASpace;
            made.error_notifier = params.hObjectError;
            made.graphics_engine = params.engineType == rm::kEngineGr0;
            made.order = ++tsgs_made;
            if (made.graphics_engine) host_changed(call.now_ns);
            return;
        }
        case rm::cls::kContextShare: {
            if (!owner->tsgs.contains(args.hObjectParent)) return;
            const auto params = load<rm::ContextShareParams>(call.params);
            owner->ctxshares[object] = {args.hObjectParent, params.hVASpace, params.flags,
                                        load<rm::ContextShareParams>(outcome.params).subctxId, false};
            return;
        }
        default: break;
    }

    if (rm::cls::is_gpfifo(args.hClass)) {
        Tsg* parent = tsg(args.hRoot, args.hObjectParent);
        if (parent == nullptr) return;
        uint32_t notifier = load<uint32_t>(call.params);  // ChannelParams::hObjectError
        if (notifier == 0) notifier = parent->error_notifier;
        owner->channels[object] = {args.hObjectParent, false, notifier, ++channels_made};
        const bool shareless = load<uint32_t>(call.params, offsetof(rm::ChannelParams, hContextShare)) == 0;
        if (shareless && parent->injected == 0 && parent->merge == nullptr) parent->legacy = true;
        if (parent->graphics_engine) host_changed(call.now_ns);
    } else if (rm::cls::is_3d(args.hClass)) {
        const auto channel = owner->channels.find(args.hObjectParent);
        if (channel == owner->channels.end()) return;
        Tsg& parent = owner->tsgs.at(channel->second.tsg);
        if (!parent.graphics_engine) return;
        parent.has_3d = true;
        host_changed(call.now_ns);
    }
}

// What CUDA itself asks RM for before it makes a context.
void Redirector::State::track_control(const Call& call, const Outcome& outcome) {
    if (outcome.params.size() < sizeof(uint32_t)) return;
    const auto args = load<rm::ControlArgs>(call.arg);
    if (args.cmd == rm::ctrl::kConfComputeGetCapabilities) {
        confidential = outcome.params[rm::ctrl::kConfComputeFeatureOffset] != 0;
    } else if (args.cmd == rm::ctrl::kGpuGetVirtualizationMode) {
        Client* owner = client(args.hClient);
        if (owner == nullptr || !owner->devices.contains(args.hObject)) return;
        if (load<uint32_t>(outcome.params) == rm::ctrl::kVirtualizationModeVgx) {
            owner->virtual_gpus.insert(args.hObject);
        } else {
            owner->virtual_gpus.erase(args.hObject);
        }
    }
}

void Redirector::State::track_uvm(const Call& call, const Outcome&) {
    if (call.request == rm::uvm::kRegisterGpuVaSpace) {
        const auto args = load<rm::UvmRegisterVaSpaceArgs>(call.arg);
        VaSpace* space = va_space(args.hClient, args.hVaSpace);
        if (space == nullptr) return;
        space->uvm = call.file;
        std::memcpy(space->gpu.bytes.data(), args.gpuUuid, space->gpu.bytes.size());
    } else if (call.request == rm::uvm::kCreateExternalRange) {
        // CUDA's heap, from which its launch descriptors come, is where its first such range is, below 2^40.
        const auto args = load<rm::UvmCreateExternalRangeArgs>(call.arg);
        if (args.base < rm::kUsualVaBase || args.base >> 40 != 0) return;
        for (auto& [handle, owner] : clients) {
            for (auto& [space_handle, space] : owner.va_spaces) {
                if (space->uvm == call.file)
                    space->base = space->base == 0 ? args.base : std::min(space->base, args.base);
            }
        }
    } else if (call.request == rm::uvm::kUnregisterGpuVaSpace) {
        const auto args = load<rm::UvmUnregisterGpuArgs>(call.arg);
        for (auto& [handle, owner] : clients) {
            for (auto& [space_handle, space] : owner.va_spaces) {
                if (space->uvm == call.file && std::memcmp(space->gpu.bytes.data(), args.gpuUuid, 16) == 0)
                    space->uvm = 0;
            }
        }
    }
}

void Redirector::State::forget_tsg(Client& owner, uint32_t handle) {
    erase_where(owner.channels, [&](const Channel& channel) { return channel.tsg == handle; });
    erase_where(owner.ctxshares, [&](const Ctxshare& ctxshare) { return ctxshare.tsg == handle; });
    const auto found = owner.tsgs.find(handle);
    if (found == owner.tsgs.end()) return;
    end_merge(&found->second, {});
    owner.tsgs.erase(found);
}

void Redirector::State::unmapped(uint32_t client_handle, uint64_t va) {
    Client* owner = client(client_handle);
    if (owner != nullptr && owner->mappings.erase(va)) mapping_changed(client_handle, va);
}

void Redirector::State::forget_object(uint32_t client_handle, uint32_t object) {
    if (client_handle == object) return forget_client(object);
    Client* owner = client(client_handle);
    if (owner == nullptr) return;

    if (owner->devices.contains(object)) {
        std::vector<uint32_t> children;
        for (const auto& [handle, tsg] : owner->tsgs) {
            if (tsg.device == object) children.push_back(handle);
        }
        for (const uint32_t child : children) forget_tsg(*owner, child);
        std::erase_if(owner->va_spaces,
                      [&](const auto& entry) { return owner->va_space_device[entry.first] == object; });
        std::erase_if(owner->va_space_device, [&](const auto& entry) { return entry.second == object; });
        std::erase_if(owner->subdevices, [&](const auto& entry) { return entry.second == object; });
        std::vector<uint64_t> gone;
        for (const auto& [va, mapping] : owner->mappings) {
            if (mapping.device == object) gone.push_back(va);
        }
        for (const uint64_t va : gone) unmapped(client_handle, va);
        owner->devices.erase(object);
        owner->virtual_gpus.erase(object);
    } else if (owner->tsgs.contains(object)) {
        forget_tsg(*owner, object);
    } else {
        owner->subdevices.erase(object);
        owner->partitions.erase(object);
        owner->va_spaces.erase(object);
        owner->va_space_device.erase(object);
        owner->ctxshares.erase(object);
        owner->channels.erase(object);
        owner->context_dmas.erase(object);
        owner->virtual_memory.erase(object);
        for (const uint64_t va : owner->mappings.of(object)) unmapped(client_handle, va);
    }
}

void Redirector::State::forget_client(uint32_t handle) {
    Client* owner = client(handle);
    if (owner == nullptr) return;
    while (!owner->tsgs.empty()) forget_tsg(*owner, owner->tsgs.begin()->first);
    clients.erase(handle);
    if (announced_client == handle) announced_client = 0;
}

}  // namespace vuda::shim
