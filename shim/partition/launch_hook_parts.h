// What the parts of the launch hook have in common (launch_hook.cc, launch_hook_native.cc).
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/partition/cuda_driver.h"
#include "shim/partition/driver_calls.h"
#include "shim/partition/launch_hook.h"
#include "shim/partition/module_watch.h"
#include "shim/partition/qmd.h"

namespace vuda::partition::hook {

// What makes callbacks look (LaunchGuard::attention): contexts may come that nobody has looked at, a probe is under
// way, a kernel may follow one on the native side, graphs have twins there, a kernel has failed there, there is code
// whose kernels must not share.
enum : uint32_t { kUndecided = 1, kProbing = 2, kChained = 4, kTwins = 8, kFaulted = 16, kCare = 32 };

inline constexpr char kUsesObjects[] =
    "the program uses texture or surface objects, which a kernel would not find in another context";

// CUDA tells of these whatever the program does: they are rare, or wait anyway.
constexpr bool is_always_told(CallKind kind) {
    constexpr uint32_t kKinds =
        1u << static_cast<unsigned>(CallKind::kWait) | 1u << static_cast<unsigned>(CallKind::kObject) |
        1u << static_cast<unsigned>(CallKind::kManaged) | 1u << static_cast<unsigned>(CallKind::kPrelude) |
        1u << static_cast<unsigned>(CallKind::kKeep);
    return (kKinds >> static_cast<unsigned>(kind) & 1) != 0;
}

inline uint64_t slot(const void* parameters, size_t index) {
    uint64_t value;
    std::memcpy(&value, static_cast<const uint8_t*>(parameters) + index * 8, sizeof value);
    return value;
}

// What a result holds until the driver knows better (CUDA_ERROR_UNKNOWN).
inline constexpr uint32_t kNoResultYet = 999;

// The block of a call's arguments, which is not trusted.
inline const void* arguments_of(const void* parameters, const CallbackLayout& layout) {
    return reinterpret_cast<const void*>(slot(parameters, layout.call_parameters_slot));
}

// The newest kernel that was withheld from this thread.
struct Withheld {
    CuContext context = nullptr;
    ModuleBanks banks;
};
Withheld& withheld_kernel();

// The kernel that this thread is launching.
struct Cared {
    ModuleWatch::Care care = ModuleWatch::Care::kNone;
    uint32_t bytes = 0;  // that those which it launches may want
};
Cared& cared_kernel();

}  // namespace vuda::partition::hook
