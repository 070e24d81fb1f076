#include "shim/layer/frame_times.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace vuda::layer {
namespace {

struct Seen {
    uint32_t kind;
    uint64_t id, end_ns, duration_ns;
    bool operator==(const Seen&) const = default;
};
std::vector<Seen> g_seen;
std::atomic<uint64_t> g_count{0};
uint32_t g_wanted = 6;

constexpr SampleSink kSink{[](uint32_t kind) { return static_cast<int>(g_wanted >> kind & 1); },
                           [](uint32_t kind, uint64_t id, uint64_t end, uint64_t duration) {
                               g_seen.push_back({kind, id, end, duration});
                           }};

class FrameTimesTest : public testing::Test {
 protected:
    FrameTimesTest() {
        g_seen.clear();
        g_wanted = 6;
    }
    FrameTimes times_{kSink};
};

TEST_F(FrameTimesTest, FromSubmissionToFence) {
    times_.submitted(0xabc0, 1000);
    times_.submitted(0, 1500);
    times_.signalled(0xabc0, 3000);
    times_.signalled(0xabc0, 4000);
    ASSERT_EQ(g_seen.size(), 1u);
    EXPECT_EQ(g_seen[0], (Seen{kFrameSample, 1, 3000, 2000}));
}

TEST_F(FrameTimesTest, IntervalsFromSubmissionsUntilSomethingIsPresented) {
    g_wanted = 1u << kIntervalSample;
    times_.submitted(1, 1000);
    times_.submitted(2, 2000);
    times_.presented(2500);
    times_.submitted(1, 3000);
    times_.presented(4500);
    ASSERT_EQ(g_seen.size(), 2u);
    EXPECT_EQ(g_seen[0], (Seen{kIntervalSample, 2, 2000, 1000}));
    EXPECT_EQ(g_seen[1], (Seen{kIntervalSample, 3, 4500, 2000}));
}

TEST_F(FrameTimesTest, NothingIsTakenWhenNobodyListens) {
    g_wanted = 0;
    times_.submitted(1, 1000);
    times_.signalled(1, 2000);
    times_.presented(3000);
    times_.presented(4000);
    EXPECT_TRUE(g_seen.empty());
}

TEST_F(FrameTimesTest, AFenceThatLostItsPlaceIsNotReported) {
    // 1 and 1 + 64 * 16 fall on one place.
    times_.submitted(0x1000, 1000);
    times_.submitted(0x1000 + (64u << 4) * 17, 1100);
    times_.signalled(0x1000, 2000);
    for (const Seen& seen : g_seen) EXPECT_EQ(seen.kind == kFrameSample && seen.duration_ns != 1000, false);
}

TEST(FrameTimes, OneOfManyWaitersReports) {
    static constexpr SampleSink kCounting{[](uint32_t kind) { return kind == kFrameSample ? 1 : 0; },
                                          [](uint32_t, uint64_t, uint64_t, uint64_t) { g_count.fetch_add(1); }};
    FrameTimes times(kCounting);
    g_count = 0;
    for (uint64_t frame = 1; frame <= 500; ++frame) {
        times.submitted(0x5550, frame * 10);
        const auto wait = [&] { times.signalled(0x5550, frame * 10 + 5); };
        std::thread other(wait);
        wait();
        other.join();
    }
    EXPECT_EQ(g_count.load(), 500u);
}

TEST(SampleSink, IsEmptyInAProcessWithoutLibvuda) { EXPECT_FALSE(SampleSink::find()); }

}  // namespace
}  // namespace vuda::layer
