// Owner of one Vulkan object that belongs to a device.
#pragma once

#include <vulkan/vulkan.h>

#include <utility>

namespace vuda::bench {

template <typename T, void (*Destroy)(VkDevice, T, const VkAllocationCallbacks*)>
class VkHandle {
 public:
    VkHandle() = default;
    VkHandle(VkDevice device, T handle) : device_(device), handle_(handle) {}
    VkHandle(VkHandle&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, T{})) {}
    VkHandle& operator=(VkHandle&& other) noexcept {
        if (this != &other) {
            reset();
            device_ = other.device_;
            handle_ = std::exchange(other.handle_, T{});
        }
        return *this;
    }
    VkHandle(const VkHandle&) = delete;
    VkHandle& operator=(const VkHandle&) = delete;
    ~VkHandle() { reset(); }

    T get() const { return handle_; }

    // For vkCreate...: frees what is held and takes what the call stores.
    T* put(VkDevice device) {
        reset();
        device_ = device;
        return &handle_;
    }

 private:
    void reset() {
        if (handle_ != T{}) Destroy(device_, std::exchange(handle_, T{}), nullptr);
    }

    VkDevice device_ = VK_NULL_HANDLE;
    T handle_{};
};

using VkBufferOwner = VkHandle<VkBuffer, vkDestroyBuffer>;
using VkCommandPoolOwner = VkHandle<VkCommandPool, vkDestroyCommandPool>;
using VkFenceOwner = VkHandle<VkFence, vkDestroyFence>;
using VkFramebufferOwner = VkHandle<VkFramebuffer, vkDestroyFramebuffer>;
using VkImageOwner = VkHandle<VkImage, vkDestroyImage>;
using VkImageViewOwner = VkHandle<VkImageView, vkDestroyImageView>;
using VkMemoryOwner = VkHandle<VkDeviceMemory, vkFreeMemory>;
using VkPipelineLayoutOwner = VkHandle<VkPipelineLayout, vkDestroyPipelineLayout>;
using VkPipelineOwner = VkHandle<VkPipeline, vkDestroyPipeline>;
using VkQueryPoolOwner = VkHandle<VkQueryPool, vkDestroyQueryPool>;
using VkRenderPassOwner = VkHandle<VkRenderPass, vkDestroyRenderPass>;
using VkSemaphoreOwner = VkHandle<VkSemaphore, vkDestroySemaphore>;
using VkShaderModuleOwner = VkHandle<VkShaderModule, vkDestroyShaderModule>;

}  // namespace vuda::bench
