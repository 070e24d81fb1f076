#include "bench/tuner/musts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::tuner::eval {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSeeds = 20;

Scenario gaming() {
    Scenario scenario;
    scenario.name = "gaming";
    scenario.workload.graphics = {16.67, 0.01};
    return scenario;
}

SeedResult good() {
    SeedResult result;
    result.oracle_meets = true;
    Score& score = result.scores[static_cast<size_t>(Who::kTuner)];
    score.vs_oracle = score.rate_vs_oracle = 1;
    result.convergence_s = {0.5};
    result.convergence_frames = {30};
    return result;
}

std::vector<Verdict> missed(const Scenario& scenario, const std::vector<SeedResult>& results) {
    std::vector<Verdict> out;
    for (const Verdict& verdict : judge(scenario, results)) {
        if (!verdict.reached) out.push_back(verdict);
    }
    return out;
}

TEST(MustsTest, InTimeIsWhicheverIsLonger) {
    EXPECT_TRUE(in_time(0, 0));
    EXPECT_TRUE(in_time(2, 120));
    EXPECT_TRUE(in_time(2.4, 60));
    EXPECT_FALSE(in_time(2.1, 61));
    EXPECT_FALSE(in_time(-1, -1)) << "never";
}

TEST(MustsTest, AllReached) {
    EXPECT_EQ(judge(gaming(), std::vector<SeedResult>(kSeeds, good())).size(), 4u);
    EXPECT_TRUE(missed(gaming(), std::vector<SeedResult>(kSeeds, good())).empty());
}

// Two of twenty seeds that fall short are too many, one is not.
TEST(MustsTest, EachCanBeMissed) {
    const auto spoil = [](void (*how)(SeedResult&), size_t seeds) {
        std::vector<SeedResult> results(kSeeds, good());
        for (size_t i = 0; i < seeds; ++i) how(results[i]);
        return missed(gaming(), results);
    };
    struct {
        void (*how)(SeedResult&);
        const char* words;
    } const cases[] = {
        {[](SeedResult& r) { r.convergence_s = r.convergence_frames = {-1}; }, "within 2 s or 60 frames in 18 of 20"},
        {[](SeedResult& r) { r.scores[1].vs_oracle = 0.98; }, "attainment in 18 of 20"},
        {[](SeedResult& r) { r.scores[1].rate_vs_oracle = 0.94; }, "throughput in 18 of 20"},
        {[](SeedResult& r) { r.scores[1].reversals_per_min = 5; }, "one reversal a minute in 18 of 20"},
    };
    for (const auto& one : cases) {
        const std::vector<Verdict> found = spoil(one.how, 2);
        ASSERT_EQ(found.size(), 1u) << one.words;
        EXPECT_THAT(found[0].text, HasSubstr(one.words));
        EXPECT_THAT(found[0].text, HasSubstr("gaming: "));
        EXPECT_TRUE(spoil(one.how, 1).empty()) << one.words;
    }
}

TEST(MustsTest, OnlyWhatAScenarioCanTellOf) {
    Scenario scenario = gaming();
    scenario.stationary = false;
    std::vector<SeedResult> results(kSeeds, good());
    for (SeedResult& result : results) {
        result.convergence_s = result.convergence_frames = {};
        result.oracle_meets = false;
        result.scores[1].reversals_per_min = 9;
        result.scores[1].rate_vs_oracle = 0.1;
    }
    EXPECT_EQ(judge(scenario, results).size(), 1u) << "no quota holds the targets: only attainment can be compared";
    scenario.workload.graphics = {};
    EXPECT_EQ(missed(scenario, results).size(), 1u) << "without targets the sum of rates is compared";
}

TEST(MustsTest, Overall) {
    EXPECT_TRUE(judge_convergence(98, 100).reached);
    EXPECT_FALSE(judge_convergence(97, 100).reached);
    EXPECT_FALSE(judge_convergence(0, 0).reached);
}

}  // namespace
}  // namespace vuda::tuner::eval
