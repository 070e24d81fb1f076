#include "daemon/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/partition_testing.h"

namespace vuda::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SplitFacts facts_of(const partition::Topology& layout, bool backend = true) {
    SplitFacts facts;
    facts.topology = to_message(layout);
    facts.backend = backend;
    return facts;
}

SplitWish wish_of(std::optional<v1::Mode> mode, std::optional<Quota> quota = std::nullopt) { return {mode, quota}; }
Quota tpcs(uint32_t count) { return {Quota::Kind::kTpcs, count}; }

TEST(PartitionDefault, KeepsOffTheGraphicsTpcsWhereTheyAreFew) {
    const Split split = decide({}, facts_of(partition::testing::h200()), {});
    EXPECT_EQ(split.mode, v1::MODE_INTER_SM);
    EXPECT_EQ(split.applied_tpcs, 64u);
    EXPECT_EQ(partition::count(split.disable), 2u);
    EXPECT_TRUE(partition::test(split.disable, 1));
    EXPECT_TRUE(partition::test(split.disable, 25));
    EXPECT_EQ(split.levels.back(), 64u);
    EXPECT_EQ(split.note, "");
}

TEST(PartitionDefault, IsCoResidencyElsewhere) {
    // Every TPC does graphics: nothing to gain without being asked.
    const Split ada = decide({}, facts_of(partition::testing::rtx4090()), {});
    EXPECT_EQ(ada.mode, v1::MODE_INTRA_SM);
    EXPECT_EQ(ada.applied_tpcs, 64u);
    EXPECT_EQ(partition::count(ada.disable), 0u);
    EXPECT_THAT(ada.inter_sm_levels, ElementsAre(11, 22, 33, 44, 53)) << "what the other mode would offer";
    // Nobody could keep to it.
    EXPECT_EQ(decide({}, facts_of(partition::testing::h200(), false), {}).mode, v1::MODE_INTRA_SM);
    // Layout unknown.
    const Split blind = decide({}, {}, {});
    EXPECT_EQ(blind.mode, v1::MODE_INTRA_SM);
    EXPECT_EQ(blind.applied_tpcs, 0u);
    EXPECT_TRUE(blind.levels.empty());
}

TEST(PartitionDefault, CanBeConfigured) {
    PartitionSettings settings;
    settings.mode = v1::MODE_INTRA_SM;
    EXPECT_EQ(decide({}, facts_of(partition::testing::h200()), settings).mode, v1::MODE_INTRA_SM);
    settings.mode = v1::MODE_INTER_SM;
    settings.quota = tpcs(24);
    EXPECT_EQ(decide({}, facts_of(partition::testing::rtx4090()), settings).applied_tpcs, 22u);
    // More than the GPU has, and a GPU that has no such mode: as near as it gets.
    settings.quota = tpcs(200);
    EXPECT_EQ(decide({}, facts_of(partition::testing::rtx4090()), settings).applied_tpcs, 53u);
    const Split single = decide({}, facts_of(partition::testing::round_robin({4}, 2)), settings);
    EXPECT_EQ(single.mode, v1::MODE_INTRA_SM);
    EXPECT_EQ(single.applied_tpcs, 4u);
    // What somebody chose wins.
    EXPECT_EQ(
        decide(wish_of(v1::MODE_INTRA_SM, Quota{}), facts_of(partition::testing::rtx4090()), settings).applied_tpcs,
        64u);
    EXPECT_EQ(decide({}, {}, settings).note, "waits for the layout of the GPU");
}

TEST(PartitionQuota, IsRoundedToALevel) {
    const SplitFacts facts = facts_of(partition::testing::rtx4090());
    const auto applied = [&](uint32_t quota) {
        return decide(wish_of(v1::MODE_INTER_SM, tpcs(quota)), facts, {}).applied_tpcs;
    };
    EXPECT_EQ(applied(1), 11u);
    EXPECT_EQ(applied(22), 22u);
    EXPECT_EQ(applied(32), 22u);
    EXPECT_EQ(applied(64), 53u);
    EXPECT_THAT(decide(wish_of(v1::MODE_INTER_SM, tpcs(64)), facts, {}).note, HasSubstr("graphics keeps"));
    EXPECT_THAT(decide(wish_of(v1::MODE_INTER_SM, {}), facts, {}).levels, ElementsAre(11, 22, 33, 44, 53));
    const Split unheard =
        decide(wish_of(v1::MODE_INTER_SM, tpcs(22)), facts_of(partition::testing::rtx4090(), false), {});
    EXPECT_EQ(unheard.note, "no program can keep to it now");
}

TEST(PartitionDecide, TurnsAreInTimeNotInTpcs) {
    SplitFacts facts = facts_of(partition::testing::h200());
    facts.paced = true;
    const auto decided = [&](const Quota& quota) { return decide(wish_of(v1::MODE_SLICED, quota), facts, {}); };
    Split split = decided({Quota::Kind::kPercent, 40});
    EXPECT_EQ(split.mode, v1::MODE_SLICED);
    EXPECT_EQ(split.compute_percent, 40u);
    EXPECT_EQ(split.applied_tpcs, 66u);
    EXPECT_EQ(partition::count(split.disable), 0u) << "in its turn it has all of them";
    EXPECT_EQ(describe(split, facts.topology), "sliced, quota 40%, 40 % of the time for compute");
    EXPECT_EQ(to_page(split, 3).graphics_permille, 600u);
    EXPECT_EQ(to_page(split, 3).frame_ns, 0u);
    EXPECT_EQ(decided({Quota::Kind::kTpcs, 33}).compute_percent, 50u) << "of 66 TPCs";
    EXPECT_EQ(decided({Quota::Kind::kTpcs, 66}).compute_percent, kMaxPercent);
    facts.tuned = 35;
    EXPECT_EQ(decided({Quota::Kind::kAutomatic, 0}).compute_percent, 35u);

    split = decided({});
    EXPECT_EQ(split.compute_percent, 0u);
    EXPECT_THAT(split.note, HasSubstr("neither a quota nor a frame target"));
    facts.frame_ns = 16'670'000;
    const Split timed = decided({});
    EXPECT_EQ(timed.note, "");
    EXPECT_EQ(to_page(timed, 3).frame_ns, 16'670'000u);
    EXPECT_EQ(to_page(timed, 3).graphics_permille, 0u);
    EXPECT_FALSE(timed.same_effect(split));
    EXPECT_EQ(describe(timed, facts.topology), "sliced, quota none, a frame each 16.67 ms");

    facts.topology.Clear();
    EXPECT_EQ(decided({Quota::Kind::kPercent, 40}).compute_percent, 40u);
    EXPECT_THAT(decided({Quota::Kind::kTpcs, 33}).note, HasSubstr("waits for the layout"));
    facts.paced = false;
    EXPECT_THAT(decided({Quota::Kind::kPercent, 40}).note, HasSubstr("cannot be held back"));
}

TEST(PartitionDecide, PercentOfTheTpcs) {
    const SplitFacts facts = facts_of(partition::testing::h200());
    EXPECT_EQ(decide(wish_of(v1::MODE_INTRA_SM, Quota{Quota::Kind::kPercent, 50}), facts, {}).applied_tpcs,
              decide(wish_of(v1::MODE_INTRA_SM, Quota{Quota::Kind::kTpcs, 33}), facts, {}).applied_tpcs);
    EXPECT_TRUE(check_quota({Quota::Kind::kPercent, 50}, facts, v1::MODE_INTER_SM).ok());
    EXPECT_EQ(check_quota({Quota::Kind::kPercent, 50}, {}, v1::MODE_INTER_SM).error().code, Code::kFailedPrecondition);
    for (const uint32_t percent : {0u, 100u, 4'000'000'000u}) {
        EXPECT_EQ(check_quota({Quota::Kind::kPercent, percent}, facts, v1::MODE_INTRA_SM).error().code,
                  Code::kInvalidArgument);
    }
    EXPECT_EQ(check_quota({Quota::Kind::kPercent, 50}, facts, v1::MODE_SLICED).error().code, Code::kFailedPrecondition)
        << "no frame comes by";
}

TEST(PartitionCheck, Modes) {
    const SplitFacts facts = facts_of(partition::testing::h200());
    EXPECT_TRUE(check_mode(v1::MODE_INTER_SM, facts).ok());
    EXPECT_TRUE(check_mode(v1::MODE_INTRA_SM, facts).ok());
    EXPECT_TRUE(check_mode(v1::MODE_INTRA_SM, {}).ok());
    EXPECT_EQ(check_mode(v1::MODE_SLICED, facts).error().code, Code::kFailedPrecondition);
    SplitFacts paced;
    paced.paced = true;
    EXPECT_TRUE(check_mode(v1::MODE_SLICED, paced).ok()) << "it needs the renderer, not the GPU's layout";
    EXPECT_EQ(check_mode(v1::MODE_UNSPECIFIED, facts).error().code, Code::kInvalidArgument);
    EXPECT_EQ(check_mode(static_cast<v1::Mode>(99), facts).error().code, Code::kInvalidArgument);
    EXPECT_EQ(check_mode(static_cast<v1::Mode>(-1), facts).error().code, Code::kInvalidArgument);
    EXPECT_EQ(check_mode(v1::MODE_INTER_SM, {}).error().code, Code::kFailedPrecondition);
    const Status one_gpc = check_mode(v1::MODE_INTER_SM, facts_of(partition::testing::round_robin({6}, 2)));
    EXPECT_EQ(one_gpc.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(one_gpc.error().text, HasSubstr("single GPC"));
    EXPECT_EQ(check_mode(v1::MODE_INTER_SM, facts_of(partition::testing::round_robin({1, 1}, 2))).error().code,
              Code::kFailedPrecondition);
}

TEST(PartitionCheck, Quotas) {
    const SplitFacts facts = facts_of(partition::testing::h200());
    const auto code = [&](const Quota& quota, const SplitFacts& about) {
        const Status status = check_quota(quota, about, v1::MODE_INTER_SM);
        return status ? Code::kOk : status.error().code;
    };
    EXPECT_EQ(code(tpcs(1), facts), Code::kOk);
    EXPECT_EQ(code(tpcs(66), facts), Code::kOk);
    for (const uint32_t bad : {0u, 67u, 256u, 257u, 0x80000000u, 0xffffffffu})
        EXPECT_EQ(code(tpcs(bad), facts), Code::kInvalidArgument) << bad;
    EXPECT_EQ(code(tpcs(8), {}), Code::kFailedPrecondition);
    EXPECT_EQ(code({}, {}), Code::kOk);
    EXPECT_EQ(code({Quota::Kind::kAutomatic, 0}, {}), Code::kOk);
}

TEST(PartitionCheck, NamesTheProgramThatCannot) {
    SplitFacts facts = facts_of(partition::testing::h200(), false);
    EXPECT_TRUE(check_quota(tpcs(8), facts, v1::MODE_INTER_SM).ok()) << "nobody is there yet";
    facts.no_backend = "pid 7 (python3): no CUDA in this process";
    for (const Status& status :
         {check_mode(v1::MODE_INTER_SM, facts), check_quota(tpcs(8), facts, v1::MODE_INTER_SM)}) {
        EXPECT_EQ(status.error().code, Code::kFailedPrecondition);
        EXPECT_THAT(status.error().text, HasSubstr("pid 7 (python3): no CUDA in this process"));
    }
}

TEST(PartitionCheck, TopologyFromAPeer) {
    EXPECT_TRUE(check_topology({}).ok());
    EXPECT_TRUE(check_topology(to_message(partition::testing::h200())).ok());
    v1::Topology twice;
    for (int i = 0; i < 2; ++i) twice.add_tpcs()->add_sms(3);
    EXPECT_EQ(check_topology(twice).error().code, Code::kInvalidArgument);
    v1::Topology bare;
    bare.add_tpcs();
    EXPECT_EQ(check_topology(bare).error().code, Code::kInvalidArgument);
    v1::Topology huge;
    for (uint32_t i = 0; i < 257; ++i) huge.add_tpcs()->add_sms(i);
    EXPECT_EQ(check_topology(huge).error().code, Code::kInvalidArgument);
}

TEST(PartitionAccess, OwnerRootAndAdministrators) {
    Peer owner, other, root;
    owner.uid = 1000;
    other.uid = other.gid = 1001;
    other.groups = {50};
    PartitionSettings settings;
    EXPECT_TRUE(may_split(owner, owner, settings));
    EXPECT_TRUE(may_split(root, owner, settings));
    EXPECT_FALSE(may_split(other, owner, settings));
    settings.admin_group = 50;
    EXPECT_TRUE(may_split(other, owner, settings));
    settings.admin_group = 51;
    EXPECT_FALSE(may_split(other, owner, settings));
    settings.admin_group = 1001;
    EXPECT_TRUE(may_split(other, owner, settings));
}

TEST(PartitionText, ParseAndDescribe) {
    EXPECT_EQ(parse_quota("40%"), (Quota{Quota::Kind::kPercent, 40}));
    for (const char* bad : {"0%", "100%", "%", "4 %", "4%%", "-1%", "1e1%"}) EXPECT_FALSE(parse_quota(bad)) << bad;
    EXPECT_EQ(parse_quota("none"), Quota{});
    EXPECT_EQ(parse_quota("auto")->kind, Quota::Kind::kAutomatic);
    EXPECT_EQ(parse_quota("256")->amount, 256u);
    for (const char* bad : {"", "0", "-1", "257", "nan", "1e1", "1.5", " 1", "0x8", "None"})
        EXPECT_FALSE(parse_quota(bad)) << bad;
    const SplitFacts facts = facts_of(partition::testing::h200());
    EXPECT_EQ(describe(decide(wish_of(v1::MODE_INTER_SM, tpcs(16)), facts, {}), facts.topology),
              "inter-sm, quota 16, compute on 16 of 66 TPCs");
    EXPECT_EQ(describe({}, {}), "intra-sm, quota none");
}

TEST(PartitionPage, CarriesTheMask) {
    const page::Split split = to_page(decide({}, facts_of(partition::testing::h200()), {}), 9);
    EXPECT_EQ(split.generation, 9u);
    EXPECT_EQ(split.mode, page::SplitMode::kInterSm);
    EXPECT_EQ(split.applied_tpcs, 64u);
    EXPECT_EQ(split.disable[0], uint64_t{1} << 1 | uint64_t{1} << 25);
    EXPECT_EQ(split.disable[1], 0u);
}

}  // namespace
}  // namespace vuda::daemon
