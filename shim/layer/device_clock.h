// The clocks of a device's queues (queue_clock.h).
#pragma once

#include <vulkan/vk_layer.h>

#include <memory>
#include <mutex>
#include <vector>

#include "shim/layer/queue_clock.h"
#include "shim/layer/stamped_submit.h"

namespace vuda::layer {

// Where a device comes from.
struct DeviceOrigin {
    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    PFN_vkGetInstanceProcAddr next_instance = nullptr;
    PFN_vkGetDeviceProcAddr next_device = nullptr;
    PFN_vkSetDeviceLoaderData set_loader_data = nullptr;
};

// Empty: the driver does not say.
std::vector<VkQueueFamilyProperties> queue_families(const DeviceOrigin& origin);

class DeviceClock {
 public:
    // Nothing is made before a queue shows up. nullptr: this device has no clock.
    static std::shared_ptr<DeviceClock> make(VkDevice device, const DeviceOrigin& origin, const SampleSink& sink);

    // The program got hold of this queue: once or several times, from any thread.
    void queue_found(VkQueue queue, uint32_t family);

    // Hands a submission on to `next`, with timestamps where somebody wants them: who takes samples, or the caller.
    // `worked`: GPU time of such work without a fence as has become known is added.
    template <typename Submit, typename Next>
    VkResult submit(VkQueue queue, uint32_t count, const Submit* submits, VkFence fence, uint64_t frame, bool wanted,
                    uint64_t& worked, Next next) {
        QueueClock* clock = wanted || sink_.wants(kGpuFrameSample) != 0 ? find(queue) : nullptr;
        if (clock == nullptr) return next(queue, count, submits, fence);
        uint64_t stamp = reinterpret_cast<uint64_t>(fence);
        if (wanted) {
            worked += clock->poll();
            // One that began when nobody asked would count from then on.
            if (stamp == 0) {
                clock->drop_frame();
                stamp = clock->unfenced();
            }
        }
        StampedSubmit<Submit> stamped(*clock, count, submits, stamp, frame);
        const VkResult result = next(queue, stamped.count(), stamped.batches(), fence);
        if (result != VK_SUCCESS) stamped.refused(*clock);
        return result;
    }

    // Returns what the frame that ended with this fence took on the GPU, nanoseconds; 0: not known.
    uint64_t signalled(uint64_t fence, uint64_t now_ns);

 private:
    struct Timed {
        VkQueue queue = VK_NULL_HANDLE;
        std::unique_ptr<QueueClock> clock;  // nullptr: this queue cannot be timed
    };

    DeviceClock(VkDevice device, const DeviceOrigin& origin, const SampleSink& sink)
        : device_(device), origin_(origin), sink_(sink) {}

    QueueClock* find(VkQueue queue);

    const VkDevice device_;
    const DeviceOrigin origin_;
    const SampleSink sink_;
    ClockCalls calls_;
    double period_ns_ = 0;
    std::vector<VkQueueFamilyProperties> families_;
    std::mutex mutex_;
    std::vector<Timed> queues_;  // grows only
};

}  // namespace vuda::layer
