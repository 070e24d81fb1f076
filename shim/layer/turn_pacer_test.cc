#include "shim/layer/turn_pacer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vuda::layer {
namespace {

using Terms = TurnPacer::Terms;
constexpr uint64_t kMs = 1'000'000;

// Frames that take `gpu` each and are ready again at once: when each of them began.
std::vector<uint64_t> run_free(TurnPacer& pacer, const Terms& terms, uint64_t gpu, int frames, uint64_t now = 1000) {
    std::vector<uint64_t> begins;
    for (int i = 0; i < frames; ++i) {
        now = pacer.release_ns(terms, now);
        pacer.began(terms, now);
        begins.push_back(now);
        now += gpu;
        pacer.worked(gpu);
    }
    return begins;
}

double rate(const std::vector<uint64_t>& begins) {
    return static_cast<double>(begins.size() - 1) * 1e9 / static_cast<double>(begins.back() - begins.front());
}

TEST(TurnPacer, WithoutTermsNothingIsHeld) {
    TurnPacer pacer;
    EXPECT_NEAR(rate(run_free(pacer, {}, 10 * kMs, 100)), 100, 0.1);
    for (const uint32_t nonsense : {0u, 1000u, 4'000'000u}) {
        EXPECT_EQ(pacer.period_ns({nonsense, 0}), 0u) << nonsense;
    }
}

TEST(TurnPacer, AFrameTargetIsMetAndNotMore) {
    TurnPacer pacer;
    const Terms terms{0, 16'670'000};
    const std::vector<uint64_t> begins = run_free(pacer, terms, 10 * kMs, 600);
    for (size_t i = 2; i < begins.size(); ++i) {
        EXPECT_LE(begins[i] - begins[i - 1], terms.frame_ns);
        EXPECT_GE(begins[i] - begins[i - 1], terms.frame_ns * 98 / 100);
    }
}

TEST(TurnPacer, ASlowRendererIsNotHeld) {
    TurnPacer pacer;
    EXPECT_NEAR(rate(run_free(pacer, {0, 5 * kMs}, 10 * kMs, 100)), 100, 0.1);
    EXPECT_NEAR(rate(run_free(pacer, {990, 0}, 10 * kMs, 100)), 99, 0.5);
}

TEST(TurnPacer, ARendererThatPacesItselfIsNotHeld) {
    TurnPacer pacer;
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> jitter(-0.8e6, 0.8e6);
    const Terms terms{0, 16'670'000};
    uint64_t held = 0;
    for (int i = 1; i < 5000; ++i) {
        const auto ready = static_cast<uint64_t>(i * 16.67e6 + jitter(random));
        const uint64_t begins = pacer.release_ns(terms, ready);
        pacer.began(terms, begins);
        held += begins - ready;
    }
    EXPECT_EQ(held, 0u);
}

TEST(TurnPacer, SharesAreWhatWasAsked) {
    for (const uint32_t permille : {200u, 350u, 500u, 650u, 800u}) {
        TurnPacer pacer;
        const double got = rate(run_free(pacer, {permille, 0}, 10 * kMs, 400)) * 0.010;
        EXPECT_NEAR(got, permille / 1000.0, 0.01) << permille;
    }
}

TEST(TurnPacer, WhicheverLetsTheFrameGoEarlier) {
    TurnPacer pacer;
    run_free(pacer, {}, 10 * kMs, 20);
    EXPECT_EQ(pacer.period_ns({250, 0}), 40 * kMs);
    EXPECT_EQ(pacer.period_ns({250, 20 * kMs}), 20 * kMs * 99 / 100);
    EXPECT_EQ(pacer.period_ns({800, 20 * kMs}), 12'500'000u);
}

TEST(TurnPacer, TimesThatComeLateAndInPiecesAddUp) {
    TurnPacer pacer;
    // Two submissions a frame; they become known two frames later, or with the next frame's.
    for (int frame = 0; frame < 32; ++frame) {
        if (frame >= 2 && frame % 3 != 0) pacer.worked(4 * kMs), pacer.worked(6 * kMs);
        if (frame >= 2 && frame % 3 == 1) pacer.worked(4 * kMs), pacer.worked(6 * kMs);
        pacer.began({}, static_cast<uint64_t>(frame + 1) * 20 * kMs);
    }
    EXPECT_EQ(pacer.period_ns({500, 0}), 20 * kMs);
}

TEST(TurnPacer, AFrameThatWaitedForComputeIsNoMeasure) {
    TurnPacer pacer;
    for (int frame = 1; frame < 40; ++frame) {
        pacer.worked(frame % 3 == 0 ? 10 * kMs : 12 * kMs);
        pacer.began({}, static_cast<uint64_t>(frame) * 20 * kMs);
    }
    EXPECT_EQ(pacer.period_ns({500, 0}), 20 * kMs);
}

TEST(TurnPacer, AShareWaitsUntilFramesAreKnown) {
    TurnPacer pacer;
    EXPECT_EQ(pacer.period_ns({500, 0}), 0u);
    for (int frame = 1; frame <= 10; ++frame) pacer.began({500, 0}, static_cast<uint64_t>(frame) * kMs);
    EXPECT_EQ(pacer.period_ns({500, 0}), 0u) << "nothing is known of any of them";
    for (int frame = 1; frame <= 4; ++frame) {
        EXPECT_EQ(pacer.period_ns({500, 0}), 0u);
        pacer.worked(kMs);
        pacer.began({500, 0}, 100 * kMs + static_cast<uint64_t>(frame) * kMs);
    }
    EXPECT_EQ(pacer.period_ns({500, 0}), 2 * kMs);
}

TEST(TurnPacer, ANewSceneIsFollowed) {
    TurnPacer pacer;
    run_free(pacer, {500, 0}, 10 * kMs, 50);
    run_free(pacer, {500, 0}, 2 * kMs, 20, 1'000'000 * kMs);
    EXPECT_EQ(pacer.period_ns({500, 0}), 4 * kMs);
}

TEST(TurnPacer, LongTermsThatEndedHoldNobody) {
    TurnPacer pacer;
    run_free(pacer, {}, 10 * kMs, 20);
    const uint64_t now = 5'000 * kMs;
    pacer.began({10, 0}, now);  // a second
    EXPECT_LE(pacer.release_ns({0, 10 * kMs}, now + kMs), now + 11 * kMs);
    pacer.began({0, 10 * kMs}, now + 12 * kMs);
    EXPECT_LE(pacer.release_ns({0, 10 * kMs}, now + 12 * kMs), now + 23 * kMs);
}

TEST(TurnPacer, WhateverIsAskedNoFrameWaitsLongerThanItsPeriodOrASecond) {
    TurnPacer pacer;
    std::mt19937_64 random(11);
    uint64_t now = 1;
    for (int i = 0; i < 20'000; ++i) {
        const Terms terms{static_cast<uint32_t>(random() % 1100), random() % 3 == 0 ? random() >> (random() % 64) : 0};
        const uint64_t release = pacer.release_ns(terms, now);
        ASSERT_GE(release, now);
        ASSERT_LE(release - now, std::min(pacer.period_ns(terms), TurnPacer::kLongestNs));
        pacer.began(terms, release);
        pacer.worked(random() >> (random() % 64));
        now = release + random() % (30 * kMs);
        if (random() % 50 == 0 && now > 100 * kMs) now -= 100 * kMs;  // a clock that no clock may be
    }
}

TEST(TurnPacer, ATimesliceHoldsAFrameAndAQuarterMore) {
    const Terms terms{0, 20 * kMs};
    for (const uint64_t gpu_us : {100u, 700u, 1500u, 6000u, 10'000u, 12'500u, 13'000u, 19'000u}) {
        TurnPacer pacer;
        EXPECT_EQ(pacer.slice_us(terms), 0u) << "nothing is known";
        run_free(pacer, terms, gpu_us * 1000, 20);
        const uint32_t slice = pacer.slice_us(terms);
        EXPECT_GE(slice, gpu_us + gpu_us / 4);
        EXPECT_LT(slice, std::max(1001u, static_cast<uint32_t>(2 * (gpu_us + gpu_us / 4))));
        EXPECT_EQ(slice % 1000, 0u);
    }
}

TEST(TurnPacer, WhoHasNoTimeToSpareKeepsItsTimeslice) {
    TurnPacer pacer;
    run_free(pacer, {0, 20 * kMs}, 10 * kMs, 20);
    EXPECT_NE(pacer.slice_us({0, 20 * kMs}), 0u);
    EXPECT_EQ(pacer.slice_us({0, 9 * kMs}), 0u);
    EXPECT_EQ(pacer.slice_us({}), 0u) << "no terms";
    EXPECT_NE(pacer.slice_us({500, 0}), 0u) << "a share leaves some always";
}

// Frames that change a little around a power of two would change it each time.
TEST(TurnPacer, ATimesliceThatIsRightStays) {
    TurnPacer pacer;
    const Terms terms{0, 40 * kMs};
    run_free(pacer, terms, 13 * kMs, 20);
    EXPECT_EQ(pacer.slice_us(terms), 32'000u);
    run_free(pacer, terms, 12 * kMs, 20);
    EXPECT_EQ(pacer.slice_us(terms), 32'000u);
    run_free(pacer, terms, 1 * kMs, 20);
    EXPECT_EQ(pacer.slice_us(terms), 2'000u) << "far too long for the frames of now";
    run_free(pacer, terms, 13 * kMs, 20);
    EXPECT_EQ(pacer.slice_us(terms), 32'000u);
}

TEST(TurnPacer, AfterAPauseFramesDoNotCatchUp) {
    TurnPacer pacer;
    const Terms terms{0, 10 * kMs};
    run_free(pacer, terms, kMs, 10);
    const std::vector<uint64_t> begins = run_free(pacer, terms, kMs, 10, 10'000 * kMs);
    for (size_t i = 2; i < begins.size(); ++i) EXPECT_GE(begins[i] - begins[i - 1], 9 * kMs);
}

}  // namespace
}  // namespace vuda::layer
