#include "sim/model/rates.h"

#include <gtest/gtest.h>

#include "sim/model/occupancy.h"

namespace vuda::sim {
namespace {

class Rtx4090 : public testing::Test {
 protected:
    TpcSet graphics_at(int quota) const { return topology.all_tpcs() & ~topology.compute_tpcs(quota); }

    Topology topology = *Topology::preset("rtx4090");
    Params params = Params::fitted(topology);
};

TEST_F(Rtx4090, EverythingIsFullSpeed) {
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kVertex, topology.all_tpcs(), 1.0), 1.0);
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kFragment, topology.all_tpcs(), 1.0), 1.0);
}

TEST_F(Rtx4090, VertexPartIsAsSlowAsTheWorstGpc) {
    // The nine GPCs of 6 give first: down to 5, what the two small ones have anyway.
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kVertex, graphics_at(9), 1.0), 1.0);
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kVertex, graphics_at(10), 1.0), 0.8);
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kVertex, graphics_at(53), 1.0), 0.2);
    // One GPC stripped of everything: as many TPCs as at q = 6, but nothing moves.
    TpcSet one_gpc_gone = topology.all_tpcs();
    for (int tpc = 0; tpc < topology.tpc_count(); ++tpc) {
        if (topology.gpc_of(tpc) == 0) one_gpc_gone.reset(static_cast<size_t>(tpc));
    }
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kVertex, one_gpc_gone, 1.0), 0.0);
}

TEST_F(Rtx4090, FragmentPartCountsTpcsAndSaturates) {
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kFragment, graphics_at(16), 1.0), 0.75);
    EXPECT_DOUBLE_EQ(spatial_rate(topology, params, GraphicsPart::kFragment, graphics_at(16), 0.5), 1.0);
}

TEST_F(Rtx4090, EvenSplitsAreTheBalancedQuotas) {
    const std::vector<int> balanced = topology.balanced_quotas();
    for (int quota = 1; quota <= 53; ++quota) {
        const bool expected = std::find(balanced.begin(), balanced.end(), quota) != balanced.end();
        EXPECT_EQ(evenly_split(topology, graphics_at(quota)), expected) << quota;
    }
}

TEST_F(Rtx4090, BandwidthIsUntouchedUntilItRunsOut) {
    const BandwidthSplit split = split_bandwidth(params, 0.6, 0.4);
    EXPECT_DOUBLE_EQ(split.graphics, 1.0);
    EXPECT_DOUBLE_EQ(split.compute, 1.0);
}

TEST_F(Rtx4090, BandwidthNeverExceedsWhatThereIs) {
    for (double graphics = 0; graphics <= 1.0; graphics += 0.05) {
        for (double compute = 0; compute <= 1.0; compute += 0.05) {
            const BandwidthSplit split = split_bandwidth(params, graphics, compute);
            const double used = split.graphics * graphics + split.compute * compute;
            EXPECT_LE(used, 1.0 + 1e-12);
            EXPECT_GT(split.graphics, 0);
            EXPECT_LE(split.graphics, 1);
            EXPECT_GT(split.compute, 0);
            EXPECT_LE(split.compute, 1);
            if (graphics + compute > 1.0 + 1e-9 && graphics > 0 && compute > 0) {
                EXPECT_NEAR(used, params.bandwidth_efficiency, 1e-9) << graphics << " " << compute;
            }
        }
    }
}

TEST_F(Rtx4090, BandwidthIsSplitByWeightAndLeftoversMove) {
    const BandwidthSplit both = split_bandwidth(params, 1.0, 1.0);
    EXPECT_NEAR(both.graphics, 0.97 * 0.63, 1e-12);
    EXPECT_NEAR(both.compute, 0.97 * 0.37, 1e-12);
    const BandwidthSplit little_compute = split_bandwidth(params, 1.0, 0.125);
    EXPECT_NEAR(little_compute.graphics, 0.97 - 0.125, 1e-12);
    EXPECT_DOUBLE_EQ(little_compute.compute, 1.0);
}

TEST_F(Rtx4090, ParametersOutsideTheirRangeAreNamed) {
    EXPECT_TRUE(params.validate(topology).ok());
    const auto refused = [&](auto change, const char* field) {
        Params changed = params;
        change(changed);
        const Status status = changed.validate(topology);
        ASSERT_FALSE(status.ok()) << field;
        EXPECT_EQ(status.error().code, Code::kInvalidArgument);
        EXPECT_NE(status.error().text.find(field), std::string::npos) << status.error().text;
    };
    refused([](Params& p) { p.jitter = 0.6; }, "jitter");
    refused([](Params& p) { p.graphics_timeslice_ns = 0; }, "graphics_timeslice_ns");
    refused([](Params& p) { p.compute_timeslice_ns = -1; }, "compute_timeslice_ns");
    refused([](Params& p) { p.switch_ns = -1; }, "switch_ns");
    refused([](Params& p) { p.intra_vertex = {0.7, 0.4}; }, "intra_vertex");
    refused([](Params& p) { p.intra_fragment = {0.0, 0.4}; }, "intra_fragment");
    refused([](Params& p) { p.inter_vertex_even = 1.1; }, "inter_vertex_even");
    refused([](Params& p) { p.inter_vertex_uneven = 0; }, "inter_vertex_uneven");
    refused([](Params& p) { p.vertex_gpc_coupling = 2; }, "vertex_gpc_coupling");
    refused([](Params& p) { p.fragment_gpc_coupling = -1; }, "fragment_gpc_coupling");
    refused([](Params& p) { p.bandwidth_efficiency = 0; }, "bandwidth_efficiency");
    refused([](Params& p) { p.bandwidth_graphics_weight = 1; }, "bandwidth_graphics_weight");
    refused([](Params& p) { p.default_inter_quota = 54; }, "default_inter_quota");
    refused([](Params& p) { p.scg_serial_max = p.scg_concurrent_max - 1; }, "scg_serial_max");
}

TEST_F(Rtx4090, BlocksSpreadBreadthFirst) {
    Occupancy occupancy(topology);
    const SmSet all = topology.sms_of(topology.all_tpcs());
    const Placement few = occupancy.place(64, 2, all);  // one block on the first SM of each TPC
    EXPECT_EQ(few.blocks, 64u);
    EXPECT_EQ(few.tpcs, topology.all_tpcs());
    EXPECT_EQ(few.sms.count(), 64u);
    EXPECT_DOUBLE_EQ(few.sm_equivalents(), 32.0);

    const Placement rest = occupancy.place(1000, 2, all);
    EXPECT_EQ(rest.blocks, 128u * 2 - 64);
    EXPECT_FALSE(occupancy.any_room(all));
    EXPECT_EQ(occupancy.place(1, 64, all).blocks, 0u);

    occupancy.release(few);
    EXPECT_TRUE(occupancy.any_room(all));
    EXPECT_EQ(occupancy.place(1000, 1, all).blocks, 0u);  // half an SM is free in 64 places, never a whole one
    EXPECT_EQ(occupancy.place(1000, 2, all).blocks, 64u);
}

TEST_F(Rtx4090, BlocksStayOnEligibleSms) {
    Occupancy occupancy(topology);
    const SmSet eligible = topology.sms_of(topology.compute_tpcs(8));
    const Placement placement = occupancy.place(1000, 3, eligible);
    EXPECT_EQ(placement.blocks, 16u * 3);
    EXPECT_EQ(placement.sms, eligible);
    for (int sm = 0; sm < topology.sm_count(); ++sm) EXPECT_LE(occupancy.used_units(sm), kSmUnits);
}

}  // namespace
}  // namespace vuda::sim
