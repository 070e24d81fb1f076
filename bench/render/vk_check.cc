#include "bench/render/vk_check.h"

#include <string>

#include "bench/common/exit_code.h"

namespace vuda::bench {

const char* vk_result_text(VkResult result) {
    switch (result) {
        case VK_SUCCESS: return "success";
        case VK_NOT_READY: return "not ready yet";
        case VK_TIMEOUT: return "did not finish in time";
        case VK_INCOMPLETE: return "answer is incomplete";
        case VK_ERROR_OUT_OF_HOST_MEMORY: return "out of system memory";
        case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "out of GPU memory";
        case VK_ERROR_INITIALIZATION_FAILED: return "initialisation failed";
        case VK_ERROR_DEVICE_LOST: return "the GPU was lost (VK_ERROR_DEVICE_LOST): its work faulted or was reset";
        case VK_ERROR_MEMORY_MAP_FAILED: return "memory could not be mapped";
        case VK_ERROR_LAYER_NOT_PRESENT: return "a requested layer is not installed";
        case VK_ERROR_EXTENSION_NOT_PRESENT: return "a requested extension is not supported";
        case VK_ERROR_FEATURE_NOT_PRESENT: return "a requested feature is not supported";
        case VK_ERROR_INCOMPATIBLE_DRIVER: return "no usable Vulkan driver (VK_ERROR_INCOMPATIBLE_DRIVER)";
        case VK_ERROR_TOO_MANY_OBJECTS: return "too many objects";
        case VK_ERROR_FORMAT_NOT_SUPPORTED: return "image format not supported";
        case VK_ERROR_FRAGMENTED_POOL: return "pool is fragmented";
        default: return nullptr;
    }
}

Status vk_check(VkResult result, std::string_view what) {
    if (result >= VK_SUCCESS) return {};
    const char* words = vk_result_text(result);
    std::string text(what);
    text += ": ";
    text += words ? words : "VkResult " + std::to_string(result);
    switch (result) {
        case VK_ERROR_DEVICE_LOST: return Error{kDeviceLost, text, ""};
        case VK_ERROR_OUT_OF_HOST_MEMORY:
        case VK_ERROR_OUT_OF_DEVICE_MEMORY: return Error{Code::kResourceExhausted, text, ""};
        case VK_ERROR_INCOMPATIBLE_DRIVER:
            return Error{Code::kUnavailable, text,
                         "install a Vulkan driver (vulkaninfo --summary lists what is found)"};
        default: return Error{Code::kInternal, text, ""};
    }
}

}  // namespace vuda::bench
