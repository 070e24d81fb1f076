// Buffers of a Vulkan program's own: vkCreateBuffer, vkAllocateMemory, vkBindBufferMemory, each with memory for itself.
// VUDA mirrors none of them (shim/preload/mirror_rule.h); measured is what its looking at their mappings costs.
#pragma once

#include <cstdint>
#include <string>

#include "bench/render/device.h"

namespace vuda::bench {

struct UserBufferTimes {
    uint32_t count = 0;  // asked for
    uint32_t made = 0;   // fewer where the device has no more memory
    std::string failed;  // why there are fewer
    // Milliseconds of the calls of each kind; they follow one another buffer by buffer.
    double create_ms = 0;
    double allocate_ms = 0;
    double bind_ms = 0;
    double free_ms = 0;
};

// Makes `count` buffers of `bytes` in the GPU's own memory and frees them again.
UserBufferTimes make_user_buffers(const Device& device, uint32_t count, uint64_t bytes);

}  // namespace vuda::bench
