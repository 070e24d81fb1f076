// A headless Vulkan program through the real loader and a software driver (lavapipe), with the layer switched on by the
// environment.
//
// LAYER_TEST_CALLS=1: layer_test_preload.cc is in LD_PRELOAD and has to hear of each device exactly once; otherwise
// nobody listens. LAYER_TEST_IMPLICIT=1: the layer comes, or does not, from what is in the environment already.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <vulkan/vulkan_core.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr char kLayer[] = "VK_LAYER_VUDA_sharing";

int device_created_calls() {
    using Calls = int (*)();
    const auto calls = reinterpret_cast<Calls>(::dlsym(RTLD_DEFAULT, "layer_test_device_created_calls"));
    return calls != nullptr ? calls() : 0;
}

int expected_calls(int devices) { return std::getenv("LAYER_TEST_CALLS") != nullptr ? devices : 0; }

class LayerVulkan : public testing::Test {
 protected:
    void SetUp() override {
        before_ = device_created_calls();
        // Without the layer first: a missing driver is a reason to skip, a layer that breaks Vulkan is not.
        ::unsetenv("VK_INSTANCE_LAYERS");
        instance_ = create_instance();
        if (instance_ == VK_NULL_HANDLE || software_device(instance_) == VK_NULL_HANDLE) {
            GTEST_SKIP() << "no software Vulkan driver is installed (Debian: mesa-vulkan-drivers)";
        }
        ::vkDestroyInstance(instance_, nullptr);
        if (std::getenv("LAYER_TEST_IMPLICIT") == nullptr) {
            ::setenv("VK_ADD_LAYER_PATH", VUDA_LAYER_PATH, 1);
            ::setenv("VK_INSTANCE_LAYERS", kLayer, 1);
        }
        instance_ = create_instance();
        ASSERT_NE(instance_, VK_NULL_HANDLE);
        physical_ = software_device(instance_);
        ASSERT_NE(physical_, VK_NULL_HANDLE);
    }
    void TearDown() override {
        if (instance_ != VK_NULL_HANDLE) ::vkDestroyInstance(instance_, nullptr);
    }

    static VkInstance create_instance() {
        VkApplicationInfo application{};
        application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
        application.apiVersion = VK_API_VERSION_1_1;
        VkInstanceCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
        info.pApplicationInfo = &application;
        VkInstance instance = VK_NULL_HANDLE;
        return ::vkCreateInstance(&info, nullptr, &instance) == VK_SUCCESS ? instance : VK_NULL_HANDLE;
    }

    static VkPhysicalDevice software_device(VkInstance instance) {
        uint32_t count = 0;
        ::vkEnumeratePhysicalDevices(instance, &count, nullptr);
        std::vector<VkPhysicalDevice> all(count);
        ::vkEnumeratePhysicalDevices(instance, &count, all.data());
        for (VkPhysicalDevice device : all) {
            VkPhysicalDeviceProperties properties;
            ::vkGetPhysicalDeviceProperties(device, &properties);
            if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) return device;
        }
        return VK_NULL_HANDLE;
    }

    static VkDevice create_device(VkPhysicalDevice physical) {
        const float priority = 1.0f;
        VkDeviceQueueCreateInfo queue{};
        queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        VkPhysicalDeviceFeatures2 features{};
        features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
        VkDeviceCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
        info.pNext = &features;
        info.queueCreateInfoCount = 1;
        info.pQueueCreateInfos = &queue;
        VkDevice device = VK_NULL_HANDLE;
        EXPECT_EQ(::vkCreateDevice(physical, &info, nullptr, &device), VK_SUCCESS);
        return device;
    }

    // One command buffer, which goes with its pool.
    static void make_commands(VkDevice device, VkCommandPool& pool, VkCommandBuffer& commands) {
        VkCommandPoolCreateInfo pool_info{};
        pool_info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
        ASSERT_EQ(::vkCreateCommandPool(device, &pool_info, nullptr, &pool), VK_SUCCESS);
        VkCommandBufferAllocateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        info.commandPool = pool;
        info.commandBufferCount = 1;
        ASSERT_EQ(::vkAllocateCommandBuffers(device, &info, &commands), VK_SUCCESS);
    }

    // Fills a buffer on the device and reads it back: the device works.
    static void use(VkPhysicalDevice physical, VkDevice device) {
        constexpr VkDeviceSize kSize = 4096;
        VkBufferCreateInfo buffer_info{};
        buffer_info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
        buffer_info.size = kSize;
        buffer_info.usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        VkBuffer buffer;
        ASSERT_EQ(::vkCreateBuffer(device, &buffer_info, nullptr, &buffer), VK_SUCCESS);
        VkMemoryRequirements needs;
        ::vkGetBufferMemoryRequirements(device, buffer, &needs);
        VkPhysicalDeviceMemoryProperties memories;
        ::vkGetPhysicalDeviceMemoryProperties(physical, &memories);
        uint32_t type = 0;
        const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        while (type < memories.memoryTypeCount && ((needs.memoryTypeBits >> type & 1) == 0 ||
                                                   (memories.memoryTypes[type].propertyFlags & wanted) != wanted)) {
            ++type;
        }
        ASSERT_LT(type, memories.memoryTypeCount);
        VkMemoryAllocateInfo allocate{};
        allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        allocate.allocationSize = needs.size;
        allocate.memoryTypeIndex = type;
        VkDeviceMemory memory;
        ASSERT_EQ(::vkAllocateMemory(device, &allocate, nullptr, &memory), VK_SUCCESS);
        ASSERT_EQ(::vkBindBufferMemory(device, buffer, memory, 0), VK_SUCCESS);

        VkCommandPool pool;
        VkCommandBuffer commands;
        ASSERT_NO_FATAL_FAILURE(make_commands(device, pool, commands));
        VkCommandBufferBeginInfo begin{};
        begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
        ASSERT_EQ(::vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
        ::vkCmdFillBuffer(commands, buffer, 0, kSize, 0x56554441);
        ASSERT_EQ(::vkEndCommandBuffer(commands), VK_SUCCESS);
        VkQueue queue;
        ::vkGetDeviceQueue(device, 0, 0, &queue);
        VkSubmitInfo submit{};
        submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        submit.commandBufferCount = 1;
        submit.pCommandBuffers = &commands;
        ASSERT_EQ(::vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
        ASSERT_EQ(::vkDeviceWaitIdle(device), VK_SUCCESS);
        void* mapped = nullptr;
        ASSERT_EQ(::vkMapMemory(device, memory, 0, kSize, 0, &mapped), VK_SUCCESS);
        uint32_t last;
        std::memcpy(&last, static_cast<const char*>(mapped) + kSize - sizeof last, sizeof last);
        EXPECT_EQ(last, 0x56554441u);
        ::vkDestroyCommandPool(device, pool, nullptr);
        ::vkDestroyBuffer(device, buffer, nullptr);
        ::vkFreeMemory(device, memory, nullptr);
    }

    int calls() const { return device_created_calls() - before_; }

    VkInstance instance_ = VK_NULL_HANDLE;
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;

 private:
    int before_ = 0;
};

TEST_F(LayerVulkan, TheLoaderFindsTheLayer) {
    uint32_t count = 0;
    ASSERT_EQ(::vkEnumerateInstanceLayerProperties(&count, nullptr), VK_SUCCESS);
    std::vector<VkLayerProperties> layers(count);
    ASSERT_EQ(::vkEnumerateInstanceLayerProperties(&count, layers.data()), VK_SUCCESS);
    bool found = false;
    for (const VkLayerProperties& layer : layers) found = found || std::strcmp(layer.layerName, kLayer) == 0;
    EXPECT_TRUE(found) << "in " << VUDA_LAYER_PATH;
    EXPECT_NE(::dlopen(VUDA_LAYER_LIBRARY, RTLD_NOW | RTLD_NOLOAD), nullptr) << "the loader did not load the layer";
}

TEST_F(LayerVulkan, ProgramsWorkAndEachDeviceIsToldOnce) {
    const int start = calls();
    VkDevice first = create_device(physical_);
    ASSERT_NE(first, VK_NULL_HANDLE);
    EXPECT_EQ(calls() - start, expected_calls(1));
    VkDevice second = create_device(physical_);
    ASSERT_NE(second, VK_NULL_HANDLE);
    EXPECT_EQ(calls() - start, expected_calls(2));
    use(physical_, first);
    use(physical_, second);
    ::vkDestroyDevice(second, nullptr);
    use(physical_, first);
    ::vkDestroyDevice(first, nullptr);
    EXPECT_EQ(calls() - start, expected_calls(2));
}

// Three frames: submitted with a fence that is waited for. With layer_test_libvuda.cc in the process each is timed,
// else none.
TEST_F(LayerVulkan, FramesAreTimedWhereLibvudaIsLoaded) {
    VkDevice device = create_device(physical_);
    VkQueue queue;
    ::vkGetDeviceQueue(device, 0, 0, &queue);
    VkFenceCreateInfo fence_info{};
    fence_info.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    VkFence fence;
    ASSERT_EQ(::vkCreateFence(device, &fence_info, nullptr, &fence), VK_SUCCESS);
    // Some work, for the GPU's own clock: command buffers without a frame's fence, then the fence.
    VkCommandPool pool;
    VkCommandBuffer commands;
    ASSERT_NO_FATAL_FAILURE(make_commands(device, pool, commands));
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
    ASSERT_EQ(::vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
    ASSERT_EQ(::vkEndCommandBuffer(commands), VK_SUCCESS);
    VkSubmitInfo submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    submit.commandBufferCount = 1;
    submit.pCommandBuffers = &commands;
    const auto start = std::chrono::steady_clock::now();
    for (int frame = 0; frame < 3; ++frame) {
        ASSERT_EQ(::vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
        ASSERT_EQ(::vkQueueSubmit(queue, 0, nullptr, fence), VK_SUCCESS);
        ASSERT_EQ(::vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_MAX), VK_SUCCESS);
        ASSERT_EQ(::vkResetFences(device, 1, &fence), VK_SUCCESS);
    }
    if (std::getenv("LAYER_TEST_TURNS") != nullptr) {
        EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(57)) << "two were held back";
    }
    ::vkDestroyFence(device, fence, nullptr);
    ::vkDestroyCommandPool(device, pool, nullptr);
    ::vkDestroyDevice(device, nullptr);

    int (*samples)(uint32_t) = nullptr;
    void* found = ::dlsym(RTLD_DEFAULT, "layer_test_samples");
    std::memcpy(&samples, &found, sizeof samples);
    if (std::getenv("LAYER_TEST_SAMPLES") == nullptr) return;
    ASSERT_NE(samples, nullptr);
    EXPECT_EQ(samples(1), 3);
    EXPECT_EQ(samples(2), 2);
    EXPECT_EQ(samples(5), 3);
}

TEST_F(LayerVulkan, TwoInstances) {
    const int start = calls();
    VkInstance other = create_instance();
    ASSERT_NE(other, VK_NULL_HANDLE);
    VkPhysicalDevice other_physical = software_device(other);
    VkDevice device = create_device(other_physical);
    ::vkDestroyInstance(instance_, nullptr);
    instance_ = VK_NULL_HANDLE;
    use(other_physical, device);
    ::vkDestroyDevice(device, nullptr);
    ::vkDestroyInstance(other, nullptr);
    EXPECT_EQ(calls() - start, expected_calls(1));
}

TEST_F(LayerVulkan, AFailedDeviceIsNotTold) {
    const int start = calls();
    const char* missing = "VK_VUDA_no_such_extension";
    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &missing;
    VkDevice device = VK_NULL_HANDLE;
    EXPECT_EQ(::vkCreateDevice(physical_, &info, nullptr, &device), VK_ERROR_EXTENSION_NOT_PRESENT);
    EXPECT_EQ(calls() - start, 0);
}

}  // namespace
