// What the tuner must reach in a scenario, and whether it did. docs/tuner.md has the words and the numbers.
#pragma once

#include <string>
#include <vector>

#include "bench/tuner/evaluate.h"

namespace vuda::tuner::eval {

// A seed is one draw of load, noise and moments, and the best fixed quota is chosen knowing all of it: single seeds may
// fall short, these fractions of a scenario's seeds may not.
inline constexpr double kSeedsThatReach = 0.95;
inline constexpr double kConvergedInTime = 0.98;  // of all scenarios' starts and steps together

inline constexpr double kInTimeSeconds = 2;
inline constexpr double kInTimeFrames = 60;
inline constexpr double kReversalsPerMinute = 1;  // in scenarios that have a steady state
inline constexpr double kAttainment = 0.99;       // of the best fixed quota's
inline constexpr double kThroughput = 0.95;       // likewise, where that quota holds all targets

// Of one start or step; both negative: never.
bool in_time(double seconds, double frames);

struct Verdict {
    std::string text;  // one line
    bool reached = false;
};

// One for each thing that the scenario can tell of.
std::vector<Verdict> judge(const Scenario& scenario, const std::vector<SeedResult>& results);
// Over all scenarios.
Verdict judge_convergence(size_t in_time, size_t all);

}  // namespace vuda::tuner::eval
