#include "bench/compute/holes.h"

#include <gtest/gtest.h>

namespace vuda::bench {
namespace {

constexpr uint64_t kStart = 1'700'000'000'000'000'000;  // what the clock of a GPU says is a date
constexpr uint64_t kGap = 8'000;
constexpr uint64_t kKernel = 190'000;

class HolesTest : public ::testing::Test {
 protected:
    // One more launch, which comes so much later and takes so much longer.
    void launch(uint64_t later_ns = 0, uint64_t longer_ns = 0) {
        now_ += later_ns + (launches_.empty() ? 0 : kGap);
        const uint64_t begin = now_;
        now_ += kKernel + longer_ns;
        launches_.push_back({begin, now_});
    }
    void launch_plainly(int count) {
        for (int i = 0; i < count; ++i) launch();
    }

    uint64_t now_ = kStart;
    std::vector<LaunchTime> launches_;
};

TEST_F(HolesTest, NothingHasNone) {
    EXPECT_EQ(find_holes({}).launches, 0u);
    launch();
    const Holes one = find_holes(launches_);
    EXPECT_EQ(one.launches, 1u);
    EXPECT_DOUBLE_EQ(one.ms, 0.19);
    EXPECT_TRUE(one.holes.empty());
}

TEST_F(HolesTest, OneGapIsAsUsual) {
    launch();
    launch(300'000);
    EXPECT_DOUBLE_EQ(find_holes(launches_).usual_gap_ms, 0.308);
    EXPECT_TRUE(find_holes(launches_).holes.empty());
}

TEST_F(HolesTest, BetweenLaunches) {
    launch_plainly(10);
    launch(10'300'000);
    launch(300'000);
    launch_plainly(10);
    const Holes found = find_holes(launches_);
    EXPECT_EQ(found.launches, 22u);
    EXPECT_DOUBLE_EQ(found.usual_gap_ms, 0.008);
    EXPECT_DOUBLE_EQ(found.usual_kernel_ms, 0.19);
    EXPECT_DOUBLE_EQ(found.ms, 22 * 0.19 + 21 * 0.008 + 10.6);
    ASSERT_EQ(found.holes.size(), 2u);
    EXPECT_DOUBLE_EQ(found.holes[0].begin_ms, 10 * 0.19 + 9 * 0.008);
    EXPECT_DOUBLE_EQ(found.holes[0].ms, 10.308) << "the whole gap";
    EXPECT_DOUBLE_EQ(found.holes[1].begin_ms, found.holes[0].begin_ms + 10.308 + 0.19);
    EXPECT_DOUBLE_EQ(found.holes[1].ms, 0.308);
}

TEST_F(HolesTest, InTheMidstOfALaunch) {
    launch_plainly(10);
    launch(0, 10'300'000);
    launch_plainly(10);
    const Holes found = find_holes(launches_);
    ASSERT_EQ(found.holes.size(), 1u);
    EXPECT_DOUBLE_EQ(found.holes[0].begin_ms, 10 * (0.19 + 0.008));
    EXPECT_DOUBLE_EQ(found.holes[0].ms, 10.3);
}

TEST_F(HolesTest, ALittleLongerThanUsualIsNone) {
    launch_plainly(10);
    launch(49'000, 49'000);
    EXPECT_TRUE(find_holes(launches_).holes.empty());
    launch(51'000);
    launch(0, 51'000);
    EXPECT_EQ(find_holes(launches_).holes.size(), 2u);
}

TEST_F(HolesTest, OfLongLaunchesATenthIsALittle) {
    for (int i = 0; i < 10; ++i) launch(0, 9'810'000);  // 10 ms
    launch(0, 10'800'000);
    EXPECT_TRUE(find_holes(launches_).holes.empty());
    launch(0, 10'820'000);
    EXPECT_EQ(find_holes(launches_).holes.size(), 1u);
}

TEST_F(HolesTest, HolesOfMostLaunchesAreHoles) {
    for (int i = 0; i < 10; ++i) {
        launch();
        launch(300'000);
        launch(300'000);
    }
    const Holes found = find_holes(launches_);
    EXPECT_DOUBLE_EQ(found.usual_gap_ms, 0.008);
    EXPECT_EQ(found.holes.size(), 20u);
}

TEST_F(HolesTest, ALaunchThatBeginsAStepOfTheClockEarly) {
    launch_plainly(4);
    launches_[2].begin_ns = launches_[1].end_ns - 32;
    EXPECT_TRUE(find_holes(launches_).holes.empty());
}

TEST_F(HolesTest, NoMoreThanThat) {
    launch_plainly(30);
    for (int i = 0; i < 10; ++i) launch(300'000, 300'000);
    const Holes found = find_holes(launches_, 5);
    ASSERT_EQ(found.holes.size(), 5u);
    EXPECT_EQ(found.launches, 33u) << "what comes behind the last one was not looked at";
    EXPECT_DOUBLE_EQ(found.ms, static_cast<double>(launches_[32].end_ns - kStart) / 1e6);
    EXPECT_EQ(find_holes(launches_).holes.size(), 20u);
}

}  // namespace
}  // namespace vuda::bench
