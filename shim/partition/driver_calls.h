// CUDA's own functions, by their numbers in CUPTI's public cupti_driver_cbid.h: what a call of each may do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vuda::partition {

enum class CallKind : uint8_t {
    kOther,    // may put work into a stream, or not: not looked at
    kWait,     // waits for the GPU
    kLaunch,   // puts kernels into a stream
    kObject,   // makes a number in a table that each context has its own of
    kManaged,  // allocates managed memory, which kernels may fetch by page faults
    kPrelude,  // comes before the first launch of a kernel, or of a kernel with more shared memory than before
    kKeep,     // loads or unloads code, changes or ends a graph: what kernels and graphs of another context go by
    kQuiet,    // puts no work into any stream that a kernel would have to come after, and makes or ends none
};

// No kernel that comes later has to wait for what it does.
constexpr bool leaves_streams_alone(CallKind kind) {
    return kind == CallKind::kQuiet || kind == CallKind::kWait || kind == CallKind::kPrelude;
}

// Load, unload and hand out code.
enum CodeCall : int {
    kModuleLoad = 18,
    kModuleLoadData = 19,
    kModuleLoadDataEx = 20,
    kModuleLoadFatBinary = 21,
    kModuleUnload = 22,
    kModuleGetFunction = 23,
    kLibraryLoadData = 678,
    kLibraryLoadFromFile = 679,
    kLibraryUnload = 680,
    kLibraryGetKernel = 681,
    kLibraryGetModule = 682,
    kKernelGetFunction = 683,
};

// It ends a context, and with it what has failed there.
constexpr bool ends_context(int function) {
    switch (function) {
        case 11:   // cuCtxDestroy
        case 13:   // cuCtxDetach
        case 322:  // cuCtxDestroy_v2
        case 387:  // cuDevicePrimaryCtxRelease
        case 389:  // cuDevicePrimaryCtxReset
        case 544:  // cuDevicePrimaryCtxRelease_v2
        case 545:  // cuDevicePrimaryCtxReset_v2
        case 744:  // cuGreenCtxDestroy
            return true;
        default: return false;
    }
}

// Ask whether something is done: told of only where the answer is to be an error.
inline constexpr int kQueries[] = {
    120,  // cuEventQuery
    125,  // cuStreamQuery
    439,  // cuStreamQuery_ptsz
};

inline constexpr size_t kDriverCalls = 1024;
extern const std::array<CallKind, kDriverCalls> kCallKinds;

inline CallKind call_kind(int function) {
    const auto number = static_cast<unsigned>(function);
    return number < kDriverCalls ? kCallKinds[number] : CallKind::kOther;
}

}  // namespace vuda::partition
