// Looking up the next layer's functions.
#pragma once

#include <vulkan/vulkan_core.h>

namespace vuda::layer {

template <typename Function>
void bind(Function* out, PFN_vkGetDeviceProcAddr next, VkDevice device, const char* name) {
    *out = reinterpret_cast<Function>(next(device, name));
}

}  // namespace vuda::layer
