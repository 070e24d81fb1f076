// The SCG (simultaneous compute and graphics) methods that split a TSG's work, for the chips whose compute class has
// them.
//
// Source: class headers clc5c0.h, clc6c0.h, clc7c0.h, clc9c0.h of NVIDIA/open-gpu-doc (classes/compute). They name the
// methods and fields and do not describe them; what the values do was observed on such chips in "VUDA: Enabling
// Controlled Spatial Sharing of Graphics and Compute on NVIDIA GPUs" (section 5.2). A class whose header does not list
// SET_SCG_CONTROL must never be sent it: on a GH100 that was an illegal method (Xid 11), and the GPU took no shared
// context afterwards. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "shim/partition/levels.h"

namespace vuda::partition {

inline constexpr uint32_t kSetSmScgControl = 0x01e8;  // COMPUTE_IN_GRAPHICS 0:0
inline constexpr uint32_t kSetScgControl = 0x0270;    // COMPUTE1_MAX_SM_COUNT 8:0, COMPUTE1_MIN_SM_COUNT 20:12

// What a compute class has. Turing (C5C0) to Ada (C9C0) have both; Hopper and later only the first.
struct ScgClass {
    uint32_t compute_class = 0;
    bool sm_scg_control = false;
    bool scg_control = false;
};

// Null: a class that no header was read for.
const ScgClass* find_scg_class(uint32_t compute_class);
inline bool has_scg(uint32_t compute_class) {
    const ScgClass* found = find_scg_class(compute_class);
    return found != nullptr && found->sm_scg_control && found->scg_control;
}

// Of the 3D class: DIRECTLY_ADDRESSABLE_MEMORY 2:0, of which the headers list 1 (16 KiB) and 3 (48 KiB). What it does
// beside compute nobody says.
inline constexpr uint32_t kSetL1Configuration = 0x0308;
// Headers clc397.h to clce97.h of NVIDIA/open-gpu-doc (classes/3d) list the method; any other class is sent none.
bool has_l1_configuration(uint32_t three_d_class);

struct Method {
    uint32_t address = 0;  // bytes, as in the class header
    uint32_t data = 0;
    bool operator==(const Method&) const = default;
};

// The methods that put `mode` into force; in mode inter-sm compute gets `sms` multiprocessors, no more and no fewer.
// UNIMPLEMENTED: this class has no such methods, or the mode is none of the two. INVALID_ARGUMENT: 0 multiprocessors,
// or more than the field holds (511).
Result<std::vector<Method>> scg_methods(uint32_t compute_class, Mode mode, uint32_t sms);

// A push buffer for one channel: SET_OBJECT of the class (compute or 3D) on its subchannel, then each method, then a
// release of `payload` at `semaphore` (GPU virtual address, 16-byte aligned, below 2^40) once everything before it has
// run. Host methods: clc56f.h.
std::vector<uint32_t> push_buffer(uint32_t object_class, const std::vector<Method>& methods, uint64_t semaphore,
                                  uint32_t payload);

}  // namespace vuda::partition
