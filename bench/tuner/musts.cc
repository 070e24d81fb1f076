#include "bench/tuner/musts.h"

#include <cstdio>

namespace vuda::tuner::eval {
namespace {

const Score& tuned(const SeedResult& result) { return result.scores[static_cast<size_t>(Who::kTuner)]; }

Verdict share(const std::string& what, size_t good, size_t all, double least) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "%zu of %zu (%.1f %%, at least %.0f %%)", good, all,
                  100 * static_cast<double>(good) / static_cast<double>(all), 100 * least);
    return {what + " in " + numbers, static_cast<double>(good) >= least * static_cast<double>(all)};
}

bool has_targets(const Workload& workload) {
    bool any = workload.graphics.any();
    for (const ClientLoad& client : workload.clients) any |= client.target.any();
    return any;
}

}  // namespace

bool in_time(double seconds, double frames) {
    return seconds >= 0 && (seconds <= kInTimeSeconds || frames <= kInTimeFrames);
}

std::vector<Verdict> judge(const Scenario& scenario, const std::vector<SeedResult>& results) {
    std::vector<Verdict> out;
    size_t converged = 0, starts = 0, attained = 0, fast = 0, met = 0, calm = 0;
    for (const SeedResult& result : results) {
        for (size_t i = 0; i < result.convergence_s.size(); ++i, ++starts)
            converged += in_time(result.convergence_s[i], result.convergence_frames[i]) ? 1 : 0;
        attained += tuned(result).vs_oracle >= kAttainment ? 1 : 0;
        calm += tuned(result).reversals_per_min <= kReversalsPerMinute ? 1 : 0;
        // Without targets there is none to hold, and the best sum of rates is the measure.
        if (!result.oracle_meets && has_targets(scenario.workload)) continue;
        ++met;
        fast += tuned(result).rate_vs_oracle >= kThroughput ? 1 : 0;
    }
    if (starts > 0)
        out.push_back(
            share("a level that holds the targets within 2 s or 60 frames", converged, starts, kSeedsThatReach));
    if (scenario.stationary)
        out.push_back(share("at most one reversal a minute", calm, results.size(), kSeedsThatReach));
    if (has_targets(scenario.workload))
        out.push_back(share("99 % of the best fixed quota's attainment", attained, results.size(), kSeedsThatReach));
    if (met > 0) out.push_back(share("95 % of its throughput", fast, met, kSeedsThatReach));
    for (Verdict& verdict : out) verdict.text = scenario.name + ": " + verdict.text;
    return out;
}

Verdict judge_convergence(size_t in_time, size_t all) {
    if (all == 0) return {"no scenario has a start or a step to converge after", false};
    return share("all scenarios: a level that holds the targets within 2 s or 60 frames", in_time, all,
                 kConvergedInTime);
}

}  // namespace vuda::tuner::eval
