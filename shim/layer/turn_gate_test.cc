#include "shim/layer/turn_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/monotonic.h"

namespace vuda::layer {
namespace {

constexpr uint64_t kMs = 1'000'000;

std::atomic<bool> g_sliced{false};
std::atomic<uint32_t> g_permille{0};
std::atomic<uint64_t> g_frame_ns{0};
std::atomic<int> g_asked{0};
std::vector<uint32_t> g_slices;
std::atomic<bool> g_slice_busy{false};

constexpr TurnSource kSource{[](uint32_t* permille, uint64_t* frame_ns) {
                                 ++g_asked;
                                 *permille = g_permille;
                                 *frame_ns = g_frame_ns;
                                 return g_sliced ? 1 : 0;
                             },
                             [](uint32_t us) {
                                 g_slices.push_back(us);
                                 return g_slice_busy ? 0 : 1;
                             }};

VkQueue queue_at(uintptr_t address) { return reinterpret_cast<VkQueue>(address); }

class TurnGateTest : public testing::Test {
 protected:
    TurnGateTest() {
        g_sliced = true;
        g_permille = 0;
        g_frame_ns = 0;
        g_asked = 0;
        g_slices.clear();
        g_slice_busy = false;
        gate_.queue_found(graphics_, 0);
        gate_.queue_found(graphics_, 0);
        gate_.queue_found(uploads_, 1);
        gate_.queue_found(queue_at(0x3000), 7);  // no such family
    }
    static std::vector<VkQueueFamilyProperties> families() {
        std::vector<VkQueueFamilyProperties> out(2);
        out[0].queueFlags = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
        out[1].queueFlags = VK_QUEUE_TRANSFER_BIT;
        return out;
    }
    uint64_t frame(VkQueue queue, bool fence = true) {
        const uint64_t before = monotonic_ns();
        gate_.submitting(queue);
        const uint64_t held = monotonic_ns() - before;
        gate_.submitted(queue, fence);
        return held;
    }

    const VkQueue graphics_ = queue_at(0x1000);
    const VkQueue uploads_ = queue_at(0x2000);
    TurnGate gate_{kSource, families()};
};

TEST_F(TurnGateTest, FramesComeAsOftenAsTheTargetAndNoOftener) {
    g_frame_ns = 10 * kMs;
    frame(graphics_);
    const uint64_t first = monotonic_ns();
    for (int i = 0; i < 10; ++i) frame(graphics_);
    EXPECT_GE(monotonic_ns() - first, 10 * 10 * kMs * 99 / 100 - TurnPacer::kSlackNs);
}

TEST_F(TurnGateTest, OtherQueuesAndThePartsOfAFrameAreNotHeld) {
    g_frame_ns = 500 * kMs;
    frame(graphics_);
    const uint64_t before = monotonic_ns();
    for (int i = 0; i < 100; ++i) frame(uploads_);
    frame(queue_at(0x3000));
    EXPECT_LT(monotonic_ns() - before, 400 * kMs);
    EXPECT_GE(frame(graphics_, false), 300 * kMs) << "a new frame";
    const uint64_t begun = monotonic_ns();
    for (int i = 0; i < 10; ++i) frame(graphics_, false);
    EXPECT_LT(monotonic_ns() - begun, 400 * kMs) << "more of the same frame";
}

TEST_F(TurnGateTest, AFrameMayEndOnAnotherQueue) {
    g_frame_ns = 30 * kMs;
    const auto draw_and_copy = [&] {
        frame(graphics_, false);
        frame(uploads_);
    };
    draw_and_copy();
    const uint64_t before = monotonic_ns();
    for (int i = 0; i < 3; ++i) draw_and_copy();
    EXPECT_GE(monotonic_ns() - before, 80 * kMs);
}

TEST_F(TurnGateTest, WhoPresentsEndsAFrameSo) {
    g_frame_ns = 200 * kMs;
    gate_.presented();
    frame(graphics_);
    const uint64_t before = monotonic_ns();
    for (int i = 0; i < 5; ++i) frame(graphics_);
    EXPECT_LT(monotonic_ns() - before, 150 * kMs) << "fences end nothing here";
    gate_.presented();
    EXPECT_GE(frame(graphics_), 20 * kMs);
}

TEST_F(TurnGateTest, AHoldEndsWithTheModeThatAskedForIt) {
    g_frame_ns = 1000 * kMs;
    frame(graphics_);
    g_asked = 0;
    std::atomic<uint64_t> held{0};
    std::thread renderer([&] { held = frame(graphics_); });
    while (g_asked < 2) std::this_thread::yield();
    g_sliced = false;
    renderer.join();
    EXPECT_LT(held, 600 * kMs);
    g_sliced = true;
    frame(graphics_);
    g_asked = 0;
    std::thread again([&] { held = frame(graphics_); });
    while (g_asked < 2) std::this_thread::yield();
    g_frame_ns = 30 * kMs;
    again.join();
    EXPECT_LT(held, 600 * kMs) << "shorter terms are followed at once";
}

TEST_F(TurnGateTest, AShareAsksForGpuTimes) {
    EXPECT_FALSE(gate_.wants_gpu_time());
    g_permille = 250;
    frame(graphics_);
    EXPECT_TRUE(gate_.wants_gpu_time());
    for (int i = 0; i < 5; ++i) {
        gate_.worked(10 * kMs);
        frame(graphics_);
    }
    const uint64_t before = monotonic_ns();
    for (int i = 0; i < 3; ++i) frame(graphics_);
    EXPECT_GE(monotonic_ns() - before, 60 * kMs) << "one each 40 ms, and what came before counts";
    g_sliced = false;
    frame(graphics_);
    EXPECT_FALSE(gate_.wants_gpu_time());
}

TEST_F(TurnGateTest, TheTimesliceIsLongerThanAFrameWhileTurnsAreTaken) {
    g_frame_ns = 20 * kMs;
    frame(graphics_);
    EXPECT_FALSE(gate_.wants_gpu_time()) << "frames' ends are seen";
    EXPECT_TRUE(g_slices.empty()) << "it is not known yet what frames take";
    for (int i = 0; i < 5; ++i) {
        gate_.worked(10 * kMs);
        frame(graphics_);
    }
    ASSERT_FALSE(g_slices.empty());
    EXPECT_EQ(g_slices.back(), 16000u);
    g_slices.clear();
    frame(uploads_);
    EXPECT_TRUE(g_slices.empty()) << "no frame began";
    g_sliced = false;
    g_slice_busy = true;
    frame(graphics_);
    frame(graphics_);
    g_slice_busy = false;
    for (int i = 0; i < 3; ++i) frame(graphics_);
    EXPECT_EQ(g_slices, (std::vector<uint32_t>{0, 0, 0})) << "until it was done";
}

TEST_F(TurnGateTest, FramesThatEndOnAnotherQueueAreTimedByTheirParts) {
    g_frame_ns = 20 * kMs;
    frame(graphics_, false);
    EXPECT_FALSE(gate_.wants_gpu_time()) << "not known yet";
    frame(uploads_);
    frame(graphics_, false);
    EXPECT_TRUE(gate_.wants_gpu_time());
    frame(uploads_);
    frame(graphics_);
    frame(graphics_);
    EXPECT_FALSE(gate_.wants_gpu_time());
}

TEST_F(TurnGateTest, ALibraryThatKnowsNoTimeslices) {
    TurnGate gate(TurnSource{kSource.turns}, families());
    gate.queue_found(graphics_, 0);
    g_frame_ns = 20 * kMs;
    for (int i = 0; i < 6; ++i) {
        gate.worked(10 * kMs);
        gate.submitting(graphics_);
        gate.submitted(graphics_, true);
    }
    EXPECT_TRUE(g_slices.empty());
}

}  // namespace
}  // namespace vuda::layer
