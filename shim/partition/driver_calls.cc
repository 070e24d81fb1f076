#include "shim/partition/driver_calls.h"

namespace vuda::partition {
namespace {

constexpr int kWaits[] = {
    17,   // cuCtxSynchronize
    121,  // cuEventSynchronize
    126,  // cuStreamSynchronize
    440,  // cuStreamSynchronize_ptsz: of programs that use per-thread default streams
    800,  // cuCtxSynchronize_v2
};
constexpr int kLaunches[] = {
    115, 116, 117,  // cuLaunch, cuLaunchGrid, cuLaunchGridAsync
    307, 442,       // cuLaunchKernel, _ptsz
    477, 478, 480,  // cuLaunchCooperativeKernel, _ptsz, MultiDevice
    514, 515,       // cuGraphLaunch, _ptsz
    580, 581,       // cuGraphUpload, _ptsz
    652, 653,       // cuLaunchKernelEx, _ptsz
};
constexpr int kObjects[] = {
    339,  // cuTexObjectCreate
    343,  // cuSurfObjectCreate
};
constexpr int kPreludes[] = {
    23,   // cuModuleGetFunction
    481,  // cuFuncSetAttribute
    513,  // cuGraphInstantiate
    538,  // cuGraphExecKernelNodeSetParams
    561,  // cuGraphExecUpdate
    578,  // cuGraphInstantiate_v2
    643,  // cuGraphInstantiateWithFlags
    656,  // cuGraphInstantiateWithParams
    657,  // cuGraphInstantiateWithParams_ptsz
    681,  // cuLibraryGetKernel
    683,  // cuKernelGetFunction
    687,  // cuKernelSetAttribute
    692,  // cuGraphExecKernelNodeSetParams_v2
    696,  // cuGraphExecUpdate_v2
    714,  // cuGraphExecNodeSetParams
    738,  // cuModuleEnumerateFunctions
    740,  // cuLibraryEnumerateKernels
    742,  // cuFuncLoad
};
constexpr int kKeeps[] = {
    18,   // cuModuleLoad
    19,   // cuModuleLoadData
    20,   // cuModuleLoadDataEx
    21,   // cuModuleLoadFatBinary
    22,   // cuModuleUnload
    516,  // cuGraphExecDestroy
    562,  // cuGraphExecMemcpyNodeSetParams
    563,  // cuGraphExecMemsetNodeSetParams
    564,  // cuGraphExecHostNodeSetParams
    586,  // cuGraphExecChildGraphNodeSetParams
    595,  // cuGraphExecEventRecordNodeSetEvent
    596,  // cuGraphExecEventWaitNodeSetEvent
    624,  // cuGraphExecExternalSemaphoresSignalNodeSetParams
    625,  // cuGraphExecExternalSemaphoresWaitNodeSetParams
    650,  // cuGraphNodeSetEnabled
    672,  // cuGraphExecBatchMemOpNodeSetParams
    678,  // cuLibraryLoadData
    679,  // cuLibraryLoadFromFile
    680,  // cuLibraryUnload
    682,  // cuLibraryGetModule
    685,  // cuLibraryGetManaged
};
constexpr int kManageds[] = {
    371,  // cuMemAllocManaged
};
// Questions, settings, and events that are recorded: what comes later does not wait for these.
constexpr int kQuiets[] = {
    2,    // cuDriverGetVersion
    3,    // cuDeviceGet
    4,    // cuDeviceGetCount
    5,    // cuDeviceGetName
    9,    // cuDeviceGetAttribute
    16,   // cuCtxGetDevice
    85,   // cuFuncGetAttribute
    118,  // cuEventCreate
    119,  // cuEventRecord
    120,  // cuEventQuery
    123,  // cuEventElapsedTime
    125,  // cuStreamQuery
    135,  // cuGetExportTable
    137,  // cuCtxGetLimit
    242,  // cuMemGetInfo_v2
    259,  // cuDeviceTotalMem_v2
    296,  // cuCtxGetApiVersion
    303,  // cuCtxSetCurrent
    304,  // cuCtxGetCurrent
    310,  // cuPointerGetAttribute
    323,  // cuCtxPushCurrent_v2
    324,  // cuCtxPopCurrent_v2
    368,  // cuStreamGetPriority
    369,  // cuStreamGetFlags
    370,  // cuCtxGetStreamPriorityRange
    372,  // cuGetErrorString
    373,  // cuGetErrorName
    374,  // cuOccupancyMaxActiveBlocksPerMultiprocessor
    384,  // cuOccupancyMaxPotentialBlockSize
    391,  // cuCtxGetFlags
    392,  // cuDevicePrimaryCtxGetState
    434,  // cuStreamGetPriority_ptsz
    435,  // cuStreamGetFlags_ptsz
    439,  // cuStreamQuery_ptsz
    441,  // cuEventRecord_ptsz
    450,  // cuPointerGetAttributes
    451,  // cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    452,  // cuOccupancyMaxPotentialBlockSizeWithFlags
    482,  // cuDeviceGetUuid
    483,  // cuStreamGetCtx
    484,  // cuStreamGetCtx_ptsz
    499,  // cuStreamIsCapturing
    500,  // cuStreamIsCapturing_ptsz
    536,  // cuStreamGetCaptureInfo
    537,  // cuStreamGetCaptureInfo_ptsz
    541,  // cuThreadExchangeStreamCaptureMode
    543,  // cuOccupancyAvailableDynamicSMemPerBlock
    566,  // cuFuncGetModule
    587,  // cuEventRecordWithFlags
    588,  // cuEventRecordWithFlags_ptsz
    626,  // cuGetProcAddress
    629,  // cuStreamGetCaptureInfo_v2
    630,  // cuStreamGetCaptureInfo_v2_ptsz
    647,  // cuDeviceGetUuid_v2
    675,  // cuOccupancyMaxPotentialClusterSize
    676,  // cuOccupancyMaxActiveClusters
    677,  // cuGetProcAddress_v2
    686,  // cuKernelGetAttribute
    693,  // cuStreamGetId
    694,  // cuStreamGetId_ptsz
    695,  // cuCtxGetId
    697,  // cuTensorMapEncodeTiled
    698,  // cuTensorMapEncodeIm2col
    699,  // cuTensorMapReplaceAddress
    718,  // cuFuncGetName
    719,  // cuKernelGetName
    729,  // cuStreamGetCaptureInfo_v3
    730,  // cuStreamGetCaptureInfo_v3_ptsz
    733,  // cuFuncGetParamInfo
    734,  // cuKernelGetParamInfo
    739,  // cuLibraryGetKernelCount
    741,  // cuFuncIsLoaded
    754,  // cuKernelGetLibrary
    759,  // cuStreamGetCtx_v2
    760,  // cuStreamGetCtx_v2_ptsz
    774,  // cuStreamGetDevice
    775,  // cuStreamGetDevice_ptsz
    780,  // cuEventElapsedTime_v2
    795,  // cuCtxGetDevice_v2
};

constexpr std::array<CallKind, kDriverCalls> all_kinds() {
    std::array<CallKind, kDriverCalls> kinds{};
    for (const int number : kWaits) kinds[static_cast<size_t>(number)] = CallKind::kWait;
    for (const int number : kLaunches) kinds[static_cast<size_t>(number)] = CallKind::kLaunch;
    for (const int number : kObjects) kinds[static_cast<size_t>(number)] = CallKind::kObject;
    for (const int number : kPreludes) kinds[static_cast<size_t>(number)] = CallKind::kPrelude;
    for (const int number : kKeeps) kinds[static_cast<size_t>(number)] = CallKind::kKeep;
    for (const int number : kManageds) kinds[static_cast<size_t>(number)] = CallKind::kManaged;
    for (const int number : kQuiets) kinds[static_cast<size_t>(number)] = CallKind::kQuiet;
    return kinds;
}

}  // namespace

constinit const std::array<CallKind, kDriverCalls> kCallKinds = all_kinds();

}  // namespace vuda::partition
