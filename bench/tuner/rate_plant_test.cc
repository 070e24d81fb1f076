// The surrogate against the execution model that it stands for.
#include "bench/tuner/rate_plant.h"

#include <gtest/gtest.h>

#include "bench/tuner/engine_plant.h"
#include "bench/tuner/run.h"

namespace vuda::tuner::eval {
namespace {

struct Measured {
    double frames = 0, frame_ms = 0, steps = 0, step_ms = 0;
};

// The second half of `length`.
Measured measure(Plant& plant, uint32_t level, TimeNs length) {
    plant.set_level(level);
    plant.set_shares({1.0});
    std::vector<Done> done;
    plant.run_until(length / 2, done);
    done.clear();
    plant.run_until(length, done);
    Measured out;
    for (const Done& d : done) {
        (d.client < 0 ? out.frames : out.steps) += 1;
        (d.client < 0 ? out.frame_ms : out.step_ms) += static_cast<double>(d.duration) / 1e6;
    }
    out.frame_ms /= std::max(1.0, out.frames);
    out.step_ms /= std::max(1.0, out.steps);
    return out;
}

class PlantTest : public testing::TestWithParam<size_t> {};

TEST_P(PlantTest, SurrogateAgreesWithTheExecutionModel) {
    Scenario scenario = scenarios()[GetParam()];
    SCOPED_TRACE(scenario.name);
    Workload& workload = scenario.workload;
    workload.clients.resize(1);  // the model has no shares
    workload.switch_penalty = 0;
    workload.spikes = 0;
    const Speeds speeds = measure_speeds(workload);
    for (size_t i = 0; i < speeds.levels.size(); i += std::max<size_t>(1, speeds.levels.size() / 3)) {
        const uint32_t level = speeds.ladder.tpcs[i];
        RatePlant fast(workload, speeds, 1);
        EnginePlant model(workload, 1);
        const Measured a = measure(fast, level, 6 * kSecond), b = measure(model, level, 6 * kSecond);
        SCOPED_TRACE(level);
        EXPECT_NEAR(a.frames, b.frames, 0.05 * b.frames + 2);
        EXPECT_NEAR(a.frame_ms, b.frame_ms, 0.08 * b.frame_ms);
        EXPECT_NEAR(a.steps, b.steps, 0.08 * b.steps + 2);
        EXPECT_NEAR(a.step_ms, b.step_ms, 0.10 * b.step_ms);
    }
}

std::string name_of(const testing::TestParamInfo<size_t>& info) {
    std::string name = scenarios()[info.param].name;
    std::erase(name, '-');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, PlantTest, testing::Range<size_t>(0, scenarios().size()), name_of);

TEST(RatePlantTest, SameSeedSameHistory) {
    const Scenario scenario = scenarios()[0];
    const Speeds speeds = measure_speeds(scenario.workload);
    std::vector<Done> a, b;
    RatePlant one(scenario.workload, speeds, 5), other(scenario.workload, speeds, 5);
    one.run_until(2 * kSecond, a);
    for (TimeNs t = 0; t <= 2 * kSecond; t += 7 * kMs) other.run_until(t, b);
    other.run_until(2 * kSecond, b);
    ASSERT_GT(a.size(), 100u);
    EXPECT_EQ(a.size(), b.size());
}

}  // namespace
}  // namespace vuda::tuner::eval
