#include "sim/model/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vuda::sim {
namespace {

Topology preset(const char* name) {
    Result<Topology> topology = Topology::preset(name);
    EXPECT_TRUE(topology.ok()) << name;
    return *std::move(topology);
}

TEST(Topology, PresetsHaveThePublishedSizes) {
    EXPECT_EQ(preset("rtx4090").gpc_count(), 11);
    EXPECT_EQ(preset("rtx4090").tpc_count(), 64);
    EXPECT_EQ(preset("rtx4090").sm_count(), 128);
    EXPECT_EQ(preset("a800").sm_count(), 108);
    EXPECT_EQ(preset("orin").tpc_count(), 8);
    EXPECT_EQ(preset("h200").tpc_count(), 66);
    EXPECT_EQ(preset("h200").sm_count(), 132);
    EXPECT_EQ(preset("h200").graphics_tpcs().count(), 2u);
}

TEST(Topology, UnknownPresetNamesTheKnownOnes) {
    const Result<Topology> topology = Topology::preset("gtx9999");
    ASSERT_FALSE(topology.ok());
    EXPECT_EQ(topology.error().code, Code::kNotFound);
    for (const std::string& name : Topology::preset_names()) {
        EXPECT_NE(topology.error().hint.find(name), std::string::npos) << name;
    }
}

TEST(Topology, ControlsFollowTheGpu) {
    EXPECT_EQ(preset("h200").scg(), ScgControl::kNone);  // method 0x0270 does not exist on GH100
    EXPECT_EQ(preset("rtx4090").scg(), ScgControl::kModeAndQuota);
    EXPECT_EQ(preset("a800").default_mode(), ScgMode::kInterSm);
    EXPECT_TRUE(preset("h200").graphics_limited());
    EXPECT_FALSE(preset("rtx4090").graphics_limited());
}

// Seen on an H200: TPC mask 0x3 leaves SMs 0, 1, 16 and 17 unused.
TEST(Topology, TpcNumbersGoRoundRobinOverGpcs) {
    const Topology h200 = preset("h200");
    EXPECT_EQ(h200.sms_of(TpcSet(0x3)), SmSet().set(0).set(1).set(16).set(17));
}

TEST(Topology, SmAndTpcMapsAreInverse) {
    for (const std::string& name : Topology::preset_names()) {
        const Topology topology = preset(name.c_str());
        for (int tpc = 0; tpc < topology.tpc_count(); ++tpc) {
            const SmSet sms = topology.sms_of(TpcSet().set(static_cast<size_t>(tpc)));
            EXPECT_EQ(sms.count(), static_cast<size_t>(topology.sms_per_tpc()));
            EXPECT_EQ(topology.tpcs_of(sms), TpcSet().set(static_cast<size_t>(tpc)));
        }
        EXPECT_EQ(topology.sms_of(topology.all_tpcs()).count(), static_cast<size_t>(topology.sm_count()));
    }
}

TEST(Topology, LargestQuotaKeepsOneGraphicsTpcAGpc) {
    EXPECT_EQ(preset("rtx4090").max_compute_quota(), 53);  // the paper's largest quota
    EXPECT_EQ(preset("h200").max_compute_quota(), 64);
    EXPECT_EQ(preset("orin").max_compute_quota(), 6);
}

TEST(Topology, QuotasAreExactBalancedAndGrowOneTpcAtATime) {
    for (const std::string& name : Topology::preset_names()) {
        const Topology topology = preset(name.c_str());
        for (int quota = 0; quota <= topology.max_compute_quota(); ++quota) {
            const TpcSet compute = topology.compute_tpcs(quota);
            SCOPED_TRACE(name + " q=" + std::to_string(quota));
            EXPECT_EQ(compute.count(), static_cast<size_t>(quota));
            EXPECT_TRUE((compute & ~topology.all_tpcs()).none());
            EXPECT_TRUE((topology.compute_tpcs(quota - 1) & ~compute).none());

            std::map<int, int> gave, graphics_left, graphics_total;
            for (int tpc = 0; tpc < topology.tpc_count(); ++tpc) {
                const auto t = static_cast<size_t>(tpc);
                const int gpc = topology.gpc_of(tpc);
                gave[gpc] += compute.test(t) ? 1 : 0;
                if (!topology.graphics_tpcs().test(t)) continue;
                ++graphics_total[gpc];
                graphics_left[gpc] += compute.test(t) ? 0 : 1;
            }
            int most = 0;
            for (const auto& [gpc, count] : gave) most = std::max(most, count);
            for (const auto& [gpc, count] : gave) {
                const int all = topology.tpcs_per_gpc()[static_cast<size_t>(gpc)];
                const int floor = all - (graphics_total.contains(gpc) ? 1 : 0);  // most that this GPC can give
                EXPECT_GE(count, std::min(most - 1, floor)) << "GPC " << gpc;
            }
            for (const auto& [gpc, left] : graphics_left) EXPECT_GE(left, 1) << "GPC " << gpc;
        }
        EXPECT_EQ(topology.compute_tpcs(1000), topology.compute_tpcs(topology.max_compute_quota()));
    }
}

// Section 5.3 of the controlled-sharing paper: a coordinated step moves 11 TPCs.
TEST(Topology, BalancedQuotasOfTheRtx4090) {
    EXPECT_EQ(preset("rtx4090").balanced_quotas(), (std::vector<int>{11, 22, 33, 44, 53}));
    EXPECT_EQ(preset("orin").balanced_quotas(), (std::vector<int>{2, 4, 6}));
}

TEST(Topology, RefusesImpossibleShapes) {
    const auto code = [](std::vector<int> gpcs, int sms, TpcSet graphics) {
        const Result<Topology> made =
            Topology::make("x", std::move(gpcs), sms, graphics, ScgControl::kModeAndQuota, ScgMode::kIntraSm);
        return made.ok() ? Code::kOk : made.error().code;
    };
    EXPECT_EQ(code({4, 4}, 2, {}), Code::kOk);
    EXPECT_EQ(code({}, 2, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({4, 0}, 2, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({4, -1}, 2, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({4}, 0, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({100, 29}, 1, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({65}, 4, {}), Code::kInvalidArgument);
    EXPECT_EQ(code({4}, 2, TpcSet().set(4)), Code::kInvalidArgument);
    EXPECT_EQ(code({1}, 2, {}), Code::kInvalidArgument);  // nothing left for compute
}

}  // namespace
}  // namespace vuda::sim
