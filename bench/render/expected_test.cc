#include "bench/render/expected.h"

#include <gtest/gtest.h>

namespace vuda::bench {
namespace {

TEST(ExpectedPixel, WithoutIterationsIsThePlainGradient) {
    RenderOptions options;
    options.width = 100;
    options.height = 50;
    PushConstants push = push_constants(options);
    push.iterations = 0;
    const Pixel pixel = expected_pixel(push, RenderLoad::kFragment, 99, 0);
    EXPECT_EQ(pixel, (Pixel{254, 3, static_cast<uint8_t>(7 * 99), 255}));
    push.seed = 5;
    EXPECT_EQ(expected_pixel(push, RenderLoad::kFragment, 99, 0)[2], static_cast<uint8_t>(7 * 99 + 5));
}

TEST(ExpectedPixel, VertexLoadIsConstantInACell) {
    RenderOptions options;
    options.width = 64;
    options.height = 64;
    const PushConstants push = push_constants(options);
    const Pixel corner = expected_pixel(push, RenderLoad::kVertex, 8, 16);
    EXPECT_EQ(expected_pixel(push, RenderLoad::kVertex, 15, 23), corner);
    EXPECT_NE(expected_pixel(push, RenderLoad::kVertex, 16, 23), corner);
}

TEST(ExpectedPixel, CellsCoverAPartlyFilledEdge) {
    RenderOptions options;
    options.width = 65;
    options.height = 64;
    EXPECT_EQ(push_constants(options).cells_x, 9u);
    EXPECT_EQ(push_constants(options).cells_y, 8u);
}

TEST(SamePixel, AllowsOneStepInTheComputedChannelsOnly) {
    const Pixel pixel = {100, 100, 7, 255};
    EXPECT_TRUE(same_pixel(pixel, {101, 99, 7, 255}));
    EXPECT_FALSE(same_pixel(pixel, {102, 100, 7, 255}));
    EXPECT_FALSE(same_pixel(pixel, {100, 100, 8, 255}));
    EXPECT_FALSE(same_pixel(pixel, {100, 100, 7, 254}));
}

}  // namespace
}  // namespace vuda::bench
