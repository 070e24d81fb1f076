// /dev/nvidia-uvm: VA spaces whose page tables belong to UVM, external ranges and mappings, registered channels.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sim/rm/call.h"

namespace vuda::sim {

namespace {

constexpr uint32_t kMaxGpus = 256;

bool invalid_4k(uint64_t base, uint64_t length) {
    return base % kPage != 0 || length % kPage != 0 || length == 0 || base == 0 || base + length < base;
}

// Where rmStatus sits: the end of most structs, before padding.
size_t status_offset(unsigned long number, const Layout& layout) {
    using namespace rm;
    switch (number) {
        case uvm::kInitialize: return offsetof(UvmInitializeArgs, rmStatus);
        case uvm::kCreateRangeGroup:
        case uvm::kDestroyRangeGroup: return offsetof(UvmRangeGroupArgs, rmStatus);
        case uvm::kRegisterGpuVaSpace: return offsetof(UvmRegisterVaSpaceArgs, rmStatus);
        case uvm::kUnregisterGpuVaSpace:
        case uvm::kUnregisterGpu: return offsetof(UvmUnregisterGpuArgs, rmStatus);
        case uvm::kRegisterChannel: return offsetof(UvmRegisterChannelArgs, rmStatus);
        case uvm::kUnregisterChannel: return layout.uvm_unregister_channel - 4;
        case uvm::kMapExternalAllocation: return layout.map_external - 4;
        case uvm::kFree: return layout.uvm_free - 8;
        case uvm::kRegisterGpu: return offsetof(UvmRegisterGpuArgs, rmStatus);
        case uvm::kPageableMemAccess: return offsetof(UvmPageableMemAccessArgs, rmStatus);
        case uvm::kMapDynamicParallelismRegion: return offsetof(UvmMapDynamicParallelismArgs, rmStatus);
        case uvm::kUnmapExternal: return offsetof(UvmUnmapExternalArgs, rmStatus);
        case uvm::kAllocSemaphorePool: return layout.map_external - 16 - 8;
        case uvm::kValidateVaRange: return offsetof(UvmValidateVaRangeArgs, rmStatus);
        case uvm::kCreateExternalRange: return offsetof(UvmCreateExternalRangeArgs, rmStatus);
        case uvm::kMmInitialize: return offsetof(UvmMmInitializeArgs, rmStatus);
        default: return 0;
    }
}

bool overlaps_range(const UvmSpace& space, uint64_t base, uint64_t length) {
    auto it = space.ranges.upper_bound(base);
    if (it != space.ranges.end() && it->first - base < length) return true;
    if (it == space.ranges.begin()) return false;
    --it;
    return base - it->first < it->second.length;
}

}  // namespace

Outcome RmCall::run_uvm(Bytes argument) {
    if (request_.number == rm::uvm::kDeinitialize) return {};
    const uint32_t size = rm_.config_.layout.uvm_argument(request_.number);
    if (size == 0 || argument.size() != size) return {EINVAL};
    const uint32_t status = uvm(request_.number, argument);
    store(argument, status, status_offset(request_.number, rm_.config_.layout));
    return {};
}

int RmCall::gpu_by_uuid(const uint8_t* uuid) const {
    for (size_t i = 0; i < rm_.gpus_.size(); i++) {
        if (std::memcmp(rm_.gpus_[i]->identity().uuid.bytes.data(), uuid, 16) == 0) return static_cast<int>(i);
    }
    return -1;
}

uint32_t RmCall::uvm(unsigned long number, Bytes argument) {
    UvmSpace& space = file_.uvm;
    if (number == rm::uvm::kInitialize) {
        if (space.initialized) return rm::nv::kInvalidState;
        space.initialized = true;
        return rm::nv::kOk;
    }
    // MM_INITIALIZE names the initialised file; its own never is.
    if (number == rm::uvm::kMmInitialize) return rm::nv::kOk;
    if (!space.initialized && on(Rule::kUvmInitFirst)) return rm::nv::kIllegalAction;
    const auto has_gpu = [&](int gpu) {
        return std::find(space.gpus.begin(), space.gpus.end(), gpu) != space.gpus.end();
    };
    switch (number) {
        case rm::uvm::kRegisterGpu: {
            auto args = load<rm::UvmRegisterGpuArgs>(argument);
            const int gpu = gpu_by_uuid(args.gpuUuid);
            if (gpu < 0) return rm::nv::kGpuUuidNotFound;
            if (!has_gpu(gpu)) space.gpus.push_back(gpu);
            args.numaEnabled = 0;
            args.numaNodeId = -1;
            store(argument, args);
            return rm::nv::kOk;
        }
        case rm::uvm::kUnregisterGpu: {
            const auto args = load<rm::UvmUnregisterGpuArgs>(argument);
            const int gpu = gpu_by_uuid(args.gpuUuid);
            if (gpu < 0 || !has_gpu(gpu)) return rm::nv::kInvalidDevice;
            space.gpus.erase(std::remove(space.gpus.begin(), space.gpus.end(), gpu), space.gpus.end());
            return rm::nv::kOk;
        }
        case rm::uvm::kRegisterGpuVaSpace: return uvm_register_vas(load<rm::UvmRegisterVaSpaceArgs>(argument));
        case rm::uvm::kUnregisterGpuVaSpace: {
            const auto args = load<rm::UvmUnregisterGpuArgs>(argument);
            const int gpu = gpu_by_uuid(args.gpuUuid);
            const auto it = space.vas.find(gpu);
            if (it == space.vas.end()) return rm::nv::kInvalidDevice;
            for (auto channel = space.channels.begin(); channel != space.channels.end();) {
                if (channel->gpu != gpu) {
                    ++channel;
                    continue;
                }
                uvm_forget_channel(rm_, *channel);
                channel = space.channels.erase(channel);
            }
            it->second->registered = false;
            it->second->mappings.clear();
            space.vas.erase(it);
            return rm::nv::kOk;
        }
        case rm::uvm::kRegisterChannel: return uvm_register_channel(load<rm::UvmRegisterChannelArgs>(argument));
        case rm::uvm::kUnregisterChannel: {
            const size_t at = argument.size() == sizeof(rm::UvmUnregisterChannelArgs) ? 0 : 16;
            const auto hclient = load<Handle>(argument, at);
            const auto hchannel = load<Handle>(argument, at + 4);
            const auto it = std::find_if(space.channels.begin(), space.channels.end(), [&](const UvmChannel& c) {
                return c.client == hclient && c.channel == hchannel;
            });
            if (it == space.channels.end()) return rm::nv::kInvalidChannel;
            uvm_forget_channel(rm_, *it);
            space.channels.erase(it);
            return rm::nv::kOk;
        }
        case rm::uvm::kCreateExternalRange: {
            const auto args = load<rm::UvmCreateExternalRangeArgs>(argument);
            if (invalid_4k(args.base, args.length)) {
                if (on(Rule::kUvmRangeAligned) || args.length == 0) return rm::nv::kInvalidAddress;
            }
            if (overlaps_range(space, args.base, args.length)) {
                if (on(Rule::kUvmRangeNoOverlap)) return rm::nv::kUvmAddressInUse;
            }
            space.ranges[args.base] = {args.length};
            return rm::nv::kOk;
        }
        case rm::uvm::kMapExternalAllocation: return uvm_map(argument);
        case rm::uvm::kUnmapExternal: {
            const auto args = load<rm::UvmUnmapExternalArgs>(argument);
            if (invalid_4k(args.base, args.length)) return rm::nv::kInvalidAddress;
            const int gpu = gpu_by_uuid(args.gpuUuid);
            const auto vas = space.vas.find(gpu);
            if (vas == space.vas.end()) return rm::nv::kInvalidDevice;
            auto& mappings = vas->second->mappings;
            for (auto it = mappings.lower_bound(args.base);
                 it != mappings.end() && it->first - args.base < args.length;)
                it = mappings.erase(it);
            return rm::nv::kOk;
        }
        case rm::uvm::kFree: {
            const auto base = load<uint64_t>(argument);
            if (space.ranges.count(base) == 0) return rm::nv::kInvalidAddress;
            uvm_drop_range(rm_, space, base);
            return rm::nv::kOk;
        }
        case rm::uvm::kCreateRangeGroup:
            store(argument, rm::UvmRangeGroupArgs{++space.range_groups, 0, 0});
            return rm::nv::kOk;
        case rm::uvm::kPageableMemAccess: return rm::nv::kOk;  // "no"
        case rm::uvm::kValidateVaRange: return rm::nv::kOk;
        case rm::uvm::kMapDynamicParallelismRegion:
        case rm::uvm::kAllocSemaphorePool: {
            const auto base = load<uint64_t>(argument);
            const auto length = load<uint64_t>(argument, 8);
            if (invalid_4k(base, length)) return rm::nv::kInvalidAddress;
            if (overlaps_range(space, base, length)) return rm::nv::kUvmAddressInUse;
            space.ranges[base] = {length};
            return rm::nv::kOk;
        }
        default: return rm::nv::kOk;
    }
}

uint32_t RmCall::uvm_register_vas(const rm::UvmRegisterVaSpaceArgs& args) {
    UvmSpace& space = file_.uvm;
    const int gpu = gpu_by_uuid(args.gpuUuid);
    const bool registered = std::find(space.gpus.begin(), space.gpus.end(), gpu) != space.gpus.end();
    if (gpu < 0 || (!registered && on(Rule::kUvmGpuFirst))) return rm::nv::kInvalidDevice;
    Client* owner = any_client(args.hClient);
    if (owner == nullptr) return rm::nv::kInvalidClient;
    if (owner->pid != caller_.pid) return rm::nv::kInsufficientPermissions;
    const auto* vas = payload<std::shared_ptr<VaSpace>>(find(*owner, args.hVaSpace));
    if (vas == nullptr) return rm::nv::kObjectNotFound;
    if (!(*vas)->external && on(Rule::kUvmVasExternal)) return rm::nv::kInvalidFlags;
    if ((*vas)->gpu != gpu) return rm::nv::kOtherDeviceFound;
    if (space.vas.count(gpu) != 0) return rm::nv::kInvalidDevice;
    if ((*vas)->registered) return rm::nv::kInUse;
    (*vas)->registered = true;
    space.vas[gpu] = *vas;
    return rm::nv::kOk;
}

uint32_t RmCall::uvm_register_channel(const rm::UvmRegisterChannelArgs& args) {
    UvmSpace& space = file_.uvm;
    const int gpu = gpu_by_uuid(args.gpuUuid);
    const auto vas = space.vas.find(gpu);
    if (vas == space.vas.end()) return rm::nv::kInvalidDevice;
    Client* owner = any_client(args.hClient);
    if (owner == nullptr) return rm::nv::kInvalidClient;
    if (owner->pid != caller_.pid) return rm::nv::kInsufficientPermissions;
    const auto* found = payload<std::shared_ptr<Channel>>(find(*owner, args.hChannel));
    if (found == nullptr) return rm::nv::kInvalidObjectHandle;
    Channel& channel = **found;
    if (channel.vas != vas->second && on(Rule::kUvmChannelVas))
        return channel.tsg->gpu != gpu ? rm::nv::kOtherDeviceFound : rm::nv::kInvalidChannel;
    for (const UvmChannel& other : space.channels) {
        if (other.client == args.hClient && other.channel == args.hChannel) return rm::nv::kInvalidChannel;
    }
    const bool has_buffers =
        channel.tsg->engine == rm::kEngineGr0;  // copy engines have none, then the window is ignored
    if (has_buffers) {
        if (args.base == 0 || args.length == 0 || args.base % kPage != 0 || args.base + args.length < args.base)
            return rm::nv::kInvalidAddress;
        for (const UvmChannel& other : space.channels) {
            const bool overlap =
                other.length != 0 && other.base < args.base + args.length && args.base < other.base + other.length;
            // Within a TSG the context buffers are the same memory; another TSG's need room of their own.
            if (overlap && other.tsg != channel.tsg && on(Rule::kUvmChannelWindow)) return rm::nv::kUvmAddressInUse;
        }
    }
    UvmChannel registration;
    registration.client = args.hClient;
    registration.channel = args.hChannel;
    registration.base = has_buffers ? args.base : 0;
    registration.length = has_buffers ? args.length : 0;
    registration.gpu = gpu;
    if (on(Rule::kUvmChannelHolds)) {
        registration.share = channel.share;
        registration.tsg = channel.tsg;
    } else {
        registration.tsg = channel.tsg;
    }
    registration.live = *found;
    space.channels.push_back(std::move(registration));
    channel.bound = true;
    return rm::nv::kOk;
}

uint32_t RmCall::uvm_map(Bytes argument) {
    UvmSpace& space = file_.uvm;
    const auto base = load<uint64_t>(argument);
    const auto length = load<uint64_t>(argument, 8);
    const auto offset = load<uint64_t>(argument, 16);
    const size_t tail = argument.size() - 24;  // attributesCount
    const auto count = load<uint64_t>(argument, tail);
    const auto hclient = load<Handle>(argument, tail + 12);
    const auto hmemory = load<Handle>(argument, tail + 16);
    if (invalid_4k(base, length) && (on(Rule::kUvmMapAligned) || length == 0)) return rm::nv::kInvalidAddress;
    if (count == 0 || count > kMaxGpus || count * sizeof(rm::UvmMappingAttributes) > tail - 24)
        return rm::nv::kInvalidArgument;
    auto range = space.ranges.upper_bound(base);
    const bool any = range != space.ranges.begin();
    if (any) --range;
    const bool contained =
        any && base - range->first < range->second.length && length <= range->second.length - (base - range->first);
    if (!contained && on(Rule::kUvmMapContained)) return rm::nv::kInvalidAddress;
    std::vector<std::shared_ptr<VaSpace>> targets;
    for (uint64_t i = 0; i < count; i++) {
        const auto attributes = load<rm::UvmMappingAttributes>(argument, 24 + i * sizeof(rm::UvmMappingAttributes));
        constexpr uint32_t kLastMappingType = 3;
        if (attributes.gpuMappingType > kLastMappingType) return rm::nv::kInvalidArgument;
        const auto vas = space.vas.find(gpu_by_uuid(attributes.gpuUuid));
        if (vas == space.vas.end()) return on(Rule::kUvmMapNeedsVas) ? rm::nv::kInvalidDevice : rm::nv::kOk;
        targets.push_back(vas->second);
    }
    Client* owner = any_client(hclient);
    if (owner == nullptr) return rm::nv::kInvalidClient;
    if (owner->pid != caller_.pid && on(Rule::kUvmMapSameProcess)) return rm::nv::kInsufficientPermissions;
    const auto* memory = payload<std::shared_ptr<Memory>>(find(*owner, hmemory));
    if (memory == nullptr) return rm::nv::kObjectNotFound;
    if ((offset % kPage != 0 || offset > (*memory)->bytes || length > (*memory)->bytes - offset) &&
        on(Rule::kUvmMapInMemory))
        return rm::nv::kInvalidOffset;
    for (const auto& vas : targets) {
        auto& mappings = vas->mappings;
        // A new mapping replaces what was there.
        for (auto it = mappings.lower_bound(base); it != mappings.end() && it->first - base < length;)
            it = mappings.erase(it);
        VaMapping mapping{length, offset, *memory, {}};
        if (!on(Rule::kUvmMapKeepsMemory)) {
            mapping.memory = nullptr;
            mapping.weak = *memory;
        }
        mappings[base] = std::move(mapping);
    }
    return rm::nv::kOk;
}

// UVM stops a channel before it lets go of it.
void RmCall::uvm_forget_channel(ResourceManager& rm, UvmChannel& registration) {
    const auto channel = registration.live.lock();
    if (!channel) return;
    channel->bound = false;
    rm.gpu(static_cast<size_t>(registration.gpu)).stopped(*channel);
}

void RmCall::uvm_drop_range(ResourceManager&, UvmSpace& space, uint64_t base) {
    const auto range = space.ranges.find(base);
    if (range == space.ranges.end()) return;
    const uint64_t length = range->second.length;
    for (const auto& [gpu, vas] : space.vas) {
        for (auto it = vas->mappings.lower_bound(base); it != vas->mappings.end() && it->first - base < length;)
            it = vas->mappings.erase(it);
    }
    space.ranges.erase(range);
}

void RmCall::uvm_close(ResourceManager& rm, UvmSpace& space) {
    for (UvmChannel& channel : space.channels) uvm_forget_channel(rm, channel);
    space.channels.clear();
    while (!space.ranges.empty()) uvm_drop_range(rm, space, space.ranges.begin()->first);
    for (const auto& [gpu, vas] : space.vas) {
        vas->registered = false;
        vas->mappings.clear();
    }
    space.vas.clear();
}

}  // namespace vuda::sim
