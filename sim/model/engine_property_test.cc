// Random programs against the engine: whatever they do, the rules below hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/model/engine.h"
#include "sim/model/random.h"

namespace vuda::sim {
namespace {

constexpr TimeNs kUs = 1000;
constexpr TimeNs kMs = 1000 * kUs;

const char* const kGpus[] = {"rtx4090", "a800", "orin", "h200"};

bool same(const Completion& a, const Completion& b) {
    return std::tie(a.cookie, a.tsg, a.channel, a.status, a.submitted, a.start, a.end) ==
               std::tie(b.cookie, b.tsg, b.channel, b.status, b.submitted, b.start, b.end) &&
           a.sms == b.sms;
}

Kernel random_kernel(Random& random, const Topology& topology) {
    Kernel kernel;
    kernel.blocks = static_cast<uint32_t>(1 + random.below(600));
    kernel.block_ns = static_cast<TimeNs>(random.below(200 * kUs));
    kernel.blocks_per_sm = static_cast<uint32_t>(1 + random.below(8));
    if (random.below(4) == 0) kernel.blocks_per_sm = 64;
    kernel.shared_memory = static_cast<uint32_t>(1024 * (1 + random.below(48)));  // some wait for frames, none faults
    kernel.bandwidth = random.uniform();
    if (random.below(3) == 0) {
        TpcSet disabled;
        for (int tpc = 0; tpc < topology.tpc_count(); ++tpc)
            disabled.set(static_cast<size_t>(tpc), random.below(2) == 0);
        disabled.reset(random.below(static_cast<uint64_t>(topology.tpc_count())));
        kernel.disabled_tpcs = disabled;
    }
    return kernel;
}

Frame random_frame(Random& random) {
    Frame frame;
    frame.draws.resize(random.below(4));
    for (Draw& draw : frame.draws) {
        draw.vertex_ns = static_cast<TimeNs>(random.below(3) == 0 ? 0 : random.below(2 * kMs));
        draw.fragment_ns = static_cast<TimeNs>(random.below(3) == 0 ? 0 : random.below(2 * kMs));
        draw.fragment_sm_need = 0.1 + 0.9 * random.uniform();
        draw.vertex_bandwidth = random.uniform();
        draw.fragment_bandwidth = random.uniform();
        draw.yield_after = random.below(4) == 0;
    }
    return frame;
}

Engine random_engine(uint64_t seed, double jitter) {
    Topology topology = *Topology::preset(kGpus[seed % std::size(kGpus)]);
    Params params = Params::fitted(topology);
    params.seed = seed;
    params.jitter = jitter;
    return *Engine::make(std::move(topology), params);
}

// Everything one random run did and saw.
struct History {
    uint64_t submitted = 0;
    std::map<ChannelId, std::vector<uint64_t>> order;  // cookies as submitted
    std::vector<Completion> done;
    std::vector<Fault> faults;
    Stats stats;
    TimeNs end = 0;
    int sm_count = 0;
};

// `step` cuts each advance into pieces of at most so many nanoseconds; 0: one piece.
History random_run(uint64_t seed, double jitter, TimeNs step) {
    Engine engine = random_engine(seed, jitter);
    Random random(seed * 7919 + 1);
    History run;
    std::vector<TsgId> tsgs;
    std::vector<std::pair<ChannelId, ChannelKind>> channels;
    const auto pick = [&](const auto& list) { return list[random.below(list.size())]; };
    const auto advance = [&](TimeNs until) {
        while (step != 0 && engine.now() + step < until) engine.advance_to(engine.now() + step);
        engine.advance_to(until);
        for (Completion& completion : engine.take_completions()) run.done.push_back(completion);
        for (Fault& fault : engine.take_faults()) run.faults.push_back(fault);
    };

    for (int i = 0; i < 300; ++i) {
        // Results are ignored on purpose: operations on faulted or foreign objects must fail cleanly, that is all.
        switch (random.below(20)) {
            case 0:
                if (tsgs.size() < 6) tsgs.push_back(engine.create_tsg(static_cast<TimeNs>(random.below(4)) * kMs));
                break;
            case 1:
            case 2:
                if (!tsgs.empty() && channels.size() < 24) {
                    const ChannelKind kind = random.below(3) == 0 ? ChannelKind::kGraphics : ChannelKind::kCompute;
                    const Result<ChannelId> made = engine.create_channel(pick(tsgs), {.kind = kind});
                    if (made) channels.emplace_back(*made, kind);
                }
                break;
            case 3:
                if (!tsgs.empty() && random.below(4) == 0) {
                    const size_t victim = random.below(tsgs.size());
                    EXPECT_TRUE(engine.destroy_tsg(tsgs[victim]).ok());
                    tsgs.erase(tsgs.begin() + static_cast<std::ptrdiff_t>(victim));
                }
                break;
            case 4:
                if (!channels.empty() && random.below(3) == 0) {
                    const size_t victim = random.below(channels.size());
                    (void)engine.destroy_channel(channels[victim].first);
                    channels.erase(channels.begin() + static_cast<std::ptrdiff_t>(victim));
                }
                break;
            case 5:
                if (!tsgs.empty()) {
                    (void)engine.set_mode(pick(tsgs), random.below(2) == 0 ? ScgMode::kIntraSm : ScgMode::kInterSm);
                }
                break;
            case 6:
                if (!tsgs.empty()) {
                    (void)engine.set_quota(pick(tsgs), random.below(5) == 0
                                                           ? std::nullopt
                                                           : std::optional<int>(static_cast<int>(random.below(70))));
                }
                break;
            case 7:
                if (!tsgs.empty()) (void)engine.set_timeslice(pick(tsgs), static_cast<TimeNs>(random.below(5 * kMs)));
                break;
            case 8:
                if (!channels.empty()) (void)engine.set_channel_enabled(pick(channels).first, random.below(3) != 0);
                break;
            case 9:
                if (!tsgs.empty() && random.below(10) == 0) (void)engine.fault_tsg(pick(tsgs));
                break;
            case 10:
            case 11:
            case 12: advance(engine.now() + static_cast<TimeNs>(random.below(10 * kMs))); break;
            default: {
                if (channels.empty()) break;
                const auto [channel, kind] = pick(channels);
                Work work = Marker{};
                if (random.below(8) != 0) {
                    work = kind == ChannelKind::kGraphics && random.below(3) != 0
                               ? Work(random_frame(random))
                               : Work(random_kernel(random, engine.topology()));
                }
                const uint64_t cookie = run.submitted + 1;
                if (!engine.submit(channel, std::move(work), cookie)) break;
                ++run.submitted;
                run.order[channel].push_back(cookie);
                break;
            }
        }
    }
    for (const auto& [channel, kind] : channels) (void)engine.set_channel_enabled(channel, true);
    // All that is left ends by itself.
    int quiet = 0;
    while (engine.next_event_time() != kNever && quiet++ < 1'000'000) advance(engine.next_event_time());
    EXPECT_EQ(engine.next_event_time(), kNever) << "seed " << seed;
    for (TsgId tsg : tsgs) {
        EXPECT_EQ(engine.tsg_info(tsg)->queued, 0u) << "seed " << seed << ": work is stuck in a TSG";
        EXPECT_TRUE(engine.destroy_tsg(tsg).ok());
    }
    advance(engine.now() + 1);
    run.stats = engine.stats();
    run.end = engine.now();
    run.sm_count = engine.topology().sm_count();
    return run;
}

class RandomRuns : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, testing::Range<uint64_t>(0, 24));

TEST_P(RandomRuns, EveryWorkEndsOnceInOrderAndTimeIsMonotone) {
    const History run = random_run(GetParam(), GetParam() % 2 == 0 ? 0.0 : 0.2, 0);
    EXPECT_EQ(run.done.size(), run.submitted);
    std::set<uint64_t> seen;
    std::map<ChannelId, std::vector<uint64_t>> order;
    TimeNs last = 0;
    for (const Completion& completion : run.done) {
        EXPECT_TRUE(seen.insert(completion.cookie).second) << "ended twice: " << completion.cookie;
        order[completion.channel].push_back(completion.cookie);
        EXPECT_GE(completion.end, last);
        last = completion.end;
        EXPECT_GE(completion.end, completion.submitted);
        if (completion.start >= 0) {
            EXPECT_GE(completion.start, completion.submitted);
            EXPECT_GE(completion.end, completion.start);
        } else {
            EXPECT_NE(completion.status, WorkStatus::kDone);
        }
    }
    EXPECT_EQ(order, run.order);
    EXPECT_EQ(run.stats.faults, run.faults.size());
}

TEST_P(RandomRuns, GivenSmTimeNeverExceedsWhatThereWas) {
    const History run = random_run(GetParam(), 0.1, 0);
    const double capacity = static_cast<double>(run.sm_count) * static_cast<double>(run.end);
    EXPECT_LE(run.stats.compute_sm_ns + run.stats.graphics_sm_ns, capacity * (1 + 1e-9));
    EXPECT_GE(run.stats.compute_sm_ns, 0);
    EXPECT_GE(run.stats.graphics_sm_ns, 0);
}

TEST_P(RandomRuns, SameSeedSameRunWhateverTheSteps) {
    const History first = random_run(GetParam(), 0.3, 0);
    const History second = random_run(GetParam(), 0.3, 0);
    const History stepped = random_run(GetParam(), 0.3, 77'777);
    ASSERT_EQ(first.done.size(), second.done.size());
    ASSERT_EQ(first.done.size(), stepped.done.size());
    for (size_t i = 0; i < first.done.size(); ++i) {
        EXPECT_TRUE(same(first.done[i], second.done[i])) << i;
        EXPECT_TRUE(same(first.done[i], stepped.done[i])) << i;
    }
    EXPECT_EQ(first.end, second.end);
}

TEST(EngineProperties, AnotherSeedChangesTheJitter) {
    const auto end_of = [](uint64_t seed) {
        Params params;
        params.seed = seed;
        params.jitter = 0.1;
        Engine engine = *Engine::make(*Topology::preset("orin"), params);
        const ChannelId channel = *engine.create_channel(engine.create_tsg(), {});
        EXPECT_TRUE(engine.submit(channel, Kernel{.blocks = 100, .block_ns = kMs}, 1).ok());
        engine.advance_to(kMs * 1000);
        return engine.take_completions().at(0).end;
    };
    EXPECT_EQ(end_of(1), end_of(1));
    EXPECT_NE(end_of(1), end_of(2));
}

// The work that compute got is exactly the work that was submitted.
TEST_P(RandomRuns, NoBlockIsLostOrInvented) {
    Engine engine = random_engine(GetParam(), 0.0);
    Random random(GetParam());
    double submitted = 0;
    std::vector<ChannelId> channels;
    for (int i = 0; i < 3; ++i) {
        const TsgId tsg = engine.create_tsg();
        channels.push_back(*engine.create_channel(tsg, {.kind = ChannelKind::kCompute}));
        channels.push_back(*engine.create_channel(tsg, {.kind = ChannelKind::kGraphics}));
    }
    for (int i = 0; i < 100; ++i) {
        const ChannelId channel = channels[random.below(channels.size())];
        if (engine.channel_info(channel)->options.kind == ChannelKind::kGraphics) {
            ASSERT_TRUE(engine.submit(channel, random_frame(random), 0).ok());
            continue;
        }
        const Kernel kernel = random_kernel(random, engine.topology());
        submitted += static_cast<double>(kernel.blocks) * static_cast<double>(kernel.block_ns) *
                     (64 / kernel.blocks_per_sm) / 64;
        ASSERT_TRUE(engine.submit(channel, kernel, 0).ok());
    }
    engine.advance_to(3600 * 1000 * kMs);
    EXPECT_EQ(engine.next_event_time(), kNever);
    // Ends are rounded up to whole nanoseconds.
    const auto rounding = static_cast<double>(engine.stats().waves) * engine.topology().sm_count();
    EXPECT_GE(engine.stats().compute_sm_ns, submitted - 1);
    EXPECT_LE(engine.stats().compute_sm_ns, submitted + rounding);
    EXPECT_EQ(engine.stats().kernel_starts, engine.stats().kernel_ends);
    EXPECT_EQ(engine.stats().frame_starts, engine.stats().frame_ends);
    EXPECT_EQ(engine.stats().draw_starts, engine.stats().draw_ends);
}

// Quotas change while kernels run: a kernel only ever touches TPCs of quotas that were in force during its life.
TEST_P(RandomRuns, KernelsStayInsideTheQuotaAndTheirMask) {
    const char* const gpus[] = {"rtx4090", "a800", "orin"};
    Engine engine = *Engine::make(gpus[GetParam() % 3]);
    const Topology& topology = engine.topology();
    Random random(GetParam());
    const TsgId tsg = engine.create_tsg();
    const ChannelId graphics = *engine.create_channel(tsg, {.kind = ChannelKind::kGraphics});
    const ChannelId compute[] = {*engine.create_channel(tsg, {}), *engine.create_channel(tsg, {})};
    ASSERT_TRUE(engine.set_mode(tsg, ScgMode::kInterSm).ok());

    std::map<TimeNs, TpcSet> in_force;  // from that time on
    std::map<uint64_t, TpcSet> masks;
    uint64_t cookie = 0;
    std::vector<Completion> done;
    for (int round = 0; round < 60; ++round) {
        const int quota = static_cast<int>(1 + random.below(static_cast<uint64_t>(topology.max_compute_quota())));
        ASSERT_TRUE(engine.set_quota(tsg, quota).ok());
        in_force[engine.now()] = topology.compute_tpcs(quota);
        EXPECT_EQ(engine.tsg_info(tsg)->compute_tpcs.count(), static_cast<size_t>(quota));
        ASSERT_TRUE(engine.submit(graphics, random_frame(random), 0).ok());
        for (const ChannelId channel : compute) {
            Kernel kernel = random_kernel(random, topology);
            // Every quota contains the TPCs of quota 1, so no mask leaves nothing.
            if (kernel.disabled_tpcs) *kernel.disabled_tpcs &= ~topology.compute_tpcs(1);
            masks[++cookie] = kernel.disabled_tpcs.value_or(TpcSet());
            ASSERT_TRUE(engine.submit(channel, kernel, cookie).ok());
        }
        engine.advance_to(engine.now() + static_cast<TimeNs>(random.below(8 * kMs)));
        for (Completion& completion : engine.take_completions()) done.push_back(completion);
    }
    engine.advance_to(engine.now() + 3600 * 1000 * kMs);
    for (Completion& completion : engine.take_completions()) done.push_back(completion);

    uint64_t checked = 0;
    for (const Completion& completion : done) {
        if (completion.cookie == 0) continue;
        ASSERT_EQ(completion.status, WorkStatus::kDone);
        TpcSet allowed;
        for (auto it = in_force.begin(); it != in_force.end(); ++it) {
            const auto next = std::next(it);
            const bool over = next != in_force.end() && next->first < completion.start;
            if (!over && it->first <= completion.end) allowed |= it->second;
        }
        allowed &= ~masks[completion.cookie];
        EXPECT_TRUE((completion.sms & ~topology.sms_of(allowed)).none()) << completion.cookie;
        EXPECT_TRUE(completion.sms.any());
        ++checked;
    }
    EXPECT_EQ(checked, cookie);
    EXPECT_EQ(engine.stats().faults, 0u);
}

// With endless work everywhere, no TSG waits longer than one turn of all the others.
TEST_P(RandomRuns, EveryTsgWithWorkGetsItsTurn) {
    Engine engine = random_engine(GetParam(), 0.0);
    Random random(GetParam());
    std::vector<TsgId> tsgs;
    std::vector<ChannelId> channels;
    TimeNs longest_turn = 0;
    for (uint64_t i = 0, count = 2 + random.below(5); i < count; ++i) {
        const auto slice = static_cast<TimeNs>(100 * kUs + static_cast<TimeNs>(random.below(3 * kMs)));
        const bool graphics = random.below(2) == 0;
        tsgs.push_back(engine.create_tsg(slice));
        channels.push_back(
            *engine.create_channel(tsgs.back(), {.kind = graphics ? ChannelKind::kGraphics : ChannelKind::kCompute}));
        const auto unit = static_cast<TimeNs>(50 * kUs + static_cast<TimeNs>(random.below(5 * kMs)));
        if (graphics) {
            const Frame frame{{Draw{.fragment_ns = unit}, Draw{.fragment_ns = unit}}};
            for (TimeNs work = 0; work < 1000 * kMs; work += 2 * unit) {
                ASSERT_TRUE(engine.submit(channels.back(), frame, i).ok());
            }
        } else {
            ASSERT_TRUE(engine.submit(channels.back(), Kernel{.blocks = UINT32_MAX, .block_ns = unit}, i).ok());
        }
        longest_turn += slice + unit + engine.params().switch_ns;
    }
    std::vector<TimeNs> seen(tsgs.size(), 0);
    for (TimeNs t = longest_turn; t < 1000 * kMs; t += longest_turn) {
        engine.advance_to(t);
        for (size_t i = 0; i < tsgs.size(); ++i) {
            const TimeNs run_time = engine.tsg_info(tsgs[i])->run_time;
            EXPECT_GT(run_time, seen[i]) << "TSG " << i << " starved until " << t;
            seen[i] = run_time;
        }
    }
}

}  // namespace
}  // namespace vuda::sim
