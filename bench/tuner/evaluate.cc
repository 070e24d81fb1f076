#include "bench/tuner/evaluate.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/tuner/rate_plant.h"

namespace vuda::tuner::eval {
namespace {

constexpr TimeNs kKept = kSecond;

bool has_compute_target(const Workload& workload) {
    return std::any_of(workload.clients.begin(), workload.clients.end(),
                       [](const ClientLoad& c) { return c.target.any(); });
}

double compute_attainment(const Workload& workload, const Outcome& outcome) {
    Workload no_frames = workload;
    no_frames.graphics = {};
    return outcome.attainment(no_frames);
}

// What a fixed quota is chosen by, once it holds its targets: the renderer's speed when only compute has one.
double choice(const Scenario& scenario, const Speeds& speeds, const Outcome& outcome) {
    if (!scenario.workload.graphics.any() && has_compute_target(scenario.workload))
        return outcome.frame_ms > 0 ? static_cast<double>(outcome.frames.all) / outcome.frame_ms : 0;
    return objective(scenario, speeds, outcome);
}

// Index of the best fixed quota.
size_t oracle_of(const Scenario& scenario, const Speeds& speeds, const std::vector<Run>& fixed) {
    const Workload& workload = scenario.workload;
    const auto better = [&](const Outcome& a, const Outcome& b) {
        const bool meets_a = a.meets(workload), meets_b = b.meets(workload);
        if (meets_a != meets_b) return meets_a;
        if (!meets_a) {
            // The tuner's priority: graphics first.
            const double graphics = a.frames.value() - b.frames.value();
            if (workload.graphics.any() && std::abs(graphics) > 0.005) return graphics > 0;
            const double compute = compute_attainment(workload, a) - compute_attainment(workload, b);
            if (std::abs(compute) > 0.005) return compute > 0;
        }
        const double mine = choice(scenario, speeds, a), other = choice(scenario, speeds, b);
        if (std::abs(mine - other) > 0.01 * other) return mine > other;
        return a.attainment(workload) > b.attainment(workload);
    };
    size_t best = 0;
    for (size_t i = 1; i < fixed.size(); ++i) {
        if (better(fixed[i].counted, fixed[best].counted)) best = i;
    }
    return best;
}

Score score(const Scenario& scenario, const Speeds& speeds, const Run& run, const Run& oracle) {
    Score out;
    out.attainment = run.counted.attainment(scenario.workload);
    out.attainment_all = run.all.attainment(scenario.workload);
    out.vs_oracle = run.counted.against(oracle.counted, scenario.workload);
    const double rate = objective(scenario, speeds, oracle.counted);
    out.rate_vs_oracle = rate > 0 ? objective(scenario, speeds, run.counted) / rate : 1;
    out.compute_rate = run.counted.compute_rate();
    out.frame_rate = run.counted.frame_rate();
    const double minutes = run.counted.seconds / 60;
    out.reversals_per_min = 60 * run.reversals / run.steady_seconds;
    out.changes_per_min = static_cast<double>(run.levels.size() - 1) / minutes;
    return out;
}

// Until a level was entered, and kept for a second, at which the fixed quota holds the targets, `times` the allowed
// misses counted.
void converge(const Scenario& scenario, const Speeds& speeds, const std::vector<Run>& fixed, const Run& run,
              double times, std::vector<double>& seconds, std::vector<double>& frames) {
    if (!scenario.stationary) return;  // which level is right changes all the time
    if (!scenario.workload.graphics.any() && !has_compute_target(scenario.workload)) return;
    const std::vector<TimeNs> bounds = segment_bounds(scenario);
    const std::vector<uint32_t>& tpcs = speeds.ladder.tpcs;
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
        const auto good = [&](uint32_t level, double factor) {
            const auto it = std::find(tpcs.begin(), tpcs.end(), level);
            return it != tpcs.end() &&
                   fixed[static_cast<size_t>(it - tpcs.begin())].segments[s].meets(scenario.workload, factor);
        };
        if (std::none_of(tpcs.begin(), tpcs.end(), [&](uint32_t level) { return good(level, 1); })) continue;
        TimeNs since = -1, found = -1;
        for (size_t i = 0; i < run.levels.size() && found < 0; ++i) {
            const TimeNs from = std::max(run.levels[i].first, bounds[s]);
            const TimeNs to =
                std::min(i + 1 < run.levels.size() ? run.levels[i + 1].first : scenario.duration, bounds[s + 1]);
            if (from >= to) continue;
            if (!good(run.levels[i].second, times)) {
                since = -1;
                continue;
            }
            if (since < 0) since = from;
            if (to - since >= kKept) found = since;
        }
        const auto passed = std::count_if(run.frame_times.begin(), run.frame_times.end(),
                                          [&](const auto& f) { return f.first > bounds[s] && f.first <= found; });
        seconds.push_back(found < 0 ? -1 : static_cast<double>(found - bounds[s]) / 1e9);
        frames.push_back(found < 0 ? -1 : static_cast<double>(passed));
    }
}

}  // namespace

double objective(const Scenario& scenario, const Speeds& speeds, const Outcome& outcome) {
    if (scenario.workload.graphics.any() || has_compute_target(scenario.workload)) return outcome.compute_rate();
    const double frames_alone = 1e9 / static_cast<double>(frame_ns(scenario.workload.renderer.frame));
    const double steps_alone = 1e9 / (speeds.kernel_ns * scenario.workload.clients[0].kernels);
    return outcome.frame_rate() / frames_alone + outcome.compute_rate() / steps_alone;
}

SeedResult evaluate_seed(const Scenario& scenario, const Speeds& speeds, uint64_t seed) {
    const History history = history_of(scenario, seed);
    const auto through = [&](Controller& controller) {
        RatePlant plant(scenario.workload, speeds, seed);
        return run(scenario, history, plant, controller, seed, true);
    };
    std::vector<Run> fixed;
    for (const uint32_t level : speeds.ladder.tpcs) fixed.push_back(through(*fixed_level(level)));
    const Run& oracle = fixed[oracle_of(scenario, speeds, fixed)];
    const uint32_t start = start_level(scenario, speeds.ladder);
    const Run tuned = through(*slo_tuner(scenario.workload, speeds.ladder, start, kSecond * 1000));

    SeedResult out;
    out.oracle_level = oracle.levels.front().second;
    out.oracle_meets = oracle.counted.meets(scenario.workload);
    out.scores[static_cast<size_t>(Who::kOracle)] = score(scenario, speeds, oracle, oracle);
    out.scores[static_cast<size_t>(Who::kTuner)] = score(scenario, speeds, tuned, oracle);
    out.scores[static_cast<size_t>(Who::kAdditive)] =
        score(scenario, speeds, through(*additive_increase(scenario.workload, speeds.ladder, start)), oracle);
    out.scores[static_cast<size_t>(Who::kNone)] =
        score(scenario, speeds, through(*fixed_level(kUnpartitioned)), oracle);
    converge(scenario, speeds, fixed, tuned, 1, out.convergence_s, out.convergence_frames);
    converge(scenario, speeds, fixed, tuned, 1.5, out.near_convergence_s, out.near_convergence_frames);
    return out;
}

std::vector<SeedResult> evaluate(const Scenario& scenario, const Speeds& speeds, uint64_t first_seed, size_t seeds,
                                 unsigned threads) {
    std::vector<SeedResult> out(seeds);
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i = next++; i < seeds; i = next++) out[i] = evaluate_seed(scenario, speeds, first_seed + i);
    };
    std::vector<std::jthread> workers;
    for (unsigned t = 1; t < threads; ++t) workers.emplace_back(work);
    work();
    workers.clear();  // joins
    return out;
}

}  // namespace vuda::tuner::eval
