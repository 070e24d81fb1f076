// A renderer and the compute programs beside it, as the evaluation of the tuner runs them.
#pragma once

#include <string>
#include <vector>

#include "sim/model/work.h"
#include "tuner/types.h"

namespace vuda::tuner::eval {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

struct RendererLoad {
    sim::Frame frame;   // at load 1
    TimeNs period = 0;  // 0: runs free, one frame after the other
};

struct ClientLoad {
    int kernels = 1;      // a step is this many of the workload's kernels, one after the other
    TimeNs period = 0;    // 0: the next step follows at once
    int most_queued = 2;  // a periodic client skips a step when so many are under way
    ComputeTarget target = {};
    double weight = 1;
    double noise = 0.05;  // standard deviation of a step's work
};

struct Workload {
    std::string gpu;  // preset of sim/model
    RendererLoad renderer;
    sim::Kernel kernel;  // of all clients
    std::vector<ClientLoad> clients;
    std::vector<uint32_t> ladder;  // empty: the GPU's balanced quotas
    GraphicsTarget graphics;
    double frame_noise = 0.04;    // standard deviation of a frame's work
    double spikes = 0.001;        // fraction of the frames that take 1.6 times as long
    TimeNs switch_penalty = kMs;  // what a frame loses to a change of the split
};

// Sums of all draws.
TimeNs frame_ns(const sim::Frame& frame);
sim::Frame scaled(const sim::Frame& frame, double factor);

}  // namespace vuda::tuner::eval
