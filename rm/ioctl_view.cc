#include "rm/ioctl_view.h"

#include <algorithm>
#include <cstddef>

namespace vuda::rm {
namespace {

Uuid uuid_of(const UuidBytes& bytes) {
    Uuid uuid;
    std::copy(std::begin(bytes), std::end(bytes), uuid.bytes.begin());
    return uuid;
}

template <typename T>
T read_at(Bytes bytes, size_t offset) {
    // Callers have checked the span's size against the layout; a mistake in a layout must not become a wild read.
    if (offset > bytes.size()) return T{};
    return load<T>(bytes.subspan(offset));
}

// Requests of one surface, with what decode() needs to know before it looks at any byte.
struct Layout {
    size_t size = 0;
    size_t status = kNoStatus;
};

Layout rm_layout(unsigned escape, size_t size, const DriverAbi& abi) {
    const auto exactly = [size](size_t want, size_t status) { return size == want ? Layout{want, status} : Layout{}; };
    switch (escape) {
        case escape::kAlloc:
            if (size == sizeof(AllocArgsShort)) return {size, offsetof(AllocArgsShort, status)};
            return exactly(abi.alloc_size, abi.alloc_status);
        case escape::kAllocMemory: return exactly(sizeof(AllocMemoryArgs), offsetof(AllocMemoryArgs, status));
        case escape::kFree: return exactly(sizeof(FreeArgs), offsetof(FreeArgs, status));
        case escape::kControl: return exactly(sizeof(ControlArgs), offsetof(ControlArgs, status));
        case escape::kDupObject: return exactly(sizeof(DupArgs), offsetof(DupArgs, status));
        case escape::kShare: return exactly(sizeof(ShareArgs), offsetof(ShareArgs, status));
        case escape::kVidHeapControl: return exactly(sizeof(VidHeapArgs), offsetof(VidHeapArgs, status));
        case escape::kMapMemory: return exactly(sizeof(MapMemoryArgs), offsetof(MapMemoryArgs, status));
        case escape::kUnmapMemory: return exactly(sizeof(UnmapMemoryArgs), offsetof(UnmapMemoryArgs, status));
        case escape::kAllocContextDma2: return exactly(sizeof(ContextDmaArgs), offsetof(ContextDmaArgs, status));
        case escape::kMapMemoryDma: return exactly(abi.map_dma_size, abi.map_dma_status);
        case escape::kUnmapMemoryDma: return exactly(abi.unmap_dma_size, abi.unmap_dma_status);
        case escape::kRegisterFd: return exactly(sizeof(RegisterFdArgs), kNoStatus);
        case escape::kCheckVersionStr: return exactly(sizeof(CheckVersionArgs), kNoStatus);
        default: return {};
    }
}

Layout uvm_layout(unsigned long request, const DriverAbi& abi) {
    const auto last_word = [](size_t size) { return Layout{size, size - 4}; };
    const auto last_padded_word = [](size_t size) { return Layout{size, size - 8}; };
    switch (request) {
        case uvm::kInitialize: return last_padded_word(sizeof(UvmInitializeArgs));
        case uvm::kRegisterGpu: return last_word(sizeof(UvmRegisterGpuArgs));
        case uvm::kRegisterGpuVaSpace: return last_word(sizeof(UvmRegisterVaSpaceArgs));
        case uvm::kUnregisterGpuVaSpace: return last_word(sizeof(UvmUnregisterGpuArgs));
        case uvm::kRegisterChannel: return last_padded_word(sizeof(UvmRegisterChannelArgs));
        case uvm::kUnregisterChannel: return last_word(abi.uvm_unregister_channel_size);
        case uvm::kCreateExternalRange: return last_padded_word(sizeof(UvmCreateExternalRangeArgs));
        case uvm::kMapExternalAllocation: return last_word(abi.uvm_map_external_size);
        case uvm::kUnmapExternal: return last_padded_word(sizeof(UvmUnmapExternalArgs));
        case uvm::kFree: return last_padded_word(abi.uvm_free_size);
        default: return {};
    }
}

Layout layout_of(Surface surface, unsigned long request, const DriverAbi& abi) {
    if (surface == Surface::kUvm) return uvm_layout(request, abi);
    if (ioctl_type(request) != kRmIoctlType) return {};
    return rm_layout(ioctl_number(request), ioctl_size(request), abi);
}

IoctlView decode_rm(unsigned escape, Bytes arg, const Layout& layout, const DriverAbi& abi) {
    const uint32_t status = layout.status == kNoStatus ? 0 : read_at<uint32_t>(arg, layout.status);
    switch (escape) {
        case escape::kAlloc: {
            // All three forms agree up to and including pAllocParms.
            const auto a = load<AllocArgsShort>(arg);
            uint32_t params_size = 0;
            if (layout.size == sizeof(AllocArgsShort)) params_size = a.paramsSize;
            if (layout.size == sizeof(AllocArgs)) params_size = load<AllocArgs>(arg).paramsSize;
            return Alloc{a.hRoot, a.hObjectParent, a.hObjectNew, a.hClass, a.pAllocParms, params_size, status};
        }
        case escape::kAllocMemory: {
            const auto a = load<AllocMemoryArgs>(arg);
            return AllocMemory{a.hRoot, a.hObjectParent, a.hObjectNew, a.hClass, status};
        }
        case escape::kFree: {
            const auto a = load<FreeArgs>(arg);
            return Free{a.hRoot, a.hObjectParent, a.hObjectOld, status};
        }
        case escape::kControl: {
            const auto a = load<ControlArgs>(arg);
            return Control{a.hClient, a.hObject, a.cmd, a.params, a.paramsSize, status};
        }
        case escape::kDupObject: {
            const auto a = load<DupArgs>(arg);
            return Dup{a.hClient, a.hParent, a.hObject, a.hClientSrc, a.hObjectSrc, a.flags, status};
        }
        case escape::kShare: {
            const auto a = load<ShareArgs>(arg);
            return Share{a.hClient, a.hObject, a.target, a.type, status};
        }
        case escape::kVidHeapControl: {
            const auto a = load<VidHeapArgs>(arg);
            // Every function keeps its handle after `owner`, where AllocSize has it.
            switch (a.function) {
                case kVidHeapAllocSize:
                case kVidHeapAllocTiledPitchHeight:
                    return VidHeapAlloc{a.hRoot, a.hObjectParent, a.allocSize.hMemory, a.allocSize.size, status};
                case kVidHeapAllocSizeRange:
                    return VidHeapAlloc{a.hRoot, a.hObjectParent, a.allocSize.hMemory,
                                        read_at<uint64_t>(arg, kVidHeapRangeSizeOffset), status};
                case kVidHeapFree: return VidHeapFree{a.hRoot, a.hObjectParent, a.allocSize.hMemory, status};
                default: return Other{};
            }
        }
        case escape::kMapMemory: {
            const auto a = load<MapMemoryArgs>(arg);
            return MapMemory{a.hClient, a.hDevice, a.hMemory, a.offset, a.length, a.fd, status};
        }
        case escape::kAllocContextDma2: {
            const auto a = load<ContextDmaArgs>(arg);
            return ContextDma{a.hObjectParent, a.hObjectNew, a.hMemory, a.offset, a.limit, status};
        }
        case escape::kUnmapMemory: {
            const auto a = load<UnmapMemoryArgs>(arg);
            return UnmapMemory{a.hClient, a.hDevice, a.hMemory, a.pLinearAddress, status};
        }
        case escape::kMapMemoryDma: {
            const auto a = load<MapDmaArgs>(arg);  // equal up to `flags` in both layouts
            return MapDma{a.hClient, a.hDevice, a.hDma,  a.hMemory,
                          a.offset,  a.length,  a.flags, read_at<uint64_t>(arg, abi.map_dma_va),
                          status};
        }
        case escape::kUnmapMemoryDma: {
            const auto a = load<UnmapDmaArgs>(arg);  // equal up to `dmaOffset`
            const uint64_t size = abi.unmap_dma_length ? read_at<uint64_t>(arg, abi.unmap_dma_length) : 0;
            return UnmapDma{a.hClient, a.hDevice, a.hDma, a.hMemory, a.dmaOffset, size, status};
        }
        case escape::kRegisterFd: return RegisterFd{load<RegisterFdArgs>(arg).ctlFd};
        case escape::kCheckVersionStr: {
            const auto a = load<CheckVersionArgs>(arg);
            CheckVersion view{a.cmd, a.reply, {}};
            std::memcpy(view.version, a.versionString, sizeof view.version - 1);
            return view;
        }
        default: return Other{};
    }
}

IoctlView decode_uvm(unsigned long request, Bytes arg, const Layout& layout, const DriverAbi& abi) {
    const uint32_t status = read_at<uint32_t>(arg, layout.status);
    switch (request) {
        case uvm::kInitialize: return UvmInitialize{load<UvmInitializeArgs>(arg).flags, status};
        case uvm::kRegisterGpu: {
            const auto a = load<UvmRegisterGpuArgs>(arg);
            return UvmRegisterGpu{uuid_of(a.gpuUuid), a.rmCtrlFd, a.hClient, status};
        }
        case uvm::kRegisterGpuVaSpace: {
            const auto a = load<UvmRegisterVaSpaceArgs>(arg);
            return UvmRegisterVaSpace{uuid_of(a.gpuUuid), a.rmCtrlFd, a.hClient, a.hVaSpace, status};
        }
        case uvm::kUnregisterGpuVaSpace:
            return UvmUnregisterVaSpace{uuid_of(load<UvmUnregisterGpuArgs>(arg).gpuUuid), status};
        case uvm::kRegisterChannel: {
            const auto a = load<UvmRegisterChannelArgs>(arg);
            return UvmRegisterChannel{uuid_of(a.gpuUuid), a.rmCtrlFd, a.hClient, a.hChannel, a.base, a.length, status};
        }
        case uvm::kUnregisterChannel: {
            const size_t skip = abi.uvm_unregister_channel_size - sizeof(UvmUnregisterChannelArgs);
            const auto a = read_at<UvmUnregisterChannelArgs>(arg, skip);
            return UvmUnregisterChannel{a.hClient, a.hChannel, status};
        }
        case uvm::kCreateExternalRange: {
            const auto a = load<UvmCreateExternalRangeArgs>(arg);
            return UvmCreateExternalRange{a.base, a.length, status};
        }
        case uvm::kMapExternalAllocation: {
            UvmMapExternal view;
            view.base = read_at<uint64_t>(arg, 0);
            view.length = read_at<uint64_t>(arg, 8);
            view.offset = read_at<uint64_t>(arg, 16);
            view.first = read_at<UvmMappingAttributes>(arg, offsetof(UvmMapExternalArgs, attributes));
            // Behind the array, whatever its length: count (8), fd, client, memory, status.
            const size_t tail = layout.size - 24;
            view.attributes_count = read_at<uint64_t>(arg, tail);
            view.ctl_fd = read_at<int32_t>(arg, tail + 8);
            view.client = read_at<Handle>(arg, tail + 12);
            view.memory = read_at<Handle>(arg, tail + 16);
            view.status = status;
            return view;
        }
        case uvm::kUnmapExternal: {
            const auto a = load<UvmUnmapExternalArgs>(arg);
            return UvmUnmapExternal{a.base, a.length, uuid_of(a.gpuUuid), status};
        }
        case uvm::kFree: {
            const uint64_t length = abi.uvm_free_size == sizeof(UvmFreeArgs580) ? read_at<uint64_t>(arg, 8) : 0;
            return UvmFree{read_at<uint64_t>(arg, 0), length, status};
        }
        default: return Other{};
    }
}

}  // namespace

size_t argument_size(Surface surface, unsigned long request, const DriverAbi& abi) {
    return layout_of(surface, request, abi).size;
}

size_t status_offset(Surface surface, unsigned long request, const DriverAbi& abi) {
    return layout_of(surface, request, abi).status;
}

IoctlView decode(Surface surface, unsigned long request, Bytes arg, const DriverAbi& abi) {
    const Layout layout = layout_of(surface, request, abi);
    if (layout.size == 0 || arg.size() < layout.size) return Other{};
    arg = arg.first(layout.size);
    if (surface == Surface::kUvm) return decode_uvm(request, arg, layout, abi);
    return decode_rm(ioctl_number(request), arg, layout, abi);
}

uint32_t alloc_params_size(uint32_t cls, const DriverAbi& abi) {
    if (cls::is_gpfifo(cls)) return abi.channel_params_size;
    switch (cls) {
        case cls::kDevice: return sizeof(DeviceParams);
        case cls::kSubdevice: return sizeof(SubdeviceParams);
        case cls::kEvent:
        case cls::kEventOsEvent: return sizeof(EventParams);
        case cls::kMemorySystem:
        case cls::kMemoryLocalUser: return abi.memory_params_size;
        case cls::kMemoryVirtual: return sizeof(MemoryVirtualParams);
        case cls::kVaSpace: return abi.vaspace_params_size;
        case cls::kChannelGroup: return sizeof(ChannelGroupParams);
        case cls::kContextShare: return sizeof(ContextShareParams);
        case cls::kUsermodeHopper: return sizeof(UsermodeHopperParams);
        default: return 0;
    }
}

uint32_t control_params_size(uint32_t cmd, const DriverAbi& abi) {
    switch (cmd) {
        case ctrl::kGpuGetUuidFromGpuId: return sizeof(UuidFromGpuIdParams);
        case ctrl::kGpuGetIdInfo: return sizeof(GpuIdInfoParams);
        case ctrl::kGpuGetIdInfoV2: return sizeof(GpuIdInfoV2Params);
        case ctrl::kExportObjectToFd: return sizeof(ExportObjectParams);
        case ctrl::kImportObjectFromFd: return sizeof(ImportObjectParams);
        case ctrl::kFifoDisableChannels: return sizeof(FifoDisableChannelsParams);
        case ctrl::kGpuGetGidInfo: return sizeof(GidInfoParams);
        case ctrl::kGrCtxswZcullBind: return sizeof(ZcullBindParams);
        case ctrl::kGrCtxswPmBind: return sizeof(PmBindParams);
        case ctrl::kGrSetCtxswPreemptionMode: return sizeof(PreemptionModeParams);
        case ctrl::kGrCtxswPreemptionBind: return abi.preemption_bind_size;
        case ctrl::kGrCtxswSetupBind: return abi.has_setup_bind ? sizeof(SetupBindParams) : 0;
        case ctrl::kGrGetGfxGpcAndTpcInfo: return sizeof(GfxGpcTpcInfoParams);
        case ctrl::kGrmgrGetGrFsInfo: return sizeof(GrFsInfoParams);
        case ctrl::kTsgGpfifoSchedule:
        case ctrl::kChannelGpfifoSchedule: return abi.gpfifo_schedule_size;
        case ctrl::kTsgSetTimeslice:
        case ctrl::kTsgGetTimeslice: return sizeof(TsgTimesliceParams);
        case ctrl::kTsgPreempt: return sizeof(TsgPreemptParams);
        case ctrl::kTsgGetInfo: return sizeof(TsgInfoParams);
        case ctrl::kTsgSetInterleaveLevel:
        case ctrl::kTsgGetInterleaveLevel: return sizeof(TsgInterleaveParams);
        case ctrl::kTsgBind:
        case ctrl::kChannelBind: return sizeof(ChannelBindParams);
        case ctrl::kChannelSetErrorNotifier: return sizeof(SetErrorNotifierParams);
        case ctrl::kChannelGetWorkSubmitToken: return sizeof(WorkSubmitTokenParams);
        default: return 0;
    }
}

ParamBlock param_block(const IoctlView& view, const DriverAbi& abi) {
    if (const auto* alloc = std::get_if<Alloc>(&view)) {
        const uint32_t size = alloc_params_size(alloc->cls, abi);
        if (alloc->params == 0 || size == 0 || (alloc->params_size != 0 && alloc->params_size != size)) return {};
        return {alloc->params, size};
    }
    if (const auto* control = std::get_if<Control>(&view)) {
        const uint32_t size = control_params_size(control->cmd, abi);
        if (control->params == 0 || size == 0 || control->params_size != size) return {};
        return {control->params, size};
    }
    return {};
}

PreemptionBindParams load_preemption_bind(Bytes bytes, const DriverAbi& abi) {
    if (abi.preemption_bind_pointers == 9) return load<PreemptionBindParams>(bytes);
    const auto old = load<PreemptionBindParams550>(bytes);
    PreemptionBindParams out{old.flags, old.hClient,         old.hChannel,        0,
                             {},        old.gfxpPreemptMode, old.cilpPreemptMode, old.route};
    std::copy(std::begin(old.vMemPtrs), std::end(old.vMemPtrs), out.vMemPtrs);
    return out;
}

}  // namespace vuda::rm
