#include "shim/layer/queue_clock.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "shim/layer/stamped_submit.h"

namespace vuda::layer {
namespace {

// A driver whose command buffers are numbers and whose GPU writes the ticks that the test says.
struct FakeDriver {
    int refuse_at = -1;  // call number
    int calls = 0;
    int pools = 0;
    uint64_t ticks[2] = {};
    VkResult results = VK_SUCCESS;

    VkResult next() { return calls++ == refuse_at ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_SUCCESS; }
};
FakeDriver g_driver;

struct SeenSample {
    uint32_t kind;
    uint64_t id, end_ns, duration_ns;
};
std::vector<SeenSample> g_samples;

const SampleSink kSink{[](uint32_t) { return 1; },
                       [](uint32_t kind, uint64_t id, uint64_t end, uint64_t duration) {
                           g_samples.push_back({kind, id, end, duration});
                       }};

template <typename Handle>
Handle handle(uint64_t number) {
    return reinterpret_cast<Handle>(number);
}

VkResult create_commands(VkDevice, const VkCommandPoolCreateInfo*, const VkAllocationCallbacks*, VkCommandPool* out) {
    const VkResult result = g_driver.next();
    if (result == VK_SUCCESS) *out = handle<VkCommandPool>(7), ++g_driver.pools;
    return result;
}
VkResult create_queries(VkDevice, const VkQueryPoolCreateInfo*, const VkAllocationCallbacks*, VkQueryPool* out) {
    const VkResult result = g_driver.next();
    if (result == VK_SUCCESS) *out = handle<VkQueryPool>(8), ++g_driver.pools;
    return result;
}
VkResult allocate(VkDevice, const VkCommandBufferAllocateInfo* info, VkCommandBuffer* out) {
    for (uint32_t i = 0; i < info->commandBufferCount; ++i) out[i] = handle<VkCommandBuffer>(1000 + i);
    return g_driver.next();
}
VkResult results(VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void* out, VkDeviceSize, VkQueryResultFlags) {
    std::memcpy(out, g_driver.ticks, sizeof g_driver.ticks);
    return g_driver.results;
}

const ClockCalls kCalls{create_commands,
                        [](VkDevice, VkCommandPool, const VkAllocationCallbacks*) { --g_driver.pools; },
                        allocate,
                        [](VkCommandBuffer, const VkCommandBufferBeginInfo*) { return g_driver.next(); },
                        [](VkCommandBuffer) { return g_driver.next(); },
                        [](VkCommandBuffer, VkQueryPool, uint32_t, uint32_t) {},
                        [](VkCommandBuffer, VkPipelineStageFlagBits, VkQueryPool, uint32_t) {},
                        create_queries,
                        [](VkDevice, VkQueryPool, const VkAllocationCallbacks*) { --g_driver.pools; },
                        results};

constexpr uint32_t kSlots = 8;

class QueueClockTest : public testing::Test {
 protected:
    QueueClockTest() {
        g_driver = {};
        g_samples.clear();
        clock_ = make();
    }
    static std::unique_ptr<QueueClock> make() { return QueueClock::make(nullptr, kCalls, 0, 40, 2.0, nullptr); }

    // One frame of one submission, from its submission until the program sees its fence.
    void frame(uint64_t number, uint64_t begin, uint64_t end) {
        const VkCommandBuffer work = handle<VkCommandBuffer>(1);
        const VkSubmitInfo submit = batch(&work, 1);
        const StampedSubmit<VkSubmitInfo> stamped(*clock_, 1, &submit, 5, number);
        EXPECT_EQ(stamped.count(), 2u);
        g_driver.ticks[0] = begin;
        g_driver.ticks[1] = end;
        clock_->signalled(5, 100 * number, kSink);
    }

    static VkSubmitInfo batch(const VkCommandBuffer* buffers, uint32_t count, const void* chain = nullptr) {
        VkSubmitInfo submit{};
        submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        submit.pNext = chain;
        submit.commandBufferCount = count;
        submit.pCommandBuffers = buffers;
        return submit;
    }

    std::unique_ptr<QueueClock> clock_;
    const VkCommandBuffer work_[2] = {handle<VkCommandBuffer>(1), handle<VkCommandBuffer>(2)};
};

TEST_F(QueueClockTest, AFrameIsTimedInNanoseconds) {
    frame(3, 1000, 1500);
    ASSERT_EQ(g_samples.size(), 1u);
    EXPECT_EQ(g_samples[0].kind, kGpuFrameSample);
    EXPECT_EQ(g_samples[0].id, 3u);
    EXPECT_EQ(g_samples[0].end_ns, 300u);
    EXPECT_EQ(g_samples[0].duration_ns, 1000u);
    clock_->signalled(5, 1, kSink);
    EXPECT_EQ(g_samples.size(), 1u) << "a frame is reported once";
}

TEST_F(QueueClockTest, TimeOfTheFrameBeforeIsNotCountedAgain) {
    frame(1, 1000, 2000);
    frame(2, 1200, 2300);  // reached while frame 1 still ran
    frame(3, 2600, 2700);
    ASSERT_EQ(g_samples.size(), 3u);
    EXPECT_EQ(g_samples[1].duration_ns, 600u);
    EXPECT_EQ(g_samples[2].duration_ns, 200u);
}

TEST_F(QueueClockTest, WorkThatNoFenceFollowsIsKnownOnceTheGpuIsDone) {
    const auto submit = [&] {
        const VkSubmitInfo one = batch(work_, 1);
        const StampedSubmit<VkSubmitInfo> stamped(*clock_, 1, &one, clock_->unfenced(), 1);
        EXPECT_EQ(stamped.count(), 2u);
    };
    submit();
    g_driver.results = VK_NOT_READY;
    EXPECT_EQ(clock_->poll(), 0u);
    g_driver.results = VK_SUCCESS;
    g_driver.ticks[0] = 1000;
    g_driver.ticks[1] = 1500;
    EXPECT_EQ(clock_->poll(), 1000u);
    EXPECT_EQ(clock_->poll(), 0u) << "once";
    submit();
    EXPECT_EQ(clock_->poll(), 0u) << "the slot still holds what it held before";
    g_driver.ticks[0] = 2000;
    g_driver.ticks[1] = 2100;
    clock_->signalled(5, 1, kSink);
    EXPECT_EQ(clock_->poll(), 200u);
    EXPECT_TRUE(g_samples.empty()) << "pieces are no frames";
}

TEST_F(QueueClockTest, TheCounterWraps) {
    frame(1, (uint64_t{1} << 40) - 100, 50);
    frame(2, 300, 40);  // backwards: no time at all
    ASSERT_EQ(g_samples.size(), 1u);
    EXPECT_EQ(g_samples[0].duration_ns, 300u);
}

TEST_F(QueueClockTest, TheProgramsWorkIsHandedOnBetweenTheStamps) {
    const uint64_t value = 1;
    VkTimelineSemaphoreSubmitInfo timeline{};
    timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    timeline.waitSemaphoreValueCount = 1;
    timeline.pWaitSemaphoreValues = &value;
    const VkSemaphore semaphore = handle<VkSemaphore>(9);
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo submits[] = {batch(nullptr, 0), batch(work_, 2, &timeline)};
    submits[1].waitSemaphoreCount = 1;
    submits[1].pWaitSemaphores = &semaphore;
    submits[1].pWaitDstStageMask = &stage;
    const StampedSubmit<VkSubmitInfo> stamped(*clock_, 2, submits, 5, 1);
    ASSERT_EQ(stamped.count(), 3u);
    const VkSubmitInfo* out = stamped.batches();
    EXPECT_EQ(out[0].commandBufferCount, 0u);
    ASSERT_EQ(out[1].commandBufferCount, 3u);
    EXPECT_EQ(out[1].pCommandBuffers[0], handle<VkCommandBuffer>(1000));
    EXPECT_EQ(out[1].pCommandBuffers[1], work_[0]);
    EXPECT_EQ(out[1].pCommandBuffers[2], work_[1]);
    EXPECT_EQ(out[1].pNext, &timeline);
    EXPECT_EQ(out[1].pWaitSemaphores, &semaphore);
    ASSERT_EQ(out[2].commandBufferCount, 1u);
    EXPECT_EQ(out[2].pCommandBuffers[0], handle<VkCommandBuffer>(1001));
    EXPECT_EQ(out[2].waitSemaphoreCount, 0u);
    EXPECT_EQ(out[2].signalSemaphoreCount, 0u);
}

TEST_F(QueueClockTest, AFrameOfSeveralSubmissions) {
    const VkSubmitInfo submit = batch(work_, 1);
    {
        const StampedSubmit<VkSubmitInfo> first(*clock_, 1, &submit, 0, 0);
        ASSERT_EQ(first.count(), 1u);
        EXPECT_EQ(first.batches()[0].commandBufferCount, 2u);
    }
    {
        const StampedSubmit<VkSubmitInfo> middle(*clock_, 1, &submit, 0, 0);
        EXPECT_EQ(middle.batches(), &submit) << "nothing to add";
    }
    const StampedSubmit<VkSubmitInfo> last(*clock_, 0, nullptr, 5, 1);
    ASSERT_EQ(last.count(), 1u);
    EXPECT_EQ(last.batches()[0].pCommandBuffers[0], handle<VkCommandBuffer>(1001));
    clock_->signalled(5, 1, kSink);
    EXPECT_EQ(g_samples.size(), 1u);
}

TEST_F(QueueClockTest, ASubmissionWithoutWorkStaysAsItIs) {
    const StampedSubmit<VkSubmitInfo> fence_only(*clock_, 0, nullptr, 5, 1);
    EXPECT_EQ(fence_only.count(), 0u);
    const VkSubmitInfo empty = batch(nullptr, 0);
    const StampedSubmit<VkSubmitInfo> semaphores_only(*clock_, 1, &empty, 6, 2);
    EXPECT_EQ(semaphores_only.batches(), &empty);
}

TEST_F(QueueClockTest, WhatIsNotUnderstoodStaysAsItIs) {
    VkDeviceGroupSubmitInfo group{};
    group.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO;
    const VkSubmitInfo grouped = batch(work_, 1, &group);
    const StampedSubmit<VkSubmitInfo> a(*clock_, 1, &grouped, 5, 1);
    EXPECT_EQ(a.batches(), &grouped);

    const std::vector<VkCommandBuffer> many(64, work_[0]);
    const VkSubmitInfo wide = batch(many.data(), 64);
    const StampedSubmit<VkSubmitInfo> b(*clock_, 1, &wide, 5, 1);
    EXPECT_EQ(b.batches(), &wide);

    const std::vector<VkSubmitInfo> long_list(17, batch(work_, 1));
    const StampedSubmit<VkSubmitInfo> c(*clock_, 17, long_list.data(), 5, 1);
    EXPECT_EQ(c.batches(), long_list.data());
    EXPECT_EQ(c.count(), 17u);

    // With a frame open, too: that frame is given up, the next one is timed.
    const VkSubmitInfo submit = batch(work_, 1);
    const StampedSubmit<VkSubmitInfo> open(*clock_, 1, &submit, 0, 0);
    const StampedSubmit<VkSubmitInfo> d(*clock_, 17, long_list.data(), 5, 1);
    EXPECT_EQ(d.batches(), long_list.data());
    clock_->signalled(5, 1, kSink);
    EXPECT_TRUE(g_samples.empty());
    frame(2, 10, 20);
    EXPECT_EQ(g_samples.size(), 1u);
}

TEST_F(QueueClockTest, TheSecondGenerationOfTheCall) {
    VkCommandBufferSubmitInfo work{};
    work.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    work.commandBuffer = work_[0];
    VkSubmitInfo2 submit{};
    submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    submit.commandBufferInfoCount = 1;
    submit.pCommandBufferInfos = &work;
    {
        const StampedSubmit<VkSubmitInfo2> stamped(*clock_, 1, &submit, 5, 1);
        ASSERT_EQ(stamped.count(), 2u);
        EXPECT_EQ(stamped.batches()[0].pCommandBufferInfos[0].commandBuffer, handle<VkCommandBuffer>(1000));
        EXPECT_EQ(stamped.batches()[0].pCommandBufferInfos[1].commandBuffer, work_[0]);
        EXPECT_EQ(stamped.batches()[1].sType, VK_STRUCTURE_TYPE_SUBMIT_INFO_2);
        EXPECT_EQ(stamped.batches()[1].pCommandBufferInfos[0].commandBuffer, handle<VkCommandBuffer>(1001));
    }
    submit.flags = VK_SUBMIT_PROTECTED_BIT;
    const StampedSubmit<VkSubmitInfo2> guarded(*clock_, 1, &submit, 6, 2);
    EXPECT_EQ(guarded.batches(), &submit);
}

TEST_F(QueueClockTest, AFullClockLeavesFramesUntimedUntilOneIsRead) {
    const VkSubmitInfo submit = batch(work_, 1);
    for (uint64_t i = 0; i < kSlots; ++i) {
        const StampedSubmit<VkSubmitInfo> stamped(*clock_, 1, &submit, 10 + i, i);
        EXPECT_EQ(stamped.count(), 2u);
    }
    {
        const StampedSubmit<VkSubmitInfo> one_more(*clock_, 1, &submit, 99, 9);
        EXPECT_EQ(one_more.batches(), &submit);
    }
    g_driver.ticks[1] = 10;
    clock_->signalled(12, 1, kSink);
    EXPECT_EQ(g_samples.size(), 1u);
    const StampedSubmit<VkSubmitInfo> again(*clock_, 1, &submit, 99, 9);
    EXPECT_EQ(again.count(), 2u);
}

TEST_F(QueueClockTest, AFenceThatNobodyAskedAboutIsNotMistakenForItsNextUse) {
    const VkSubmitInfo submit = batch(work_, 1);
    const StampedSubmit<VkSubmitInfo> unseen(*clock_, 1, &submit, 5, 1);
    frame(2, 10, 20);
    ASSERT_EQ(g_samples.size(), 1u);
    EXPECT_EQ(g_samples[0].id, 2u);
}

TEST_F(QueueClockTest, ARefusedSubmissionLeavesNothingPending) {
    const VkSubmitInfo submit = batch(work_, 1);
    for (uint64_t i = 0; i < 3 * kSlots; ++i) {
        StampedSubmit<VkSubmitInfo> stamped(*clock_, 1, &submit, i % 2 == 0 ? 0 : 5, i);
        stamped.refused(*clock_);
    }
    clock_->signalled(5, 1, kSink);
    EXPECT_TRUE(g_samples.empty());
    frame(1, 10, 20);
    EXPECT_EQ(g_samples.size(), 1u);
}

TEST_F(QueueClockTest, TimesThatAreNotThereAreNoSample) {
    g_driver.results = VK_NOT_READY;
    frame(1, 10, 20);
    EXPECT_TRUE(g_samples.empty());
    g_driver.results = VK_SUCCESS;
    frame(2, 30, 40);
    EXPECT_EQ(g_samples.size(), 1u);
}

TEST_F(QueueClockTest, ADriverThatRefusesAnyStepIsLeftAsItWas) {
    const int steps = g_driver.calls;
    clock_ = nullptr;
    ASSERT_EQ(g_driver.pools, 0);
    for (int step = 0; step < steps; ++step) {
        g_driver = {};
        g_driver.refuse_at = step;
        EXPECT_EQ(make(), nullptr) << step;
        EXPECT_EQ(g_driver.pools, 0) << step;
    }
}

}  // namespace
}  // namespace vuda::layer
