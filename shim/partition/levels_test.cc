#include "shim/partition/levels.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "shim/partition/testing_topologies.h"

namespace vuda::partition {
namespace {

using testing::round_robin;

std::vector<uint32_t> counts(const Topology& topology, Mode mode = Mode::kInterSm) {
    const Result<Levels> levels = Levels::make(topology, mode);
    EXPECT_TRUE(levels) << levels.error().to_string();
    return levels ? levels->counts() : std::vector<uint32_t>{};
}

Choice chosen(const Topology& topology, std::optional<uint32_t> quota, Mode mode = Mode::kInterSm) {
    const Result<Levels> levels = Levels::make(topology, mode);
    EXPECT_TRUE(levels);
    const Result<Choice> choice = levels->choose(quota);
    EXPECT_TRUE(choice) << choice.error().to_string();
    return choice ? *choice : Choice{};
}

TEST(Levels, Presets) {
    // Section 5.3 of the paper: steps of 11 on an RTX 4090 with two GPCs of five TPCs and nine of six; each keeps one.
    EXPECT_EQ(counts(testing::rtx4090()), (std::vector<uint32_t>{11, 22, 33, 44, 53}));
    EXPECT_EQ(counts(testing::a800()), (std::vector<uint32_t>{7, 14, 21, 28, 35, 42, 47}));
    EXPECT_EQ(counts(testing::orin()), (std::vector<uint32_t>{2, 4, 6}));
    // The H200 of docs/results: graphics can use TPCs 1 and 25 only, and compute keeps off both.
    EXPECT_EQ(counts(testing::h200()), (std::vector<uint32_t>{8, 16, 24, 32, 40, 48, 55, 61, 64}));
}

TEST(Levels, AtFullQuotaComputeKeepsOffTheGraphicsTpcsOfAnH200) {
    const Choice choice = chosen(testing::h200(), std::nullopt);
    EXPECT_EQ(choice.applied_tpcs, 64u);
    EXPECT_EQ(choice.disable, (TpcMask{uint64_t{1} << 1 | uint64_t{1} << 25, 0, 0, 0}));
    EXPECT_EQ(choice.note, "");
    const Choice all = chosen(testing::h200(), 66);
    EXPECT_EQ(all.disable, choice.disable);
    EXPECT_NE(all.note, "");
}

TEST(Levels, IntraSmLeavesComputeEverything) {
    const Choice choice = chosen(testing::h200(), std::nullopt, Mode::kIntraSm);
    EXPECT_EQ(choice.applied_tpcs, 66u);
    EXPECT_EQ(choice.disable, TpcMask{});
    // A limit takes the TPCs that only compute can use first.
    const Choice limited = chosen(testing::h200(), 60, Mode::kIntraSm);
    EXPECT_EQ(limited.applied_tpcs, 56u);
    EXPECT_TRUE(test(limited.disable, 25));
    EXPECT_FALSE(test(limited.disable, 0));
}

TEST(Levels, RequestsAreAlignedDownwards) {
    EXPECT_EQ(chosen(testing::rtx4090(), 21).applied_tpcs, 11u);
    EXPECT_EQ(chosen(testing::rtx4090(), 22).applied_tpcs, 22u);
    EXPECT_EQ(chosen(testing::rtx4090(), 22).note, "");
    EXPECT_NE(chosen(testing::rtx4090(), 23).note, "");
    EXPECT_EQ(chosen(testing::rtx4090(), 1).applied_tpcs, 11u);
    EXPECT_EQ(chosen(testing::rtx4090(), 64).applied_tpcs, 53u);
}

TEST(Levels, BadRequests) {
    const Result<Levels> levels = Levels::make(testing::h200(), Mode::kInterSm);
    ASSERT_TRUE(levels);
    EXPECT_EQ(levels->choose(0).error().code, Code::kInvalidArgument);
    const Error above = levels->choose(67).error();
    EXPECT_EQ(above.code, Code::kInvalidArgument);
    EXPECT_NE(above.text.find("66"), std::string::npos);
    EXPECT_EQ(levels->choose(UINT32_MAX).error().code, Code::kInvalidArgument);
}

TEST(Levels, GpusThatCannotBeSplit) {
    EXPECT_EQ(Levels::make(Topology{}, Mode::kInterSm).error().code, Code::kFailedPrecondition);
    EXPECT_EQ(Levels::make(round_robin({4}, 2), Mode::kInterSm).error().code, Code::kFailedPrecondition);
    EXPECT_NE(Levels::make(round_robin({4}, 2), Mode::kInterSm).error().text.find("single GPC"), std::string::npos);
    EXPECT_TRUE(Levels::make(round_robin({4}, 2), Mode::kIntraSm));
    EXPECT_EQ(Levels::make(round_robin({1, 1, 1}, 2), Mode::kInterSm).error().code, Code::kFailedPrecondition);
    EXPECT_EQ(Levels::make(testing::h200(), Mode::kUnspecified).error().code, Code::kInvalidArgument);
    EXPECT_EQ(Levels::make(testing::h200(), static_cast<Mode>(9)).error().code, Code::kInvalidArgument);
}

TEST(Topology, WhatAPeerSaysIsChecked) {
    Topology twice = round_robin({2, 2}, 2);
    twice.tpcs[1].sms = twice.tpcs[0].sms;
    EXPECT_FALSE(check(twice));
    Topology none = round_robin({2, 2}, 2);
    none.tpcs[3].sms.clear();
    EXPECT_FALSE(check(none));
    Topology far = round_robin({2, 2}, 2);
    far.tpcs[0].sms[0] = 100000;
    EXPECT_FALSE(check(far));
    Topology many;
    many.tpcs.resize(kMaxTpcs + 1);
    EXPECT_FALSE(check(many));
    EXPECT_TRUE(check(testing::h200()));
}

Topology random_topology(std::mt19937& random) {
    std::vector<int> gpcs(2 + random() % 11);
    for (int& tpcs : gpcs) tpcs = 1 + static_cast<int>(random() % 9);
    Topology topology = round_robin(gpcs, 1 + static_cast<int>(random() % 2));
    switch (random() % 3) {
        case 0: break;  // all do graphics
        case 1:
            for (Tpc& tpc : topology.tpcs) tpc.graphics = false;
            topology.tpcs[random() % topology.tpcs.size()].graphics = true;
            topology.tpcs[random() % topology.tpcs.size()].graphics = true;
            break;
        default:
            for (Tpc& tpc : topology.tpcs) tpc.graphics = random() % 2 == 0;
            break;
    }
    return topology;
}

std::map<uint32_t, int> given_by_gpc(const Topology& topology, const TpcMask& disable) {
    std::map<uint32_t, int> given;
    for (size_t t = 0; t < topology.tpcs.size(); ++t) given[topology.tpcs[t].gpc] += test(disable, t) ? 0 : 1;
    return given;
}

TEST(Levels, Properties) {
    std::mt19937 random(11);
    for (int round = 0; round < 600; ++round) {
        const Topology topology = random_topology(random);
        const auto total = static_cast<uint32_t>(topology.tpcs.size());
        for (const Mode mode : {Mode::kIntraSm, Mode::kInterSm}) {
            const Result<Levels> levels = Levels::make(topology, mode);
            if (!levels) {
                EXPECT_EQ(levels.error().code, Code::kFailedPrecondition);
                continue;
            }
            TpcMask before;
            before.fill(~uint64_t{0});
            std::map<uint32_t, int> given_before;
            for (uint32_t quota = 1; quota <= total; ++quota) {
                const Result<Choice> choice = levels->choose(quota);
                ASSERT_TRUE(choice);
                const TpcMask& disable = choice->disable;
                // The mask says what applied_tpcs says, and nothing beyond the GPU.
                ASSERT_EQ(count(disable) + choice->applied_tpcs, total);
                for (size_t t = total; t < kMaxTpcs; ++t) ASSERT_FALSE(test(disable, t));
                // More quota never takes a TPC away, and never gives more than asked for beyond the first level.
                for (size_t w = 0; w < disable.size(); ++w) ASSERT_EQ(disable[w] & ~before[w], 0u);
                ASSERT_TRUE(choice->applied_tpcs <= quota || choice->applied_tpcs == levels->counts().front());
                before = disable;
                // Balanced: no GPC gave more than another that had something left.
                const auto given = given_by_gpc(topology, disable);
                int most = 0;
                for (const auto& [gpc, n] : given) most = std::max(most, n);
                const auto most_of = given_by_gpc(topology, levels->choose(total)->disable);
                for (const auto& [gpc, n] : given) ASSERT_EQ(n, std::min(most, most_of.at(gpc)));
                if (mode != Mode::kInterSm) continue;
                // Graphics keeps a TPC in each GPC that has one; where only some can, it keeps them all.
                std::set<uint32_t> with, kept;
                for (size_t t = 0; t < total; ++t) {
                    if (!topology.tpcs[t].graphics) continue;
                    with.insert(topology.tpcs[t].gpc);
                    if (test(disable, t)) kept.insert(topology.tpcs[t].gpc);
                    if (topology.graphics_limited()) {
                        ASSERT_TRUE(test(disable, t));
                    }
                }
                ASSERT_EQ(with, kept);
            }
        }
    }
}

}  // namespace
}  // namespace vuda::partition
