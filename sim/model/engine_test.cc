#include "sim/model/engine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vuda::sim {
namespace {

constexpr TimeNs kUs = 1000;
constexpr TimeNs kMs = 1000 * kUs;

// 4 TPCs in 2 GPCs, 8 SMs, no cost of switching: round numbers.
Engine small_gpu(TpcSet graphics_tpcs = {}, ScgControl scg = ScgControl::kModeAndQuota) {
    Params params;
    params.switch_ns = 0;
    params.intra_vertex = {0.5, 0.25};
    params.intra_fragment = {0.75, 0.25};
    Result<Engine> engine =
        Engine::make(*Topology::make("small", {2, 2}, 2, graphics_tpcs, scg, ScgMode::kIntraSm), params);
    EXPECT_TRUE(engine.ok());
    return *std::move(engine);
}

Kernel kernel(uint32_t blocks, TimeNs block_ns) { return {.blocks = blocks, .block_ns = block_ns}; }
Draw fragment_draw(TimeNs ns) { return {.fragment_ns = ns}; }
Draw vertex_draw(TimeNs ns) { return {.vertex_ns = ns}; }
Frame frame(std::vector<Draw> draws) { return {std::move(draws)}; }

class EngineTest : public testing::Test {
 protected:
    ChannelId graphics_channel(TsgId tsg) {
        const Result<ChannelId> channel = engine.create_channel(tsg, {.kind = ChannelKind::kGraphics});
        EXPECT_TRUE(channel.ok());
        return *channel;
    }
    ChannelId compute_channel(TsgId tsg) {
        const Result<ChannelId> channel = engine.create_channel(tsg, {.kind = ChannelKind::kCompute});
        EXPECT_TRUE(channel.ok());
        return *channel;
    }
    void submit(ChannelId channel, Work work, uint64_t cookie) {
        const Status sent = engine.submit(channel, std::move(work), cookie);
        EXPECT_TRUE(sent.ok()) << (sent.ok() ? "" : sent.error().to_string());
    }
    // Runs until nothing is pending or `until`.
    void run(TimeNs until = 1000 * kMs) {
        engine.advance_to(until);
        for (Completion& completion : engine.take_completions()) done.push_back(completion);
    }
    const Completion& ended(uint64_t cookie) {
        const auto it = std::find_if(done.begin(), done.end(), [&](const Completion& c) { return c.cookie == cookie; });
        if (it == done.end()) {
            ADD_FAILURE() << "work " << cookie << " has not ended";
            static const Completion none;
            return none;
        }
        return *it;
    }
    bool has_ended(uint64_t cookie) const {
        return std::any_of(done.begin(), done.end(), [&](const Completion& c) { return c.cookie == cookie; });
    }

    Engine engine = small_gpu();
    std::vector<Completion> done;
};

// --- running alone ---------------------------------------------------------------------------------------------------

TEST_F(EngineTest, KernelTakesOneBlockTimePerWave) {
    const ChannelId channel = compute_channel(engine.create_tsg());
    submit(channel, kernel(8, 10 * kUs), 1);
    submit(channel, kernel(9, 10 * kUs), 2);
    submit(channel, Kernel{.blocks = 16, .block_ns = 10 * kUs, .blocks_per_sm = 2}, 3);
    run();
    EXPECT_EQ(ended(1).end, 10 * kUs);
    EXPECT_EQ(ended(2).start, 10 * kUs);
    EXPECT_EQ(ended(2).end, 30 * kUs);  // the ninth block needs a wave of its own
    EXPECT_EQ(ended(3).end, 40 * kUs);
    EXPECT_EQ(ended(1).sms.count(), 8u);
}

TEST_F(EngineTest, FrameTakesItsPartsOneAfterTheOther) {
    const ChannelId channel = graphics_channel(engine.create_tsg());
    submit(channel, frame({{.vertex_ns = 2 * kMs, .fragment_ns = 3 * kMs}, fragment_draw(4 * kMs)}), 1);
    run();
    EXPECT_EQ(ended(1).end, 9 * kMs);
    EXPECT_EQ(engine.stats().draw_ends, 2u);
}

TEST_F(EngineTest, MarkersAndEmptyWorkKeepTheirPlaceInTheChannel) {
    const ChannelId channel = graphics_channel(engine.create_tsg());
    submit(channel, Marker{}, 1);
    submit(channel, frame({fragment_draw(kMs)}), 2);
    submit(channel, Marker{}, 3);
    submit(channel, frame({}), 4);
    submit(channel, kernel(1, 0), 5);
    submit(channel, Marker{}, 6);
    run();
    ASSERT_EQ(done.size(), 6u);
    for (uint64_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i].cookie, i + 1);
    EXPECT_EQ(ended(1).end, 0);
    EXPECT_EQ(ended(3).end, kMs);
    EXPECT_EQ(ended(6).end, kMs);
}

TEST_F(EngineTest, NothingPendingMeansNever) {
    EXPECT_EQ(engine.next_event_time(), kNever);
    engine.advance_to(5 * kMs);
    EXPECT_EQ(engine.now(), 5 * kMs);
    engine.advance_to(kMs);  // never backwards
    EXPECT_EQ(engine.now(), 5 * kMs);
    submit(compute_channel(engine.create_tsg()), kernel(1, kMs), 1);
    run();
    EXPECT_EQ(ended(1).start, 5 * kMs);
    EXPECT_EQ(engine.next_event_time(), kNever);
}

// --- time slicing ----------------------------------------------------------------------------------------------------

TEST_F(EngineTest, RunningDrawIsNotInterrupted) {
    const ChannelId renderer = graphics_channel(engine.create_tsg());
    const ChannelId compute = compute_channel(engine.create_tsg());
    submit(renderer, frame({fragment_draw(20 * kMs)}), 1);
    submit(compute, kernel(8, 100 * kUs), 2);
    run();
    EXPECT_EQ(ended(1).end, 20 * kMs);  // 20 slices long
    EXPECT_EQ(ended(2).start, 20 * kMs);
}

TEST_F(EngineTest, FrameOfManyDrawsGivesWayBetweenDraws) {
    const ChannelId renderer = graphics_channel(engine.create_tsg());
    const ChannelId compute = compute_channel(engine.create_tsg());
    submit(renderer, frame({fragment_draw(kMs), fragment_draw(kMs), fragment_draw(kMs)}), 1);
    submit(compute, kernel(8, 100 * kUs), 2);
    run();
    EXPECT_EQ(ended(2).start, 2 * kMs);  // the slice of 1.024 ms ends within the second draw
    EXPECT_EQ(ended(1).end, 3 * kMs + 100 * kUs);
}

TEST_F(EngineTest, KernelGivesWayAfterTheWaveInWhichItsSliceEnds) {
    const ChannelId first = compute_channel(engine.create_tsg());
    const ChannelId second = compute_channel(engine.create_tsg());
    submit(first, kernel(8 * 100, 300 * kUs), 1);  // 30 ms
    submit(second, kernel(8, 300 * kUs), 2);
    run();
    EXPECT_EQ(ended(2).start, 2100 * kUs);  // 2.048 ms, then to the end of the seventh wave
    EXPECT_EQ(ended(1).end, 30'300 * kUs);
}

TEST_F(EngineTest, StreamThatSynchronisesGivesItsSliceAway) {
    const ChannelId first = compute_channel(engine.create_tsg());
    const ChannelId second = compute_channel(engine.create_tsg());
    submit(first, kernel(8, 100 * kUs), 1);
    submit(second, kernel(8, 100 * kUs), 2);
    run(100 * kUs);
    submit(first, kernel(8, 100 * kUs), 3);  // too late: the turn is the other's
    run();
    EXPECT_EQ(ended(2).start, 100 * kUs);
    EXPECT_EQ(ended(3).start, 200 * kUs);
}

TEST_F(EngineTest, TurnsGoRoundAndSkipTheIdle) {
    std::vector<ChannelId> channels;
    for (int i = 0; i < 4; ++i) channels.push_back(compute_channel(engine.create_tsg()));
    for (uint64_t round = 0; round < 2; ++round) {
        for (uint64_t i : {0u, 1u, 3u}) submit(channels[i], kernel(8, 3 * kMs), 10 * round + i);  // TSG 2 stays idle
    }
    run();
    std::vector<uint64_t> order;
    for (const Completion& completion : done) order.push_back(completion.cookie);
    EXPECT_EQ(order, (std::vector<uint64_t>{0, 1, 3, 10, 11, 13}));
    EXPECT_EQ(ended(13).end, 18 * kMs);
}

TEST_F(EngineTest, DefaultSlicesFollowTheChannels) {
    const TsgId tsg = engine.create_tsg();
    EXPECT_EQ(engine.tsg_info(tsg)->timeslice_ns, 2048 * kUs);
    graphics_channel(tsg);
    EXPECT_EQ(engine.tsg_info(tsg)->timeslice_ns, 1024 * kUs);
    ASSERT_TRUE(engine.set_timeslice(tsg, 500 * kUs).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->timeslice_ns, 500 * kUs);
    ASSERT_TRUE(engine.set_timeslice(tsg, 0).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->timeslice_ns, 1024 * kUs);
}

TEST_F(EngineTest, TimesliceSetsTheSplitOfDeepQueues) {
    const TsgId a = engine.create_tsg(kMs), b = engine.create_tsg(3 * kMs);
    const ChannelId on_a = compute_channel(a), on_b = compute_channel(b);
    for (uint64_t i = 0; i < 3000; ++i) {
        submit(on_a, kernel(8, 50 * kUs), i);
        submit(on_b, kernel(8, 50 * kUs), i);
    }
    run(100 * kMs);
    EXPECT_EQ(engine.tsg_info(a)->run_time, 25 * kMs);
    EXPECT_EQ(engine.tsg_info(b)->run_time, 75 * kMs);
}

TEST_F(EngineTest, SwitchCostsTimeOnlyBetweenTsgs) {
    Params params;
    params.switch_ns = 30 * kUs;
    engine = *Engine::make(*Topology::preset("rtx4090"), params);
    const ChannelId first = compute_channel(engine.create_tsg());
    const ChannelId second = compute_channel(engine.create_tsg());
    submit(first, kernel(1, 100 * kUs), 1);
    submit(first, kernel(1, 100 * kUs), 2);
    submit(second, kernel(1, 100 * kUs), 3);
    run();
    EXPECT_EQ(ended(1).start, 30 * kUs);
    EXPECT_EQ(ended(2).start, 130 * kUs);
    EXPECT_EQ(ended(3).start, 260 * kUs);
    EXPECT_EQ(engine.stats().slice_switches, 2u);
}

TEST_F(EngineTest, YieldingDrawLetsTheOtherTsgIn) {
    Draw head = fragment_draw(10 * kUs);
    head.yield_after = true;
    const ChannelId renderer = graphics_channel(engine.create_tsg());
    const ChannelId compute = compute_channel(engine.create_tsg());
    submit(renderer, frame({head, fragment_draw(10 * kMs)}), 1);
    submit(compute, kernel(8, 100 * kUs), 2);
    run();
    EXPECT_EQ(ended(2).end, 110 * kUs);
    EXPECT_EQ(ended(1).end, 10'110 * kUs);
}

// --- one TSG, intra-SM -----------------------------------------------------------------------------------------------

TEST_F(EngineTest, OneTsgRunsItsChannelsTogether) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(9 * kMs)}), 1);
    submit(compute, kernel(8, kMs), 2);
    run();
    // Compute at 0.25 for 4 ms; graphics at 0.75 for those, then alone.
    EXPECT_EQ(ended(2).start, 0);
    EXPECT_EQ(ended(2).end, 4 * kMs);
    EXPECT_EQ(ended(1).end, 10 * kMs);
}

TEST_F(EngineTest, VertexAndFragmentPartsContendDifferently) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({{.vertex_ns = 2 * kMs, .fragment_ns = 3 * kMs}}), 1);
    submit(compute, kernel(8, 100 * kMs), 2);
    run();
    EXPECT_EQ(ended(1).end, 4 * kMs + 4 * kMs);
}

TEST_F(EngineTest, FewBlocksDisturbTheFrameLess) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({vertex_draw(6 * kMs)}), 1);
    submit(compute, kernel(4, 100 * kMs), 2);  // half of the SMs
    run();
    EXPECT_EQ(ended(1).end, 8 * kMs);  // rate 0.75
}

TEST_F(EngineTest, BlocksOfAnotherChannelFillWhatTheFirstLeaves) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId first = compute_channel(tsg), second = compute_channel(tsg);
    submit(first, kernel(6, kMs), 1);
    submit(second, kernel(4, kMs), 2);
    run();
    EXPECT_EQ(ended(1).end, kMs);
    EXPECT_EQ(ended(2).start, 0);  // two blocks at once, two after
    EXPECT_EQ(ended(2).end, 2 * kMs);
}

TEST_F(EngineTest, ChannelIsNotStarvedByABusyNeighbour) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId first = compute_channel(tsg), second = compute_channel(tsg);
    for (uint64_t i = 0; i < 5; ++i) submit(first, kernel(8, kMs), i);
    submit(second, kernel(8, kMs), 100);
    run();
    EXPECT_EQ(ended(100).end, 2 * kMs);
}

TEST_F(EngineTest, ThereIsOne3dPipe) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId first = graphics_channel(tsg), second = graphics_channel(tsg);
    submit(first, frame({fragment_draw(kMs)}), 1);
    submit(second, frame({fragment_draw(kMs)}), 2);
    run();
    EXPECT_EQ(ended(1).end, kMs);
    EXPECT_EQ(ended(2).start, kMs);
}

TEST_F(EngineTest, MemoryIsSharedByWeightWhenItRunsOut) {
    Params params;
    params.switch_ns = 0;
    params.intra_fragment = {0.5, 0.5};
    params.bandwidth_graphics_weight = 0.75;
    engine =
        *Engine::make(*Topology::make("small", {2, 2}, 2, {}, ScgControl::kModeAndQuota, ScgMode::kInterSm), params);
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    Draw draw = fragment_draw(3 * kMs);
    draw.fragment_sm_need = 0.25;
    draw.fragment_bandwidth = 1.0;
    submit(renderer, frame({draw}), 1);
    // Half of the SMs, so half of the bandwidth; it gets a quarter while the frame runs.
    submit(compute, Kernel{.blocks = 4, .block_ns = 100 * kMs, .bandwidth = 1.0}, 2);
    run();
    EXPECT_EQ(ended(1).end, 4 * kMs);
    EXPECT_EQ(ended(2).end, 102 * kMs);
}

// --- one TSG, inter-SM -----------------------------------------------------------------------------------------------

TEST_F(EngineTest, QuotaKeepsComputeOnItsTpcs) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 1).ok());
    submit(renderer, frame({fragment_draw(3 * kMs)}), 1);
    submit(compute, kernel(8, kMs), 2);
    run();
    const Topology& topology = engine.topology();
    EXPECT_EQ(ended(2).sms, topology.sms_of(topology.compute_tpcs(1)));
    EXPECT_EQ(ended(2).end, 4 * kMs);  // 2 SMs, no slowdown
    EXPECT_EQ(ended(1).end, 4 * kMs);  // 3 of 4 TPCs
}

TEST_F(EngineTest, QuotaHoldsAlsoWhileGraphicsIsIdle) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 2).ok());
    submit(compute, kernel(8, kMs), 1);
    run();
    EXPECT_EQ(ended(1).end, 2 * kMs);
    EXPECT_EQ(ended(1).sms, engine.topology().sms_of(engine.topology().compute_tpcs(2)));
}

TEST_F(EngineTest, GraphicsHasTheWholeGpuWhileNoBlockRuns) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 2).ok());
    submit(renderer, frame({fragment_draw(3 * kMs)}), 1);
    run();
    EXPECT_EQ(ended(1).end, 3 * kMs);
}

TEST_F(EngineTest, GraphicsKeepsOffTheQuotaAlsoWhereNoBlockIs) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 2).ok());
    submit(renderer, frame({fragment_draw(2 * kMs)}), 1);
    submit(compute, kernel(1, 100 * kMs), 2);  // one of the quota's four SMs
    run();
    EXPECT_EQ(ended(1).end, 4 * kMs);
}

TEST_F(EngineTest, NewQuotaCountsFromTheNextWave) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 1).ok());
    submit(compute, kernel(6, kMs), 1);  // 3 waves on 2 SMs
    run(kMs / 2);
    ASSERT_TRUE(engine.set_quota(tsg, 2).ok());  // two more SMs, free at once
    run();
    EXPECT_EQ(ended(1).end, 2 * kMs);  // 2 blocks at 0, 2 at 0.5 ms, 2 at 1 ms
    EXPECT_EQ(ended(1).sms.count(), 4u);
}

TEST_F(EngineTest, ModeChangeKeepsProgressAndWavesKeepTheirTpcs) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_quota(tsg, 2).ok());  // no effect yet
    submit(renderer, frame({fragment_draw(9 * kMs)}), 1);
    submit(compute, kernel(8, 10 * kMs), 2);
    run(4 * kMs);  // draw at 0.75, blocks at 0.25
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    run();
    EXPECT_EQ(ended(2).end, 13 * kMs);  // 9 ms left, now undisturbed, still on all SMs
    EXPECT_EQ(ended(1).end, 19 * kMs);  // no TPC until then, the whole GPU after
}

TEST_F(EngineTest, QuotaIsClampedAndDefaultsToHalf) {
    const TsgId tsg = engine.create_tsg();
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->quota, std::nullopt);
    EXPECT_EQ(engine.tsg_info(tsg)->compute_tpcs.count(), 2u);
    ASSERT_TRUE(engine.set_quota(tsg, 100).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->quota, 2);  // one graphics TPC a GPC stays
    ASSERT_TRUE(engine.set_quota(tsg, -3).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->quota, 1);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kIntraSm).ok());
    EXPECT_EQ(engine.tsg_info(tsg)->compute_tpcs.count(), 4u);
}

TEST_F(EngineTest, UnevenQuotaCostsVertexWorkMore) {
    const auto frame_time = [](int quota) {
        Engine gpu = *Engine::make("rtx4090");
        const TsgId tsg = gpu.create_tsg();
        const ChannelId renderer = *gpu.create_channel(tsg, {.kind = ChannelKind::kGraphics});
        const ChannelId compute = *gpu.create_channel(tsg, {.kind = ChannelKind::kCompute});
        EXPECT_TRUE(gpu.set_mode(tsg, ScgMode::kInterSm).ok());
        EXPECT_TRUE(gpu.set_quota(tsg, quota).ok());
        EXPECT_TRUE(gpu.submit(compute, kernel(128, 1000 * kMs), 1).ok());
        EXPECT_TRUE(gpu.submit(renderer, frame({vertex_draw(kMs)}), 2).ok());
        gpu.advance_to(100 * kMs);
        const std::vector<Completion> done = gpu.take_completions();
        EXPECT_EQ(done.size(), 1u);
        return done.empty() ? 0 : done[0].end - done[0].start;
    };
    EXPECT_LT(frame_time(11), frame_time(10));
    EXPECT_LT(frame_time(11), frame_time(12));
    EXPECT_LT(frame_time(22), frame_time(23));
}

TEST_F(EngineTest, MaskAndQuotaThatLeaveNothingAreAFault) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId compute = compute_channel(tsg);
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());
    ASSERT_TRUE(engine.set_quota(tsg, 1).ok());
    Kernel masked = kernel(1, kMs);
    masked.disabled_tpcs = engine.topology().compute_tpcs(1);
    submit(compute, masked, 1);
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kFaulted);
    const std::vector<Fault> faults = engine.take_faults();
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].kind, FaultKind::kNoEligibleTpc);
    EXPECT_EQ(faults[0].cookie, 1u);
}

// --- GPUs with few graphics TPCs -------------------------------------------------------------------------------------

class FewGraphicsTpcs : public EngineTest {
 protected:
    FewGraphicsTpcs() { engine = small_gpu(TpcSet(0x1), ScgControl::kNone); }  // TPC 0 of 4
};

TEST_F(FewGraphicsTpcs, NoScgControl) {
    const TsgId tsg = engine.create_tsg();
    EXPECT_EQ(engine.set_mode(tsg, ScgMode::kInterSm).error().code, Code::kUnimplemented);
    EXPECT_EQ(engine.set_quota(tsg, 1).error().code, Code::kUnimplemented);
}

TEST_F(FewGraphicsTpcs, ComputeKeepsOffThemWhileADrawRuns) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    submit(compute, kernel(8, kMs), 2);
    run();
    EXPECT_EQ(ended(1).end, 10 * kMs);
    EXPECT_EQ(ended(2).end, 2 * kMs);  // 6 SMs: two waves
    EXPECT_TRUE((ended(2).sms & engine.topology().sms_of(TpcSet(0x1))).none());
}

TEST_F(FewGraphicsTpcs, BlocksThatADrawFindsThereFinishFirst) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(compute, kernel(8, kMs), 1);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 2);
    run();
    EXPECT_EQ(ended(1).end, kMs);
    EXPECT_EQ(ended(2).end, 11 * kMs);
}

TEST_F(FewGraphicsTpcs, MaskedBlocksThereWaitForTheDraw) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 2);
    Kernel masked = kernel(6, kMs);
    masked.disabled_tpcs = TpcSet(0x8);  // another TPC
    submit(compute, masked, 3);
    run();
    EXPECT_EQ(ended(1).end, 10 * kMs);
    EXPECT_EQ(ended(3).end, 11 * kMs);
    EXPECT_EQ(ended(2).end, 21 * kMs);  // the blocks that got in between the draws go first
}

TEST_F(FewGraphicsTpcs, MaskWithoutThemIsolates) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    Kernel masked = kernel(6, kMs);
    masked.disabled_tpcs = TpcSet(0x1);
    for (uint64_t i = 2; i < 12; ++i) submit(compute, masked, i);
    run();
    EXPECT_EQ(ended(1).end, 10 * kMs);
    EXPECT_EQ(ended(11).end, 10 * kMs);
}

// --- shared memory and faults ----------------------------------------------------------------------------------------

TEST_F(FewGraphicsTpcs, SharedMemoryUpToTheLimitRunsBesideAFrame) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    submit(compute, Kernel{.blocks = 1, .block_ns = kMs, .shared_memory = 48'128}, 2);
    run();
    EXPECT_EQ(ended(2).start, 0);
}

TEST_F(FewGraphicsTpcs, SharedMemoryAtTheEdgeWaitsForEachFrame) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(5 * kMs), fragment_draw(5 * kMs)}), 1);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 2);
    submit(compute, Kernel{.blocks = 6, .block_ns = kMs, .shared_memory = 49'152}, 3);
    submit(compute, Kernel{.blocks = 6, .block_ns = kMs, .shared_memory = 49'152}, 4);
    run();
    EXPECT_EQ(ended(3).start, 10 * kMs);  // not between the draws of a frame
    EXPECT_GE(ended(4).start, 20 * kMs);
}

TEST_F(EngineTest, WaitingForAFrameThatCannotEndIsNoDeadlock) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(kMs), fragment_draw(kMs)}), 1);
    submit(compute, Kernel{.blocks = 1, .block_ns = kMs, .shared_memory = 49'152}, 2);
    ASSERT_TRUE(engine.set_channel_enabled(renderer, false).ok());
    run();
    EXPECT_FALSE(has_ended(1));
    EXPECT_TRUE(has_ended(2));
}

TEST_F(EngineTest, SharedMemoryAboveTheLimitKillsTheTsg) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    const ChannelId stranger = compute_channel(engine.create_tsg());
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    submit(renderer, frame({fragment_draw(10 * kMs)}), 2);
    submit(stranger, kernel(8, kMs), 3);
    run(5 * kMs);
    submit(compute, Kernel{.blocks = 1, .block_ns = kMs, .shared_memory = 50'176}, 4);
    run(15 * kMs);  // the slice is over, so the kernel starts only after the stranger's turn
    run();
    for (uint64_t cookie : {2u, 4u}) EXPECT_EQ(ended(cookie).status, WorkStatus::kFaulted) << cookie;
    EXPECT_EQ(ended(3).status, WorkStatus::kDone);
    const std::vector<Fault> faults = engine.take_faults();
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults[0].kind, FaultKind::kSharedMemory);
    EXPECT_EQ(faults[0].channel, compute);
    EXPECT_EQ(faults[0].cookie, 4u);
    EXPECT_TRUE(engine.tsg_info(tsg)->faulted);
    EXPECT_EQ(engine.submit(renderer, Marker{}, 5).error().code, Code::kFailedPrecondition);
    EXPECT_EQ(engine.create_channel(tsg, {}).error().code, Code::kFailedPrecondition);
    EXPECT_TRUE(engine.destroy_channel(compute).ok());
    EXPECT_TRUE(engine.destroy_tsg(tsg).ok());
}

TEST_F(EngineTest, SharedMemoryIsFreeWithoutGraphicsInTheTsg) {
    const ChannelId compute = compute_channel(engine.create_tsg());
    submit(compute, Kernel{.blocks = 1, .block_ns = kMs, .shared_memory = 232'448}, 1);
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kDone);
}

TEST_F(EngineTest, InjectedFaultEndsEveryWorkOfTheTsgAndNoOther) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    const ChannelId stranger = compute_channel(engine.create_tsg());
    submit(renderer, frame({fragment_draw(10 * kMs)}), 1);
    submit(compute, kernel(8, 50 * kMs), 2);
    submit(stranger, kernel(8, kMs), 3);
    run(kMs);
    ASSERT_TRUE(engine.fault_tsg(tsg, FaultKind::kInjected, compute).ok());
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kFaulted);
    EXPECT_EQ(ended(1).end, kMs);
    EXPECT_EQ(ended(2).status, WorkStatus::kFaulted);
    EXPECT_EQ(ended(3).status, WorkStatus::kDone);
    EXPECT_EQ(ended(3).start, kMs);
    EXPECT_EQ(engine.fault_tsg(tsg).error().code, Code::kFailedPrecondition);
}

// --- lifetimes -------------------------------------------------------------------------------------------------------

// Seen on an H200: kill -9 of the renderer, and the attached CUDA program runs on at full speed; the other way round
// too.
TEST_F(EngineTest, TheOtherChannelsOutliveAKilledOne) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    submit(renderer, frame({fragment_draw(100 * kMs)}), 1);
    submit(renderer, frame({fragment_draw(100 * kMs)}), 2);
    submit(compute, kernel(8, 2 * kMs), 3);
    run(4 * kMs);  // half of the kernel, at 0.25
    ASSERT_TRUE(engine.destroy_channel(renderer).ok());
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kAborted);
    EXPECT_EQ(ended(1).start, 0);
    EXPECT_EQ(ended(1).end, 4 * kMs);
    EXPECT_EQ(ended(2).status, WorkStatus::kAborted);
    EXPECT_EQ(ended(2).start, -1);
    EXPECT_EQ(ended(3).status, WorkStatus::kDone);
    EXPECT_EQ(ended(3).end, 5 * kMs);
    EXPECT_EQ(engine.submit(renderer, Marker{}, 4).error().code, Code::kNotFound);
}

TEST_F(EngineTest, DestroyedTsgHandsTheEngineOn) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId busy = compute_channel(tsg);
    const ChannelId waiting = compute_channel(engine.create_tsg());
    submit(busy, kernel(8, 100 * kMs), 1);
    submit(waiting, kernel(8, kMs), 2);
    run(kMs);
    ASSERT_TRUE(engine.destroy_tsg(tsg).ok());
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kAborted);
    EXPECT_EQ(ended(2).start, kMs);
    EXPECT_EQ(engine.destroy_tsg(tsg).error().code, Code::kNotFound);
    EXPECT_EQ(engine.tsg_info(tsg).error().code, Code::kNotFound);
    EXPECT_EQ(engine.channel_info(busy).error().code, Code::kNotFound);
}

TEST_F(EngineTest, TargetOfASwitchMayDisappear) {
    Params params;
    params.switch_ns = 100 * kUs;
    engine = *Engine::make(*Topology::preset("orin"), params);
    const TsgId first = engine.create_tsg();
    const ChannelId gone = compute_channel(first);
    const ChannelId stays = compute_channel(engine.create_tsg());
    submit(gone, kernel(1, kMs), 1);
    submit(stays, kernel(1, kMs), 2);
    run(50 * kUs);
    ASSERT_TRUE(engine.destroy_tsg(first).ok());
    run();
    EXPECT_EQ(ended(1).status, WorkStatus::kAborted);
    EXPECT_EQ(ended(2).start, 150 * kUs);
}

TEST_F(EngineTest, DisabledChannelKeepsItsWork) {
    const TsgId tsg = engine.create_tsg();
    const Result<ChannelId> channel = engine.create_channel(tsg, {.kind = ChannelKind::kCompute, .enabled = false});
    ASSERT_TRUE(channel.ok());
    submit(*channel, kernel(8 * 3, kMs), 1);
    run(10 * kMs);
    EXPECT_EQ(engine.next_event_time(), kNever);
    ASSERT_TRUE(engine.set_channel_enabled(*channel, true).ok());
    run(10 * kMs + kMs / 2);
    ASSERT_TRUE(engine.set_channel_enabled(*channel, false).ok());  // the running wave ends
    run(20 * kMs);
    EXPECT_EQ(engine.channel_info(*channel)->queued, 1u);
    EXPECT_EQ(engine.stats().waves, 1u);
    ASSERT_TRUE(engine.set_channel_enabled(*channel, true).ok());
    run();
    EXPECT_EQ(ended(1).start, 10 * kMs);
    EXPECT_EQ(ended(1).end, 22 * kMs);
}

TEST_F(EngineTest, InfoTellsWhatIsThere) {
    const TsgId tsg = engine.create_tsg();
    const Result<ChannelId> channel =
        engine.create_channel(tsg, {.kind = ChannelKind::kCompute, .veid = 63, .runqueue = 1});
    ASSERT_TRUE(channel.ok());
    submit(*channel, kernel(8, kMs), 1);
    submit(*channel, kernel(8, kMs), 2);
    EXPECT_EQ(engine.channel_info(*channel)->options.veid, 63);
    EXPECT_EQ(engine.channel_info(*channel)->options.runqueue, 1);
    EXPECT_EQ(engine.channel_info(*channel)->tsg, tsg);
    const TsgInfo before = *engine.tsg_info(tsg);
    EXPECT_EQ(before.channels, 1u);
    EXPECT_EQ(before.queued, 2u);
    run(3 * kMs / 2);
    EXPECT_EQ(engine.tsg_info(tsg)->queued, 1u);
    EXPECT_EQ(engine.tsg_info(tsg)->run_time, 3 * kMs / 2);
    EXPECT_TRUE(engine.tsg_info(tsg)->loaded);
    EXPECT_DOUBLE_EQ(engine.stats().compute_sm_ns, 8 * 1.5e6);
}

TEST_F(EngineTest, RefusesImpossibleWork) {
    const TsgId tsg = engine.create_tsg();
    const ChannelId renderer = graphics_channel(tsg), compute = compute_channel(tsg);
    const auto refused = [&](ChannelId channel, Work work) {
        const Status sent = engine.submit(channel, std::move(work), 0);
        return !sent.ok() && sent.error().code == Code::kInvalidArgument;
    };
    EXPECT_TRUE(refused(compute, frame({fragment_draw(1)})));
    EXPECT_TRUE(refused(renderer, frame({fragment_draw(-1)})));
    EXPECT_TRUE(refused(renderer, frame({{.fragment_ns = 1, .fragment_sm_need = 0}})));
    EXPECT_TRUE(refused(renderer, frame({{.fragment_ns = 1, .fragment_bandwidth = 1.5}})));
    EXPECT_TRUE(refused(compute, kernel(0, 1)));
    EXPECT_TRUE(refused(compute, kernel(1, -1)));
    EXPECT_TRUE(refused(compute, Kernel{.blocks_per_sm = 0}));
    EXPECT_TRUE(refused(compute, Kernel{.blocks_per_sm = 65}));
    EXPECT_TRUE(refused(compute, Kernel{.bandwidth = -0.1}));
    EXPECT_TRUE(refused(compute, Kernel{.disabled_tpcs = TpcSet().set()}));
    EXPECT_EQ(engine.submit(ChannelId{999}, Marker{}, 0).error().code, Code::kNotFound);
    EXPECT_EQ(engine.create_channel(TsgId{999}, {}).error().code, Code::kNotFound);
    EXPECT_EQ(engine.set_timeslice(tsg, -1).error().code, Code::kInvalidArgument);
    Params params;
    params.jitter = 2;
    EXPECT_EQ(Engine::make(*Topology::preset("orin"), params).error().code, Code::kInvalidArgument);
    EXPECT_EQ(Engine::make("nothing").error().code, Code::kNotFound);
    EXPECT_EQ(engine.next_event_time(), kNever);
}

}  // namespace
}  // namespace vuda::sim
