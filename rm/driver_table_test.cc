#include "rm/driver_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "rm/abi.h"

namespace vuda::rm {
namespace {

DriverSupport find(const char* version) { return find_driver(*parse_driver_version(version)); }

TEST(DriverTable, VerdictsOfExactVersions) {
    EXPECT_EQ(find("580.159.04").verdict, Verdict::kSupported);
    EXPECT_EQ(find("580.142").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("580.65.06").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("550.163.01").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("565.77").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("570.133.20").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("575.57.08").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("590.48.01").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("595.45.04").verdict, Verdict::kLayoutEqual);
    EXPECT_EQ(find("610.57.04").verdict, Verdict::kKnownBad);
}

TEST(DriverTable, WhatWasNeverComparedIsUnknown) {
    // Just outside each range, other branches, and the branches whose layouts differ.
    for (const char* version :
         {"580.65.05", "580.160",    "580.999.99", "550.40.07",  "550.40.52",  "550.163.02",  "565.57",    "565.78",
          "570.86.14", "570.212",    "575.65",     "590.43.99",  "590.49",     "595.46",      "600.10.01", "610.57.05",
          "610.57.03", "535.183.01", "535.43.02",  "525.147.05", "470.256.02", "9999.9999.99"}) {
        const DriverSupport support = find(version);
        EXPECT_EQ(support.verdict, Verdict::kUnknown) << version;
        EXPECT_EQ(support.abi, nullptr) << version;
        EXPECT_FALSE(support.note.empty()) << version;
    }
    EXPECT_NE(find("535.183.01").note, find("600.10.01").note);  // one has a reason, the other is just not there
}

TEST(DriverTable, KnownBadNamesTheReportAndIsNotAllowed) {
    const DriverSupport bad = find("610.57.04");
    EXPECT_NE(bad.note.find("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1370"), std::string_view::npos);
    EXPECT_EQ(bad.abi, nullptr);
    EXPECT_FALSE(redirection_allowed(bad.verdict));
}

TEST(DriverTable, AllowedVerdictsHaveALayoutAndOnlyThose) {
    for (const DriverRow& row : driver_rows()) {
        for (const DriverVersion& version : {row.first, row.last}) {
            const DriverSupport support = find_driver(version);
            EXPECT_EQ(support.abi != nullptr, redirection_allowed(support.verdict)) << version.to_string();
        }
        EXPECT_LE(row.first, row.last);
        EXPECT_EQ(row.first.branch, row.last.branch) << "a range never spans branches: " << row.first.to_string();
        EXPECT_FALSE(row.note.empty());
    }
}

TEST(DriverTable, RangesNestOrAreDisjointAndComeNewestFirst) {
    const auto rows = driver_rows();
    for (size_t i = 0; i < rows.size(); ++i) {
        for (size_t j = i + 1; j < rows.size(); ++j) {
            const bool disjoint = rows[i].last < rows[j].first || rows[j].last < rows[i].first;
            const bool nested = (rows[j].first <= rows[i].first && rows[i].last <= rows[j].last);
            EXPECT_TRUE(disjoint || nested) << rows[i].first.to_string() << " and " << rows[j].first.to_string();
        }
        if (i > 0) {
            EXPECT_GE(rows[i - 1].last, rows[i].last);
        }
    }
}

TEST(DriverTable, VerdictNamesAreDistinct) {
    std::set<std::string_view> names;
    for (const Verdict v : {Verdict::kSupported, Verdict::kLayoutEqual, Verdict::kKnownBad, Verdict::kUnknown}) {
        EXPECT_TRUE(names.insert(verdict_name(v)).second);
    }
}

// The sizes and offsets that compiling each branch's published headers gave. Written out in full, on purpose not
// derived from the table under test.
struct Measured {
    const char* branch;
    size_t nvos64, nvos46, nvos46_va, nvos46_status, nvos47, nvos47_status;
    size_t channel, vaspace, memory, schedule, preemption;
    size_t uvm_map, uvm_pool, uvm_unregister_channel, uvm_free;
};
constexpr Measured kMeasured[] = {
    {"525", 40, 56, 40, 48, 40, 32, 304, 48, 120, 2, 104, 1200, 1184, 28, 24},
    {"535", 48, 56, 40, 48, 40, 32, 360, 48, 120, 2, 104, 1200, 1184, 28, 24},
    {"550", 48, 56, 40, 48, 48, 40, 360, 48, 128, 2, 104, 9264, 9248, 28, 24},
    {"565", 48, 56, 40, 48, 48, 40, 360, 48, 128, 2, 112, 9264, 9248, 28, 24},
    {"570", 48, 56, 40, 48, 48, 40, 368, 48, 128, 2, 112, 9264, 9248, 28, 24},
    {"575", 48, 56, 40, 48, 48, 40, 368, 48, 128, 3, 112, 9264, 9248, 28, 24},
    {"580", 48, 64, 48, 56, 48, 40, 368, 56, 128, 3, 112, 9264, 9248, 28, 24},
    {"590, 595", 48, 64, 48, 56, 48, 40, 368, 56, 128, 3, 112, 9264, 9248, 12, 16},
};

TEST(DriverTable, LayoutsAreTheMeasuredOnes) {
    const auto abis = all_abis();
    ASSERT_EQ(abis.size(), std::size(kMeasured));
    for (size_t i = 0; i < abis.size(); ++i) {
        const DriverAbi& abi = *abis[i];
        const Measured& m = kMeasured[i];
        SCOPED_TRACE(m.branch);
        EXPECT_EQ(abi.name, m.branch);
        EXPECT_EQ(abi.alloc_size, m.nvos64);
        EXPECT_EQ(abi.map_dma_size, m.nvos46);
        EXPECT_EQ(abi.map_dma_va, m.nvos46_va);
        EXPECT_EQ(abi.map_dma_status, m.nvos46_status);
        EXPECT_EQ(abi.unmap_dma_size, m.nvos47);
        EXPECT_EQ(abi.unmap_dma_status, m.nvos47_status);
        EXPECT_EQ(abi.channel_params_size, m.channel);
        EXPECT_EQ(abi.vaspace_params_size, m.vaspace);
        EXPECT_EQ(abi.memory_params_size, m.memory);
        EXPECT_EQ(abi.gpfifo_schedule_size, m.schedule);
        EXPECT_EQ(abi.preemption_bind_size, m.preemption);
        EXPECT_EQ(abi.uvm_map_external_size, m.uvm_map);
        EXPECT_EQ(abi.uvm_alloc_semaphore_pool_size, m.uvm_pool);
        EXPECT_EQ(abi.uvm_unregister_channel_size, m.uvm_unregister_channel);
        EXPECT_EQ(abi.uvm_free_size, m.uvm_free);
    }
}

TEST(DriverTable, LayoutsAgreeWithTheStructs) {
    const DriverAbi& old = *all_abis()[0];
    EXPECT_EQ(old.alloc_size, sizeof(AllocArgs525));
    EXPECT_EQ(old.alloc_status, offsetof(AllocArgs525, status));
    EXPECT_EQ(old.map_dma_size, sizeof(MapDmaArgs575));
    EXPECT_EQ(old.map_dma_va, offsetof(MapDmaArgs575, dmaOffset));
    EXPECT_EQ(old.map_dma_status, offsetof(MapDmaArgs575, status));
    EXPECT_EQ(old.unmap_dma_size, sizeof(UnmapDmaArgs535));
    EXPECT_EQ(old.unmap_dma_status, offsetof(UnmapDmaArgs535, status));
    EXPECT_EQ(old.uvm_map_external_size, sizeof(UvmMapExternalArgs55040));
    EXPECT_EQ(old.uvm_unregister_channel_size, sizeof(UvmUnregisterChannelArgs580));
    EXPECT_EQ(old.uvm_free_size, sizeof(UvmFreeArgs580));
    EXPECT_EQ(old.channel_params_size, offsetof(ChannelParams, encryptIv));
    EXPECT_EQ(old.vaspace_params_size, offsetof(VaSpaceParams, pasid));
    EXPECT_EQ(old.memory_params_size, offsetof(MemoryParams, numaNode));
    EXPECT_EQ(old.preemption_bind_size, sizeof(PreemptionBindParams550));

    const DriverAbi& now = *all_abis().back();
    EXPECT_EQ(now.alloc_size, sizeof(AllocArgs));
    EXPECT_EQ(now.alloc_status, offsetof(AllocArgs, status));
    EXPECT_EQ(now.map_dma_size, sizeof(MapDmaArgs));
    EXPECT_EQ(now.map_dma_va, offsetof(MapDmaArgs, dmaOffset));
    EXPECT_EQ(now.map_dma_status, offsetof(MapDmaArgs, status));
    EXPECT_EQ(now.unmap_dma_size, sizeof(UnmapDmaArgs));
    EXPECT_EQ(now.unmap_dma_length, offsetof(UnmapDmaArgs, size));
    EXPECT_EQ(now.unmap_dma_status, offsetof(UnmapDmaArgs, status));
    EXPECT_EQ(now.uvm_map_external_size, sizeof(UvmMapExternalArgs));
    EXPECT_EQ(now.uvm_alloc_semaphore_pool_size, sizeof(UvmAllocSemaphorePoolArgs));
    EXPECT_EQ(now.uvm_unregister_channel_size, sizeof(UvmUnregisterChannelArgs));
    EXPECT_EQ(now.uvm_free_size, sizeof(UvmFreeArgs));
    EXPECT_EQ(now.channel_params_size, sizeof(ChannelParams));
    EXPECT_EQ(now.vaspace_params_size, sizeof(VaSpaceParams));
    EXPECT_EQ(now.memory_params_size, sizeof(MemoryParams));
    EXPECT_EQ(now.gpfifo_schedule_size, sizeof(GpfifoScheduleParams));
    EXPECT_EQ(now.preemption_bind_size, sizeof(PreemptionBindParams));

    // What a redirection changes lies before anything that moved, in every branch.
    for (const DriverAbi* abi : all_abis()) EXPECT_GE(abi->channel_params_size, kChannelParamsStablePrefix);
    EXPECT_EQ(offsetof(AllocArgs, pAllocParms), offsetof(AllocArgs525, pAllocParms));
    EXPECT_EQ(offsetof(AllocArgs, pAllocParms), offsetof(AllocArgsShort, pAllocParms));
}

TEST(DriverTable, EachRowUsesItsBranchsLayout) {
    std::map<int, std::string_view> want = {{595, "590, 595"}, {590, "590, 595"}, {580, "580"},
                                            {575, "575"},      {570, "570"},      {565, "565"},
                                            {550, "550"},      {535, "535"},      {525, "525"}};
    for (const DriverRow& row : driver_rows()) {
        if (row.abi) {
            EXPECT_EQ(row.abi->name, want.at(row.first.branch));
        }
    }
    EXPECT_EQ(&abi_580(), find("580.159.04").abi);
}

}  // namespace
}  // namespace vuda::rm
