// VK_ERROR_DEVICE_LOST, seen in any call that may be the first to say so, is told to libvuda.so once.
#pragma once

#include <vulkan/vulkan_core.h>

#include <string_view>

namespace vuda::layer {

// Hands `result` through. `handle`: the device, or a queue of it.
VkResult saw(const void* handle, VkResult result);

// Calls that say it besides those that frames are timed by (timed_calls.h). Devices of processes that share only:
// everybody else calls the driver's own. Does nothing without libvuda.so.
void watch_device(VkDevice device, PFN_vkGetDeviceProcAddr next);
void forget_watched_device(VkDevice device);

// NULL: call the next layer's.
PFN_vkVoidFunction watched_function(VkDevice device, std::string_view name);

}  // namespace vuda::layer
