#include "shim/layer/device_lost.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "shim/layer/bind.h"
#include "shim/layer/dispatch.h"

namespace vuda::layer {
namespace {

struct WatchedDispatch {
    PFN_vkDeviceWaitIdle device_wait_idle = nullptr;
    PFN_vkQueueWaitIdle queue_wait_idle = nullptr;
    PFN_vkWaitSemaphores wait_semaphores = nullptr;
    PFN_vkWaitSemaphoresKHR wait_semaphores_khr = nullptr;
    PFN_vkAcquireNextImageKHR acquire_next_image = nullptr;
    PFN_vkAcquireNextImage2KHR acquire_next_image2 = nullptr;
    std::shared_ptr<std::atomic<void (*)()>> tell;  // null once it was told
};

// By dispatch key: queues have their device's. Never destroyed, as the other tables.
using WatchedDevices = DispatchTable<const void*, WatchedDispatch>;
WatchedDevices& watched() {
    static WatchedDevices& table = *std::make_unique<WatchedDevices>().release();
    return table;
}

VKAPI_ATTR VkResult VKAPI_CALL device_wait_idle(VkDevice device) {
    const auto next = watched().find(dispatch_key(device));
    return next ? saw(device, next->device_wait_idle(device)) : VK_ERROR_DEVICE_LOST;
}

VKAPI_ATTR VkResult VKAPI_CALL queue_wait_idle(VkQueue queue) {
    const auto next = watched().find(dispatch_key(queue));
    return next ? saw(queue, next->queue_wait_idle(queue)) : VK_ERROR_DEVICE_LOST;
}

VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice device, const VkSemaphoreWaitInfo* info, uint64_t timeout) {
    const auto next = watched().find(dispatch_key(device));
    if (!next) return VK_ERROR_DEVICE_LOST;
    const auto call = next->wait_semaphores != nullptr ? next->wait_semaphores : next->wait_semaphores_khr;
    return saw(device, call(device, info, timeout));
}

VKAPI_ATTR VkResult VKAPI_CALL acquire_next_image(VkDevice device, VkSwapchainKHR swapchain, uint64_t timeout,
                                                  VkSemaphore semaphore, VkFence fence, uint32_t* index) {
    const auto next = watched().find(dispatch_key(device));
    if (!next) return VK_ERROR_DEVICE_LOST;
    return saw(device, next->acquire_next_image(device, swapchain, timeout, semaphore, fence, index));
}

VKAPI_ATTR VkResult VKAPI_CALL acquire_next_image2(VkDevice device, const VkAcquireNextImageInfoKHR* info,
                                                   uint32_t* index) {
    const auto next = watched().find(dispatch_key(device));
    return next ? saw(device, next->acquire_next_image2(device, info, index)) : VK_ERROR_DEVICE_LOST;
}

template <typename Function>
PFN_vkVoidFunction if_next(bool present, Function* function) {
    return present ? reinterpret_cast<PFN_vkVoidFunction>(function) : nullptr;
}

}  // namespace

VkResult saw(const void* handle, VkResult result) {
    if (result != VK_ERROR_DEVICE_LOST) return result;
    // Every call of this device fails from here on; the first one is news.
    const auto device = watched().find(dispatch_key(handle));
    if (!device) return result;
    if (void (*const tell)() = device->tell->exchange(nullptr); tell != nullptr) tell();
    return result;
}

void watch_device(VkDevice device, PFN_vkGetDeviceProcAddr next) {
    void* library = ::dlopen("libvuda.so.0", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return;
    void* const found = ::dlsym(library, "vuda_private_device_lost");
    ::dlclose(library);  // libvuda.so is never unloaded
    if (found == nullptr) return;
    WatchedDispatch dispatch;
    bind(&dispatch.device_wait_idle, next, device, "vkDeviceWaitIdle");
    bind(&dispatch.queue_wait_idle, next, device, "vkQueueWaitIdle");
    bind(&dispatch.wait_semaphores, next, device, "vkWaitSemaphores");
    bind(&dispatch.wait_semaphores_khr, next, device, "vkWaitSemaphoresKHR");
    bind(&dispatch.acquire_next_image, next, device, "vkAcquireNextImageKHR");
    bind(&dispatch.acquire_next_image2, next, device, "vkAcquireNextImage2KHR");
    void (*tell)() = nullptr;
    std::memcpy(&tell, &found, sizeof tell);
    // Without memory the device is simply not watched.
    try {
        dispatch.tell = std::make_shared<std::atomic<void (*)()>>(tell);
    } catch (const std::bad_alloc&) {
        return;
    }
    static_cast<void>(watched().add(dispatch_key(device), dispatch));
}

void forget_watched_device(VkDevice device) { static_cast<void>(watched().take(dispatch_key(device))); }

PFN_vkVoidFunction watched_function(VkDevice device, std::string_view name) {
    if (device == VK_NULL_HANDLE || !name.starts_with("vk")) return nullptr;
    const auto next = watched().find(dispatch_key(device));
    if (!next) return nullptr;
    if (name == "vkDeviceWaitIdle") return if_next(next->device_wait_idle != nullptr, device_wait_idle);
    if (name == "vkQueueWaitIdle") return if_next(next->queue_wait_idle != nullptr, queue_wait_idle);
    if (name == "vkWaitSemaphores") return if_next(next->wait_semaphores != nullptr, wait_semaphores);
    if (name == "vkWaitSemaphoresKHR") return if_next(next->wait_semaphores_khr != nullptr, wait_semaphores);
    if (name == "vkAcquireNextImageKHR") return if_next(next->acquire_next_image != nullptr, acquire_next_image);
    if (name == "vkAcquireNextImage2KHR") return if_next(next->acquire_next_image2 != nullptr, acquire_next_image2);
    return nullptr;
}

}  // namespace vuda::layer
