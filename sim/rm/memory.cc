// Memory objects, VA spaces, and the mappings of programs and of RM-managed VA spaces.
#include <algorithm>

#include "sim/rm/call.h"

namespace vuda::sim {

namespace {

constexpr uint64_t kVaLimit = (uint64_t{1} << 49) - 1;
// Addresses that RM chooses are 64 KiB apart, as on hardware (the traces).
constexpr uint64_t kVaStep = 0x10000;
constexpr uint64_t kLargest = uint64_t{1} << 40;

constexpr uint32_t kFixedAddress = 0x10;    // NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE
constexpr uint32_t kUseBeginEnd = 0x20000;  // ..._USE_BEGIN_END
constexpr uint32_t kVirtual = 0x80000;      // ..._VIRTUAL
constexpr uint32_t kGrowsDown = 0x4;        // ..._FORCE_MEM_GROWS_DOWN

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

bool is_vidmem(uint32_t attr) { return ((attr >> 25) & 3) == 0; }  // NVOS32_ATTR_LOCATION

}  // namespace

std::shared_ptr<Memory> RmCall::new_memory(uint64_t bytes, bool vidmem, int gpu) {
    auto memory = std::make_shared<Memory>();
    memory->bytes = round_up(std::max<uint64_t>(bytes, 1), kPage);
    memory->vidmem = vidmem;
    memory->gpu = gpu;
    memory->store = std::make_shared<SharedMemory>(memory->bytes);
    memory->counted = rm_.live_memories_;
    return memory;
}

std::shared_ptr<VaSpace> RmCall::vas_or_default(Client& owner, Handle device, Handle vas) {
    if (vas != 0) {
        const auto* found = payload<std::shared_ptr<VaSpace>>(find(owner, vas));
        return found == nullptr ? nullptr : *found;
    }
    Object* object = find(owner, device);
    auto* held = payload<DeviceObject>(object);
    if (held == nullptr) return nullptr;
    if (held->default_vas == nullptr) {
        held->default_vas = std::make_shared<VaSpace>();
        held->default_vas->gpu = held->gpu;
        held->default_vas->base = 0x100000;
        held->default_vas->limit = kVaLimit;
    }
    return held->default_vas;
}

uint32_t RmCall::make_vaspace(const Object& parent, Bytes params, Payload& made) {
    auto wanted = load<rm::VaSpaceParams>(params);
    const auto* device = std::get_if<DeviceObject>(&parent.payload);
    if (device == nullptr) return rm::nv::kInvalidObjectParent;
    auto vas = std::make_shared<VaSpace>();
    vas->gpu = device->gpu;
    vas->external = (wanted.flags & rm::kVaSpaceExternallyOwned) != 0;
    vas->base = wanted.vaBase != 0 ? wanted.vaBase : kPage;
    if (vas->base % kPage != 0 || vas->base > kVaLimit) return rm::nv::kInvalidArgument;
    vas->limit = kVaLimit;
    if (wanted.vaSize != 0) vas->limit = std::min(vas->limit, vas->base + wanted.vaSize - 1);
    wanted.vaBase = vas->base;
    wanted.vaSize = vas->limit - vas->base + 1;
    store(params, wanted);
    made = std::move(vas);
    return rm::nv::kOk;
}

uint32_t RmCall::make_memory(Client& owner, const Object& parent, uint32_t cls, Bytes params, Payload& made) {
    auto wanted = load<rm::MemoryParams>(params);
    if (wanted.size == 0 || wanted.size > kLargest) return rm::nv::kInvalidArgument;
    const bool vidmem = cls == rm::cls::kMemoryLocalUser;
    // Video memory comes in 2 MiB pages unless something smaller was asked for.
    const uint64_t step = vidmem && wanted.alignment >= kPage ? std::min<uint64_t>(wanted.alignment, 0x200000) : kPage;
    auto memory = new_memory(round_up(wanted.size, step), vidmem, gpu_of(owner, parent));
    wanted.size = memory->bytes;
    wanted.limit = memory->bytes - 1;
    if (wanted.alignment == 0) wanted.alignment = kPage;
    store(params, wanted);
    made = std::move(memory);
    return rm::nv::kOk;
}

uint32_t RmCall::make_virtual(Client& owner, const Object& parent, Bytes params, Payload& made) {
    const auto wanted = load<rm::MemoryVirtualParams>(params);
    const auto vas = vas_or_default(owner, parent.handle, wanted.hVASpace);
    if (vas == nullptr) return rm::nv::kObjectNotFound;
    auto memory = std::make_shared<VirtualMemory>();
    memory->vas = vas;
    memory->whole = wanted.offset == 0 && (wanted.limit == 0 || wanted.limit == UINT64_MAX);
    if (memory->whole) {
        memory->base = vas->base;
        memory->length = vas->limit - vas->base + 1;
    } else {
        if (wanted.limit <= wanted.offset || wanted.limit > vas->limit) return rm::nv::kInvalidLimit;
        memory->base = wanted.offset;
        memory->length = wanted.limit - wanted.offset + 1;
        if (vas->overlaps_reserved(memory->base, memory->length)) return rm::nv::kNoMemory;
        vas->reserved[memory->base] = memory->length;
    }
    made = std::move(memory);
    return rm::nv::kOk;
}

uint32_t RmCall::alloc_memory(rm::AllocMemoryArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hRoot, status);
    if (owner == nullptr) return status;
    Object* device = find(*owner, args.hObjectParent);
    if (payload<DeviceObject>(device) == nullptr) return rm::nv::kInvalidObjectParent;
    if (args.limit >= kLargest && args.hClass != 0x3f && args.hClass != rm::cls::kMemoryLocalUser)
        return rm::nv::kInvalidLimit;
    status = new_handle(*owner, args.hObjectNew);
    if (status != rm::nv::kOk) return status;
    const int gpu = gpu_of(*owner, *device);
    switch (args.hClass) {
        case rm::cls::kMemorySystem: {
            auto memory = new_memory(args.limit + 1, false, gpu);
            if (args.fd >= 0) {
                const auto target = request_.file_of(args.fd);
                const auto it = target ? rm_.files_.find(*target) : rm_.files_.end();
                if (it != rm_.files_.end()) it->second.mapping = {memory, 0, memory->bytes};
            }
            insert(*owner, args.hObjectParent, args.hObjectNew, args.hClass, std::move(memory));
            return rm::nv::kOk;
        }
        case 0x71:  // NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: the program's own pages, which the simulator cannot see
            insert(*owner, args.hObjectParent, args.hObjectNew, args.hClass, new_memory(args.limit + 1, false, gpu));
            return rm::nv::kOk;
        case 0x3f:  // NV01_MEMORY_LOCAL_PRIVILEGED
        case rm::cls::kMemoryLocalUser:
            args.limit = 0x23'19af'ffffull;  // the whole frame buffer of an H200
            insert(*owner, args.hObjectParent, args.hObjectNew, args.hClass, NoState{});
            return rm::nv::kOk;
        default: return rm::nv::kInvalidClass;
    }
}

uint32_t RmCall::vid_heap(rm::VidHeapArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hRoot, status);
    if (owner == nullptr) return status;
    auto& want = args.allocSize;
    if (args.function == rm::kVidHeapFree) {
        if (find(*owner, want.hMemory) == nullptr) return rm::nv::kObjectNotFound;
        free_tree(rm_, *owner, want.hMemory);
        return rm::nv::kOk;
    }
    if (args.function != rm::kVidHeapAllocSize && args.function != rm::kVidHeapAllocSizeRange)
        return rm::nv::kNotSupported;
    Object* device = find(*owner, args.hObjectParent);
    if (payload<DeviceObject>(device) == nullptr) return rm::nv::kInvalidObjectParent;
    if (want.size == 0 || want.size > kLargest) return rm::nv::kInvalidArgument;
    args.total = uint64_t{139} << 30;
    args.free = args.total;
    const uint64_t length = round_up(want.size, kPage);
    if ((want.flags & kVirtual) == 0) {
        status = new_handle(*owner, want.hMemory);
        if (status != rm::nv::kOk) return status;
        want.size = length;
        want.limit = length - 1;
        insert(*owner, args.hObjectParent, want.hMemory, rm::cls::kMemorySystem + (is_vidmem(want.attr) ? 2 : 0),
               new_memory(length, is_vidmem(want.attr), gpu_of(*owner, *device)));
        return rm::nv::kOk;
    }
    const auto vas = vas_or_default(*owner, args.hObjectParent, args.hVASpace);
    if (vas == nullptr) return rm::nv::kObjectNotFound;
    if (vas->external && on(Rule::kDmaExternalVas)) return rm::nv::kNotSupported;
    uint64_t lo = vas->base;
    uint64_t hi = vas->limit;
    if ((want.flags & kUseBeginEnd) != 0) {
        lo = std::max(lo, want.rangeBegin);
        if (want.rangeEnd != 0) hi = std::min(hi, want.rangeEnd);
    }
    const uint64_t alignment = std::max(want.alignment, kVaStep);
    std::optional<uint64_t> address;
    if ((want.flags & kFixedAddress) != 0) {
        if (want.offset % kPage == 0 && want.offset <= vas->limit && vas->limit - want.offset >= length - 1 &&
            !vas->overlaps(want.offset, length) && !vas->overlaps_reserved(want.offset, length))
            address = want.offset;
    } else if ((want.flags & kGrowsDown) != 0 && hi - lo > length) {
        // From the top: try the highest place first, then fall back to the search from below.
        const uint64_t top = (hi - length + 1) / alignment * alignment;
        if (top >= lo && !vas->overlaps(top, length) && !vas->overlaps_reserved(top, length)) address = top;
        if (!address) address = vas->find_free(lo, hi, length, alignment);
    } else {
        address = vas->find_free(lo, hi, length, alignment);
    }
    if (!address) return rm::nv::kNoMemory;
    status = new_handle(*owner, want.hMemory);
    if (status != rm::nv::kOk) return status;
    auto memory = std::make_shared<VirtualMemory>();
    memory->vas = vas;
    memory->base = *address;
    memory->length = length;
    vas->reserved[*address] = length;
    want.offset = *address;
    want.size = length;
    want.limit = length - 1;
    insert(*owner, args.hObjectParent, want.hMemory, rm::cls::kMemoryVirtual, std::move(memory));
    return rm::nv::kOk;
}

uint32_t RmCall::map_memory(rm::MapMemoryArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hClient, status);
    if (owner == nullptr) return status;
    const auto* memory = payload<std::shared_ptr<Memory>>(find(*owner, args.hMemory));
    if (memory == nullptr) return rm::nv::kObjectNotFound;
    if (args.length == 0 || args.offset >= (*memory)->bytes || args.length > (*memory)->bytes - args.offset)
        return rm::nv::kInvalidLimit;
    const auto target = request_.file_of(args.fd);
    const auto it = target ? rm_.files_.find(*target) : rm_.files_.end();
    // The file to mmap carries the mapping; one that is no NVIDIA file, or UVM's, cannot.
    if (it == rm_.files_.end() || it->second.kind == FileKind::kUvm || it->second.kind == FileKind::kUvmTools)
        return rm::nv::kInvalidArgument;
    if (args.offset % kPage != 0) return rm::nv::kInvalidOffset;
    it->second.mapping = {*memory, args.offset, args.length};
    // An address that only means something to a later unmap; a real one is a bus address.
    args.pLinearAddress = 0x1'0000'0000ull + args.hMemory * kPage;
    return rm::nv::kOk;
}

uint32_t RmCall::unmap_memory(const rm::UnmapMemoryArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hClient, status);
    if (owner == nullptr) return status;
    return find(*owner, args.hMemory) == nullptr ? rm::nv::kObjectNotFound : rm::nv::kOk;
}

uint32_t RmCall::map_dma(Handle hclient, Handle dma, Handle hmemory, uint64_t offset, uint64_t length, uint32_t flags,
                         uint64_t& address) {
    uint32_t status = 0;
    Client* owner = client(hclient, status);
    if (owner == nullptr) return status;
    Object* object = find(*owner, hmemory);
    const auto* range = payload<std::shared_ptr<VirtualMemory>>(find(*owner, dma));
    if (range == nullptr || object == nullptr) return rm::nv::kObjectNotFound;
    VaSpace& vas = *(*range)->vas;
    if (vas.external && on(Rule::kDmaExternalVas)) return rm::nv::kNotSupported;
    std::shared_ptr<Memory> memory;
    if (const auto* held = payload<std::shared_ptr<Memory>>(object)) {
        memory = *held;
    } else if (std::holds_alternative<EngineObject>(object->payload)) {
        memory = new_memory(offset + std::min(length, kLargest), false, vas.gpu);  // an engine's notifier page
    } else {
        return rm::nv::kInvalidObjectHandle;
    }
    if (length == 0 || offset >= memory->bytes || length > memory->bytes - offset) return rm::nv::kInvalidLimit;
    if (offset % kPage != 0) return rm::nv::kInvalidOffset;
    length = round_up(length, kPage);
    const uint64_t last = (*range)->base + (*range)->length - 1;
    const uint64_t lo = on(Rule::kDmaAboveBase) ? (*range)->base : 0;
    std::optional<uint64_t> chosen;
    if ((flags & rm::kMapDmaOffsetFixed) != 0) {
        const bool inside = address % kPage == 0 && address >= lo && address <= last && last - address >= length - 1;
        if (!inside) return rm::nv::kInvalidOffset;
        if (vas.overlaps(address, length)) {
            if (on(Rule::kDmaNoOverlap)) return rm::nv::kInUse;
            vas.mappings.erase(address);
        }
        chosen = address;
    } else if ((*range)->whole) {
        chosen = vas.find_free(lo, last, length, kVaStep);
    } else {
        // Inside a reserved range only its own mappings are in the way.
        uint64_t at = (*range)->base;
        for (auto it = vas.mappings.lower_bound(at);
             it != vas.mappings.end() && it->first <= last && it->first - at < length; ++it)
            at = it->first + it->second.length;
        if (at <= last && last - at >= length - 1) chosen = at;
    }
    if (!chosen) return rm::nv::kNoMemory;
    vas.mappings[*chosen] = {length, offset, memory, {}};
    address = *chosen;
    return rm::nv::kOk;
}

uint32_t RmCall::unmap_dma(Handle hclient, Handle dma, uint64_t address) {
    uint32_t status = 0;
    Client* owner = client(hclient, status);
    if (owner == nullptr) return status;
    const auto* range = payload<std::shared_ptr<VirtualMemory>>(find(*owner, dma));
    if (range == nullptr) return rm::nv::kObjectNotFound;
    if ((*range)->vas->external) return rm::nv::kNotSupported;
    if ((*range)->vas->mappings.erase(address) == 0 && on(Rule::kDmaUnmapKnown)) return rm::nv::kObjectNotFound;
    return rm::nv::kOk;
}

}  // namespace vuda::sim
