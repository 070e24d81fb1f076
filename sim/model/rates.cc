#include "sim/model/rates.h"

#include <algorithm>
#include <array>

namespace vuda::sim {
namespace {

using PerGpc = std::array<int, kMaxTpcs>;

PerGpc count_per_gpc(const Topology& topology, const TpcSet& tpcs) {
    PerGpc count{};
    for (int tpc = 0; tpc < topology.tpc_count(); ++tpc) {
        if (tpcs.test(static_cast<size_t>(tpc))) ++count[static_cast<size_t>(topology.gpc_of(tpc))];
    }
    return count;
}

}  // namespace

double spatial_rate(const Topology& topology, const Params& params, GraphicsPart part, const TpcSet& now,
                    double sm_need) {
    const PerGpc full = count_per_gpc(topology, topology.graphics_tpcs());
    const PerGpc left = count_per_gpc(topology, now & topology.graphics_tpcs());
    int min_full = 0, min_left = 0, sum_full = 0, sum_left = 0;
    for (size_t gpc = 0; gpc < static_cast<size_t>(topology.gpc_count()); ++gpc) {
        if (full[gpc] == 0) continue;
        min_left = sum_full == 0 ? left[gpc] : std::min(min_left, left[gpc]);
        min_full = sum_full == 0 ? full[gpc] : std::min(min_full, full[gpc]);
        sum_full += full[gpc];
        sum_left += left[gpc];
    }
    // Each GPC is handed the same amount of work, so alone the pace is that of the smallest GPC too.
    const double slowest = static_cast<double>(min_left) / min_full;
    const double mean = static_cast<double>(sum_left) / sum_full;
    const double coupling = part == GraphicsPart::kVertex ? params.vertex_gpc_coupling : params.fragment_gpc_coupling;
    return std::min(1.0, (coupling * slowest + (1.0 - coupling) * mean) / sm_need);
}

bool evenly_split(const Topology& topology, const TpcSet& graphics_now) {
    const PerGpc full = count_per_gpc(topology, topology.graphics_tpcs());
    const PerGpc left = count_per_gpc(topology, graphics_now & topology.graphics_tpcs());
    int first = -1;
    bool same_given = true, at_floor = true;
    for (int gpc = 0; gpc < topology.gpc_count(); ++gpc) {
        const auto g = static_cast<size_t>(gpc);
        if (full[g] == 0) continue;
        if (first < 0) first = gpc;
        const auto f = static_cast<size_t>(first);
        same_given = same_given && full[g] - left[g] == full[f] - left[f];
        at_floor = at_floor && left[g] == 1;
    }
    return same_given || at_floor;
}

BandwidthSplit split_bandwidth(const Params& params, double graphics, double compute) {
    if (graphics <= 0 || compute <= 0 || graphics + compute <= 1.0) return {};
    const double total = params.bandwidth_efficiency;
    const double graphics_fair = total * params.bandwidth_graphics_weight;
    const double compute_fair = total - graphics_fair;
    double to_graphics = graphics_fair, to_compute = compute_fair;
    if (graphics < graphics_fair) {
        to_graphics = graphics;
        to_compute = total - graphics;
    } else if (compute < compute_fair) {
        to_compute = compute;
        to_graphics = total - compute;
    }
    return {std::min(1.0, to_graphics / graphics), std::min(1.0, to_compute / compute)};
}

}  // namespace vuda::sim
