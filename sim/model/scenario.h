// Closed-loop programs on the simulated GPU: a renderer and a compute program that submit their next work when an
// earlier one ends, as the measured programs did.  Pure, in virtual time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/model/engine.h"

namespace vuda::sim {

struct RendererSpec {
    Frame frame;
    int in_flight = 1;  // frames submitted and not ended, >= 1
    TimeNs gap_ns = 0;  // from the end of a frame to the next submission
};

struct ComputeSpec {
    Kernel kernel;
    int in_flight = 1;  // 1: the stream synchronises after each kernel
    TimeNs gap_ns = 0;
};

enum class Sharing : uint8_t {
    kTimeSliced,  // two TSGs
    kOneTsg,      // compute's channel in the renderer's TSG, the GPU's default mode
    kInterSm,     // likewise, inter-SM mode with the quota below
};

struct Scenario {
    std::string gpu;  // preset name
    std::optional<RendererSpec> renderer;
    std::optional<ComputeSpec> compute;
    Sharing sharing = Sharing::kTimeSliced;
    int quota = 0;
    TimeNs graphics_timeslice_ns = 0;  // 0: default
    TimeNs compute_timeslice_ns = 0;
    TimeNs warm_up_ns = 200'000'000;
    TimeNs duration_ns = 3'000'000'000;
};

// Each over the time after the warm-up.
struct ScenarioResult {
    double frames_per_s = 0;
    double kernels_per_s = 0;
    double latency_p50_ms = 0;  // of kernels, from submission to end plus the compute program's gap
    double latency_p99_ms = 0;
    SmSet compute_sms;  // SMs that kernels ran on
    uint64_t faults = 0;
    Stats stats;
};

// Errors: those of Engine.
Result<ScenarioResult> run_scenario(const Scenario& scenario);

}  // namespace vuda::sim
