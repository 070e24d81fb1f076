// Bursts of load: what is learned of them, and when that is not enough to wait.
#include "tuner/bursts.h"

#include <gtest/gtest.h>

namespace vuda::tuner {
namespace {

constexpr double kUsual = 1.0, kHeavy = 1.4;  // work of a sample
constexpr double kBoundLow = 2.0;             // no sample is as long
constexpr double kBound = 1.2;                // the samples of a burst are
constexpr TimeNs kFrame = 16 * kMs;

class BurstsTest : public testing::Test {
 protected:
    void SetUp() override { bursts.set_allowed(0.01); }
    // Samples of this much work for so long, of which the tuner takes note every 100 ms.
    void run(double work, TimeNs length) {
        for (const TimeNs end = now + length; now < end; now += kFrame) {
            bursts.add(work);
            if (now - observed < 100 * kMs) continue;
            observed = now;
            bursts.observe(1 / work, now);
        }
    }
    void burst(TimeNs length = 300 * kMs) { run(kHeavy, length); }

    Bursts bursts;
    TimeNs now = 0, observed = -kSecond;
};

TEST_F(BurstsTest, WaitsOnlyAfterOneHasPassed) {
    run(kUsual, 30 * kSecond);
    EXPECT_FALSE(bursts.wait(kBoundLow, now)) << "nothing is known of bursts";
    burst();
    EXPECT_FALSE(bursts.wait(kBoundLow, now)) << "nor whether this one passes";
    run(kUsual, 5 * kSecond);
    EXPECT_TRUE(bursts.wait(kBoundLow, now));
}

TEST_F(BurstsTest, DoesNotWaitForever) {
    run(kUsual, 5 * kSecond);
    burst();
    run(kUsual, 5 * kSecond);
    ASSERT_TRUE(bursts.wait(kBoundLow, now));
    run(kHeavy, 600 * kMs);
    EXPECT_TRUE(bursts.wait(kBoundLow, now));
    run(kHeavy, 200 * kMs);
    EXPECT_FALSE(bursts.wait(kBoundLow, now));
    // A load that stays unlearns it.
    run(kHeavy, 5 * kSecond);
    EXPECT_FALSE(bursts.wait(kBoundLow, now));
}

TEST_F(BurstsTest, WaitsWhereTheTargetAffordsIt) {
    run(kUsual, 20 * kSecond);
    for (int i = 0; i < 6; ++i) {
        burst();
        run(kUsual, 5 * kSecond);
    }
    EXPECT_TRUE(bursts.wait(kBoundLow, now));
    EXPECT_FALSE(bursts.wait(kBound, now)) << "6 % of the samples are late there";
    EXPECT_FALSE(bursts.affords(kBound, 1));
    EXPECT_TRUE(bursts.affords(kBoundLow, 1));
}

// Late samples that come without a burst are no reason to wait for the end of one again and again.
TEST_F(BurstsTest, AnAlarmWithoutABurstUnlearns) {
    run(kUsual, 5 * kSecond);
    burst();
    run(kUsual, 20 * kSecond);
    ASSERT_TRUE(bursts.wait(kBoundLow, now));
    run(kUsual, 3 * kSecond);
    EXPECT_FALSE(bursts.wait(kBoundLow, now));
}

TEST_F(BurstsTest, ALoadThatSwingsIsKnownAfterTwo) {
    run(kUsual, 5 * kSecond);
    burst(2500 * kMs);
    run(kUsual, 2500 * kMs);
    EXPECT_TRUE(bursts.affords(kBound, 1)) << "one may be all there is";
    burst(2500 * kMs);
    run(kUsual, 2500 * kMs);
    EXPECT_FALSE(bursts.affords(kBound, 1));
    EXPECT_FALSE(bursts.wait(kBoundLow, now)) << "too long to wait for the end";
}

TEST_F(BurstsTest, NoiseIsNoBurst) {
    run(kUsual, 5 * kSecond);
    for (int i = 0; i < 20; ++i) {
        run(1.12, 200 * kMs);
        run(kUsual, kSecond);
    }
    EXPECT_FALSE(bursts.wait(kBoundLow, now));
}

TEST_F(BurstsTest, AbsurdWorkIsSurvived) {
    for (const double work : {0.0, -1.0, 1e-300, 1e300, 1e18}) bursts.add(work);
    bursts.observe(1e300, 0);
    bursts.observe(1e-300, kSecond);
    EXPECT_FALSE(bursts.wait(1e300, kSecond));
    EXPECT_TRUE(bursts.affords(0, 1));
}

}  // namespace
}  // namespace vuda::tuner
