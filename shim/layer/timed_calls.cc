#include "shim/layer/timed_calls.h"

#include <memory>

#include "base/monotonic.h"
#include "shim/layer/bind.h"
#include "shim/layer/device_lost.h"
#include "shim/layer/dispatch.h"

namespace vuda::layer {
namespace {

// By dispatch key: queues have their device's.
using TimedDevices = DispatchTable<const void*, TimedDispatch>;

// Never destroyed, as the other tables.
TimedDevices& timed() {
    static TimedDevices& table = *std::make_unique<TimedDevices>().release();
    return table;
}

uint64_t number(VkFence fence) { return reinterpret_cast<uint64_t>(fence); }

void signalled(const TimedDispatch& device, VkFence fence, uint64_t now) {
    device.times->signalled(number(fence), now);
    if (!device.clock || fence == VK_NULL_HANDLE) return;
    const uint64_t took = device.clock->signalled(number(fence), now);
    if (device.gate && took != 0) device.gate->worked(took);
}

template <typename Submit, typename Next>
VkResult submit(const TimedDispatch& device, VkQueue queue, uint32_t count, const Submit* submits, VkFence fence,
                Next next) {
    if (device.gate) device.gate->submitting(queue);
    // Before the call: the GPU may be done before it returns.
    const uint64_t frame = device.times->submitted(number(fence), monotonic_ns());
    const bool turns = device.gate && device.gate->wants_gpu_time();
    uint64_t worked = 0;
    const VkResult result = device.clock
                                ? device.clock->submit(queue, count, submits, fence, frame, turns, worked, next)
                                : next(queue, count, submits, fence);
    if (device.gate) {
        if (worked != 0) device.gate->worked(worked);
        device.gate->submitted(queue, fence != VK_NULL_HANDLE);
    }
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t count, const VkSubmitInfo* submits, VkFence fence) {
    const auto device = timed().find(dispatch_key(queue));
    if (!device) return VK_ERROR_DEVICE_LOST;  // a queue of a device that was destroyed
    return saw(queue, submit(*device, queue, count, submits, fence, device->queue_submit));
}

VKAPI_ATTR VkResult VKAPI_CALL queue_submit2(VkQueue queue, uint32_t count, const VkSubmitInfo2* submits,
                                             VkFence fence) {
    const auto device = timed().find(dispatch_key(queue));
    if (!device) return VK_ERROR_DEVICE_LOST;
    return saw(queue, submit(*device, queue, count, submits, fence,
                             device->queue_submit2 != nullptr ? device->queue_submit2 : device->queue_submit2_khr));
}

VKAPI_ATTR VkResult VKAPI_CALL queue_present(VkQueue queue, const VkPresentInfoKHR* info) {
    const auto device = timed().find(dispatch_key(queue));
    if (!device) return VK_ERROR_DEVICE_LOST;
    device->times->presented(monotonic_ns());
    if (device->gate) device->gate->presented();
    return saw(queue, device->queue_present(queue, info));
}

VKAPI_ATTR VkResult VKAPI_CALL wait_for_fences(VkDevice handle, uint32_t count, const VkFence* fences, VkBool32 all,
                                               uint64_t timeout) {
    const auto device = timed().find(dispatch_key(handle));
    if (!device) return VK_ERROR_DEVICE_LOST;
    const VkResult result = saw(handle, device->wait_for_fences(handle, count, fences, all, timeout));
    // With several and not `all`, which one it was is not said.
    if (result == VK_SUCCESS && (all != VK_FALSE || count == 1)) {
        const uint64_t now = monotonic_ns();
        for (uint32_t i = 0; i < count; ++i) signalled(*device, fences[i], now);
    }
    return result;
}

VKAPI_ATTR VkResult VKAPI_CALL get_fence_status(VkDevice handle, VkFence fence) {
    const auto device = timed().find(dispatch_key(handle));
    if (!device) return VK_ERROR_DEVICE_LOST;
    const VkResult result = saw(handle, device->get_fence_status(handle, fence));
    if (result == VK_SUCCESS) signalled(*device, fence, monotonic_ns());
    return result;
}

VKAPI_ATTR void VKAPI_CALL get_device_queue(VkDevice handle, uint32_t family, uint32_t index, VkQueue* queue) {
    const auto device = timed().find(dispatch_key(handle));
    if (!device) return;
    device->get_device_queue(handle, family, index, queue);
    if (device->clock) device->clock->queue_found(*queue, family);
    if (device->gate) device->gate->queue_found(*queue, family);
}

VKAPI_ATTR void VKAPI_CALL get_device_queue2(VkDevice handle, const VkDeviceQueueInfo2* info, VkQueue* queue) {
    const auto device = timed().find(dispatch_key(handle));
    if (!device) return;
    device->get_device_queue2(handle, info, queue);
    if (device->clock) device->clock->queue_found(*queue, info->queueFamilyIndex);
    if (device->gate) device->gate->queue_found(*queue, info->queueFamilyIndex);
}

template <typename Function>
PFN_vkVoidFunction when(bool present, Function* function) {
    return present ? reinterpret_cast<PFN_vkVoidFunction>(function) : nullptr;
}

}  // namespace

void time_device(VkDevice device, const DeviceOrigin& origin) {
    const PFN_vkGetDeviceProcAddr next = origin.next_device;
    const SampleSink sink = SampleSink::find();
    if (!sink) return;
    TimedDispatch dispatch;
    bind(&dispatch.queue_submit, next, device, "vkQueueSubmit");
    bind(&dispatch.queue_submit2, next, device, "vkQueueSubmit2");
    bind(&dispatch.queue_submit2_khr, next, device, "vkQueueSubmit2KHR");
    bind(&dispatch.queue_present, next, device, "vkQueuePresentKHR");
    bind(&dispatch.wait_for_fences, next, device, "vkWaitForFences");
    bind(&dispatch.get_fence_status, next, device, "vkGetFenceStatus");
    bind(&dispatch.get_device_queue, next, device, "vkGetDeviceQueue");
    bind(&dispatch.get_device_queue2, next, device, "vkGetDeviceQueue2");
    try {
        dispatch.times = std::make_shared<FrameTimes>(sink);
        if (const TurnSource source = TurnSource::find())
            dispatch.gate = std::make_shared<TurnGate>(source, queue_families(origin));
    } catch (const std::bad_alloc&) {
        return;
    }
    dispatch.clock = DeviceClock::make(device, origin, sink);
    // Without memory the device is simply not timed.
    static_cast<void>(timed().add(dispatch_key(device), dispatch));
}

void forget_timed_device(VkDevice device) { static_cast<void>(timed().take(dispatch_key(device))); }

PFN_vkVoidFunction timed_function(VkDevice device, std::string_view name) {
    if (device == VK_NULL_HANDLE || !name.starts_with("vk")) return nullptr;
    const auto found = timed().find(dispatch_key(device));
    if (!found) return nullptr;
    if (name == "vkQueueSubmit") return when(found->queue_submit != nullptr, queue_submit);
    if (name == "vkQueueSubmit2") return when(found->queue_submit2 != nullptr, queue_submit2);
    if (name == "vkQueueSubmit2KHR") return when(found->queue_submit2_khr != nullptr, queue_submit2);
    if (name == "vkQueuePresentKHR") return when(found->queue_present != nullptr, queue_present);
    if (name == "vkWaitForFences") return when(found->wait_for_fences != nullptr, wait_for_fences);
    if (name == "vkGetFenceStatus") return when(found->get_fence_status != nullptr, get_fence_status);
    if (name == "vkGetDeviceQueue") return when(found->get_device_queue != nullptr, get_device_queue);
    if (name == "vkGetDeviceQueue2") return when(found->get_device_queue2 != nullptr, get_device_queue2);
    return nullptr;
}

}  // namespace vuda::layer
