// Exit statuses of the benchmark programs; sysexits(3) values where one fits.
#pragma once

#include "base/result.h"

namespace vuda::bench {

enum ExitCode : int {
    kExitOk = 0,
    kExitWrongResult = 1,  // the GPU computed something else than it should have
    kExitUsage = 64,
    kExitNoDevice = 69,
    kExitFailed = 70,
    kExitDeviceLost = 75,
};

// What VK_ERROR_DEVICE_LOST and CUDA's sticky context errors (719 and its like) are called in an Error.
inline constexpr Code kDeviceLost = Code::kDataLoss;

inline int exit_code(const Error& error) {
    if (error.code == kDeviceLost) return kExitDeviceLost;
    const int status = exit_status(error.code);
    return status == kExitUsage || status == kExitNoDevice ? status : kExitFailed;
}

}  // namespace vuda::bench
