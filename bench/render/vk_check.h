// Vulkan results in plain words.
#pragma once

#include <vulkan/vulkan.h>

#include <string_view>

#include "base/result.h"

namespace vuda::bench {

const char* vk_result_text(VkResult result);

// OK for VK_SUCCESS and the other non-negative results; a lost device has the code kDeviceLost.
Status vk_check(VkResult result, std::string_view what);

}  // namespace vuda::bench
