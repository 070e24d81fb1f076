// Numbers of the timing model.  Which of them were fitted to which measurement: docs/simulator-model.md.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "sim/model/topology.h"
#include "sim/model/work.h"

namespace vuda::sim {

// Speeds, relative to running alone, of a graphics part and of compute blocks that are resident on the same SMs.
struct CoResidency {
    double graphics = 0.5;  // (0, 1]
    double compute = 1.0;   // (0, 1]; the sum of both is at most 1
};

struct Params {
    uint64_t seed = 1;
    double jitter = 0.0;  // each draw part and each wave of blocks takes 1 +/- jitter of its time, uniformly; [0, 0.5]

    TimeNs graphics_timeslice_ns = 1'024'000;  // default of a TSG that holds a graphics channel
    TimeNs compute_timeslice_ns = 2'048'000;   // default of any other TSG
    TimeNs switch_ns = 20'000;                 // from the last unit of one TSG to the first of the next

    CoResidency intra_vertex{0.5, 0.5};
    CoResidency intra_fragment{0.5, 0.5};
    // Inter-SM mode: speed of the vertex part against what its slowest GPC allows, with an even and with an uneven
    // distribution of what the GPCs gave to compute.
    double inter_vertex_even = 1.0;    // (0, 1]
    double inter_vertex_uneven = 1.0;  // (0, 1]
    // 1: a part is as slow as the GPC that lost most; 0: only the sum of TPCs counts.
    double vertex_gpc_coupling = 1.0;
    double fragment_gpc_coupling = 0.0;

    // Memory: when graphics and compute together ask for more than 1, they get bandwidth_efficiency of it, divided by
    // weight; what one side leaves over goes to the other.
    double bandwidth_efficiency = 1.0;       // (0, 1]
    double bandwidth_graphics_weight = 0.5;  // (0, 1)

    // GPUs with few graphics TPCs: a draw that finds blocks there waits for them and then as long again, up to this.
    TimeNs regain_ns = 0;

    int default_inter_quota = 0;  // inter-SM mode without a quota; 0 means half of the TPCs

    // Rules of SCG for a kernel in a TSG with a graphics channel, bytes of shared memory per block
    // (Kernel::shared_memory).
    uint32_t scg_concurrent_max = 48'128;  // up to here a kernel runs beside a frame
    uint32_t scg_serial_max = 49'152;      // up to here it waits until no frame is in progress; above: fault

    // Parameters fitted to the preset of that name; unknown names get neutral defaults.
    static Params fitted(const Topology& topology);

    // kInvalidArgument, naming the field, when a value is outside its range.
    Status validate(const Topology& topology) const;
};

}  // namespace vuda::sim
