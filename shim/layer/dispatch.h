// Which functions come next, for each instance and device that goes through the layer.
#pragma once

#include <vulkan/vulkan_core.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "shim/layer/device_clock.h"
#include "shim/layer/frame_times.h"
#include "shim/layer/turn_gate.h"

namespace vuda::layer {

struct InstanceDispatch {
    VkInstance instance = VK_NULL_HANDLE;
    PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
    PFN_vkDestroyInstance destroy_instance = nullptr;
};

struct DeviceDispatch {
    PFN_vkGetDeviceProcAddr get_device_proc_addr = nullptr;
    PFN_vkDestroyDevice destroy_device = nullptr;
};

// What frames are timed by, of a device whose process shares it.
struct TimedDispatch {
    PFN_vkQueueSubmit queue_submit = nullptr;
    PFN_vkQueueSubmit2 queue_submit2 = nullptr;
    PFN_vkQueueSubmit2 queue_submit2_khr = nullptr;
    PFN_vkQueuePresentKHR queue_present = nullptr;
    PFN_vkWaitForFences wait_for_fences = nullptr;
    PFN_vkGetFenceStatus get_fence_status = nullptr;
    PFN_vkGetDeviceQueue get_device_queue = nullptr;
    PFN_vkGetDeviceQueue2 get_device_queue2 = nullptr;
    std::shared_ptr<FrameTimes> times;
    std::shared_ptr<DeviceClock> clock;  // nullptr: the GPU's own times cannot be had
    std::shared_ptr<TurnGate> gate;      // nullptr: frames are never held back
};

// The loader writes its dispatch pointer into the first word of every dispatchable handle; an instance and its physical
// devices share it. Source: Vulkan-Loader, docs/LoaderLayerInterface.md, "Creating New Dispatchable Objects".
inline const void* dispatch_key(const void* handle) { return *static_cast<const void* const*>(handle); }

// Instances and devices come and go in any thread.
template <typename Key, typename Dispatch>
class DispatchTable {
 public:
    // False: out of memory.
    bool add(Key key, const Dispatch& dispatch) noexcept {
        try {
            const std::lock_guard lock(mutex_);
            table_[key] = dispatch;
            return true;
        } catch (...) {
            return false;
        }
    }
    std::optional<Dispatch> find(Key key) const {
        const std::lock_guard lock(mutex_);
        const auto found = table_.find(key);
        return found == table_.end() ? std::nullopt : std::optional(found->second);
    }
    std::optional<Dispatch> take(Key key) {
        const std::lock_guard lock(mutex_);
        const auto node = table_.extract(key);
        return node.empty() ? std::nullopt : std::optional(node.mapped());
    }

 private:
    mutable std::mutex mutex_;
    std::unordered_map<Key, Dispatch> table_;
};

}  // namespace vuda::layer
