// Names for people; kept apart from the decoder, which runs in every ioctl.
#include "rm/ioctl_view.h"

namespace vuda::rm {

std::string_view request_name(Surface surface, unsigned long request) {
    if (surface == Surface::kUvm) {
        switch (request) {
            case uvm::kInitialize: return "UVM_INITIALIZE";
            case uvm::kDeinitialize: return "UVM_DEINITIALIZE";
            case uvm::kCreateRangeGroup: return "UVM_CREATE_RANGE_GROUP";
            case uvm::kDestroyRangeGroup: return "UVM_DESTROY_RANGE_GROUP";
            case uvm::kRegisterGpuVaSpace: return "UVM_REGISTER_GPU_VASPACE";
            case uvm::kUnregisterGpuVaSpace: return "UVM_UNREGISTER_GPU_VASPACE";
            case uvm::kRegisterChannel: return "UVM_REGISTER_CHANNEL";
            case uvm::kUnregisterChannel: return "UVM_UNREGISTER_CHANNEL";
            case uvm::kMapExternalAllocation: return "UVM_MAP_EXTERNAL_ALLOCATION";
            case uvm::kFree: return "UVM_FREE";
            case uvm::kRegisterGpu: return "UVM_REGISTER_GPU";
            case uvm::kUnregisterGpu: return "UVM_UNREGISTER_GPU";
            case uvm::kPageableMemAccess: return "UVM_PAGEABLE_MEM_ACCESS";
            case uvm::kMapDynamicParallelismRegion: return "UVM_MAP_DYNAMIC_PARALLELISM_REGION";
            case uvm::kUnmapExternal: return "UVM_UNMAP_EXTERNAL";
            case uvm::kAllocSemaphorePool: return "UVM_ALLOC_SEMAPHORE_POOL";
            case uvm::kValidateVaRange: return "UVM_VALIDATE_VA_RANGE";
            case uvm::kCreateExternalRange: return "UVM_CREATE_EXTERNAL_RANGE";
            case uvm::kMmInitialize: return "UVM_MM_INITIALIZE";
            default: return {};
        }
    }
    if (ioctl_type(request) != kRmIoctlType) return {};
    switch (ioctl_number(request)) {
        case escape::kAllocMemory: return "RM_ALLOC_MEMORY";
        case escape::kFree: return "RM_FREE";
        case escape::kControl: return "RM_CONTROL";
        case escape::kAlloc: return "RM_ALLOC";
        case escape::kDupObject: return "RM_DUP_OBJECT";
        case escape::kShare: return "RM_SHARE";
        case escape::kIdleChannels: return "RM_IDLE_CHANNELS";
        case escape::kVidHeapControl: return "RM_VID_HEAP_CONTROL";
        case escape::kMapMemory: return "RM_MAP_MEMORY";
        case escape::kUnmapMemory: return "RM_UNMAP_MEMORY";
        case escape::kAllocContextDma2: return "RM_ALLOC_CONTEXT_DMA2";
        case escape::kMapMemoryDma: return "RM_MAP_MEMORY_DMA";
        case escape::kUnmapMemoryDma: return "RM_UNMAP_MEMORY_DMA";
        case escape::kUpdateDeviceMappingInfo: return "RM_UPDATE_DEVICE_MAPPING_INFO";
        case escape::kCardInfo: return "CARD_INFO";
        case escape::kRegisterFd: return "REGISTER_FD";
        case escape::kAllocOsEvent: return "ALLOC_OS_EVENT";
        case escape::kFreeOsEvent: return "FREE_OS_EVENT";
        case escape::kStatusCode: return "STATUS_CODE";
        case escape::kCheckVersionStr: return "CHECK_VERSION_STR";
        case escape::kXferCmd: return "IOCTL_XFER_CMD";
        case escape::kAttachGpusToFd: return "ATTACH_GPUS_TO_FD";
        case escape::kSysParams: return "SYS_PARAMS";
        case escape::kNumaInfo: return "NUMA_INFO";
        case escape::kExportToDmabufFd: return "EXPORT_TO_DMABUF_FD";
        case escape::kWaitOpenComplete: return "WAIT_OPEN_COMPLETE";
        default: return {};
    }
}

std::string_view class_name(uint32_t c) {
    switch (c) {
        case cls::kEvent: return "NV01_EVENT";
        case cls::kMemorySystem: return "NV01_MEMORY_SYSTEM";
        case cls::kMemoryLocalUser: return "NV01_MEMORY_LOCAL_USER";
        case cls::kRoot: return "NV01_ROOT";
        case cls::kRootClient: return "NV01_ROOT_CLIENT";
        case cls::kMemoryVirtual: return "NV01_MEMORY_VIRTUAL";
        case cls::kEventOsEvent: return "NV01_EVENT_OS_EVENT";
        case cls::kDevice: return "NV01_DEVICE_0";
        case cls::kSubdevice: return "NV20_SUBDEVICE_0";
        case cls::kContextShare: return "FERMI_CONTEXT_SHARE_A";
        case cls::kVaSpace: return "FERMI_VASPACE_A";
        case cls::kChannelGroup: return "KEPLER_CHANNEL_GROUP_A";
        case cls::kI2m: return "KEPLER_INLINE_TO_MEMORY_B";
        case cls::kSmcPartition: return "AMPERE_SMC_PARTITION_REF";
        case cls::kGpfifoVolta: return "VOLTA_CHANNEL_GPFIFO_A";
        case cls::kGpfifoTuring: return "TURING_CHANNEL_GPFIFO_A";
        case cls::kGpfifoAmpere: return "AMPERE_CHANNEL_GPFIFO_A";
        case cls::kGpfifoHopper: return "HOPPER_CHANNEL_GPFIFO_A";
        case cls::kGpfifoBlackwellA: return "BLACKWELL_CHANNEL_GPFIFO_A";
        case cls::kGpfifoBlackwellB: return "BLACKWELL_CHANNEL_GPFIFO_B";
        case cls::kUsermodeHopper: return "HOPPER_USERMODE_A";
        case cls::kThreeDHopper: return "HOPPER_A";
        case cls::kComputeTuring: return "TURING_COMPUTE_A";
        case cls::kComputeAda: return "ADA_COMPUTE_A";
        case cls::kComputeHopper: return "HOPPER_COMPUTE_A";
        case cls::kCopyHopper: return "HOPPER_DMA_COPY_A";
        default: return {};
    }
}

std::string_view control_name(uint32_t cmd) {
    switch (cmd) {
        case ctrl::kGpuGetAttachedIds: return "GPU_GET_ATTACHED_IDS";
        case ctrl::kGpuGetIdInfo: return "GPU_GET_ID_INFO";
        case ctrl::kGpuGetIdInfoV2: return "GPU_GET_ID_INFO_V2";
        case ctrl::kGpuGetProbedIds: return "GPU_GET_PROBED_IDS";
        case ctrl::kGpuAttachIds: return "GPU_ATTACH_IDS";
        case ctrl::kGpuGetUuidFromGpuId: return "GPU_GET_UUID_FROM_GPU_ID";
        case ctrl::kClientShareObject: return "CLIENT_SHARE_OBJECT";
        case ctrl::kExportObjectToFd: return "EXPORT_OBJECT_TO_FD";
        case ctrl::kImportObjectFromFd: return "IMPORT_OBJECT_FROM_FD";
        case ctrl::kGpuGetVirtualizationMode: return "GPU_GET_VIRTUALIZATION_MODE";
        case ctrl::kConfComputeGetCapabilities: return "CONF_COMPUTE_GET_CAPABILITIES";
        case ctrl::kGpuGetClasslistV2: return "GPU_GET_CLASSLIST_V2";
        case ctrl::kFifoDisableChannels: return "FIFO_DISABLE_CHANNELS";
        case ctrl::kGpuGetGidInfo: return "GPU_GET_GID_INFO";
        case ctrl::kGrCtxswZcullBind: return "GR_CTXSW_ZCULL_BIND";
        case ctrl::kGrCtxswPmBind: return "GR_CTXSW_PM_BIND";
        case ctrl::kGrSetCtxswPreemptionMode: return "GR_SET_CTXSW_PREEMPTION_MODE";
        case ctrl::kGrCtxswPreemptionBind: return "GR_CTXSW_PREEMPTION_BIND";
        case ctrl::kGrGetCtxBufferSize: return "GR_GET_CTX_BUFFER_SIZE";
        case ctrl::kGrGetGlobalSmOrder: return "GR_GET_GLOBAL_SM_ORDER";
        case ctrl::kGrGetGpcMask: return "GR_GET_GPC_MASK";
        case ctrl::kGrGetTpcMask: return "GR_GET_TPC_MASK";
        case ctrl::kGrGetGfxGpcAndTpcInfo: return "GR_GET_GFX_GPC_AND_TPC_INFO";
        case ctrl::kGrmgrGetGrFsInfo: return "GRMGR_GET_GR_FS_INFO";
        case ctrl::kGrCtxswSetupBind: return "GR_CTXSW_SETUP_BIND";
        case ctrl::kTsgGpfifoSchedule: return "TSG_GPFIFO_SCHEDULE";
        case ctrl::kTsgBind: return "TSG_BIND";
        case ctrl::kTsgSetTimeslice: return "TSG_SET_TIMESLICE";
        case ctrl::kTsgGetTimeslice: return "TSG_GET_TIMESLICE";
        case ctrl::kTsgPreempt: return "TSG_PREEMPT";
        case ctrl::kTsgGetInfo: return "TSG_GET_INFO";
        case ctrl::kTsgSetInterleaveLevel: return "TSG_SET_INTERLEAVE_LEVEL";
        case ctrl::kTsgGetInterleaveLevel: return "TSG_GET_INTERLEAVE_LEVEL";
        case ctrl::kTsgMakeRealtime: return "TSG_MAKE_REALTIME";
        case ctrl::kChannelGpfifoSchedule: return "CHANNEL_GPFIFO_SCHEDULE";
        case ctrl::kChannelBind: return "CHANNEL_BIND";
        case ctrl::kChannelSetErrorNotifier: return "CHANNEL_SET_ERROR_NOTIFIER";
        case ctrl::kChannelStop: return "CHANNEL_STOP";
        case ctrl::kChannelGetWorkSubmitToken: return "CHANNEL_GET_WORK_SUBMIT_TOKEN";
        case ctrl::kChannelSetWorkSubmitTokenNotifIndex: return "CHANNEL_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX";
        default: return {};
    }
}

}  // namespace vuda::rm
