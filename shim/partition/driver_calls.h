// CUDA's own functions, by their numbers in CUPTI's public cupti_driver_cbid.h: what a call of each may do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vuda::partition {

enum class CallKind : uint8_t {
    kOther,   // may put work into a stream, or not: not looked at
    kWait,    // waits for the GPU
    kLaunch,  // puts kernels into a stream
    kObject,  // makes a number in a table that each context has its own of
    kQuiet,   // puts no work into any stream that a kernel would have to come after, and makes or ends none
};

inline constexpr size_t kDriverCalls = 1024;
extern const std::array<CallKind, kDriverCalls> kCallKinds;

inline CallKind call_kind(int function) {
    const auto number = static_cast<unsigned>(function);
    return number < kDriverCalls ? kCallKinds[number] : CallKind::kOther;
}

}  // namespace vuda::partition
