// The calls that frames are timed by. Only devices of processes that share get them: everybody else calls the driver's
// own.
#pragma once

#include <vulkan/vulkan_core.h>

#include <string_view>

#include "shim/layer/device_clock.h"

namespace vuda::layer {

// Once libvuda.so is loaded: from now on timed_function() answers for this device. Does nothing without libvuda.so.
void time_device(VkDevice device, const DeviceOrigin& origin);
void forget_timed_device(VkDevice device);

// NULL: call the next layer's.
PFN_vkVoidFunction timed_function(VkDevice device, std::string_view name);

}  // namespace vuda::layer
