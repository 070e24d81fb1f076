#include "bench/render/vk_check.h"

#include <gtest/gtest.h>

#include "bench/common/exit_code.h"

namespace vuda::bench {
namespace {

TEST(VkCheck, GivesWordsAndExitCodes) {
    EXPECT_TRUE(vk_check(VK_SUCCESS, "x").ok());
    EXPECT_TRUE(vk_check(VK_NOT_READY, "x").ok());

    const Status lost = vk_check(VK_ERROR_DEVICE_LOST, "wait for a frame");
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().code, kDeviceLost);
    EXPECT_EQ(exit_code(lost.error()), kExitDeviceLost);
    EXPECT_EQ(lost.error().text.find("wait for a frame: the GPU was lost"), 0u) << lost.error().text;

    EXPECT_EQ(exit_code(vk_check(VK_ERROR_INCOMPATIBLE_DRIVER, "x").error()), kExitNoDevice);
    EXPECT_EQ(exit_code(vk_check(VK_ERROR_OUT_OF_DEVICE_MEMORY, "x").error()), kExitFailed);
    EXPECT_EQ(vk_check(static_cast<VkResult>(-12345), "x").error().text, "x: VkResult -12345");
}

}  // namespace
}  // namespace vuda::bench
