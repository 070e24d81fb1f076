// Random ioctl sequences, sensible and senseless: whatever programs do, the simulator stays consistent and nothing
// outlives them.
#include <gtest/gtest.h>

#include "sim/rm/test_monkey.h"

namespace vuda::sim {
namespace {

class SimProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(SimProperty, RandomSequencesNeitherCrashNorLeak) {
    constexpr int kSequences = 25;
    constexpr int kSteps = 250;
    ResourceManager::Counts most;
    for (uint32_t sequence = 0; sequence < kSequences; sequence++) {
        Dice dice(GetParam() * 1000 + sequence);
        const auto rm = make_rm("580.159.04", {"h200", "rtx4090"});
        ASSERT_NE(rm, nullptr);
        {
            std::vector<std::unique_ptr<Monkey>> monkeys;
            for (pid_t pid = 10; pid < 13; pid++)
                monkeys.push_back(std::make_unique<Monkey>(
                    *rm, std::make_unique<TestProcess>(*rm, pid, pid % 2 == 0 ? 0 : 1000), dice));
            for (int step = 0; step < kSteps; step++) {
                monkeys[dice.below(3)]->act(monkeys);
                ASSERT_EQ(rm->audit(), "") << "seed " << GetParam() << ", sequence " << sequence << ", step " << step;
                const auto counts = rm->counts();
                most.objects = std::max(most.objects, counts.objects);
                most.channels = std::max(most.channels, counts.channels);
            }
            // Programs die in any order.
            while (!monkeys.empty()) {
                monkeys.erase(monkeys.begin() + dice.below(static_cast<uint32_t>(monkeys.size())));
                ASSERT_EQ(rm->audit(), "");
            }
        }
        ASSERT_EQ(rm->counts(), ResourceManager::Counts{}) << "seed " << GetParam() << ", sequence " << sequence;
    }
    // The sequences do get somewhere.
    EXPECT_GT(most.objects, 25u);
    EXPECT_GT(most.channels, 2u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimProperty, testing::Range(1u, 9u));

}  // namespace
}  // namespace vuda::sim
