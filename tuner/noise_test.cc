// What is concluded from noisy samples: tails, fractions that will be late, and what each level brings.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tuner/level_curve.h"
#include "tuner/stream.h"

namespace vuda::tuner {
namespace {

class StreamNoiseTest : public testing::Test {
 protected:
    void start(double bound_ms) {
        stream = Stream();
        stream.set_bound(static_cast<int64_t>(1e6 * bound_ms), 0.01);
        stream.begin_transient(0);
        end = 2 * kSecond;
    }
    void add(double ms) { stream.add(end += 20 * kMs, static_cast<int64_t>(1e6 * ms)); }
    // Normal, 5 %; until the stream calls it tight, at most `most`.  How many that took; 0: it did not.
    int until_tight(double mean_ms, int most) {
        std::normal_distribution<double> noise(mean_ms, 0.05 * mean_ms);
        for (int i = 1; i <= most; ++i) {
            add(noise(random));
            if (stream.take_tight()) return i;
        }
        return 0;
    }

    Stream stream;
    TimeNs end = 0;
    std::mt19937_64 random{7};
};

TEST_F(StreamNoiseTest, OneOutlierIsNoTail) {
    start(20);
    for (int i = 0; i < 40; ++i) add(i == 20 ? 16 : 10 + 0.01 * (i % 5));
    EXPECT_LT(stream.tail_ratio(), 1.1);
}

TEST_F(StreamNoiseTest, TheTailItselfIsMeasuredOnceThereAreEnough) {
    start(20);
    std::uniform_real_distribution<double> noise(9, 11);
    for (int i = 0; i < 119; ++i) add(noise(random));
    EXPECT_EQ(stream.measured_tail(), 0);
    for (int i = 0; i < 400; ++i) add(noise(random));
    EXPECT_NEAR(stream.measured_tail(), 10.96e6, 0.05e6);
    stream.load_changed();
    EXPECT_EQ(stream.measured_tail(), 0);
}

// The clearer, the sooner; and hardly ever where all is well.
TEST_F(StreamNoiseTest, WhatWillBeLateIsSeenBeforeItIs) {
    int soon = 0, tight = 0, wrong = 0;
    constexpr int kTries = 200;
    for (int i = 0; i < kTries; ++i) {
        start(1.05 * 10);  // 16 % late
        const int clear = until_tight(10, 40);
        soon += clear > 0 ? 1 : 0;
        start(1.09 * 10);  // 3.6 % late
        tight += until_tight(10, 100) > 0 ? 1 : 0;
        start(1.16 * 10);  // 0.07 % late
        wrong += until_tight(10, 320) > 0 ? 1 : 0;
    }
    EXPECT_GE(soon, kTries * 95 / 100);
    EXPECT_GE(tight, kTries * 90 / 100);
    EXPECT_LE(wrong, kTries * 3 / 100);
}

TEST_F(StreamNoiseTest, OutliersDoNotWidenTheRest) {
    start(11.6);
    std::normal_distribution<double> noise(10, 0.4);
    for (int i = 0; i < 320; ++i) {
        add(i % 50 == 10 ? 30 : noise(random));
        ASSERT_FALSE(stream.take_tight()) << i;
    }
}

TEST(LevelCurveNoiseTest, AShortMedianIsDoubtedWhereItIsALittleOff) {
    LevelCurve curve;
    curve.reset({53, 42});
    curve.enter(0, 0, true);
    for (int i = 0; i <= 20; ++i) curve.observe(0, 50, i * 100 * kMs);
    EXPECT_FALSE(curve.doubtful(0, 51)) << "moves nothing anyway";
    EXPECT_TRUE(curve.doubtful(0, 47));
    EXPECT_TRUE(curve.doubtful(0, 53));
    EXPECT_FALSE(curve.doubtful(0, 40)) << "no noise is as large";
    EXPECT_FALSE(curve.doubtful(1, 47));
}

// A burst that ends while the shape of the level it has led to is being learned.
TEST(LevelCurveNoiseTest, ABurstThatEndsIsNotLearned) {
    LevelCurve curve;
    curve.reset({53, 42});
    curve.enter(1, 0, true);
    for (int i = 0; i <= 20; ++i) curve.observe(1, 42, i * 100 * kMs);
    curve.observe_miss(1, 30, 3 * kSecond);
    curve.enter(0, 3 * kSecond);
    curve.observe(0, 35, 3 * kSecond + 200 * kMs);
    curve.observe(0, 35, 3 * kSecond + 300 * kMs);
    EXPECT_NEAR(curve.at(1, 3 * kSecond).speed, 30, 0.5);
    for (int i = 4; i < 20; ++i) curve.observe(0, 49, 3 * kSecond + i * 100 * kMs);
    EXPECT_NEAR(curve.at(1, 5 * kSecond).speed, 42, 0.5) << "the load is as before";
}

// What all() keeps is what at() says, whatever was learned in between.
TEST(LevelCurveNoiseTest, AllLevelsAreAsEachByItself) {
    std::mt19937_64 random(5);
    for (int round = 0; round < 60; ++round) {
        LevelCurve curve;
        const size_t count = 1 + random() % 40;
        std::vector<double> capacity;
        for (size_t i = 0; i < count; ++i) capacity.push_back(static_cast<double>(round % 2 == 0 ? i + 1 : count - i));
        curve.reset(capacity);
        TimeNs now = 0;
        for (int step = 0; step < 200; ++step) {
            now += static_cast<TimeNs>(random() % 20 == 0 ? 200'000 : random() % 300) * kMs;
            const size_t level = random() % count;
            const double speed = std::uniform_real_distribution<double>(0.5, 2)(random) * capacity[level];
            switch (random() % 4) {
                case 0: curve.enter(level, now, random() % 2 == 0); break;
                case 1: curve.observe_miss(level, speed, now); break;
                default: curve.observe(level, speed, now); break;
            }
            if (random() % 3 != 0) continue;
            const Estimates& all = curve.all(now);
            double best = 0;
            for (size_t i = 0; i < count; ++i) {
                const Estimate one = curve.at(i, now);
                ASSERT_NEAR(all.speed[i] * curve.factor(), one.speed, 1e-9 * one.speed) << i;
                ASSERT_EQ(all.knowledge[i], one.knowledge) << "round " << round << " step " << step << " level " << i;
                if (curve.known(i)) best = std::max(best, one.speed);
            }
            ASSERT_NEAR(curve.best_known(), best, 1e-9 * best);
        }
    }
}

}  // namespace
}  // namespace vuda::tuner
