// How fast each side is at each level: read off runs of the execution model (sim/model), so that a fast surrogate can
// stand for it in thousands of runs.
#pragma once

#include <vector>

#include "bench/tuner/workload.h"

namespace vuda::tuner::eval {

struct LevelSpeed {
    double graphics = 1;      // against the renderer alone, while compute runs all the time
    double compute_busy = 1;  // against compute alone on the whole GPU, while a draw runs all the time
    double compute_idle = 1;  // while no draw runs
};

struct Speeds {
    Ladder ladder;
    std::vector<LevelSpeed> levels;  // like ladder.tpcs
    LevelSpeed unpartitioned;        // one TSG, the GPU's default mode, no quota
    double kernel_ns = 0;            // one kernel alone on the whole GPU
};

// Runs the model: some tenths of a second of real time.
Speeds measure_speeds(const Workload& workload);

}  // namespace vuda::tuner::eval
