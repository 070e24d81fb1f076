// What the tuner costs: ticks with 64 processes, at rest and while it decides, and samples.  Target: 50 us a tick.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tuner/tuner.h"

namespace vuda::tuner {
namespace {

struct Load {
    explicit Load(size_t sessions, size_t levels) {
        Ladder ladder;
        for (uint32_t i = 1; i <= levels; ++i) ladder.tpcs.push_back(i);
        ladder.total_tpcs = static_cast<uint32_t>(levels) + 2;
        tuner.emplace(*Tuner::make(ladder, now, static_cast<uint32_t>(levels / 2)));
        (void)tuner->set_graphics_target({16.67, 0.01}, now);
        for (SessionId id = 1; id <= sessions; ++id) {
            (void)tuner->add_session(id, now, static_cast<double>(id));
            (void)tuner->set_compute_target(id, {50, 0.01, 10}, now);
        }
        this->sessions = sessions;
    }
    // 20 ms of a 60 Hz renderer and of processes that make 50 steps a second each.
    void pass(double frame_ms) {
        now += 20 * kMs;
        samples.clear();
        samples.push_back({SampleKind::kFrame, kGraphicsSide, now, static_cast<int64_t>(1e6 * frame_ms)});
        for (SessionId id = 1; id <= sessions; ++id) samples.push_back({SampleKind::kStep, id, now, 20 * kMs});
        tuner->add(now, samples);
    }
    TimeNs now = kSecond;
    size_t sessions = 0;
    std::optional<Tuner> tuner;
    std::vector<Sample> samples;
};

// Of this thread, so that a busy machine does not count.
double cpu_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Arguments: sessions, levels, and whether frames swing between on time and late, so that it decides all the time.
void tick(benchmark::State& state) {
    Load load(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)));
    const bool deciding = state.range(2) != 0;
    int64_t i = 0;
    for (; i < 500; ++i) {
        load.pass(12);
        load.tuner->tick(load.now);
    }
    std::vector<double> costs;
    for (auto _ : state) {
        state.PauseTiming();
        load.pass(deciding && i++ % 50 < 5 ? 30 : 12);
        state.ResumeTiming();
        const double start = cpu_us();
        benchmark::DoNotOptimize(load.tuner->tick(load.now));
        costs.push_back(cpu_us() - start);
    }
    std::sort(costs.begin(), costs.end());
    double sum = 0;
    for (const double cost : costs) sum += cost;
    state.counters["mean_cpu_us"] = sum / static_cast<double>(costs.size());
    state.counters["p50_cpu_us"] = costs[costs.size() / 2];
    state.counters["p99_cpu_us"] = costs[costs.size() * 99 / 100];
    state.counters["memory_KiB"] = static_cast<double>(load.tuner->memory_bytes()) / 1024;
}
// Levels: 5 as an RTX 4090 has, 9 as an H200, 18 as a GPC has TPCs at most; more only where levels are single TPCs.
BENCHMARK(tick)
    ->Args({1, 5, 0})
    ->Args({64, 5, 0})
    ->Args({64, 5, 1})
    ->Args({64, 9, 0})
    ->Args({64, 9, 1})
    ->Args({64, 18, 0})
    ->Args({64, 18, 1})
    ->Args({64, 64, 0})
    ->Args({64, 64, 1})
    ->Args({64, 96, 0})
    ->Args({64, 96, 1})
    ->Iterations(5000)
    ->Unit(benchmark::kMicrosecond);

void add_million(benchmark::State& state) {
    Load load(64, 5);
    std::vector<Sample> samples;
    for (int i = 0; i < 1'000'000; ++i)
        samples.push_back({SampleKind::kStep, static_cast<SessionId>(1 + i % 64), load.now, 20 * kMs + i});
    for (auto _ : state) load.tuner->add(load.now, samples);
    state.SetItemsProcessed(state.iterations() * 1'000'000);
}
BENCHMARK(add_million)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vuda::tuner

BENCHMARK_MAIN();
