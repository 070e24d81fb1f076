#include "sim/rm/layout.h"

#include <charconv>

#include "rm/abi.h"

namespace vuda::sim {

Layout Layout::of(std::string_view version) {
    Layout layout;
    layout.version = std::string(version);
    int numbers[3] = {580, 0, 0};
    const char* at = version.data();
    const char* end = version.data() + version.size();
    for (int& number : numbers) {
        const auto [next, error] = std::from_chars(at, end, number);
        if (error != std::errc()) break;
        at = next;
        if (at == end || *at != '.') break;
        ++at;
    }
    const int branch = numbers[0];
    layout.branch = branch;
    layout.alloc_long = branch <= 525 ? 40 : 48;
    layout.map_dma = branch <= 575 ? 56 : 64;
    layout.unmap_dma = branch <= 535 ? 40 : 48;
    const bool short_channel = branch < 535 || (branch == 535 && numbers[1] < 86);
    layout.channel_params = short_channel ? 304 : branch <= 565 ? 360 : 368;
    layout.vaspace_params = branch <= 575 ? 48 : 56;
    layout.memory_params = branch <= 535 ? 120 : 128;
    layout.schedule_params = branch <= 570 ? 2 : 3;
    const bool short_map = branch < 550 || (branch == 550 && numbers[1] == 40 && numbers[2] < 53);
    layout.map_external = short_map ? 1200 : 9264;
    layout.uvm_free = branch >= 590 ? 16 : 24;
    layout.uvm_unregister_channel = branch >= 590 ? 12 : 28;
    layout.sm_id = branch <= 570   ? rm::kGlobalSmIdSize570
                   : branch <= 575 ? rm::kGlobalSmIdSize575
                                   : sizeof(rm::GlobalSmId);
    return layout;
}

uint32_t Layout::class_params(uint32_t cls) const {
    using namespace rm;
    if (cls::is_gpfifo(cls)) return channel_params;
    if (cls::is_memory(cls)) return memory_params;
    switch (cls) {
        case cls::kDevice: return sizeof(DeviceParams);
        case cls::kSubdevice: return sizeof(SubdeviceParams);
        case cls::kVaSpace: return vaspace_params;
        case cls::kMemoryVirtual: return sizeof(MemoryVirtualParams);
        case cls::kChannelGroup: return sizeof(ChannelGroupParams);
        case cls::kContextShare: return sizeof(ContextShareParams);
        case cls::kUsermodeHopper: return sizeof(UsermodeHopperParams);
        case cls::kEvent:
        case cls::kEventOsEvent: return sizeof(EventParams);
        default: return 0;  // not looked at
    }
}

uint32_t Layout::uvm_argument(unsigned long number) const {
    using namespace rm;
    switch (number) {
        case uvm::kInitialize: return sizeof(UvmInitializeArgs);
        case uvm::kCreateRangeGroup:
        case uvm::kDestroyRangeGroup: return sizeof(UvmRangeGroupArgs);
        case uvm::kRegisterGpuVaSpace: return sizeof(UvmRegisterVaSpaceArgs);
        case uvm::kUnregisterGpuVaSpace:
        case uvm::kUnregisterGpu: return sizeof(UvmUnregisterGpuArgs);
        case uvm::kRegisterChannel: return sizeof(UvmRegisterChannelArgs);
        case uvm::kUnregisterChannel: return uvm_unregister_channel;
        case uvm::kMapExternalAllocation: return map_external;
        case uvm::kFree: return uvm_free;
        case uvm::kRegisterGpu: return sizeof(UvmRegisterGpuArgs);
        case uvm::kPageableMemAccess: return sizeof(UvmPageableMemAccessArgs);
        case uvm::kMapDynamicParallelismRegion: return sizeof(UvmMapDynamicParallelismArgs);
        case uvm::kUnmapExternal: return sizeof(UvmUnmapExternalArgs);
        case uvm::kAllocSemaphorePool: return map_external - 16;
        case uvm::kValidateVaRange: return sizeof(UvmValidateVaRangeArgs);
        case uvm::kCreateExternalRange: return sizeof(UvmCreateExternalRangeArgs);
        case uvm::kMmInitialize: return sizeof(UvmMmInitializeArgs);
        default: return 0;
    }
}

}  // namespace vuda::sim
