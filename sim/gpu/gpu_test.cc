// Execution of what channels submit: rings, methods, semaphores, faults of the front end, SM partitions.
#include <gtest/gtest.h>

#include "sim/rm/test_rigs.h"

namespace vuda::sim {
namespace {

class SimGpu : public testing::Test {
 protected:
    std::unique_ptr<ResourceManager> rm = make_rm();
    TestProcess process{*rm, 10};
};

TEST_F(SimGpu, RunsWorkInOrderAndStampsIt) {
    RendererRig renderer(process);
    renderer.queue.frame(1'000'000).submit();
    EXPECT_EQ(renderer.queue.released(), 0u) << "a frame takes its time";
    run_gpu(*rm, 500'000);
    EXPECT_EQ(renderer.queue.released(), 0u);
    run_gpu(*rm, 1'000'000);
    EXPECT_EQ(renderer.queue.released(), 1u);
    EXPECT_GE(renderer.queue.timestamp(), 1'000'000u);
    uint32_t get = 0;
    renderer.client.map_cpu(RendererRig::kQueueMemory, TestQueue::kBytes)
        ->read(TestQueue::kUserd + work::kGpGet, &get, 4);
    EXPECT_EQ(get, 1u);
}

TEST_F(SimGpu, RingsWrapAround) {
    RendererRig renderer(process);
    for (int i = 0; i < 200; i++) {
        renderer.queue.frame(100).submit();
        run_gpu(*rm, 1'000'000);
        ASSERT_TRUE(renderer.queue.done()) << i;
    }
}

TEST_F(SimGpu, FindsWorkWithoutBeingTold) {
    RendererRig renderer(process);
    renderer.queue.frame(100).submit(false);
    const uint32_t token = token_of(renderer.client, RendererRig::kChannel);
    rm->gpu(0).usermode_page()->store->write(work::kDoorbell, &token, 4);
    rm->poll_channels();
    run_gpu(*rm, 1'000'000);
    EXPECT_TRUE(renderer.queue.done());
}

TEST_F(SimGpu, TokensNameChannels) {
    RendererRig renderer(process);
    const uint32_t token = token_of(renderer.client, RendererRig::kChannel);
    EXPECT_NE(rm->gpu(0).channel_by_token(token), nullptr);
    EXPECT_EQ(rm->gpu(0).channel_by_token(token | 0x30000), nullptr) << "another runlist";
    rm->doorbell(0, 0xdeadbeef);  // nobody's
    rm->doorbell(9, token);
}

TEST_F(SimGpu, WakesWhoWaits) {
    RendererRig renderer(process);
    std::vector<void*> woken;
    rm->gpu(0).set_wake([&](void* word) { woken.push_back(word); });
    renderer.queue.frame(100).submit();
    run_gpu(*rm, 1'000'000);
    ASSERT_EQ(woken.size(), 1u);
    EXPECT_EQ(*static_cast<uint32_t*>(woken[0]), 1u) << "the semaphore's payload";
}

// As when a program is killed: UVM's file is closed first, when its kernel has just begun.
TEST_F(SimGpu, WhatRunsIsTakenOffBeforeItsMemoryGoes) {
    RendererRig renderer(process);
    renderer.queue.control_buffer(renderer.control_address, RendererRig::kControlBytes).frame(1000).submit();
    run_gpu(*rm);
    TestProcess other(*rm, 11);
    ComputeRig killed(other);
    ASSERT_EQ(killed.start_shared(renderer), 0u);
    killed.queue.kernel(work::kLaunchControlState).submit();
    other.close(killed.uvm);
    renderer.queue.frame(1000).submit();
    run_gpu(*rm);
    EXPECT_TRUE(renderer.queue.done()) << "the killed one's kernel found its control buffers gone";
    EXPECT_FALSE(killed.queue.done());
}

TEST_F(SimGpu, ShowsTheTime) {
    run_gpu(*rm, 5'000'000'123);
    uint32_t words[2];
    rm->gpu(0).usermode_page()->store->read(work::kTimeLow, words, sizeof words);
    EXPECT_EQ(words[0] | (uint64_t{words[1]} << 32), 5'000'000'123u);
}

TEST_F(SimGpu, ABadHeaderIsAPbdmaError) {
    RendererRig renderer(process);
    renderer.queue.method(0, 0x100, 1);  // then a header that promises more than there is
    const auto memory = renderer.client.map_cpu(RendererRig::kQueueMemory, TestQueue::kBytes);
    const uint32_t words[] = {work::header(work::kOpIncrement, 0, 0x100, 9), 1};
    memory->write(TestQueue::kPush, words, sizeof words);
    const uint64_t entry = work::gpfifo_entry(0x100000 + TestQueue::kPush, 2);
    memory->write(TestQueue::kRing, &entry, sizeof entry);
    const uint32_t put = 1;
    memory->write(TestQueue::kUserd + work::kGpPut, &put, 4);
    rm->doorbell(0, token_of(renderer.client, RendererRig::kChannel));
    run_gpu(*rm);
    uint32_t code = 0;
    EXPECT_TRUE(notified(renderer.notifier, &code));
    EXPECT_EQ(code, 32u);
}

TEST_F(SimGpu, APlantedFaultEndsTheGroupsOfThatProcess) {
    TestProcess other(*rm, 11);
    RendererRig renderer(process);
    RendererRig bystander(other);
    EXPECT_FALSE(rm->gpu(0).fault_of(4711, 31)) << "no such process";
    EXPECT_TRUE(rm->gpu(0).fault_of(11, 31));
    uint32_t code = 0;
    EXPECT_TRUE(notified(bystander.notifier, &code));
    EXPECT_EQ(code, 31u);
    EXPECT_FALSE(notified(renderer.notifier));
    EXPECT_NE(rm->log().lines().back().find("pid=11"), std::string::npos) << rm->log().lines().back();
}

// As an H200 does after a bad access of a program that shares (docs/faults.md).
TEST_F(SimGpu, AStuckProcessIsCountedAndItsEndIsTheFault) {
    const FileId uvm = process.open(FileKind::kUvm);
    const FileId tools = process.open(FileKind::kUvmTools);
    rm::UvmToolsInitEventTrackerArgs track{};
    track.queueBuffer = 0x7000'1000;
    track.controlBuffer = 0x7000'0000;
    track.queueBufferSize = 2;
    track.uvmFd = static_cast<uint32_t>(tools);
    const auto init = [&] { return process.uvm(tools, rm::uvm::kToolsInitEventTracker, track); };
    rm::UvmToolsEnableEventsArgs enable{uint64_t{1} << rm::kUvmEventGpuFaultReplay, 0, 0};
    const auto subscribe = [&] { return process.uvm(tools, rm::uvm::kToolsEventQueueEnableEvents, enable); };
    EXPECT_EQ(init(), rm::nv::kInsufficientPermissions) << "not a UVM file";
    track.uvmFd = static_cast<uint32_t>(uvm);
    EXPECT_EQ(init(), rm::nv::kIllegalAction) << "not initialised";
    rm::UvmInitializeArgs initialize{rm::kUvmInitMultiProcess, 0, 0};
    EXPECT_EQ(process.uvm(uvm, rm::uvm::kInitialize, initialize), rm::nv::kOk);
    for (const uint64_t places : {0, 1, 3}) {
        track.queueBufferSize = places;
        EXPECT_EQ(init(), rm::nv::kInvalidArgument) << places;
    }
    track.queueBufferSize = 2;
    track.controlBuffer += 8;
    EXPECT_EQ(init(), rm::nv::kInvalidAddress);
    track.controlBuffer -= 8;
    EXPECT_EQ(subscribe(), rm::nv::kInvalidArgument) << "no queue yet";
    EXPECT_EQ(init(), rm::nv::kOk);
    EXPECT_EQ(init(), rm::nv::kInvalidArgument) << "there is one";
    const MapOutcome page = rm->map(tools, 4096);
    ASSERT_EQ(page.error, 0);
    const auto control = [&] {
        rm::UvmToolsEventControl now{};
        EXPECT_TRUE(page.memory->read(0, &now, sizeof now));
        return now;
    };
    rm->count_replays(10);
    EXPECT_EQ(control().putBehind, 0u) << "nobody asked for these events";
    EXPECT_EQ(subscribe(), rm::nv::kOk);
    rm->count_replays(10);
    EXPECT_EQ(control().putBehind, 1u) << "one place stays free";
    EXPECT_EQ(control().putAhead, 1u);
    EXPECT_EQ(control().dropped[rm::kUvmEventGpuFaultReplay], 9u);
    rm->count_replays(5);
    EXPECT_EQ(control().putBehind, 1u);
    EXPECT_EQ(control().dropped[rm::kUvmEventGpuFaultReplay], 14u);

    RendererRig bystander(process);
    uint32_t code = 0;
    {
        TestProcess other(*rm, 11);
        EXPECT_FALSE(rm->set_stuck(11, true)) << "it has no channel";
        RendererRig culprit(other);
        EXPECT_FALSE(rm->set_stuck(11, false)) << "it is not stuck";
        EXPECT_TRUE(rm->set_stuck(11, true));
        EXPECT_TRUE(rm->any_stuck());
        EXPECT_FALSE(notified(culprit.notifier, &code)) << "nothing died";
        other.close(other.open(FileKind::kUvmTools));
        EXPECT_TRUE(rm->any_stuck()) << "a file without channels is not its end";
    }
    EXPECT_FALSE(rm->any_stuck());
    ASSERT_FALSE(rm->log().lines().empty());
    EXPECT_NE(rm->log().lines().back().find("31, pid=11"), std::string::npos) << rm->log().lines().back();
    EXPECT_FALSE(notified(bystander.notifier)) << "another TSG";
    const size_t xids = rm->log().xids();
    {
        TestProcess other(*rm, 12);
        RendererRig freed(other);
        EXPECT_TRUE(rm->set_stuck(12, true));
        EXPECT_TRUE(rm->set_stuck(12, false));
    }
    EXPECT_EQ(rm->log().xids(), xids) << "it passed";
}

TEST_F(SimGpu, UnmappedAddressesAreMmuFaults) {
    RendererRig renderer(process);
    renderer.queue.method(0, work::kSemAddressLow, 0x77770000)
        .method(0, work::kSemAddressHigh, 0)
        .method(0, work::kSemExecute, work::kSemExecuteRelease)
        .submit();
    run_gpu(*rm);
    uint32_t code = 0;
    EXPECT_TRUE(notified(renderer.notifier, &code));
    EXPECT_EQ(code, 31u);
    EXPECT_NE(rm->log().lines().back().find("faulted @ 0x0_77770000"), std::string::npos) << rm->log().lines().back();
}

// Mirrors must show the renderer's memory, not just anything.
TEST_F(SimGpu, AWrongMirrorIsNoticed) {
    TestProcess other(*rm, 11);
    RendererRig renderer(process);
    ComputeRig compute(other);
    ASSERT_EQ(compute.start_shared(renderer, false), 0u);
    (void)compute.client.memory(0x70, RendererRig::kControlBytes);
    ASSERT_EQ(compute.external(0x70, renderer.control_address, RendererRig::kControlBytes), 0u);
    renderer.queue.control_buffer(renderer.control_address, RendererRig::kControlBytes).submit();
    run_gpu(*rm);
    compute.queue.kernel(work::kLaunchControlState).submit();
    run_gpu(*rm);
    EXPECT_TRUE(notified(compute.notifier));
    EXPECT_NE(rm->log().lines().back().find("wrong memory"), std::string::npos);
}

TEST_F(SimGpu, PartitionsWhereTheMethodExists) {
    const auto ada = make_rm("580.159.04", {"rtx4090"});
    TestProcess one(*ada, 10);
    TestClient a(one);
    (void)a.vaspace(0x10);
    (void)a.virtual_memory(0x11, 0x10);
    (void)a.memory(0x12, TestQueue::kBytes);
    uint64_t address = 0;
    (void)a.map_dma(0x11, 0x12, TestQueue::kBytes, address);
    (void)a.tsg(0x20, 0x10);
    (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
    rm::ChannelParams params{};
    params.gpFifoOffset = address;
    params.gpFifoEntries = 64;
    params.hContextShare = 0x21;
    params.hUserdMemory[0] = 0x12;
    params.userdOffset[0] = TestQueue::kUserd;
    ASSERT_EQ(a.alloc(0x20, 0x22, rm::cls::kGpfifoAmpere, &params), 0u);
    ASSERT_EQ(a.alloc(0x22, 0x23, 0xc997), 0u);
    ASSERT_EQ(a.alloc(0x22, 0x24, rm::cls::kComputeAda), 0u);
    ASSERT_EQ(a.schedule(0x22, false), 0u);
    TestQueue queue(a.map_cpu(0x12, TestQueue::kBytes), address, ada.get(), token_of(a, 0x22));
    // 44 SMs for compute: 22 TPCs.
    queue.object(1, rm::cls::kComputeAda).method(1, work::kSetScgControl, 44).kernel().submit();
    run_gpu(*ada);
    EXPECT_TRUE(queue.done());
    EXPECT_EQ(ada->log().xids(), 0u);
    const Channel* channel = ada->gpu(0).channel_by_token(token_of(a, 0x22));
    ASSERT_NE(channel, nullptr);
    const auto info = ada->gpu(0).engine().tsg_info(*channel->tsg->engine_tsg);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->mode, ScgMode::kInterSm);
    EXPECT_EQ(info->quota, 22);
    queue.method(1, work::kSetScgControl, 511).submit();
    run_gpu(*ada);
    EXPECT_EQ(ada->gpu(0).engine().tsg_info(*channel->tsg->engine_tsg)->mode, ScgMode::kIntraSm);
}

TEST_F(SimGpu, TimeslicesAreTheTsgs) {
    RendererRig renderer(process);
    rm::TsgTimesliceParams slice{4000};
    EXPECT_EQ(renderer.client.control(RendererRig::kTsg, rm::ctrl::kTsgSetTimeslice, slice), 0u);
    const Channel* channel = rm->gpu(0).channel_by_token(token_of(renderer.client, RendererRig::kChannel));
    EXPECT_EQ(rm->gpu(0).engine().tsg_info(*channel->tsg->engine_tsg)->timeslice_ns, 4'000'000);
    slice = {};
    EXPECT_EQ(renderer.client.control(RendererRig::kTsg, rm::ctrl::kTsgGetTimeslice, slice), 0u);
    EXPECT_EQ(slice.timesliceUs, 4000u);
}

}  // namespace
}  // namespace vuda::sim
