// VK_LAYER_VUDA_sharing: tells libvuda_preload.so when a program has made its Vulkan device, which is when its graphics
// TSG exists.
//
// A library of its own, apart from the preload: one object that is both LD_PRELOAD and Vulkan layer collides with the
// loader. Nothing here runs after device creation, but in a process that shares its device: there frames are timed
// (timed_calls.h), on the GPU as well (queue_clock.h), and a lost device is told (device_lost.h).
#include <dlfcn.h>
#include <vulkan/vk_layer.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "shim/layer/device_lost.h"
#include "shim/layer/dispatch.h"
#include "shim/layer/timed_calls.h"

namespace vuda::layer {
namespace {

using Instances =
    DispatchTable<const void*, InstanceDispatch>;  // by dispatch key, because devices are made from physical devices
using Devices = DispatchTable<VkDevice, DeviceDispatch>;

// Never destroyed: programs destroy their instances in destructors that run after this library's.
Instances& instances() {
    static Instances& table = *std::make_unique<Instances>().release();
    return table;
}
Devices& devices() {
    static Devices& table = *std::make_unique<Devices>().release();
    return table;
}

// The loader's own structure in the chain of a create call. Not const: moving the link on for the next layer is the
// layer's duty.
template <typename Info, VkStructureType type>
Info* find_link(const void* chain) {
    for (auto* at = static_cast<const VkBaseInStructure*>(chain); at != nullptr; at = at->pNext) {
        if (at->sType != type) continue;
        auto* info = reinterpret_cast<Info*>(const_cast<VkBaseInStructure*>(at));
        if (info->function == VK_LAYER_LINK_INFO) return info;
    }
    return nullptr;
}

// The loader's way of making what a layer got from the driver look as if the program had.
PFN_vkSetDeviceLoaderData find_loader_data(const void* chain) {
    for (auto* at = static_cast<const VkBaseInStructure*>(chain); at != nullptr; at = at->pNext) {
        if (at->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO) continue;
        const auto* info = reinterpret_cast<const VkLayerDeviceCreateInfo*>(at);
        if (info->function == VK_LOADER_DATA_CALLBACK) return info->u.pfnSetDeviceLoaderData;
    }
    return nullptr;
}

// "A device exists." Once per device; the preload decides whether that matters.
void tell_preload() {
    void* found = ::dlsym(RTLD_DEFAULT, "vuda_shim_device_created");
    if (found == nullptr) return;
    void (*device_created)();
    std::memcpy(&device_created, &found, sizeof device_created);
    device_created();
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* allocator,
                                               VkInstance* instance) {
    auto* link = find_link<VkLayerInstanceCreateInfo, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO>(info->pNext);
    if (link == nullptr || link->u.pLayerInfo == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const auto create = reinterpret_cast<PFN_vkCreateInstance>(next(VK_NULL_HANDLE, "vkCreateInstance"));
    if (create == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const VkResult result = create(info, allocator, instance);
    if (result != VK_SUCCESS) return result;

    const InstanceDispatch dispatch{*instance, next,
                                    reinterpret_cast<PFN_vkDestroyInstance>(next(*instance, "vkDestroyInstance"))};
    if (instances().add(dispatch_key(*instance), dispatch)) return VK_SUCCESS;
    dispatch.destroy_instance(*instance, allocator);
    *instance = VK_NULL_HANDLE;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance, const VkAllocationCallbacks* allocator) {
    if (instance == VK_NULL_HANDLE) return;
    if (const auto dispatch = instances().take(dispatch_key(instance))) dispatch->destroy_instance(instance, allocator);
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* allocator, VkDevice* device) {
    const auto instance = instances().find(dispatch_key(physical));
    auto* link = find_link<VkLayerDeviceCreateInfo, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO>(info->pNext);
    if (!instance || link == nullptr || link->u.pLayerInfo == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    const PFN_vkGetDeviceProcAddr next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const auto create = reinterpret_cast<PFN_vkCreateDevice>(next(instance->instance, "vkCreateDevice"));
    if (create == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
    const VkResult result = create(physical, info, allocator, device);
    if (result != VK_SUCCESS) return result;

    const DeviceDispatch dispatch{next_device,
                                  reinterpret_cast<PFN_vkDestroyDevice>(next_device(*device, "vkDestroyDevice"))};
    if (!devices().add(*device, dispatch)) {
        dispatch.destroy_device(*device, allocator);
        *device = VK_NULL_HANDLE;
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    tell_preload();
    // The preload has loaded libvuda.so by now, if this process was asked to share.
    watch_device(*device, next_device);
    time_device(*device, {instance->instance, physical, next, next_device, find_loader_data(info->pNext)});
    return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks* allocator) {
    if (device == VK_NULL_HANDLE) return;
    forget_timed_device(device);
    forget_watched_device(device);
    if (const auto dispatch = devices().take(device)) dispatch->destroy_device(device, allocator);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc_addr(VkDevice device, const char* name);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc_addr(VkInstance instance, const char* name);

template <typename Function>
PFN_vkVoidFunction plain(Function* function) {
    return reinterpret_cast<PFN_vkVoidFunction>(function);
}

PFN_vkVoidFunction own_device_function(std::string_view name) {
    if (name == "vkGetDeviceProcAddr") return plain(get_device_proc_addr);
    if (name == "vkDestroyDevice") return plain(destroy_device);
    return nullptr;
}

PFN_vkVoidFunction own_instance_function(std::string_view name) {
    if (name == "vkGetInstanceProcAddr") return plain(get_instance_proc_addr);
    if (name == "vkCreateInstance") return plain(create_instance);
    if (name == "vkDestroyInstance") return plain(destroy_instance);
    if (name == "vkCreateDevice") return plain(create_device);
    return own_device_function(name);
}

PFN_vkVoidFunction get_device_proc_addr(VkDevice device, const char* name) {
    if (const PFN_vkVoidFunction own = own_device_function(name)) return own;
    if (const PFN_vkVoidFunction timed = timed_function(device, name)) return timed;
    if (const PFN_vkVoidFunction watched = watched_function(device, name)) return watched;
    const auto dispatch = devices().find(device);
    return dispatch ? dispatch->get_device_proc_addr(device, name) : nullptr;
}

PFN_vkVoidFunction get_instance_proc_addr(VkInstance instance, const char* name) {
    if (const PFN_vkVoidFunction own = own_instance_function(name)) return own;
    if (instance == VK_NULL_HANDLE) return nullptr;
    const auto dispatch = instances().find(dispatch_key(instance));
    return dispatch ? dispatch->get_instance_proc_addr(instance, name) : nullptr;
}

}  // namespace
}  // namespace vuda::layer

// The only exported symbol: the loader gets everything else from here (interface version 2).
extern "C" VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* interface) {
    if (interface == nullptr || interface->sType != LAYER_NEGOTIATE_INTERFACE_STRUCT ||
        interface->loaderLayerInterfaceVersion < 2) {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = vuda::layer::get_instance_proc_addr;
    interface->pfnGetDeviceProcAddr = vuda::layer::get_device_proc_addr;
    interface->pfnGetPhysicalDeviceProcAddr = nullptr;  // no command of a physical device is ours
    return VK_SUCCESS;
}
