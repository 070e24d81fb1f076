#include "shim/partition/rm_topology.h"

#include <gtest/gtest.h>

#include <array>

#include "rm/abi.h"
#include "shim/partition/mask_map.h"
#include "shim/partition/testing_cuda.h"
#include "shim/partition/testing_layout_rm.h"

namespace vuda::partition {
namespace {

using testing::FakeRm;

const QmdLayout& hopper() {
    std::array<uint8_t, kQmdLookBytes> qmd{};
    qmd[72] = 0x40;
    return *find_qmd_layout(std::span<const uint8_t, kQmdLookBytes>(qmd));
}

TEST(RmTopology, AnH200AsItIs) {
    const Result<GpuLayout> layout = read_layout(FakeRm{});
    ASSERT_TRUE(layout) << layout.error().to_string();
    EXPECT_EQ(layout->topology, testing::card_layout().topology);
    EXPECT_EQ(layout->virtual_gpcs, testing::card_layout().virtual_gpcs);
    EXPECT_EQ(layout->topology.graphics_count(), 2u);
    EXPECT_TRUE(layout->topology.tpcs[testing::kCardSeenGraphics[1]].graphics);
}

TEST(RmTopology, OlderDriversHaveShorterEntries) {
    for (const size_t entry : {rm::kGlobalSmIdSize570, rm::kGlobalSmIdSize575}) {
        FakeRm rm;
        rm.entry = entry;
        const Result<GpuLayout> layout = read_layout(rm);
        ASSERT_TRUE(layout);
        EXPECT_EQ(layout->topology, testing::card_layout().topology);
    }
}

TEST(RmTopology, WhereAllTpcsDoGraphicsNoneIsSpecial) {
    FakeRm rm;
    rm.graphics_tpcs = 66;
    EXPECT_EQ(read_layout(rm)->topology.graphics_count(), 66u);
    rm.graphics_tpcs = 0;
    EXPECT_EQ(read_layout(rm)->topology.graphics_count(), 66u);
    rm.graphics_status = rm::nv::kNotSupported;
    EXPECT_EQ(read_layout(rm)->topology.graphics_count(), 66u);
}

TEST(RmTopology, GraphicsInTwoGpcs) {
    FakeRm rm;
    rm.graphics_gpcs = 0x11;  // logical GPCs 0 and 7
    const Result<GpuLayout> layout = read_layout(rm);
    ASSERT_TRUE(layout);
    EXPECT_EQ(layout->topology.graphics_count(), 2u);
    EXPECT_TRUE(layout->topology.tpcs[6].graphics);
    EXPECT_TRUE(layout->topology.tpcs[7].graphics);
}

TEST(RmTopology, RefusalsAndNonsenseAreErrors) {
    FakeRm refused;
    refused.order_status = rm::nv::kInsufficientPermissions;
    EXPECT_EQ(read_layout(refused).error().code, Code::kFailedPrecondition);
    EXPECT_NE(read_layout(refused).error().text.find("INSUFFICIENT_PERMISSIONS"), std::string::npos);
    FakeRm no_map;
    no_map.map_status = rm::nv::kNotSupported;
    EXPECT_FALSE(read_layout(no_map));
    FakeRm no_graphics;
    no_graphics.graphics_status = rm::nv::kInvalidState;
    EXPECT_FALSE(read_layout(no_graphics));
    FakeRm nowhere;
    nowhere.graphics_gpcs = 0x100;
    EXPECT_FALSE(read_layout(nowhere));
    FakeRm too_many;
    too_many.graphics_tpcs = 60;
    EXPECT_FALSE(read_layout(too_many));
    FakeRm none;
    none.sms = 0;
    EXPECT_FALSE(read_layout(none));
    FakeRm huge;
    huge.sms = 600;
    EXPECT_FALSE(read_layout(huge));
    FakeRm tpcs;
    tpcs.tpcs = 300;
    EXPECT_FALSE(read_layout(tpcs));
    FakeRm stray;
    stray.stray_tpc = 66;
    EXPECT_FALSE(read_layout(stray));
    FakeRm two_gpcs;
    two_gpcs.stray_tpc = 0;
    EXPECT_FALSE(read_layout(two_gpcs));
}

TEST(MaskMap, BitsAreThoseThatWereSeen) {
    const Result<MaskMap> map = MaskMap::make(testing::card_layout(), hopper());
    ASSERT_TRUE(map) << map.error().to_string();
    for (uint32_t t = 0; t < 66; ++t) {
        TpcMask disable{};
        set(disable, t);
        QmdMask expected;
        expected.words[testing::kCardMaskBits[t] / 64] |= uint64_t{1} << (testing::kCardMaskBits[t] % 64);
        EXPECT_EQ(map->translate(disable), expected) << t;
    }
}

TEST(MaskMap, KnowsWhatWouldNeverStart) {
    const GpuLayout layout = testing::card_layout();
    const Result<MaskMap> map = MaskMap::make(layout, hopper());
    ASSERT_TRUE(map);
    TpcMask all{};
    for (size_t t = 0; t < 66; ++t) set(all, t);
    EXPECT_FALSE(map->leaves_any(map->translate(all)));
    EXPECT_TRUE(map->leaves_any(QmdMask{}));
    TpcMask all_but_one = all;
    all_but_one[0] &= ~uint64_t{1};
    EXPECT_TRUE(map->leaves_any(map->translate(all_but_one)));
    EXPECT_TRUE(map->leaves_cluster(map->translate(all_but_one), 2));
    EXPECT_FALSE(map->leaves_cluster(map->translate(all_but_one), 4));
    // TPC 65 stands alone: no cluster ever runs there.
    TpcMask all_but_lone = all;
    all_but_lone[1] &= ~uint64_t{2};
    EXPECT_TRUE(map->leaves_any(map->translate(all_but_lone)));
    EXPECT_FALSE(map->leaves_cluster(map->translate(all_but_lone), 1));
}

TEST(MaskMap, ANumberingThatDoesNotFitIsRefused) {
    GpuLayout layout = testing::card_layout();
    layout.virtual_gpcs[0] = 200;
    EXPECT_FALSE(MaskMap::make(layout, hopper()));
    layout = testing::card_layout();
    layout.virtual_gpcs[65] = layout.virtual_gpcs[64];
    EXPECT_FALSE(MaskMap::make(layout, hopper()));
    QmdLayout plain = hopper();
    plain.grouped = false;
    EXPECT_TRUE(MaskMap::make(layout, plain));
}

}  // namespace
}  // namespace vuda::partition
