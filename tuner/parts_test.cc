// The tuner's parts, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tuner/histogram.h"
#include "tuner/level_curve.h"
#include "tuner/miss_detector.h"
#include "tuner/rate_meter.h"
#include "tuner/shares.h"
#include "tuner/stream.h"
#include "tuner/window.h"

namespace vuda::tuner {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(TargetsTest, SayWhichFieldIsWrong) {
    EXPECT_TRUE((GraphicsTarget{16.67, 0.01}.validate()));
    EXPECT_TRUE((GraphicsTarget{}.validate()));
    for (const double bad : {-16.67, kNan, kInf, -kInf, 0.05, 60'001.0, 1e300}) {
        const Status status = GraphicsTarget{bad, 0.01}.validate();
        ASSERT_FALSE(status) << bad;
        EXPECT_EQ(status.error().code, Code::kInvalidArgument);
        EXPECT_THAT(status.error().text, testing::HasSubstr("frame_ms"));
    }
    for (const double bad : {-0.1, 1.0, 2.0, kNan, kInf}) {
        const Status status = GraphicsTarget{16.67, bad}.validate();
        ASSERT_FALSE(status) << bad;
        EXPECT_THAT(status.error().text, testing::HasSubstr("frame_miss"));
    }
    EXPECT_FALSE((GraphicsTarget{0, 0.01}.validate())) << "a miss fraction of nothing";
    EXPECT_TRUE((ComputeTarget{33.3, 0.01, 500}.validate()));
    EXPECT_TRUE((ComputeTarget{0, 0, 500}.validate()));
    EXPECT_FALSE((ComputeTarget{-1, 0, 0}.validate()));
    EXPECT_FALSE((ComputeTarget{0, 0.5, 100}.validate()));
    EXPECT_FALSE((ComputeTarget{33, 0, -1}.validate()));
    EXPECT_FALSE((ComputeTarget{33, 0, kNan}.validate()));
    EXPECT_FALSE((ComputeTarget{33, 0, 1e10}.validate()));
    for (const double bad : {0.0, -1.0, kNan, kInf, 1001.0}) EXPECT_FALSE(validate_weight(bad)) << bad;
    EXPECT_TRUE(validate_weight(1));
}

TEST(LadderTest, MustAscendWithinTheGpu) {
    EXPECT_TRUE((Ladder{{11, 22}, 64}.validate()));
    EXPECT_TRUE((Ladder{{5}, 0}.validate()));
    EXPECT_FALSE((Ladder{{}, 64}.validate()));
    EXPECT_FALSE((Ladder{{0, 11}, 64}.validate()));
    EXPECT_FALSE((Ladder{{11, 11}, 64}.validate()));
    EXPECT_FALSE((Ladder{{22, 11}, 64}.validate()));
    EXPECT_FALSE((Ladder{{11, 65}, 64}.validate()));
    EXPECT_FALSE((Ladder{{11}, 100'000}.validate()));
    Ladder longest;
    for (uint32_t i = 1; i <= kMaxLevels + 1; ++i) longest.tpcs.push_back(i);
    EXPECT_FALSE(longest.validate());
}

TEST(LogHistogramTest, PercentilesWithinABin) {
    LogHistogram histogram;
    for (int i = 1; i <= 1000; ++i) histogram.add(LogHistogram::bin_of(i * 100'000));
    EXPECT_EQ(histogram.count(), 1000u);
    for (const double share : {0.01, 0.25, 0.5, 0.9, 0.99, 1.0})
        EXPECT_NEAR(histogram.quantile(share), share * 1e8, 0.01 * share * 1e8) << share;
    EXPECT_EQ(LogHistogram().quantile(0.5), 0);
}

TEST(LogHistogramTest, BinsCoverEverythingInOrder) {
    size_t before = 0;
    for (double ns = 1; ns < 1e19; ns *= 1.01) {
        const auto value = ns < 9.2e18 ? static_cast<int64_t>(ns) : INT64_MAX;
        const size_t bin = LogHistogram::bin_of(value);
        ASSERT_LT(bin, LogHistogram::kBins);
        ASSERT_GE(bin, before);
        if (bin > 0 && bin < LogHistogram::kBins - 1) {
            ASSERT_LE(value, LogHistogram::end_of(bin));
            ASSERT_GE(value, LogHistogram::end_of(bin - 1));
        }
        before = bin;
    }
    EXPECT_EQ(LogHistogram::bin_of(-5), 0u);
    EXPECT_EQ(LogHistogram::bin_of(0), 0u);
}

TEST(LogHistogramTest, TakesOutWhatWasAdded) {
    LogHistogram sum, part;
    sum.add(100, 7);
    part.add(100, 5);
    part.add(200, 3);
    for (const size_t bin : {100, 200}) sum.add(bin, bin == 100 ? 5 : 3);
    sum.subtract(part);
    EXPECT_EQ(sum.count(), 7u);
    EXPECT_DOUBLE_EQ(sum.quantile(0.5), LogHistogram::middle_of(100));
    // A slot that is full must not wrap.
    sum.add(100, UINT32_MAX);
    sum.add(100, UINT32_MAX);
    EXPECT_EQ(sum.count(), UINT32_MAX);
}

TEST(SlidingWindowTest, ForgetsWhatIsOlderThanTenSeconds) {
    SlidingWindow window;
    window.set_bound(10 * kMs);
    for (int i = 0; i < 100; ++i) window.add(i * 100 * kMs, i < 50 ? 20 * kMs : 5 * kMs);
    EXPECT_EQ(window.count(), 100u);
    EXPECT_EQ(window.over(), 50u);
    window.advance(14 * kSecond);
    EXPECT_EQ(window.count(), 50u);
    EXPECT_EQ(window.over(), 0u);
    window.add(3 * kSecond, kMs);  // too late
    EXPECT_EQ(window.count(), 50u);
    window.advance(INT64_MAX / 2);
    EXPECT_EQ(window.count(), 0u);
    SlidingWindow shifted(400 * kMs);
    shifted.add(0, kMs);
    shifted.advance(9599 * kMs);
    EXPECT_EQ(shifted.count(), 1u);
    shifted.advance(9600 * kMs);
    EXPECT_EQ(shifted.count(), 0u);
}

TEST(SlidingWindowTest, AnotherBoundCountsAnew) {
    SlidingWindow window;
    for (int i = 0; i < 10; ++i) window.add(0, (i + 1) * 10 * kMs);
    window.set_bound(55 * kMs);
    EXPECT_EQ(window.over(), 5u);
    window.set_bound(0);
    EXPECT_EQ(window.over(), 0u);
}

TEST(MissDetectorTest, ThreeInARowAreEnoughAndOneIsNot) {
    MissDetector detector;
    detector.set_allowed(0.01);
    for (int i = 0; i < 100'000; ++i) detector.add(false, false);
    detector.add(true, false);
    detector.add(true, false);
    EXPECT_FALSE(detector.alarm());
    EXPECT_TRUE(detector.uneasy());
    detector.add(true, false);
    EXPECT_TRUE(detector.alarm()) << "a long good past must not delay it";
    EXPECT_EQ(detector.misses(), 3u);
    EXPECT_EQ(detector.samples(), 3u);
    detector.reset();
    detector.add(true, true);
    detector.add(true, true);
    EXPECT_TRUE(detector.alarm()) << "very late ones count twice";
}

// What is allowed raises next to no alarms, twice of it does soon.
TEST(MissDetectorTest, TellsTheAllowedFractionFromTwiceOfIt) {
    for (const double allowed : {0.01, 0.05, 0.2}) {
        const auto alarms = [&](double fraction) {
            std::mt19937_64 random(7);
            std::bernoulli_distribution late(fraction);
            MissDetector detector;
            detector.set_allowed(allowed);
            int count = 0;
            for (int i = 0; i < 200'000; ++i) {
                detector.add(late(random), false);
                if (!detector.alarm()) continue;
                ++count;
                detector.reset();
            }
            return count;
        };
        EXPECT_LE(alarms(0.5 * allowed), 3) << allowed;
        EXPECT_GE(alarms(2.5 * allowed), 100) << allowed;
    }
}

TEST(MissDetectorTest, ExtremeFractionsStayFinite) {
    for (const double allowed : {0.0, 1e-12, 0.5, 0.95, 0.999999}) {
        MissDetector detector;
        detector.set_allowed(allowed);
        for (int i = 0; i < 1000; ++i) detector.add(i % 3 == 0, i % 7 == 0);
        detector.reset();
        for (int i = 0; i < 10'000; ++i) detector.add(true, false);
        EXPECT_TRUE(detector.alarm()) << allowed;
    }
}

TEST(RateMeterTest, CountsStepsASecond) {
    RateMeter meter;
    for (int i = 0; i < 400; ++i) meter.add(i * 10 * kMs, 1);
    EXPECT_NEAR(meter.measure(4 * kSecond, kSecond).per_second, 100, 1);
    EXPECT_NEAR(meter.measure(4 * kSecond, 100 * kSecond).per_second, 100, 1);
    EXPECT_LT(meter.measure(5 * kSecond, kSecond).per_second, 8) << "the stream stopped";
    meter.restart(6 * kSecond);
    EXPECT_EQ(meter.measure(7 * kSecond, kSecond).count, 0);
    meter.add(INT64_MAX / 4, UINT64_MAX);
    EXPECT_TRUE(std::isfinite(meter.measure(INT64_MAX / 4 + kSecond, kSecond).per_second));
}

TEST(StreamTest, LeavesTheTransientOfAChangeOut) {
    Stream stream;
    stream.set_bound(10 * kMs, 0.01);
    for (int i = 1; i <= 50; ++i) stream.add(i * 10 * kMs, 9 * kMs);
    stream.begin_transient(500 * kMs);
    // Begun before the change, so the old level's fault.
    for (int i = 0; i < 5; ++i) stream.add(510 * kMs + i * kMs, 30 * kMs);
    EXPECT_EQ(stream.settled_count(), 0u);
    EXPECT_FALSE(stream.detector().alarm());
    EXPECT_EQ(stream.window().over(), 5u) << "the window hides nothing";
    for (int i = 0; i < 5; ++i) stream.add(560 * kMs + i * 10 * kMs, 9 * kMs);
    EXPECT_EQ(stream.settled_count(), 5u);
    EXPECT_NEAR(stream.recent_median(), 9 * kMs, 1);
}

TEST(StreamTest, AQueueThatDrainsIsNoMiss) {
    Stream stream;
    stream.set_bound(10 * kMs, 0.01);
    stream.begin_transient(0);
    TimeNs end = 100 * kMs;
    for (double ms = 60; ms > 10; ms *= 0.9) stream.add(end += 10 * kMs, static_cast<int64_t>(ms * 1e6));
    EXPECT_FALSE(stream.detector().alarm());
    for (int i = 0; i < 3; ++i) stream.add(end += 10 * kMs, 15 * kMs);
    EXPECT_TRUE(stream.detector().alarm());
}

TEST(StreamTest, AQueueThatNeverDrainsIsOne) {
    Stream stream;
    stream.set_bound(10 * kMs, 0.01);
    stream.begin_transient(0);
    // Released long before the change and later and later.
    for (int i = 0; i < 100; ++i) stream.add(i * 20 * kMs, 2 * kSecond + i * 5 * kMs);
    EXPECT_TRUE(stream.detector().alarm());
}

TEST(LevelCurveTest, InterpolatesAndFollowsTheLoad) {
    LevelCurve curve;
    curve.reset({53, 42, 31, 20, 11});
    EXPECT_EQ(curve.at(2, 0).knowledge, Knowledge::kNone);
    curve.enter(4, 0);
    for (int i = 0; i <= 10; ++i) curve.observe(4, 11, i * 100 * kMs);
    EXPECT_EQ(curve.at(3, kSecond).knowledge, Knowledge::kGuess);
    EXPECT_NEAR(curve.at(3, kSecond).speed, 20, 1e-9) << "in proportion";
    curve.enter(0, kSecond, true);
    for (int i = 10; i <= 20; ++i) curve.observe(0, 95, i * 100 * kMs);
    EXPECT_EQ(curve.at(2, 2 * kSecond).knowledge, Knowledge::kInterpolated);
    EXPECT_NEAR(curve.at(2, 2 * kSecond).speed, 11 + (95 - 11) * 20.0 / 42, 1e-9);
    // Twice the load: all levels slower by the same factor.
    curve.observe(0, 47.5, 3 * kSecond);
    EXPECT_NEAR(curve.at(4, 3 * kSecond).speed, 5.5, 1e-9);
    EXPECT_NEAR(curve.at(0, 3 * kSecond).speed, 47.5, 1e-9);
    // Noise moves nothing.
    curve.observe(0, 48, 4 * kSecond);
    EXPECT_NEAR(curve.at(4, 4 * kSecond).speed, 5.5, 1e-9);
    EXPECT_EQ(curve.at(4, 4 * kSecond + LevelCurve::kStaleAfter).knowledge, Knowledge::kStale);
    for (const double bad : {0.0, -1.0, kNan, kInf}) curve.observe(0, bad, 5 * kSecond);
    EXPECT_NEAR(curve.at(0, 5 * kSecond).speed, 47.5, 1e-9);
}

TEST(LevelCurveTest, ABurstDoesNotSpoilWhatIsLearnedAfterIt) {
    LevelCurve curve;
    curve.reset({53, 42});
    curve.enter(1, 0);
    for (int i = 0; i <= 20; ++i) curve.observe(1, 42, i * 100 * kMs);
    curve.observe_miss(1, 30, 3 * kSecond);  // a burst
    curve.enter(0, 3 * kSecond);
    curve.observe(0, 45, 3 * kSecond + 200 * kMs);  // over already
    EXPECT_NEAR(curve.at(1, 4 * kSecond).speed, 42, 0.5);
}

TEST(SharesTest, WholeTpcsByWeight) {
    std::vector<SessionShare> shares;
    divide(11, {{1, 2, true}, {2, 1, true}, {3, 1, false}}, shares);
    ASSERT_EQ(shares.size(), 3u);
    EXPECT_EQ(shares[0].tpcs, 7u);
    EXPECT_EQ(shares[1].tpcs, 4u);
    EXPECT_EQ(shares[1].first_tpc, 7u);
    EXPECT_EQ(shares[2].tpcs, 11u) << "an idle process may use all";
    EXPECT_NEAR(shares[0].share, 2.0 / 3, 1e-12);
}

TEST(SharesTest, SumsToTheLevelWhateverTheWeights) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 2000; ++round) {
        const auto level = static_cast<uint32_t>(1 + random() % 66);
        std::vector<Claim> claims;
        const size_t count = 1 + random() % kMaxSessions;
        uint32_t counted = 0;
        for (size_t i = 0; i < count; ++i) {
            claims.push_back(
                {i + 1, std::pow(10.0, std::uniform_real_distribution<double>(-3, 3)(random)), random() % 4 != 0});
            counted += claims.back().counted;
        }
        std::vector<SessionShare> shares;
        divide(level, claims, shares);
        ASSERT_EQ(shares.size(), count);
        uint32_t sum = 0;
        double fractions = 0;
        for (const SessionShare& share : shares) {
            ASSERT_GE(share.tpcs, 1u);
            ASSERT_LE(share.tpcs, level);
            ASSERT_LT(share.first_tpc, level);
            if (!share.counted) continue;
            sum += share.tpcs;
            fractions += share.share;
        }
        if (counted == 0) continue;
        ASSERT_EQ(sum, std::max(level, counted));
        ASSERT_NEAR(fractions, 1, 1e-9);
    }
}

}  // namespace
}  // namespace vuda::tuner
