// All controllers through all seeds of a scenario.
#pragma once

#include <vector>

#include "bench/tuner/run.h"

namespace vuda::tuner::eval {

enum class Who : uint8_t { kOracle, kTuner, kAdditive, kNone };
inline constexpr size_t kWho = 4;

struct Score {
    double attainment = 0;      // least of the targets' fractions, grace left out
    double attainment_all = 0;  // grace included
    double vs_oracle = 0;       // attainment against the oracle's
    double rate_vs_oracle = 0;  // what the scenario maximises, against the oracle's; see objective()
    double compute_rate = 0;
    double frame_rate = 0;
    double reversals_per_min = 0;
    double changes_per_min = 0;
};

struct SeedResult {
    uint32_t oracle_level = 0;
    bool oracle_meets = false;
    Score scores[kWho];
    // Of the tuner, one for the start and each step after which some level holds all targets: until a level that does
    // was entered and kept for a second.  Negative: never.
    std::vector<double> convergence_s;
    std::vector<double> convergence_frames;
    // Likewise, until a level that misses at most half as much again as is allowed: what a few hundred samples cannot
    // tell from one that holds its target.
    std::vector<double> near_convergence_s;
    std::vector<double> near_convergence_frames;
};

// What is compared with the oracle's: compute's weighted steps; without targets the sum of normalised rates.
double objective(const Scenario& scenario, const Speeds& speeds, const Outcome& outcome);

SeedResult evaluate_seed(const Scenario& scenario, const Speeds& speeds, uint64_t seed);
std::vector<SeedResult> evaluate(const Scenario& scenario, const Speeds& speeds, uint64_t first_seed, size_t seeds,
                                 unsigned threads);

}  // namespace vuda::tuner::eval
