#include "shim/layer/device_clock.h"

#include <new>

namespace vuda::layer {

std::vector<VkQueueFamilyProperties> queue_families(const DeviceOrigin& origin) {
    const auto families_of = reinterpret_cast<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(
        origin.next_instance(origin.instance, "vkGetPhysicalDeviceQueueFamilyProperties"));
    if (families_of == nullptr) return {};
    uint32_t count = 0;
    families_of(origin.physical, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    families_of(origin.physical, &count, families.data());
    return families;
}

std::shared_ptr<DeviceClock> DeviceClock::make(VkDevice device, const DeviceOrigin& origin, const SampleSink& sink) {
    const auto properties_of = reinterpret_cast<PFN_vkGetPhysicalDeviceProperties>(
        origin.next_instance(origin.instance, "vkGetPhysicalDeviceProperties"));
    if (properties_of == nullptr) return nullptr;
    try {
        std::shared_ptr<DeviceClock> made(new DeviceClock(device, origin, sink));
        made->calls_ = ClockCalls::find(origin.next_device, device);
        if (!made->calls_.complete()) return nullptr;
        VkPhysicalDeviceProperties properties;
        properties_of(origin.physical, &properties);
        made->period_ns_ = static_cast<double>(properties.limits.timestampPeriod);
        if (!(made->period_ns_ > 0)) return nullptr;
        made->families_ = queue_families(origin);
        return made;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void DeviceClock::queue_found(VkQueue queue, uint32_t family) {
    if (queue == VK_NULL_HANDLE || family >= families_.size()) return;
    const VkQueueFamilyProperties& properties = families_[family];
    // Queries can be reset on these two kinds of queue only.
    if (properties.timestampValidBits == 0 ||
        (properties.queueFlags & (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT)) == 0) {
        return;
    }
    const std::lock_guard lock(mutex_);
    for (const Timed& timed : queues_) {
        if (timed.queue == queue) return;
    }
    try {
        queues_.push_back({queue, QueueClock::make(device_, calls_, family, properties.timestampValidBits, period_ns_,
                                                   origin_.set_loader_data)});
    } catch (const std::bad_alloc&) {
        // Not timed.
    }
}

QueueClock* DeviceClock::find(VkQueue queue) {
    const std::lock_guard lock(mutex_);
    for (const Timed& timed : queues_) {
        if (timed.queue == queue) return timed.clock.get();
    }
    return nullptr;
}

uint64_t DeviceClock::signalled(uint64_t fence, uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    uint64_t took = 0;
    for (const Timed& timed : queues_) {
        if (timed.clock == nullptr) continue;
        if (const uint64_t one = timed.clock->signalled(fence, now_ns, sink_); one != 0) took = one;
    }
    return took;
}

}  // namespace vuda::layer
