// Speeds of what runs at one moment, relative to running alone.  Pure functions.
#pragma once

#include "sim/model/params.h"
#include "sim/model/topology.h"
#include "sim/model/work.h"

namespace vuda::sim {

enum class GraphicsPart : uint8_t { kVertex, kFragment };

// What a graphics part gets from the TPCs of `now`, against all graphics TPCs: bound partly by the GPC that lost most,
// partly by the sum (Params::*_gpc_coupling).  In [0, 1].  `sm_need`: Draw::fragment_sm_need, 1 for vertex parts.
double spatial_rate(const Topology& topology, const Params& params, GraphicsPart part, const TpcSet& now,
                    double sm_need);

// True when all GPCs with graphics TPCs gave the same number of them, or each is down to one.
bool evenly_split(const Topology& topology, const TpcSet& graphics_now);

struct BandwidthSplit {
    double graphics = 1.0;  // factor on the graphics speed
    double compute = 1.0;   // factor on the compute speed
};

// `graphics`, `compute`: bandwidth that each side would use at its present speed, >= 0.
BandwidthSplit split_bandwidth(const Params& params, double graphics, double compute);

}  // namespace vuda::sim
