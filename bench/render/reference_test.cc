#include "bench/render/reference.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vuda::bench {
namespace {

class ReferenceTest : public ::testing::Test {
 protected:
    ReferenceTest() {
        RenderOptions options;
        options.width = 40;
        options.height = 30;
        options.iterations = 10;
        push_ = push_constants(options);
        for (uint32_t y = 0; y < 30; ++y)
            for (uint32_t x = 0; x < 40; ++x)
                for (const uint8_t channel : expected_pixel(push_, RenderLoad::kFragment, x, y))
                    image_.push_back(channel);
    }

    std::vector<uint8_t> rows(RowSet set) const {
        std::vector<uint8_t> out;
        for (uint32_t row = set.first; row < 30; row += set.stride)
            out.insert(out.end(), image_.begin() + row * 160, image_.begin() + (row + 1) * 160);
        return out;
    }

    PushConstants push_{};
    std::vector<uint8_t> image_;
};

TEST_F(ReferenceTest, TakesARightImageAndFindsEveryWrongByte) {
    const auto reference = Reference::from_frame(push_, RenderLoad::kFragment, image_);
    ASSERT_TRUE(reference.ok()) << reference.error().to_string();
    EXPECT_EQ(reference->checksum().size(), 16u);
    EXPECT_TRUE(reference->matches({0, 1}, image_));
    for (const RowSet set : {RowSet{0, 7}, RowSet{6, 7}, RowSet{29, 30}}) {
        std::vector<uint8_t> pixels = rows(set);
        EXPECT_TRUE(reference->matches(set, pixels));
        pixels.back() ^= 1;
        EXPECT_FALSE(reference->matches(set, pixels));
        pixels.pop_back();
        EXPECT_FALSE(reference->matches(set, pixels)) << "too few bytes";
    }
}

TEST_F(ReferenceTest, RefusesAnImageThatTheCpuDoesNotComputeAndNamesThePixel) {
    std::vector<uint8_t> image = image_;
    image.back() = 0;  // alpha of the last pixel
    const auto reference = Reference::from_frame(push_, RenderLoad::kFragment, image);
    ASSERT_FALSE(reference.ok());
    EXPECT_NE(reference.error().text.find("39,29"), std::string::npos) << reference.error().text;
    image.pop_back();
    EXPECT_FALSE(Reference::from_frame(push_, RenderLoad::kFragment, image).ok());
}

TEST_F(ReferenceTest, ChecksumTellsImagesApart) {
    const auto one = Reference::from_frame(push_, RenderLoad::kFragment, image_);
    std::vector<uint8_t> other = image_;
    other[4 * 41] ^= 1;  // within tolerance, yet not the same image
    const auto two = Reference::from_frame(push_, RenderLoad::kFragment, other);
    ASSERT_TRUE(one.ok() && two.ok());
    EXPECT_NE(one->checksum(), two->checksum());
    EXPECT_EQ(Reference().checksum(), "");
}

TEST(RowSet, CountsRows) {
    EXPECT_EQ((RowSet{0, 1}.count(1080)), 1080u);
    EXPECT_EQ((RowSet{0, 30}.count(1080)), 36u);
    EXPECT_EQ((RowSet{29, 30}.count(1080)), 36u);
    EXPECT_EQ((RowSet{5, 30}.count(36)), 2u);
    EXPECT_EQ((RowSet{40, 30}.count(36)), 0u);
}

}  // namespace
}  // namespace vuda::bench
