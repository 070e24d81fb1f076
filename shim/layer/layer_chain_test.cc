// The layer between a loader and a driver that are both this test: no Vulkan installation is needed.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <vulkan/vk_layer.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

int g_device_created = 0;

// What the fake driver saw last.
struct Seen {
    VkResult create_result = VK_SUCCESS;
    const void* chain = nullptr;
    const void* link = nullptr;
    const VkAllocationCallbacks* allocator = nullptr;
    std::vector<const void*> destroyed;
};
Seen g_seen;

// A dispatchable object: its first word is the loader's dispatch pointer.
struct Object {
    const void* dispatch;
};

int g_dispatch[4];
Object g_instances[2] = {{&g_dispatch[0]}, {&g_dispatch[1]}};
Object g_physical[2] = {{&g_dispatch[0]}, {&g_dispatch[1]}};
Object g_devices[2] = {{&g_dispatch[2]}, {&g_dispatch[3]}};
int g_next_instance = 0;
int g_next_device = 0;
const VkAllocationCallbacks g_allocator{};

template <typename Handle>
Handle handle(Object& object) {
    return reinterpret_cast<Handle>(&object);
}

VKAPI_ATTR VkResult VKAPI_CALL driver_create_instance(const VkInstanceCreateInfo* info,
                                                      const VkAllocationCallbacks* allocator, VkInstance* out) {
    g_seen.chain = info->pNext;
    g_seen.link = static_cast<const VkLayerInstanceCreateInfo*>(info->pNext)->u.pLayerInfo;
    g_seen.allocator = allocator;
    if (g_seen.create_result == VK_SUCCESS) *out = handle<VkInstance>(g_instances[g_next_instance++]);
    return g_seen.create_result;
}
VKAPI_ATTR void VKAPI_CALL driver_destroy_instance(VkInstance instance, const VkAllocationCallbacks*) {
    g_seen.destroyed.push_back(instance);
}
VKAPI_ATTR VkResult VKAPI_CALL driver_create_device(VkPhysicalDevice, const VkDeviceCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator, VkDevice* out) {
    g_seen.chain = info->pNext;
    g_seen.allocator = allocator;
    if (g_seen.create_result == VK_SUCCESS) *out = handle<VkDevice>(g_devices[g_next_device++]);
    return g_seen.create_result;
}
VKAPI_ATTR void VKAPI_CALL driver_destroy_device(VkDevice device, const VkAllocationCallbacks*) {
    g_seen.destroyed.push_back(device);
}
VKAPI_ATTR void VKAPI_CALL driver_other() {}

template <typename Function>
PFN_vkVoidFunction plain(Function* function) {
    return reinterpret_cast<PFN_vkVoidFunction>(function);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL driver_gdpa(VkDevice, const char* name) {
    const std::string wanted = name;
    if (wanted == "vkDestroyDevice") return plain(driver_destroy_device);
    if (wanted == "vkQueueSubmit") return plain(driver_other);
    return nullptr;
}
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL driver_gipa(VkInstance instance, const char* name) {
    const std::string wanted = name;
    if (wanted == "vkCreateInstance") return plain(driver_create_instance);
    if (instance == VK_NULL_HANDLE) return nullptr;
    if (wanted == "vkDestroyInstance") return plain(driver_destroy_instance);
    if (wanted == "vkCreateDevice") return plain(driver_create_device);
    if (wanted == "vkEnumeratePhysicalDevices") return plain(driver_other);
    return driver_gdpa(VK_NULL_HANDLE, name);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void vuda_shim_device_created(void) { ++g_device_created; }

namespace {

class LayerChain : public testing::Test {
 protected:
    void SetUp() override {
        g_seen = {};
        g_next_instance = g_next_device = g_device_created = 0;
        library_ = ::dlopen(VUDA_LAYER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library_, nullptr) << ::dlerror();
        negotiate_ = reinterpret_cast<PFN_vkNegotiateLoaderLayerInterfaceVersion>(
            ::dlsym(library_, "vkNegotiateLoaderLayerInterfaceVersion"));
        ASSERT_NE(negotiate_, nullptr);
        VkNegotiateLayerInterface interface { LAYER_NEGOTIATE_INTERFACE_STRUCT, nullptr, 2, nullptr, nullptr, nullptr };
        ASSERT_EQ(negotiate_(&interface), VK_SUCCESS);
        EXPECT_EQ(interface.loaderLayerInterfaceVersion, 2u);
        gipa_ = interface.pfnGetInstanceProcAddr;
        gdpa_ = interface.pfnGetDeviceProcAddr;
    }
    void TearDown() override { ::dlclose(library_); }

    template <typename Function>
    Function instance_function(VkInstance instance, const char* name) {
        return reinterpret_cast<Function>(gipa_(instance, name));
    }
    VkResult create_instance(VkInstance* out) {
        VkLayerInstanceLink next{nullptr, driver_gipa, nullptr};
        VkLayerInstanceLink ours{&next, driver_gipa, nullptr};
        // A callback structure of the same type comes first in the chain, as the loader does it.
        VkLayerInstanceCreateInfo link{};
        link.sType = VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO;
        link.function = VK_LAYER_LINK_INFO;
        link.u.pLayerInfo = &ours;
        VkInstanceCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
        info.pNext = &link;
        const VkResult result =
            instance_function<PFN_vkCreateInstance>(VK_NULL_HANDLE, "vkCreateInstance")(&info, &g_allocator, out);
        EXPECT_EQ(g_seen.chain, &link);
        EXPECT_EQ(g_seen.link, &next) << "the link was not moved on";
        EXPECT_EQ(g_seen.allocator, &g_allocator);
        return result;
    }
    VkResult create_device(VkInstance instance, Object& physical, VkDevice* out) {
        VkLayerDeviceLink ours{nullptr, driver_gipa, driver_gdpa};
        VkLayerDeviceCreateInfo link{};
        link.sType = VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO;
        link.function = VK_LAYER_LINK_INFO;
        link.u.pLayerInfo = &ours;
        VkLayerDeviceCreateInfo callback{};
        callback.sType = VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO;
        callback.function = VK_LOADER_DATA_CALLBACK;
        callback.pNext = &link;
        VkPhysicalDeviceFeatures2 features{};
        features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
        features.pNext = &callback;
        const VkPhysicalDeviceFeatures2 before = features;
        VkDeviceCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
        info.pNext = &features;
        const VkResult result = instance_function<PFN_vkCreateDevice>(instance, "vkCreateDevice")(
            handle<VkPhysicalDevice>(physical), &info, nullptr, out);
        EXPECT_EQ(g_seen.chain, &features);
        EXPECT_EQ(std::memcmp(&features, &before, sizeof features), 0)
            << "the program's structures are not ours to change";
        return result;
    }

    void* library_ = nullptr;
    PFN_vkNegotiateLoaderLayerInterfaceVersion negotiate_ = nullptr;
    PFN_vkGetInstanceProcAddr gipa_ = nullptr;
    PFN_vkGetDeviceProcAddr gdpa_ = nullptr;
};

TEST_F(LayerChain, OldLoadersAreRefused) {
    VkNegotiateLayerInterface interface { LAYER_NEGOTIATE_INTERFACE_STRUCT, nullptr, 1, nullptr, nullptr, nullptr };
    EXPECT_EQ(negotiate_(&interface), VK_ERROR_INITIALIZATION_FAILED);
    EXPECT_EQ(negotiate_(nullptr), VK_ERROR_INITIALIZATION_FAILED);
    interface.loaderLayerInterfaceVersion = 7;  // newer than the layer
    EXPECT_EQ(negotiate_(&interface), VK_SUCCESS);
    EXPECT_EQ(interface.loaderLayerInterfaceVersion, 2u);
}

TEST_F(LayerChain, TwoInstancesTwoDevicesEachToldOnce) {
    VkInstance instances[2];
    VkDevice devices[2];
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(create_instance(&instances[i]), VK_SUCCESS);
        EXPECT_EQ(instances[i], handle<VkInstance>(g_instances[i]));
    }
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(create_device(instances[i], g_physical[i], &devices[i]), VK_SUCCESS);
        EXPECT_EQ(g_device_created, i + 1);
    }
    // What is not ours is the driver's own function: no cost per call.
    EXPECT_EQ(gdpa_(devices[0], "vkQueueSubmit"), plain(driver_other));
    EXPECT_EQ(gipa_(instances[1], "vkEnumeratePhysicalDevices"), plain(driver_other));
    EXPECT_EQ(gipa_(instances[1], "vkNoSuchFunction"), nullptr);
    EXPECT_EQ(gipa_(VK_NULL_HANDLE, "vkEnumeratePhysicalDevices"), nullptr);
    EXPECT_EQ(gipa_(instances[0], "vkDestroyDevice"), gdpa_(devices[0], "vkDestroyDevice"));
    EXPECT_NE(gipa_(instances[0], "vkDestroyDevice"), plain(driver_destroy_device));
    EXPECT_EQ(gdpa_(devices[0], "vkGetDeviceProcAddr"), plain(gdpa_));
    EXPECT_EQ(gipa_(VK_NULL_HANDLE, "vkGetInstanceProcAddr"), plain(gipa_));

    const auto destroy_device = reinterpret_cast<PFN_vkDestroyDevice>(gdpa_(devices[1], "vkDestroyDevice"));
    const auto destroy_instance = instance_function<PFN_vkDestroyInstance>(instances[0], "vkDestroyInstance");
    destroy_device(VK_NULL_HANDLE, nullptr);
    destroy_instance(VK_NULL_HANDLE, nullptr);
    destroy_device(devices[1], nullptr);
    destroy_instance(instances[1], nullptr);
    EXPECT_EQ(gdpa_(devices[0], "vkQueueSubmit"), plain(driver_other)) << "the other device is untouched";
    destroy_device(devices[0], nullptr);
    destroy_instance(instances[0], nullptr);
    const std::vector<const void*> expected{devices[1], instances[1], devices[0], instances[0]};
    EXPECT_EQ(g_seen.destroyed, expected);
    EXPECT_EQ(gdpa_(devices[0], "vkQueueSubmit"), nullptr);
}

TEST_F(LayerChain, FailuresPassThroughAndTellNobody) {
    VkInstance instance = VK_NULL_HANDLE;
    g_seen.create_result = VK_ERROR_INCOMPATIBLE_DRIVER;
    EXPECT_EQ(create_instance(&instance), VK_ERROR_INCOMPATIBLE_DRIVER);
    g_seen.create_result = VK_SUCCESS;
    ASSERT_EQ(create_instance(&instance), VK_SUCCESS);
    VkDevice device = VK_NULL_HANDLE;
    g_seen.create_result = VK_ERROR_FEATURE_NOT_PRESENT;
    EXPECT_EQ(create_device(instance, g_physical[0], &device), VK_ERROR_FEATURE_NOT_PRESENT);
    EXPECT_EQ(g_device_created, 0);

    // Without the loader's link there is no way on.
    VkInstanceCreateInfo bare{};
    bare.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    EXPECT_EQ(instance_function<PFN_vkCreateInstance>(VK_NULL_HANDLE, "vkCreateInstance")(&bare, nullptr, &instance),
              VK_ERROR_INITIALIZATION_FAILED);
    instance_function<PFN_vkDestroyInstance>(instance, "vkDestroyInstance")(handle<VkInstance>(g_instances[0]),
                                                                            nullptr);
}

TEST_F(LayerChain, ThreadsLookUpWhileOthersCreate) {
    VkInstance instance;
    ASSERT_EQ(create_instance(&instance), VK_SUCCESS);
    std::thread reader([&] {
        for (int i = 0; i < 1000; ++i) {
            EXPECT_EQ(gipa_(instance, "vkEnumeratePhysicalDevices"), plain(driver_other));
            gdpa_(handle<VkDevice>(g_devices[0]), "vkQueueSubmit");
        }
    });
    for (int i = 0; i < 200; ++i) {
        VkDevice device;
        g_next_device = 0;
        EXPECT_EQ(create_device(instance, g_physical[0], &device), VK_SUCCESS);
        reinterpret_cast<PFN_vkDestroyDevice>(gdpa_(device, "vkDestroyDevice"))(device, nullptr);
    }
    reader.join();
    instance_function<PFN_vkDestroyInstance>(instance, "vkDestroyInstance")(instance, nullptr);
}

}  // namespace
