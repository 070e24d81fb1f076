#include "shim/layer/device_lost.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace vuda::layer {
namespace {

// What the loader's handles look like: a dispatch pointer first, which a device and its queues share.
struct Fake {
    const void* dispatch;
};
int g_tables[2];
Fake g_devices[2] = {{&g_tables[0]}, {&g_tables[1]}};
Fake g_queue{&g_tables[0]};
VkResult g_answer = VK_SUCCESS;

template <typename Handle>
Handle handle_of(Fake& fake) {
    return reinterpret_cast<Handle>(&fake);
}
VkDevice device(int i) { return handle_of<VkDevice>(g_devices[i]); }

VKAPI_ATTR VkResult VKAPI_CALL next_device_wait_idle(VkDevice) { return g_answer; }
VKAPI_ATTR VkResult VKAPI_CALL next_queue_wait_idle(VkQueue) { return g_answer; }
VKAPI_ATTR VkResult VKAPI_CALL next_wait_semaphores(VkDevice, const VkSemaphoreWaitInfo*, uint64_t) { return g_answer; }
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL next_proc(VkDevice, const char* name) {
    const std::string wanted = name;
    if (wanted == "vkDeviceWaitIdle") return reinterpret_cast<PFN_vkVoidFunction>(next_device_wait_idle);
    if (wanted == "vkQueueWaitIdle") return reinterpret_cast<PFN_vkVoidFunction>(next_queue_wait_idle);
    if (wanted == "vkWaitSemaphoresKHR") return reinterpret_cast<PFN_vkVoidFunction>(next_wait_semaphores);
    return nullptr;
}

class DeviceLost : public testing::Test {
 protected:
    static int told() {
        static auto* const count = reinterpret_cast<int (*)()>(
            ::dlsym(::dlopen(LAYER_TEST_LIBVUDA, RTLD_NOW | RTLD_LOCAL), "layer_test_lost"));
        return count();
    }
    void SetUp() override {
        g_answer = VK_SUCCESS;
        before_ = told();
    }
    void TearDown() override {
        forget_watched_device(device(0));
        forget_watched_device(device(1));
    }
    int news() const { return told() - before_; }
    static VkResult wait_idle(VkDevice handle) {
        return reinterpret_cast<PFN_vkDeviceWaitIdle>(watched_function(handle, "vkDeviceWaitIdle"))(handle);
    }
    int before_ = 0;
};

TEST_F(DeviceLost, IsToldOnceWhicheverCallSaysSo) {
    watch_device(device(0), next_proc);
    EXPECT_EQ(wait_idle(device(0)), VK_SUCCESS);
    EXPECT_EQ(saw(device(0), VK_TIMEOUT), VK_TIMEOUT);
    EXPECT_EQ(saw(device(0), VK_ERROR_OUT_OF_DEVICE_MEMORY), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    EXPECT_EQ(news(), 0);
    g_answer = VK_ERROR_DEVICE_LOST;
    const auto queue = handle_of<VkQueue>(g_queue);
    EXPECT_EQ(reinterpret_cast<PFN_vkQueueWaitIdle>(watched_function(device(0), "vkQueueWaitIdle"))(queue),
              VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 1);
    EXPECT_EQ(wait_idle(device(0)), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(saw(queue, VK_ERROR_DEVICE_LOST), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(reinterpret_cast<PFN_vkWaitSemaphores>(watched_function(device(0), "vkWaitSemaphoresKHR"))(device(0),
                                                                                                         nullptr, 0),
              VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 1);
}

TEST_F(DeviceLost, EachDeviceIsLostForItself) {
    watch_device(device(0), next_proc);
    EXPECT_EQ(saw(device(0), VK_ERROR_DEVICE_LOST), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 1);
    watch_device(device(1), next_proc);
    EXPECT_EQ(saw(device(0), VK_ERROR_DEVICE_LOST), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 1) << "the old one says it still";
    EXPECT_EQ(saw(device(1), VK_ERROR_DEVICE_LOST), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 2);
}

TEST_F(DeviceLost, OnlyCallsThatTheNextLayerHasAreOurs) {
    EXPECT_EQ(watched_function(device(0), "vkDeviceWaitIdle"), nullptr) << "not watched";
    watch_device(device(0), next_proc);
    EXPECT_NE(watched_function(device(0), "vkDeviceWaitIdle"), nullptr);
    EXPECT_EQ(watched_function(device(0), "vkAcquireNextImageKHR"), nullptr);
    EXPECT_EQ(watched_function(device(0), "vkWaitSemaphores"), nullptr);
    EXPECT_EQ(watched_function(device(0), "vkQueueSubmit"), nullptr);
    EXPECT_EQ(watched_function(VK_NULL_HANDLE, "vkDeviceWaitIdle"), nullptr);
    forget_watched_device(device(0));
    EXPECT_EQ(watched_function(device(0), "vkDeviceWaitIdle"), nullptr);
    EXPECT_EQ(saw(device(0), VK_ERROR_DEVICE_LOST), VK_ERROR_DEVICE_LOST);
    EXPECT_EQ(news(), 0);
}

}  // namespace
}  // namespace vuda::layer
