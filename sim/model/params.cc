#include "sim/model/params.h"

#include <string>

namespace vuda::sim {

Params Params::fitted(const Topology& topology) {
    Params params;
    if (topology.name() == "h200") {
        // Two kernels a frame under time slicing, the second 0.3 ms later than alone: two switches and a short draw.
        params.switch_ns = 140'000;
        // The renderer's loss beside a grid that covers all SMs, which the blocks themselves explain by half.
        params.regain_ns = 300'000;
    } else {
        // Fitted to the RTX 4090's figures 10 and 11; used as it is where nothing better is known.
        params.switch_ns = 20'000;
        params.intra_vertex = {0.55, 0.39};
        params.intra_fragment = {0.71, 0.28};
        params.inter_vertex_even = 0.95;
        params.inter_vertex_uneven = 0.60;
        params.bandwidth_efficiency = 0.97;
        params.bandwidth_graphics_weight = 0.63;
    }
    return params;
}

Status Params::validate(const Topology& topology) const {
    const auto bad = [](const char* field) {
        return Error{Code::kInvalidArgument, std::string("simulator parameter out of range: ") + field, {}};
    };
    const auto positive_share = [](double v) { return v > 0 && v <= 1; };
    const auto share = [](double v) { return v >= 0 && v <= 1; };
    const auto co_residency = [&](const CoResidency& c) {
        return positive_share(c.graphics) && positive_share(c.compute) && c.graphics + c.compute <= 1.0 + 1e-9;
    };
    if (!(jitter >= 0 && jitter <= 0.5)) return bad("jitter");
    if (graphics_timeslice_ns <= 0) return bad("graphics_timeslice_ns");
    if (compute_timeslice_ns <= 0) return bad("compute_timeslice_ns");
    if (switch_ns < 0) return bad("switch_ns");
    if (regain_ns < 0) return bad("regain_ns");
    if (!co_residency(intra_vertex)) return bad("intra_vertex");
    if (!co_residency(intra_fragment)) return bad("intra_fragment");
    if (!positive_share(inter_vertex_even)) return bad("inter_vertex_even");
    if (!positive_share(inter_vertex_uneven)) return bad("inter_vertex_uneven");
    if (!share(vertex_gpc_coupling)) return bad("vertex_gpc_coupling");
    if (!share(fragment_gpc_coupling)) return bad("fragment_gpc_coupling");
    if (!positive_share(bandwidth_efficiency)) return bad("bandwidth_efficiency");
    if (!(bandwidth_graphics_weight > 0 && bandwidth_graphics_weight < 1)) return bad("bandwidth_graphics_weight");
    if (default_inter_quota < 0 || default_inter_quota > topology.max_compute_quota())
        return bad("default_inter_quota");
    if (scg_serial_max < scg_concurrent_max) return bad("scg_serial_max");
    return {};
}

}  // namespace vuda::sim
