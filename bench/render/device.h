// One Vulkan device with a graphics queue and, where the GPU has one, a queue of a copy engine.
#pragma once

#include <vulkan/vulkan.h>

#include <string>

#include "base/result.h"
#include "base/uuid.h"
#include "bench/render/vk_handle.h"

namespace vuda::bench {

struct GpuInfo {
    std::string name;
    Uuid uuid;
    std::string driver;           // e.g. "NVIDIA 580.159.04"
    double ns_per_tick = 0;       // of a GPU timestamp; 0 when the queue has none
    uint64_t timestamp_mask = 0;  // valid bits of a timestamp
};

class Device {
 public:
    // `which`: GPU UUID, index in Vulkan's order, or empty for the best one (discrete before integrated before
    // software).
    static Result<Device> open(const std::string& which);

    Device(Device&& other) noexcept { swap(other); }
    Device& operator=(Device&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Device();

    const GpuInfo& info() const { return info_; }
    VkDevice handle() const { return device_; }
    VkQueue queue() const { return queue_; }
    uint32_t queue_family() const { return queue_family_; }
    // For copies that must not need the GPU's multiprocessors: a transfer-only queue, or the graphics queue again.
    VkQueue copy_queue() const { return copy_queue_; }
    uint32_t copy_family() const { return copy_family_; }

    // Memory for an object with these requirements: all of `required`, and `wished` too if there is such memory.
    Result<VkMemoryOwner> allocate(const VkMemoryRequirements& requirements, VkMemoryPropertyFlags required,
                                   VkMemoryPropertyFlags wished) const;

 private:
    Device() = default;
    void swap(Device& other) noexcept;
    Status pick(const std::string& which);
    Status open_queue();

    VkInstance instance_ = VK_NULL_HANDLE;
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;
    VkDevice device_ = VK_NULL_HANDLE;
    VkQueue queue_ = VK_NULL_HANDLE;
    uint32_t queue_family_ = 0;
    VkQueue copy_queue_ = VK_NULL_HANDLE;
    uint32_t copy_family_ = 0;
    GpuInfo info_;
};

}  // namespace vuda::bench
