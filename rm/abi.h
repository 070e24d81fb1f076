// The part of NVIDIA's resource-manager (RM) and unified-memory (UVM) kernel interface that VUDA speaks: argument
// blocks, parameter blocks, numbers.  Layouts are those of x86-64 and aarch64 Linux (little endian, 64-bit pointers).
//
// Unless a name says otherwise the layout is that of driver branch 580, which the table in rm/driver_table.h relates to
// the other branches; where a layout changed, a twin struct carries the last branch of the old layout in its name.
// Facts come from NVIDIA's published kernel sources (github.com/NVIDIA/open-gpu-kernel-modules: nvos.h, ctrl/*.h,
// class/*.h, alloc/alloc_channel.h, nv_escape.h, nv-ioctl.h, uvm_ioctl.h); the NVIDIA name stands beside each entry so
// that it can be found.
//
// Members are in the caller's byte order and carry no invariants: everything here is wire format.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::rm {

using Handle = uint32_t;   // NvHandle; 0 means "none"
using UserPtr = uint64_t;  // NvP64: an address in the process that makes the call

// ---------------------------------------------------------------------------------------------------------------------
// ioctl request numbers

// RM requests are _IOC(READ|WRITE, 'F', escape, size); the size field is 14 bits.  UVM requests are bare numbers.
inline constexpr unsigned kRmIoctlType = 'F';

constexpr unsigned ioctl_number(unsigned long request) { return request & 0xffu; }
constexpr unsigned ioctl_type(unsigned long request) { return (request >> 8) & 0xffu; }
constexpr unsigned ioctl_size(unsigned long request) { return (request >> 16) & 0x3fffu; }
constexpr unsigned long rm_request(unsigned escape, size_t size) {
    return (3ul << 30) | (static_cast<unsigned long>(size) << 16) | (kRmIoctlType << 8) | escape;
}

// NV_ESC_* (nv_escape.h and nv-ioctl-numbers.h).
namespace escape {
inline constexpr unsigned kAllocMemory = 0x27;              // NVOS02 + fd, 56 bytes
inline constexpr unsigned kFree = 0x29;                     // NVOS00
inline constexpr unsigned kControl = 0x2a;                  // NVOS54
inline constexpr unsigned kAlloc = 0x2b;                    // NVOS21 or NVOS64, told apart by size
inline constexpr unsigned kDupObject = 0x34;                // NVOS55
inline constexpr unsigned kShare = 0x35;                    // NVOS57
inline constexpr unsigned kIdleChannels = 0x41;             // NVOS30, 56 bytes
inline constexpr unsigned kVidHeapControl = 0x4a;           // NVOS32
inline constexpr unsigned kMapMemory = 0x4e;                // NVOS33 + fd
inline constexpr unsigned kUnmapMemory = 0x4f;              // NVOS34
inline constexpr unsigned kAllocContextDma2 = 0x54;         // NVOS39, 56 bytes
inline constexpr unsigned kMapMemoryDma = 0x57;             // NVOS46
inline constexpr unsigned kUnmapMemoryDma = 0x58;           // NVOS47
inline constexpr unsigned kUpdateDeviceMappingInfo = 0x5e;  // NVOS56, 40 bytes
inline constexpr unsigned kCardInfo = 0xc8;                 // array of CardInfo
inline constexpr unsigned kRegisterFd = 0xc9;
inline constexpr unsigned kAllocOsEvent = 0xce;
inline constexpr unsigned kFreeOsEvent = 0xcf;
inline constexpr unsigned kStatusCode = 0xd1;
inline constexpr unsigned kCheckVersionStr = 0xd2;
inline constexpr unsigned kXferCmd = 0xd3;  // any other escape, argument by reference
inline constexpr unsigned kAttachGpusToFd = 0xd4;
inline constexpr unsigned kSysParams = 0xd6;
inline constexpr unsigned kNumaInfo = 0xd7;
inline constexpr unsigned kExportToDmabufFd = 0xd9;
inline constexpr unsigned kWaitOpenComplete = 0xda;
}  // namespace escape

// UVM_* (uvm_ioctl.h, uvm_linux_ioctl.h).
namespace uvm {
inline constexpr unsigned long kInitialize = 0x30000001;
inline constexpr unsigned long kDeinitialize = 0x30000002;
inline constexpr unsigned long kCreateRangeGroup = 23;
inline constexpr unsigned long kDestroyRangeGroup = 24;
inline constexpr unsigned long kRegisterGpuVaSpace = 25;
inline constexpr unsigned long kUnregisterGpuVaSpace = 26;
inline constexpr unsigned long kRegisterChannel = 27;
inline constexpr unsigned long kUnregisterChannel = 28;
inline constexpr unsigned long kMapExternalAllocation = 33;
inline constexpr unsigned long kFree = 34;
inline constexpr unsigned long kRegisterGpu = 37;
inline constexpr unsigned long kUnregisterGpu = 38;
inline constexpr unsigned long kPageableMemAccess = 39;
// Of /dev/nvidia-uvm-tools.
inline constexpr unsigned long kToolsInitEventTracker = 56;
inline constexpr unsigned long kToolsEventQueueEnableEvents = 58;
inline constexpr unsigned long kMapDynamicParallelismRegion = 65;
inline constexpr unsigned long kUnmapExternal = 66;
inline constexpr unsigned long kAllocSemaphorePool = 68;
inline constexpr unsigned long kValidateVaRange = 72;
inline constexpr unsigned long kCreateExternalRange = 73;
inline constexpr unsigned long kMmInitialize = 75;
}  // namespace uvm

// ---------------------------------------------------------------------------------------------------------------------
// Classes

namespace cls {
inline constexpr uint32_t kEvent = 0x05;            // NV01_EVENT
inline constexpr uint32_t kMemorySystem = 0x3e;     // NV01_MEMORY_SYSTEM
inline constexpr uint32_t kMemoryLocalUser = 0x40;  // NV01_MEMORY_LOCAL_USER
inline constexpr uint32_t kRoot = 0x00;             // NV01_ROOT
inline constexpr uint32_t kRootClient = 0x41;       // NV01_ROOT_CLIENT
inline constexpr uint32_t kMemoryVirtual = 0x70;    // NV01_MEMORY_VIRTUAL
inline constexpr uint32_t kEventOsEvent = 0x79;     // NV01_EVENT_OS_EVENT
inline constexpr uint32_t kDevice = 0x80;           // NV01_DEVICE_0
inline constexpr uint32_t kSubdevice = 0x2080;      // NV20_SUBDEVICE_0
inline constexpr uint32_t kContextShare = 0x9067;   // FERMI_CONTEXT_SHARE_A
inline constexpr uint32_t kVaSpace = 0x90f1;        // FERMI_VASPACE_A
inline constexpr uint32_t kChannelGroup = 0xa06c;   // KEPLER_CHANNEL_GROUP_A: a TSG
inline constexpr uint32_t kI2m = 0xa140;            // KEPLER_INLINE_TO_MEMORY_B
inline constexpr uint32_t kSmcPartition = 0xc637;   // AMPERE_SMC_PARTITION_REF: a MIG GPU instance
inline constexpr uint32_t kGpfifoVolta = 0xc36f;
inline constexpr uint32_t kGpfifoTuring = 0xc46f;
inline constexpr uint32_t kGpfifoAmpere = 0xc56f;
inline constexpr uint32_t kGpfifoHopper = 0xc86f;
inline constexpr uint32_t kGpfifoBlackwellA = 0xc96f;
inline constexpr uint32_t kGpfifoBlackwellB = 0xca6f;
inline constexpr uint32_t kUsermodeHopper = 0xc661;
inline constexpr uint32_t kThreeDHopper = 0xcb97;
inline constexpr uint32_t kComputeTuring = 0xc5c0;
inline constexpr uint32_t kComputeAda = 0xc9c0;
inline constexpr uint32_t kComputeHopper = 0xcbc0;
inline constexpr uint32_t kCopyHopper = 0xc8b5;

// Engine classes are numbered by family (low byte) and generation (high byte); both grow with each chip generation, so
// that a rule over the low byte keeps working on chips newer than this file.
constexpr bool is_gpfifo(uint32_t c) { return (c & 0xffffu) == c && (c & 0xffu) == 0x6fu && c >= 0xa06fu; }
constexpr bool is_3d(uint32_t c) { return (c & 0xffffu) == c && (c & 0xffu) == 0x97u && c >= 0xb097u; }
constexpr bool is_compute(uint32_t c) { return (c & 0xffffu) == c && (c & 0xffu) == 0xc0u && c >= 0xb0c0u; }
constexpr bool is_copy(uint32_t c) { return (c & 0xffffu) == c && (c & 0xffu) == 0xb5u && c >= 0xb0b5u; }
constexpr bool is_memory(uint32_t c) { return c == kMemorySystem || c == kMemoryLocalUser; }
}  // namespace cls

// NV2080_ENGINE_TYPE_*.
inline constexpr uint32_t kEngineGr0 = 1;
inline constexpr uint32_t kEngineCopy0 = 9;

// ---------------------------------------------------------------------------------------------------------------------
// Control commands

namespace ctrl {
inline constexpr uint32_t kGpuGetAttachedIds = 0x201;
inline constexpr uint32_t kGpuGetIdInfo = 0x202;
inline constexpr uint32_t kGpuGetIdInfoV2 = 0x205;
inline constexpr uint32_t kGpuGetProbedIds = 0x214;
inline constexpr uint32_t kGpuAttachIds = 0x215;
inline constexpr uint32_t kGpuGetUuidFromGpuId = 0x275;
inline constexpr uint32_t kClientShareObject = 0xd06;
inline constexpr uint32_t kClientGetAddrSpaceType = 0x0d01;
inline constexpr uint32_t kExportObjectToFd = 0x3d05;
inline constexpr uint32_t kImportObjectFromFd = 0x3d06;
inline constexpr uint32_t kGpuGetVirtualizationMode = 0x800289;
inline constexpr uint32_t kGpuGetClasslistV2 = 0x800292;
inline constexpr uint32_t kFifoDisableChannels = 0x2080110b;
inline constexpr uint32_t kGpuGetGidInfo = 0x2080014a;
inline constexpr uint32_t kGrCtxswZcullBind = 0x20801208;
inline constexpr uint32_t kGrCtxswPmBind = 0x20801209;
inline constexpr uint32_t kGrSetCtxswPreemptionMode = 0x20801210;
inline constexpr uint32_t kGrCtxswPreemptionBind = 0x20801211;
inline constexpr uint32_t kGrGetCtxBufferSize = 0x20801218;
inline constexpr uint32_t kGrGetGlobalSmOrder = 0x2080121b;
inline constexpr uint32_t kGrGetGpcMask = 0x2080122a;
inline constexpr uint32_t kGrGetTpcMask = 0x2080122b;
inline constexpr uint32_t kGrGetGfxGpcAndTpcInfo = 0x20801239;
inline constexpr uint32_t kGrCtxswSetupBind = 0x2080123a;
inline constexpr uint32_t kGrmgrGetGrFsInfo = 0x20803801;
inline constexpr uint32_t kTsgGpfifoSchedule = 0xa06c0101;
inline constexpr uint32_t kTsgBind = 0xa06c0102;
inline constexpr uint32_t kTsgSetTimeslice = 0xa06c0103;
inline constexpr uint32_t kTsgGetTimeslice = 0xa06c0104;
inline constexpr uint32_t kTsgPreempt = 0xa06c0105;
inline constexpr uint32_t kTsgGetInfo = 0xa06c0106;
inline constexpr uint32_t kTsgSetInterleaveLevel = 0xa06c0107;
inline constexpr uint32_t kTsgGetInterleaveLevel = 0xa06c0108;
inline constexpr uint32_t kTsgMakeRealtime = 0xa06c0110;
inline constexpr uint32_t kChannelGpfifoSchedule = 0xa06f0103;
inline constexpr uint32_t kChannelBind = 0xa06f0104;
inline constexpr uint32_t kChannelSetErrorNotifier = 0xa06f0108;
inline constexpr uint32_t kChannelStop = 0xa06f0112;
inline constexpr uint32_t kChannelGetWorkSubmitToken = 0xc36f0108;
inline constexpr uint32_t kChannelSetWorkSubmitTokenNotifIndex = 0xc36f010a;
inline constexpr uint32_t kConfComputeGetCapabilities = 0xcb330101;  // NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES
// First word of kGpuGetVirtualizationMode's parameters, 4 bytes before 570 and 8 since
// (ctrl/ctrl0080/ctrl0080gpu.h). 1 is a whole GPU that was passed through.
inline constexpr uint32_t kVirtualizationModeVgx = 2;  // NV0080_CTRL_GPU_VIRTUALIZATION_MODE_VGX: a guest's part of one
// Byte of kConfComputeGetCapabilities' parameters, 5 bytes before 550 and 6 since (ctrl/ctrlcb33.h); not 0: the feature
// is on.
inline constexpr uint32_t kConfComputeFeatureOffset = 3;
}  // namespace ctrl

// ---------------------------------------------------------------------------------------------------------------------
// Status codes (nvstatuscodes.h); texts in rm/status.h

namespace nv {
inline constexpr uint32_t kOk = 0x00;
inline constexpr uint32_t kBufferTooSmall = 0x02;
inline constexpr uint32_t kBusyRetry = 0x03;
inline constexpr uint32_t kCardNotPresent = 0x05;
inline constexpr uint32_t kGpuIsLost = 0x0f;
inline constexpr uint32_t kGpuUuidNotFound = 0x12;
inline constexpr uint32_t kIllegalAction = 0x16;
inline constexpr uint32_t kInUse = 0x17;
inline constexpr uint32_t kInsertDuplicateName = 0x19;
inline constexpr uint32_t kInsufficientResources = 0x1a;
inline constexpr uint32_t kInsufficientPermissions = 0x1b;
inline constexpr uint32_t kInvalidAccessType = 0x1d;
inline constexpr uint32_t kInvalidAddress = 0x1e;
inline constexpr uint32_t kInvalidArgument = 0x1f;
inline constexpr uint32_t kInvalidChannel = 0x21;
inline constexpr uint32_t kInvalidClass = 0x22;
inline constexpr uint32_t kInvalidClient = 0x23;
inline constexpr uint32_t kInvalidCommand = 0x24;
inline constexpr uint32_t kInvalidDevice = 0x26;
inline constexpr uint32_t kInvalidFlags = 0x29;
inline constexpr uint32_t kInvalidLimit = 0x2e;
inline constexpr uint32_t kInvalidObject = 0x31;
inline constexpr uint32_t kInvalidObjectHandle = 0x33;
inline constexpr uint32_t kInvalidObjectNew = 0x34;
inline constexpr uint32_t kInvalidObjectParent = 0x36;
inline constexpr uint32_t kInvalidOffset = 0x37;
inline constexpr uint32_t kInvalidOwner = 0x39;
inline constexpr uint32_t kInvalidParamStruct = 0x3a;
inline constexpr uint32_t kInvalidParameter = 0x3b;
inline constexpr uint32_t kInvalidPointer = 0x3d;
inline constexpr uint32_t kInvalidRequest = 0x3f;
inline constexpr uint32_t kInvalidState = 0x40;
inline constexpr uint32_t kNoFreeFifos = 0x4f;
inline constexpr uint32_t kNoMemory = 0x51;
inline constexpr uint32_t kNotReady = 0x55;
inline constexpr uint32_t kNotSupported = 0x56;
inline constexpr uint32_t kObjectNotFound = 0x57;
inline constexpr uint32_t kObjectTypeMismatch = 0x58;
inline constexpr uint32_t kOperatingSystem = 0x59;
inline constexpr uint32_t kOtherDeviceFound = 0x5a;
inline constexpr uint32_t kOutOfRange = 0x5b;
inline constexpr uint32_t kRcError = 0x60;
inline constexpr uint32_t kResetRequired = 0x62;
inline constexpr uint32_t kStateInUse = 0x63;
inline constexpr uint32_t kTimeout = 0x65;
inline constexpr uint32_t kUvmAddressInUse = 0x68;
inline constexpr uint32_t kLibRmVersionMismatch = 0x6a;
inline constexpr uint32_t kGeneric = 0xffff;
}  // namespace nv

// ---------------------------------------------------------------------------------------------------------------------
// Arguments of RM ioctls

struct FreeArgs {  // NVOS00
    Handle hRoot;
    Handle hObjectParent;
    Handle hObjectOld;
    uint32_t status;
};
static_assert(sizeof(FreeArgs) == 16);

struct AllocMemoryArgs {  // nv_ioctl_nvos02_parameters_with_fd
    Handle hRoot;
    Handle hObjectParent;
    Handle hObjectNew;
    uint32_t hClass;
    uint32_t flags;
    uint32_t pad0;
    UserPtr pMemory;
    uint64_t limit;
    uint32_t status;
    uint32_t pad1;
    int32_t fd;
    uint32_t pad2;
};
static_assert(sizeof(AllocMemoryArgs) == 56 && offsetof(AllocMemoryArgs, pMemory) == 24 &&
              offsetof(AllocMemoryArgs, status) == 40 && offsetof(AllocMemoryArgs, fd) == 48);

struct AllocArgsShort {  // NVOS21
    Handle hRoot;
    Handle hObjectParent;
    Handle hObjectNew;  // in/out: 0 lets RM choose
    uint32_t hClass;
    UserPtr pAllocParms;
    uint32_t paramsSize;  // 0 from every user-mode driver seen: the class decides
    uint32_t status;
};
static_assert(sizeof(AllocArgsShort) == 32 && offsetof(AllocArgsShort, pAllocParms) == 16 &&
              offsetof(AllocArgsShort, status) == 28);

struct AllocArgs {  // NVOS64 since branch 535
    Handle hRoot;
    Handle hObjectParent;
    Handle hObjectNew;  // in/out: 0 lets RM choose
    uint32_t hClass;
    UserPtr pAllocParms;
    UserPtr pRightsRequested;
    uint32_t paramsSize;  // 0 from every user-mode driver seen: the class decides
    uint32_t flags;
    uint32_t status;
    uint32_t pad0;
};
static_assert(sizeof(AllocArgs) == 48 && offsetof(AllocArgs, pAllocParms) == 16 &&
              offsetof(AllocArgs, pRightsRequested) == 24 && offsetof(AllocArgs, paramsSize) == 32 &&
              offsetof(AllocArgs, flags) == 36 && offsetof(AllocArgs, status) == 40);

struct AllocArgs525 {  // NVOS64 up to branch 525
    Handle hRoot;
    Handle hObjectParent;
    Handle hObjectNew;
    uint32_t hClass;
    UserPtr pAllocParms;
    UserPtr pRightsRequested;
    uint32_t flags;
    uint32_t status;
};
static_assert(sizeof(AllocArgs525) == 40 && offsetof(AllocArgs525, status) == 36);

struct ControlArgs {  // NVOS54
    Handle hClient;
    Handle hObject;
    uint32_t cmd;
    uint32_t flags;
    UserPtr params;
    uint32_t paramsSize;
    uint32_t status;
};
static_assert(sizeof(ControlArgs) == 32 && offsetof(ControlArgs, params) == 16 &&
              offsetof(ControlArgs, paramsSize) == 24 && offsetof(ControlArgs, status) == 28);

struct DupArgs {     // NVOS55
    Handle hClient;  // destination client
    Handle hParent;  // destination parent
    Handle hObject;  // in/out: new handle
    Handle hClientSrc;
    Handle hObjectSrc;
    uint32_t flags;
    uint32_t status;
};
static_assert(sizeof(DupArgs) == 28);

struct ShareArgs {  // NVOS57
    Handle hClient;
    Handle hObject;
    uint32_t target;
    uint32_t accessMask;
    uint16_t type;
    uint8_t action;
    uint8_t pad0;
    uint32_t status;
};
static_assert(sizeof(ShareArgs) == 24 && offsetof(ShareArgs, type) == 16 && offsetof(ShareArgs, status) == 20);

struct VidHeapAllocSize {  // NVOS32.data.AllocSize; AllocTiledPitchHeight has hMemory and size in the same places
    uint32_t owner;
    Handle hMemory;  // in/out
    uint32_t type;
    uint32_t flags;
    uint32_t attr;
    uint32_t format;
    uint32_t comprCovg;
    uint32_t zcullCovg;
    uint32_t partitionStride;
    uint32_t width;
    uint32_t height;
    uint32_t pad0;
    uint64_t size;  // in/out, bytes
    uint64_t alignment;
    uint64_t offset;
    uint64_t limit;
    UserPtr address;
    uint64_t rangeBegin;
    uint64_t rangeEnd;
    uint32_t attr2;
    uint32_t ctagOffset;
    int32_t numaNode;
    uint32_t pad1;
};
static_assert(sizeof(VidHeapAllocSize) == 120 && offsetof(VidHeapAllocSize, size) == 48);

struct VidHeapArgs {  // NVOS32
    Handle hRoot;
    Handle hObjectParent;
    uint32_t function;
    Handle hVASpace;
    int16_t ivcHeapNumber;
    uint16_t pad0;
    uint32_t status;
    uint64_t total;
    uint64_t free;
    VidHeapAllocSize allocSize;
    uint8_t unionTail[24];
};
static_assert(sizeof(VidHeapArgs) == 184 && offsetof(VidHeapArgs, status) == 20 &&
              offsetof(VidHeapArgs, allocSize) == 40);

inline constexpr uint32_t kVidHeapAllocSize = 2;              // NVOS32_FUNCTION_ALLOC_SIZE
inline constexpr uint32_t kVidHeapFree = 3;                   // NVOS32_FUNCTION_FREE (hMemory in the same place)
inline constexpr uint32_t kVidHeapAllocTiledPitchHeight = 6;  // NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT
inline constexpr uint32_t kVidHeapAllocSizeRange = 14;        // NVOS32_FUNCTION_ALLOC_SIZE_RANGE
inline constexpr size_t kVidHeapRangeSizeOffset = 80;         // AllocSizeRange.size, within VidHeapArgs

struct MapMemoryArgs {  // nv_ioctl_nvos33_parameters_with_fd; NVOS33 alone is the first 48 bytes
    Handle hClient;
    Handle hDevice;
    Handle hMemory;
    uint32_t pad0;
    uint64_t offset;
    uint64_t length;
    UserPtr pLinearAddress;
    uint32_t status;
    uint32_t flags;
    int32_t fd;  // the file to mmap afterwards
    uint32_t pad1;
};
static_assert(sizeof(MapMemoryArgs) == 56 && offsetof(MapMemoryArgs, offset) == 16 &&
              offsetof(MapMemoryArgs, status) == 40 && offsetof(MapMemoryArgs, fd) == 48);

struct ContextDmaArgs {  // NVOS39: part of a memory object, named by a handle of its own
    Handle hObjectParent;
    Handle hSubDevice;
    Handle hObjectNew;
    uint32_t hClass;
    uint32_t flags;
    uint32_t selector;
    Handle hMemory;
    uint32_t pad0;
    uint64_t offset;
    uint64_t limit;  // offset of the last byte
    uint32_t status;
    uint32_t pad1;
};
static_assert(sizeof(ContextDmaArgs) == 56 && offsetof(ContextDmaArgs, offset) == 32 &&
              offsetof(ContextDmaArgs, status) == 48);

struct UnmapMemoryArgs {  // NVOS34
    Handle hClient;
    Handle hDevice;
    Handle hMemory;
    uint32_t pad0;
    UserPtr pLinearAddress;
    uint32_t status;
    uint32_t flags;
};
static_assert(sizeof(UnmapMemoryArgs) == 32 && offsetof(UnmapMemoryArgs, status) == 24);

struct MapDmaArgs {  // NVOS46 since branch 580
    Handle hClient;
    Handle hDevice;
    Handle hDma;
    Handle hMemory;
    uint64_t offset;
    uint64_t length;
    uint32_t flags;
    uint32_t flags2;
    uint32_t kindOverride;
    uint32_t pad0;
    uint64_t dmaOffset;  // GPU virtual address: in when kMapDmaOffsetFixed, out always
    uint32_t status;
    uint32_t pad1;
};
static_assert(sizeof(MapDmaArgs) == 64 && offsetof(MapDmaArgs, flags) == 32 && offsetof(MapDmaArgs, dmaOffset) == 48 &&
              offsetof(MapDmaArgs, status) == 56);

struct MapDmaArgs575 {  // NVOS46 up to branch 575
    Handle hClient;
    Handle hDevice;
    Handle hDma;
    Handle hMemory;
    uint64_t offset;
    uint64_t length;
    uint32_t flags;
    uint32_t pad0;
    uint64_t dmaOffset;
    uint32_t status;
    uint32_t pad1;
};
static_assert(sizeof(MapDmaArgs575) == 56 && offsetof(MapDmaArgs575, dmaOffset) == 40 &&
              offsetof(MapDmaArgs575, status) == 48);

inline constexpr uint32_t kMapDmaOffsetFixed = 1u << 15;  // NVOS46_FLAGS_DMA_OFFSET_FIXED_TRUE

struct UnmapDmaArgs {  // NVOS47 since branch 550
    Handle hClient;
    Handle hDevice;
    Handle hDma;
    Handle hMemory;
    uint32_t flags;
    uint32_t pad0;
    uint64_t dmaOffset;
    uint64_t size;  // 0: the whole mapping
    uint32_t status;
    uint32_t pad1;
};
static_assert(sizeof(UnmapDmaArgs) == 48 && offsetof(UnmapDmaArgs, dmaOffset) == 24 &&
              offsetof(UnmapDmaArgs, status) == 40);

struct UnmapDmaArgs535 {  // NVOS47 up to branch 535
    Handle hClient;
    Handle hDevice;
    Handle hDma;
    Handle hMemory;
    uint32_t flags;
    uint32_t pad0;
    uint64_t dmaOffset;
    uint32_t status;
    uint32_t pad1;
};
static_assert(sizeof(UnmapDmaArgs535) == 40 && offsetof(UnmapDmaArgs535, status) == 32);

struct CardInfo {  // nv_ioctl_card_info_t, one of 32
    uint8_t valid;
    uint8_t pad0[3];
    uint32_t pciDomain;
    uint8_t pciBus;
    uint8_t pciSlot;
    uint8_t pciFunction;
    uint8_t pad1;
    uint16_t vendorId;
    uint16_t deviceId;
    uint32_t gpuId;
    uint16_t interruptLine;
    uint16_t pad2;
    uint64_t regAddress;
    uint64_t regSize;
    uint64_t fbAddress;
    uint64_t fbSize;
    uint32_t minorNumber;
    uint8_t devName[10];
    uint8_t pad3[2];
};
static_assert(sizeof(CardInfo) == 72 && offsetof(CardInfo, gpuId) == 16 && offsetof(CardInfo, minorNumber) == 56);

struct RegisterFdArgs {
    int32_t ctlFd;
};
static_assert(sizeof(RegisterFdArgs) == 4);

struct OsEventArgs {  // nv_ioctl_alloc_os_event_t, nv_ioctl_free_os_event_t
    Handle hClient;
    Handle hDevice;
    int32_t fd;
    uint32_t status;
};
static_assert(sizeof(OsEventArgs) == 16);

struct CheckVersionArgs {  // nv_ioctl_rm_api_version_t
    uint32_t cmd;
    uint32_t reply;  // 1: recognised
    char versionString[64];
};
static_assert(sizeof(CheckVersionArgs) == 72);

struct XferArgs {  // nv_ioctl_xfer_t
    uint32_t cmd;  // the escape
    uint32_t size;
    UserPtr ptr;
};
static_assert(sizeof(XferArgs) == 16);

struct SysParamsArgs {
    uint64_t memblockSize;
};
static_assert(sizeof(SysParamsArgs) == 8);

struct WaitOpenCompleteArgs {
    int32_t rc;
    uint32_t adapterStatus;
};
static_assert(sizeof(WaitOpenCompleteArgs) == 8);

// ---------------------------------------------------------------------------------------------------------------------
// Parameter blocks of RM_ALLOC, by class

struct DeviceParams {  // NV0080_ALLOC_PARAMETERS
    uint32_t deviceId;
    Handle hClientShare;
    Handle hTargetClient;
    Handle hTargetDevice;
    uint32_t flags;
    uint32_t pad0;
    uint64_t vaSpaceSize;
    uint64_t vaStartInternal;
    uint64_t vaLimitInternal;
    uint32_t vaMode;
    uint32_t pad1;
};
static_assert(sizeof(DeviceParams) == 56 && offsetof(DeviceParams, vaMode) == 48);

struct SubdeviceParams {  // NV2080_ALLOC_PARAMETERS
    uint32_t subDeviceId;
};
static_assert(sizeof(SubdeviceParams) == 4);

struct EventParams {  // NV0005_ALLOC_PARAMETERS
    Handle hParentClient;
    Handle hSrcResource;
    uint32_t hClass;
    uint32_t notifyIndex;
    UserPtr data;
};
static_assert(sizeof(EventParams) == 24);

struct MemoryParams {  // NV_MEMORY_ALLOCATION_PARAMS since branch 550; up to 535 the first 120 bytes
    uint32_t owner;
    uint32_t type;
    uint32_t flags;
    uint32_t width;
    uint32_t height;
    int32_t pitch;
    uint32_t attr;
    uint32_t attr2;
    uint32_t format;
    uint32_t comprCovg;
    uint32_t zcullCovg;
    uint32_t pad0;
    uint64_t rangeLo;
    uint64_t rangeHi;
    uint64_t size;  // in/out, bytes
    uint64_t alignment;
    uint64_t offset;
    uint64_t limit;
    UserPtr address;
    uint32_t ctagOffset;
    Handle hVASpace;
    uint32_t internalflags;
    uint32_t tag;
    int32_t numaNode;
    uint32_t pad1;
};
static_assert(sizeof(MemoryParams) == 128 && offsetof(MemoryParams, size) == 64 &&
              offsetof(MemoryParams, numaNode) == 120);

struct MemoryVirtualParams {  // NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS
    uint64_t offset;
    uint64_t limit;
    Handle hVASpace;
    uint32_t pad0;
};
static_assert(sizeof(MemoryVirtualParams) == 24);

struct VaSpaceParams {  // NV_VASPACE_ALLOCATION_PARAMETERS since branch 580; up to 575 the first 48 bytes
    uint32_t index;
    uint32_t flags;
    uint64_t vaSize;
    uint64_t vaStartInternal;
    uint64_t vaLimitInternal;
    uint32_t bigPageSize;
    uint32_t pad0;
    uint64_t vaBase;
    uint32_t pasid;
    uint32_t pad1;
};
static_assert(sizeof(VaSpaceParams) == 56 && offsetof(VaSpaceParams, vaBase) == 40 &&
              offsetof(VaSpaceParams, pasid) == 48);

inline constexpr uint32_t kVaSpaceExternallyOwned =
    1u << 3;  // NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED: page tables are UVM's
inline constexpr uint32_t kVaSpacePageFaulting = 1u << 6;  // NV_VASPACE_ALLOCATION_FLAGS_ENABLE_PAGE_FAULTING

struct ChannelGroupParams {  // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS
    Handle hObjectError;
    Handle hObjectEccError;
    Handle hVASpace;
    uint32_t engineType;
    uint8_t isCallingContextVgpuPlugin;
    uint8_t pad0[3];
};
static_assert(sizeof(ChannelGroupParams) == 20 && offsetof(ChannelGroupParams, engineType) == 12);

struct ContextShareParams {  // NV_CTXSHARE_ALLOCATION_PARAMETERS
    Handle hVASpace;
    uint32_t flags;     // kCtxShare*
    uint32_t subctxId;  // out: the VEID; in as well with kCtxShareSpecified
};
static_assert(sizeof(ContextShareParams) == 12);

inline constexpr uint32_t kCtxShareSync = 0;
inline constexpr uint32_t kCtxShareAsync = 1;
inline constexpr uint32_t kCtxShareSpecified = 2;
inline constexpr uint32_t kCtxShareAsyncPreferLower = 3;

struct MemoryDesc {  // NV_MEMORY_DESC_PARAMS
    uint64_t base;
    uint64_t size;
    uint32_t addressSpace;
    uint32_t cacheAttrib;
};
static_assert(sizeof(MemoryDesc) == 24);

// NV_CHANNEL_ALLOC_PARAMS since branch 570.  Older branches end earlier (304, 360 bytes); everything up to subProcessId
// stays where it is.  Members from instanceMem on are reserved for RM's own use.
struct ChannelParams {
    Handle hObjectError;
    Handle hObjectBuffer;
    uint64_t gpFifoOffset;  // GPU virtual address
    uint32_t gpFifoEntries;
    uint32_t flags;  // kChannel*
    Handle hContextShare;
    Handle hVASpace;
    Handle hUserdMemory[8];
    uint64_t userdOffset[8];
    uint32_t engineType;  // 0 in a TSG's channels: taken from the TSG
    uint32_t cid;         // out: channel number
    uint32_t subDeviceId;
    Handle hObjectEccError;
    MemoryDesc instanceMem;
    MemoryDesc userdMem;
    MemoryDesc ramfcMem;
    MemoryDesc mthdbufMem;
    Handle hPhysChannelGroup;
    uint32_t internalFlags;
    MemoryDesc errorNotifierMem;
    MemoryDesc eccErrorNotifierMem;
    uint32_t processId;
    uint32_t subProcessId;
    uint32_t encryptIv[3];
    uint32_t decryptIv[3];
    uint32_t hmacNonce[8];
    uint32_t tpcConfigId;
    uint32_t pad0;
};
static_assert(sizeof(ChannelParams) == 368 && offsetof(ChannelParams, gpFifoOffset) == 8 &&
              offsetof(ChannelParams, flags) == 20 && offsetof(ChannelParams, hContextShare) == 24 &&
              offsetof(ChannelParams, hVASpace) == 28 && offsetof(ChannelParams, hUserdMemory) == 32 &&
              offsetof(ChannelParams, userdOffset) == 64 && offsetof(ChannelParams, engineType) == 128 &&
              offsetof(ChannelParams, instanceMem) == 144 && offsetof(ChannelParams, encryptIv) == 304 &&
              offsetof(ChannelParams, tpcConfigId) == 360);

// The members above that VUDA reads or writes; every branch has them at these offsets, so this is all that is ever
// touched.
inline constexpr size_t kChannelParamsStablePrefix = offsetof(ChannelParams, cid);

inline constexpr uint32_t kChannelRunqueueOne = 1u << 4;      // NVOS04_FLAGS_GROUP_CHANNEL_RUNQUEUE_ONE
inline constexpr uint32_t kChannelDelayScheduling = 1u << 6;  // NVOS04_FLAGS_DELAY_CHANNEL_SCHEDULING_TRUE
inline constexpr uint32_t kChannelThreadShift = 28;           // NVOS04_FLAGS_GROUP_CHANNEL_THREAD 29:28
inline constexpr uint32_t kChannelThreadMask = 3u << kChannelThreadShift;

struct UsermodeHopperParams {  // NV_HOPPER_USERMODE_A_PARAMS
    uint8_t bBar1Mapping;
    uint8_t bPriv;
};
static_assert(sizeof(UsermodeHopperParams) == 2);

// ---------------------------------------------------------------------------------------------------------------------
// Parameter blocks of RM_CONTROL, by command

struct ExportObjectParams {  // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS
    uint32_t type;           // kObjectTypeRm
    Handle hDevice;
    Handle hParent;
    Handle hObject;
    int32_t fd;  // a fresh nvidiactl file
    uint32_t flags;
};
static_assert(sizeof(ExportObjectParams) == 24 && offsetof(ExportObjectParams, fd) == 16);

struct ImportObjectParams {  // NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS
    int32_t fd;
    uint32_t type;  // kObjectTypeRm
    Handle hDevice;
    Handle hParent;
    Handle hObject;  // the handle to give it in this client
};
static_assert(sizeof(ImportObjectParams) == 20);

inline constexpr uint32_t kObjectTypeRm = 1;  // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM

struct GpfifoScheduleParams {  // NVA06C/NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS since branch 575; up to 570 the first 2
                               // bytes
    uint8_t bEnable;
    uint8_t bSkipSubmit;
    uint8_t bSkipEnable;
};
static_assert(sizeof(GpfifoScheduleParams) == 3);

struct TsgPreemptParams {  // NVA06C_CTRL_PREEMPT_PARAMS
    uint8_t bWait;
    uint8_t bManualTimeout;
    uint8_t pad0[2];
    uint32_t timeoutUs;
};
static_assert(sizeof(TsgPreemptParams) == 8);

struct TsgTimesliceParams {  // NVA06C_CTRL_TIMESLICE_PARAMS
    uint64_t timesliceUs;
};
static_assert(sizeof(TsgTimesliceParams) == 8);

struct TsgInfoParams {  // NVA06C_CTRL_GET_INFO_PARAMS
    uint32_t tsgId;
};
static_assert(sizeof(TsgInfoParams) == 4);

struct TsgInterleaveParams {  // NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS
    uint32_t level;
};
static_assert(sizeof(TsgInterleaveParams) == 4);

struct ChannelBindParams {  // NVA06F_CTRL_BIND_PARAMS
    uint32_t engineType;
};
static_assert(sizeof(ChannelBindParams) == 4);

struct SetErrorNotifierParams {  // NVA06F_CTRL_SET_ERROR_NOTIFIER_PARAMS
    uint8_t bNotifyEachChannelInTsg;
};
static_assert(sizeof(SetErrorNotifierParams) == 1);

struct WorkSubmitTokenParams {  // NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS
    uint32_t workSubmitToken;
};
static_assert(sizeof(WorkSubmitTokenParams) == 4);

struct GrRouteInfo {  // NV2080_CTRL_GR_ROUTE_INFO
    uint32_t flags;
    uint32_t pad0;
    uint64_t route;
};
static_assert(sizeof(GrRouteInfo) == 16);

struct ZcullBindParams {  // NV2080_CTRL_GR_CTXSW_ZCULL_BIND_PARAMS
    Handle hClient;
    Handle hChannel;
    uint64_t vMemPtr;
    uint32_t zcullMode;  // kZcullMode*
    uint32_t pad0;
};
static_assert(sizeof(ZcullBindParams) == 24 && offsetof(ZcullBindParams, zcullMode) == 16);

inline constexpr uint32_t kZcullModeGlobal = 0;
inline constexpr uint32_t kZcullModeNoCtxsw = 1;
inline constexpr uint32_t kZcullModeSeparateBuffer = 2;

struct PmBindParams {  // NV2080_CTRL_GR_CTXSW_PM_BIND_PARAMS
    Handle hClient;
    Handle hChannel;
    uint64_t vMemPtr;
    uint32_t pmMode;
    uint32_t pad0;
    GrRouteInfo route;
};
static_assert(sizeof(PmBindParams) == 40);

struct SetupBindParams {  // NV2080_CTRL_GR_CTXSW_SETUP_BIND_PARAMS
    Handle hClient;
    Handle hChannel;
    uint64_t vMemPtr;
};
static_assert(sizeof(SetupBindParams) == 16);

struct PreemptionModeParams {  // NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS
    uint32_t flags;            // kPreemptionModeSet*
    Handle hChannel;           // a channel or a TSG
    uint32_t gfxpPreemptMode;
    uint32_t cilpPreemptMode;
    GrRouteInfo route;
};
static_assert(sizeof(PreemptionModeParams) == 32);

inline constexpr uint32_t kPreemptionModeSetCilp = 1u << 0;  // NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET
inline constexpr uint32_t kPreemptionModeSetGfxp = 1u << 1;  // NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_GFXP_SET
inline constexpr uint32_t kGfxpWfi = 0;
inline constexpr uint32_t kGfxpGfxp = 1;
inline constexpr uint32_t kCilpWfi = 0;
inline constexpr uint32_t kCilpCta = 1;
inline constexpr uint32_t kCilpCilp = 2;

struct PreemptionBindParams {  // NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS since branch 565
    uint32_t flags;
    Handle hClient;
    Handle hChannel;
    uint32_t pad0;
    uint64_t vMemPtrs[9];
    uint32_t gfxpPreemptMode;
    uint32_t cilpPreemptMode;
    GrRouteInfo route;
};
static_assert(sizeof(PreemptionBindParams) == 112 && offsetof(PreemptionBindParams, gfxpPreemptMode) == 88);

struct PreemptionBindParams550 {  // the same up to branch 550
    uint32_t flags;
    Handle hClient;
    Handle hChannel;
    uint32_t pad0;
    uint64_t vMemPtrs[8];
    uint32_t gfxpPreemptMode;
    uint32_t cilpPreemptMode;
    GrRouteInfo route;
};
static_assert(sizeof(PreemptionBindParams550) == 104 && offsetof(PreemptionBindParams550, gfxpPreemptMode) == 80);

struct GfxGpcTpcInfoParams {  // NV2080_CTRL_GR_GET_GFX_GPC_AND_TPC_INFO_PARAMS
    GrRouteInfo route;
    uint32_t physGfxGpcMask;
    uint32_t numGfxTpc;
};
static_assert(sizeof(GfxGpcTpcInfoParams) == 24);

// One entry of NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS.globalSmId; its place is the SM's number (%smid).
struct GlobalSmId {
    uint16_t gpcId;       // logical
    uint16_t localTpcId;  // within the GPC
    uint16_t localSmId;   // within the TPC
    uint16_t globalTpcId;
    uint16_t virtualGpcId;
    uint16_t migratableTpcId;
    uint16_t ugpuId;         // from 575
    uint16_t physicalCpcId;  // from 580
    uint16_t virtualTpcId;   // from 580
};
static_assert(sizeof(GlobalSmId) == 18);
inline constexpr size_t kGlobalSmIdSize570 = 12;
inline constexpr size_t kGlobalSmIdSize575 = 14;

inline constexpr uint32_t kGlobalSmOrderMax = 512;
struct GlobalSmOrderParams {
    GlobalSmId globalSmId[kGlobalSmOrderMax];
    uint16_t numSm;
    uint16_t numTpc;
    uint32_t pad0;
    GrRouteInfo route;
};
static_assert(sizeof(GlobalSmOrderParams) == 9240 && offsetof(GlobalSmOrderParams, numSm) == 9216);
// Size of the block for entries of `entry` bytes; numSm and numTpc follow the entries.
constexpr size_t global_sm_order_size(size_t entry) {
    return (kGlobalSmOrderMax * entry + 4 + 7) / 8 * 8 + sizeof(GrRouteInfo);
}
static_assert(global_sm_order_size(sizeof(GlobalSmId)) == sizeof(GlobalSmOrderParams));

// NV2080_CTRL_GRMGR_GET_GR_FS_INFO_PARAMS: up to 96 questions in one call.
struct GrFsQuery {
    uint16_t queryType;
    uint8_t reserved[2];
    uint32_t status;   // out
    uint32_t data[3];  // a union; kGrFsChipletGpcMap: logical GPC in, physical GPC out
};
static_assert(sizeof(GrFsQuery) == 20);
inline constexpr uint16_t kGrFsChipletGpcMap = 2;
inline constexpr uint32_t kGrFsMaxQueries = 96;
struct GrFsInfoParams {
    uint16_t numQueries;
    uint8_t reserved[6];
    GrFsQuery queries[kGrFsMaxQueries];
};
static_assert(sizeof(GrFsInfoParams) == 1928);

struct GidInfoParams {  // NV2080_CTRL_GPU_GET_GID_INFO_PARAMS
    uint32_t index;
    uint32_t flags;   // kGidBinary
    uint32_t length;  // out, bytes of data
    uint8_t data[256];
};
static_assert(sizeof(GidInfoParams) == 268);

struct UuidFromGpuIdParams {  // NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS
    uint32_t gpuId;
    uint32_t flags;  // kGidBinary
    uint8_t gpuUuid[256];
    uint32_t uuidStrLen;
};
static_assert(sizeof(UuidFromGpuIdParams) == 268);

inline constexpr uint32_t kGidBinary = 2;  // ..._FLAGS_FORMAT_BINARY: 16 raw bytes; 0 asks for "GPU-..." text

struct GpuIdInfoParams {  // NV0000_CTRL_GPU_GET_ID_INFO_PARAMS
    uint32_t gpuId;
    uint32_t gpuFlags;
    uint32_t deviceInstance;  // DeviceParams.deviceId
    uint32_t subDeviceInstance;
    UserPtr szName;
    uint32_t sliStatus;
    uint32_t boardId;
    uint32_t gpuInstance;
    int32_t numaId;
};
static_assert(sizeof(GpuIdInfoParams) == 40);

struct GpuIdInfoV2Params {  // NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS
    uint32_t gpuId;
    uint32_t gpuFlags;
    uint32_t deviceInstance;
    uint32_t subDeviceInstance;
    uint32_t sliStatus;
    uint32_t boardId;
    uint32_t gpuInstance;
    int32_t numaId;
};
static_assert(sizeof(GpuIdInfoV2Params) == 32);

struct FifoDisableChannelsParams {  // NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS
    uint8_t bDisable;
    uint8_t pad0[3];
    uint32_t numChannels;
    uint8_t bOnlyDisableScheduling;
    uint8_t bRewindGpPut;
    uint8_t pad1[6];
    UserPtr pRunlistPreemptEvent;
    Handle hClientList[64];
    Handle hChannelList[64];
};
static_assert(sizeof(FifoDisableChannelsParams) == 536);

// ---------------------------------------------------------------------------------------------------------------------
// Arguments of UVM ioctls.  The fd they carry in rmCtrlFd is ignored by UVM for channels, but kept as the caller gave
// it.

using UuidBytes = uint8_t[16];  // NvProcessorUuid

struct UvmInitializeArgs {
    uint64_t flags;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmInitializeArgs) == 16);

struct UvmRegisterGpuArgs {
    UuidBytes gpuUuid;
    uint8_t numaEnabled;
    uint8_t pad0[3];
    int32_t numaNodeId;
    int32_t rmCtrlFd;
    Handle hClient;
    Handle hSmcPartRef;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmRegisterGpuArgs) == 40 && offsetof(UvmRegisterGpuArgs, rmCtrlFd) == 24);

struct UvmUnregisterGpuArgs {  // also UVM_UNREGISTER_GPU_VASPACE
    UuidBytes gpuUuid;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmUnregisterGpuArgs) == 20);

struct UvmRegisterVaSpaceArgs {  // UVM_REGISTER_GPU_VASPACE_PARAMS
    UuidBytes gpuUuid;
    int32_t rmCtrlFd;
    Handle hClient;
    Handle hVaSpace;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmRegisterVaSpaceArgs) == 32);

struct UvmRegisterChannelArgs {
    UuidBytes gpuUuid;
    int32_t rmCtrlFd;
    Handle hClient;
    Handle hChannel;
    uint32_t pad0;
    uint64_t base;  // window of GPU VA in which UVM maps the context buffers
    uint64_t length;
    uint32_t rmStatus;
    uint32_t pad1;
};
static_assert(sizeof(UvmRegisterChannelArgs) == 56 && offsetof(UvmRegisterChannelArgs, hChannel) == 24 &&
              offsetof(UvmRegisterChannelArgs, base) == 32 && offsetof(UvmRegisterChannelArgs, rmStatus) == 48);

struct UvmUnregisterChannelArgs {  // since branch 590
    Handle hClient;
    Handle hChannel;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmUnregisterChannelArgs) == 12);

struct UvmUnregisterChannelArgs580 {  // up to branch 580
    UuidBytes gpuUuid;
    Handle hClient;
    Handle hChannel;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmUnregisterChannelArgs580) == 28 && offsetof(UvmUnregisterChannelArgs580, hClient) == 16);

struct UvmCreateExternalRangeArgs {
    uint64_t base;
    uint64_t length;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmCreateExternalRangeArgs) == 24);

struct UvmMappingAttributes {  // UvmGpuMappingAttributes
    UuidBytes gpuUuid;
    uint32_t gpuMappingType;
    uint32_t gpuCachingType;
    uint32_t gpuFormatType;
    uint32_t gpuElementBits;
    uint32_t gpuCompressionType;
};
static_assert(sizeof(UvmMappingAttributes) == 36);

struct UvmMapExternalArgs {  // UVM_MAP_EXTERNAL_ALLOCATION_PARAMS since 550.40.53
    uint64_t base;
    uint64_t length;
    uint64_t offset;
    UvmMappingAttributes attributes[256];
    uint64_t attributesCount;
    int32_t rmCtrlFd;
    Handle hClient;
    Handle hMemory;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmMapExternalArgs) == 9264 && offsetof(UvmMapExternalArgs, attributes) == 24 &&
              offsetof(UvmMapExternalArgs, attributesCount) == 9240 && offsetof(UvmMapExternalArgs, rmCtrlFd) == 9248 &&
              offsetof(UvmMapExternalArgs, hMemory) == 9256 && offsetof(UvmMapExternalArgs, rmStatus) == 9260);

struct UvmMapExternalArgs55040 {  // up to 550.40.07
    uint64_t base;
    uint64_t length;
    uint64_t offset;
    UvmMappingAttributes attributes[32];
    uint64_t attributesCount;
    int32_t rmCtrlFd;
    Handle hClient;
    Handle hMemory;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmMapExternalArgs55040) == 1200 && offsetof(UvmMapExternalArgs55040, attributesCount) == 1176);

struct UvmUnmapExternalArgs {
    uint64_t base;
    uint64_t length;
    UuidBytes gpuUuid;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmUnmapExternalArgs) == 40 && offsetof(UvmUnmapExternalArgs, rmStatus) == 32);

struct UvmFreeArgs {  // since branch 590
    uint64_t base;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmFreeArgs) == 16);

struct UvmFreeArgs580 {  // up to branch 580
    uint64_t base;
    uint64_t length;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmFreeArgs580) == 24);

struct UvmRangeGroupArgs {  // UVM_CREATE_RANGE_GROUP_PARAMS, UVM_DESTROY_RANGE_GROUP_PARAMS
    uint64_t rangeGroupId;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmRangeGroupArgs) == 16);

struct UvmPageableMemAccessArgs {
    uint8_t pageableMemAccess;
    uint8_t pad0[3];
    uint32_t rmStatus;
};
static_assert(sizeof(UvmPageableMemAccessArgs) == 8);

struct UvmMapDynamicParallelismArgs {
    uint64_t base;
    uint64_t length;
    UuidBytes gpuUuid;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmMapDynamicParallelismArgs) == 40);

struct UvmAllocSemaphorePoolArgs {
    uint64_t base;
    uint64_t length;
    UvmMappingAttributes attributes[256];
    uint64_t attributesCount;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmAllocSemaphorePoolArgs) == 9248);

struct UvmValidateVaRangeArgs {
    uint64_t base;
    uint64_t length;
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmValidateVaRangeArgs) == 24);

struct UvmMmInitializeArgs {
    int32_t uvmFd;
    uint32_t rmStatus;
};
static_assert(sizeof(UvmMmInitializeArgs) == 8);

// UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE (uvm_types.h): the file belongs to no process's memory.
inline constexpr uint64_t kUvmInitMultiProcess = 2;

// Of /dev/nvidia-uvm-tools; uvm_ioctl.h and uvm_types.h, the same in 580.95.05 and 595.45.04.
struct UvmToolsInitEventTrackerArgs {
    uint64_t queueBuffer;      // page-aligned, as is controlBuffer
    uint64_t queueBufferSize;  // events: a power of two, at least 2; one place stays empty
    uint64_t controlBuffer;    // a UvmToolsEventControl
    UuidBytes processor;       // for counters only, as is allProcessors
    uint32_t allProcessors;
    uint32_t uvmFd;  // an initialised /dev/nvidia-uvm
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmToolsInitEventTrackerArgs) == 56 && offsetof(UvmToolsInitEventTrackerArgs, uvmFd) == 44);

struct UvmToolsEnableEventsArgs {  // UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS
    uint64_t eventTypeFlags;       // bit N: events of type N
    uint32_t rmStatus;
    uint32_t pad0;
};
static_assert(sizeof(UvmToolsEnableEventsArgs) == 16);

inline constexpr uint32_t kUvmEventTypes = 64;
inline constexpr uint32_t kUvmEventGpuFaultReplay = 4;  // UvmEventTypeGpuFaultReplay

struct UvmToolsEventControl {  // UvmToolsEventControlData: the kernel writes, the program's get* say what it has read
    uint32_t getAhead;
    uint32_t getBehind;
    uint32_t putAhead;
    uint32_t putBehind;
    uint64_t dropped[kUvmEventTypes];  // by type: came when the queue was full
};
static_assert(sizeof(UvmToolsEventControl) == 528);

// ---------------------------------------------------------------------------------------------------------------------
// Error notifier in memory shared with the GPU (hObjectError names it)

struct AddrSpaceTypeParams {  // NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE
    Handle hObject;
    uint32_t mapFlags;
    uint32_t type;  // out
};
static_assert(sizeof(AddrSpaceTypeParams) == 12);
inline constexpr uint32_t kAddrSpaceSystem = 1;  // system memory

struct Notification {  // NvNotification
    uint32_t timestampNs[2];
    uint32_t info32;  // the RC error type, which the kernel log prints as Xid
    uint16_t info16;
    uint16_t status;  // non-zero once an error was written: 0xffff
};
static_assert(sizeof(Notification) == 16 && offsetof(Notification, info32) == 8 &&
              offsetof(Notification, status) == 14);

inline constexpr uint16_t kNotificationError = 0xffff;  // status after robust-channel recovery wrote an error

}  // namespace vuda::rm
