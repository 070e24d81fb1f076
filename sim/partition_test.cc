// The partitioner's reading of the GPU against the simulated resource manager, and its levels against the model's.
#include <gtest/gtest.h>

#include "shim/partition/levels.h"
#include "shim/partition/rm_topology.h"
#include "sim/rm/test_process.h"

namespace vuda::sim {
namespace {

Result<partition::GpuLayout> layout_of(const char* preset, const char* version = "580.159.04") {
    const auto rm = make_rm(version, {preset});
    TestProcess process(*rm, 10);
    TestClient client(process);
    return partition::read_layout([&](uint32_t command, void* params, uint32_t size) {
        return client.control(TestClient::kSubdevice, command, params, size);
    });
}

TEST(SimPartition, TheLayoutIsTheModels) {
    for (const std::string& preset : Topology::preset_names()) {
        const Topology model = *Topology::preset(preset);
        const Result<partition::GpuLayout> layout = layout_of(preset.c_str());
        ASSERT_TRUE(layout.ok()) << preset << ": " << layout.error().to_string();
        const partition::Topology& read = layout->topology;
        ASSERT_EQ(read.tpcs.size(), static_cast<size_t>(model.tpc_count())) << preset;
        for (int tpc = 0; tpc < model.tpc_count(); ++tpc) {
            const partition::Tpc& seen = read.tpcs[static_cast<size_t>(tpc)];
            EXPECT_EQ(seen.gpc, static_cast<uint32_t>(model.gpc_of(tpc)));
            EXPECT_EQ(seen.graphics, model.graphics_tpcs().test(static_cast<size_t>(tpc))) << preset << " " << tpc;
            ASSERT_EQ(seen.sms.size(), static_cast<size_t>(model.sms_per_tpc()));
            EXPECT_EQ(seen.sms[0], static_cast<uint32_t>(model.first_sm_of(tpc)));
        }
    }
}

TEST(SimPartition, EveryDriverBranchCanBeAsked) {
    for (const char* version : {"550.54.14", "565.57.01", "570.86.10", "575.51.02", "580.65.06", "590.44.01"}) {
        const Result<partition::GpuLayout> layout = layout_of("h200", version);
        ASSERT_TRUE(layout.ok()) << version << ": " << layout.error().to_string();
        EXPECT_EQ(layout->topology.graphics_count(), 2u) << version;
    }
}

TEST(SimPartition, LevelsAgreeWithTheModel) {
    for (const std::string& preset : Topology::preset_names()) {
        const Topology model = *Topology::preset(preset);
        const partition::Topology read = layout_of(preset.c_str())->topology;
        const auto levels = partition::Levels::make(read, partition::Mode::kInterSm);
        ASSERT_TRUE(levels.ok()) << preset;
        EXPECT_EQ(levels->counts().back(), static_cast<uint32_t>(model.max_compute_quota())) << preset;
        for (const uint32_t count : levels->counts()) {
            const partition::TpcMask disabled = levels->choose(count)->disable;
            // As many TPCs of each GPC as the model's own order of quotas takes.
            std::vector<int> left(static_cast<size_t>(model.gpc_count()), 0);
            const TpcSet quota = model.compute_tpcs(static_cast<int>(count));
            for (int tpc = 0; tpc < model.tpc_count(); ++tpc) {
                const auto gpc = static_cast<size_t>(model.gpc_of(tpc));
                left[gpc] += partition::test(disabled, static_cast<size_t>(tpc)) ? 0 : 1;
                left[gpc] -= quota.test(static_cast<size_t>(tpc)) ? 1 : 0;
            }
            for (const int difference : left) EXPECT_EQ(difference, 0) << preset << " level " << count;
        }
    }
}

}  // namespace
}  // namespace vuda::sim
