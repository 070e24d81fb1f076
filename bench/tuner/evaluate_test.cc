// What the tuner must reach, on a few seeds of each scenario; docs/tuner.md has the numbers for 200.
#include "bench/tuner/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/tuner/engine_plant.h"
#include "bench/tuner/musts.h"
#include "bench/tuner/rate_plant.h"

namespace vuda::tuner::eval {
namespace {

constexpr size_t kSeeds = 9;

class EvaluateTest : public testing::TestWithParam<size_t> {};

TEST_P(EvaluateTest, ReachesWhatItMust) {
    const Scenario scenario = scenarios()[GetParam()];
    SCOPED_TRACE(scenario.name);
    const std::vector<SeedResult> results = evaluate(scenario, measure_speeds(scenario.workload), 1001, kSeeds, 1);
    const auto median = [&](double Score::*field) {
        std::vector<double> values;
        for (const SeedResult& result : results)
            values.push_back(result.scores[static_cast<size_t>(Who::kTuner)].*field);
        std::nth_element(values.begin(), values.begin() + kSeeds / 2, values.end());
        return values[kSeeds / 2];
    };
    EXPECT_GE(median(&Score::vs_oracle), 0.99);
    EXPECT_GE(median(&Score::rate_vs_oracle), 0.95);
    double reversals = 0;
    std::vector<double> late;
    for (const SeedResult& result : results) {
        reversals += result.scores[static_cast<size_t>(Who::kTuner)].reversals_per_min / kSeeds;
        for (size_t i = 0; i < result.convergence_s.size(); ++i) {
            late.push_back(in_time(result.convergence_s[i], result.convergence_frames[i]) ? 0 : 1);
        }
    }
    if (scenario.stationary) {
        EXPECT_LE(reversals, 1.0);
    }
    // Some loads leave a level so near to its bound that nobody can tell in two seconds.
    EXPECT_LE(std::count(late.begin(), late.end(), 1.0), static_cast<std::ptrdiff_t>(late.size() / 2));
}

std::string name_of(const testing::TestParamInfo<size_t>& info) {
    std::string name = scenarios()[info.param].name;
    std::erase(name, '-');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EvaluateTest, testing::Range<size_t>(0, scenarios().size()), name_of);

// The closed loop with the execution model in it: the same decisions as with the surrogate.
TEST(EvaluateTest, TheExecutionModelInTheLoop) {
    for (const char* name : {"gaming-4090", "driving", "vr-nominal", "h200-dual"}) {
        SCOPED_TRACE(name);
        const std::vector<Scenario> all = scenarios();
        Scenario scenario = *std::find_if(all.begin(), all.end(), [&](const Scenario& s) { return s.name == name; });
        scenario.duration = 8 * kSecond;
        const Speeds speeds = measure_speeds(scenario.workload);
        const uint32_t start = start_level(scenario, speeds.ladder);
        const History history = history_of(scenario, 1);
        EnginePlant model(scenario.workload, 1);
        RatePlant fast(scenario.workload, speeds, 1);
        const auto in_model = slo_tuner(scenario.workload, speeds.ladder, start, kSecond * 1000);
        const auto in_fast = slo_tuner(scenario.workload, speeds.ladder, start, kSecond * 1000);
        const eval::Run a = eval::run(scenario, history, model, *in_model, 1);
        const eval::Run b = eval::run(scenario, history, fast, *in_fast, 1);
        EXPECT_TRUE(a.counted.meets(scenario.workload));
        // A client that paces itself is served alike by many levels.
        if (scenario.workload.clients[0].period == 0) {
            EXPECT_EQ(a.levels.back().second, b.levels.back().second);
        }
        EXPECT_NEAR(a.counted.compute_rate(), b.counted.compute_rate(), 0.1 * b.counted.compute_rate());
    }
}

}  // namespace
}  // namespace vuda::tuner::eval
