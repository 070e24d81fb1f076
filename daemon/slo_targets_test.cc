#include "daemon/slo_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;

v1::SetSloRequest frames(double ms, double miss = 0.01) {
    v1::SetSloRequest request;
    request.set_frame_ms(ms);
    request.set_frame_miss(miss);
    return request;
}
v1::SetSloRequest steps(double ms, double miss, double rate) {
    v1::SetSloRequest request;
    request.set_latency_ms(ms);
    request.set_latency_miss(miss);
    request.set_throughput(rate);
    return request;
}

TEST(SloTargets, EachSideByItself) {
    NameTargets targets;
    ASSERT_TRUE(apply(frames(16.67), nullptr, targets));
    ASSERT_TRUE(apply(steps(33, 0.01, 0), nullptr, targets));
    EXPECT_EQ(targets.frames.frame_ms, 16.67) << "the other side stays";
    ASSERT_TRUE(apply(steps(0, 0, 500), nullptr, targets));
    EXPECT_EQ(targets.steps, (tuner::ComputeTarget{0, 0, 500})) << "a side is replaced as a whole";
    const ProcessKey process{7, 70};
    ASSERT_TRUE(apply(steps(10, 0, 0), &process, targets));
    EXPECT_EQ(targets.of(process).latency_ms, 10);
    EXPECT_EQ(targets.of({8, 80}).throughput, 500);
    v1::SetSloRequest clear;
    clear.set_clear(true);
    ASSERT_TRUE(apply(clear, &process, targets));
    EXPECT_EQ(targets.of(process).throughput, 500);
    ASSERT_TRUE(apply(clear, nullptr, targets));
    EXPECT_FALSE(targets.any());
}

v1::SetTargetsRequest stated(double frame_ms, double latency_ms, double weight) {
    v1::SetTargetsRequest request;
    request.set_frame_ms(frame_ms);
    request.set_latency_ms(latency_ms);
    request.set_weight(weight);
    return request;
}

TEST(SloTargets, WeightsOfProcesses) {
    const ProcessKey process{7, 70};
    NameTargets targets;
    v1::SetSloRequest request;
    request.set_weight(2);
    EXPECT_FALSE(apply(request, nullptr, targets)) << "of which process?";
    ASSERT_TRUE(apply(request, &process, targets));
    EXPECT_EQ(targets.weight_of(process), 2);
    EXPECT_EQ(targets.weight_of({8, 80}), 1);
    EXPECT_FALSE(targets.any()) << "a weight is no target";
    EXPECT_FALSE(targets.empty()) << "but is kept";
    ASSERT_TRUE(apply(steps(10, 0, 0), &process, targets));
    EXPECT_EQ(targets.weight_of(process), 2) << "a target leaves it as it is";
    for (const double bad : {-1.0, 1e-9, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
        request.set_weight(bad);
        EXPECT_FALSE(apply(request, &process, targets)) << bad;
    }
    EXPECT_EQ(targets.weight_of(process), 2);
    request.set_weight(0);
    request.set_clear(true);
    ASSERT_TRUE(apply(request, &process, targets));
    EXPECT_TRUE(targets.empty());
}

TEST(SloTargets, AProcessStatesAllOfItsOwn) {
    const ProcessKey process{7, 70};
    NameTargets targets;
    ASSERT_TRUE(apply(steps(50, 0.01, 0), nullptr, targets));
    ASSERT_TRUE(apply(stated(16, 0, 0), true, nullptr, targets));
    ASSERT_TRUE(apply(stated(0, 10, 3), false, &process, targets));
    EXPECT_EQ(targets.frames.frame_ms, 16) << "it is the owner's";
    EXPECT_EQ(targets.of(process).latency_ms, 10);
    EXPECT_EQ(targets.weight_of(process), 3);
    EXPECT_EQ(targets.of({8, 80}).latency_ms, 50) << "others keep the name's";
    // What is left out is none.
    ASSERT_TRUE(apply(stated(0, 20, 0), false, &process, targets));
    EXPECT_EQ(targets.weight_of(process), 1);
    ASSERT_TRUE(apply(stated(0, 0, 0), false, &process, targets));
    EXPECT_EQ(targets.of(process).latency_ms, 50);
    ASSERT_TRUE(apply(stated(0, 0, 0), true, nullptr, targets));
    EXPECT_FALSE(targets.frames.any());
    // A side that it has not.
    EXPECT_THAT(apply(stated(16, 0, 0), false, &process, targets).error().to_string(), HasSubstr("frame_ms"));
    EXPECT_THAT(apply(stated(0, 10, 0), true, nullptr, targets).error().to_string(), HasSubstr("latency_ms"));
    EXPECT_THAT(apply(stated(0, 0, 2), true, nullptr, targets).error().to_string(), HasSubstr("weight"));
    EXPECT_THAT(apply(stated(-1, 0, 0), true, &process, targets).error().to_string(), HasSubstr("frame_ms"));
    EXPECT_THAT(apply(stated(0, 0, -2), true, &process, targets).error().to_string(), HasSubstr("weight"));
    EXPECT_EQ(targets.steps.latency_ms, 50);
}

TEST(SloTargets, BadOnesChangeNothing) {
    const ProcessKey process{7, 70};
    NameTargets targets;
    ASSERT_TRUE(apply(frames(16), nullptr, targets));
    const auto refused = [&](const v1::SetSloRequest& request, const ProcessKey* of, const char* word) {
        const Status status = apply(request, of, targets);
        EXPECT_FALSE(status) << request.ShortDebugString();
        if (status) return;
        EXPECT_EQ(status.error().code, Code::kInvalidArgument);
        EXPECT_THAT(status.error().to_string(), HasSubstr(word));
        EXPECT_EQ(targets.frames.frame_ms, 16);
        EXPECT_FALSE(targets.steps.any());
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    refused({}, nullptr, "no target");
    refused(frames(-1), nullptr, "frame_ms");
    refused(frames(nan), nullptr, "frame_ms");
    refused(frames(16, 1), nullptr, "frame_miss");
    refused(frames(0, 0.5), nullptr, "frame_miss");
    refused(steps(-1, 0, 0), nullptr, "latency_ms");
    refused(steps(1, nan, 0), nullptr, "latency_miss");
    refused(steps(0, 0, -5), nullptr, "throughput");
    refused(frames(16), &process, "frame_ms");
    v1::SetSloRequest both = frames(10);
    both.set_clear(true);
    refused(both, nullptr, "clear");
    both = frames(10);
    both.set_latency_ms(-1);
    refused(both, nullptr, "latency_ms");
}

TEST(SloTargets, ManyProcessesOfTheirOwnAreBounded) {
    NameTargets targets;
    for (int i = 1; i <= 2 * static_cast<int>(kOwnTargets); ++i) {
        const ProcessKey process{i, 1};
        ASSERT_TRUE(apply(steps(10, 0, 0), &process, targets));
    }
    EXPECT_EQ(targets.own.size(), kOwnTargets);
}

TargetTable sample() {
    TargetTable table;
    NameTargets& game = table["game"];
    game.uid = 1000;
    game.automatic = true;
    game.frames = {16.67, 0.01};
    game.steps = {33.3, 0.05, 12.5};
    game.own[{4711, 1234567890123}] = {0, 0, 500};
    game.weights[{4712, 5}] = 2.5;
    table["weights.only"].weights[{1, 2}] = 0.5;
    table["other.name-1"].steps = {1e-3, 0, 0};
    return table;
}

TEST(SloTargets, FileKeepsEverything) {
    const std::string text = to_text(sample(), "boot-1");
    size_t bad = 0;
    const TargetTable read = parse_targets(text, "boot-1", bad);
    EXPECT_EQ(bad, 0u);
    EXPECT_EQ(to_text(read, "boot-1"), text);
    EXPECT_EQ(read.at("game").uid, 1000u);
    EXPECT_TRUE(read.at("game").automatic);
    EXPECT_EQ(read.at("game").of({4711, 1234567890123}).throughput, 500);
    EXPECT_EQ(read.at("game").weight_of({4712, 5}), 2.5);
    EXPECT_EQ(read.at("weights.only").weight_of({1, 2}), 0.5);
    EXPECT_FALSE(parse_targets(text, "boot-2", bad).contains("weights.only"));
    // Process numbers of another boot are other processes.
    EXPECT_TRUE(parse_targets(text, "boot-2", bad).at("game").own.empty());
    EXPECT_EQ(bad, 0u);
}

TEST(SloTargets, BadLinesAreLeftOut) {
    size_t bad = 0;
    EXPECT_TRUE(parse_targets("", "b", bad).empty());
    EXPECT_EQ(bad, 0u);
    EXPECT_TRUE(parse_targets("vuda-targets 2 b\nname game 1 auto\nframes 10 0\n", "b", bad).empty());
    EXPECT_EQ(bad, 3u);
    const TargetTable read = parse_targets(
        "vuda-targets 1 b\nframes 1 0\nname ../x 1 auto\nframes 10 0\nname game 1 auto\nframes 10 0\nframes nan 0\n"
        "frames -1 0\nframes 1e999 0\nsteps 1 2 3\nprocess x 1 1 0 0\nsteps\nzz\nweight 1 2 -3\nweight 1 2\n\nname n "
        "99999999999 auto\n",
        "b", bad);
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read.at("game").frames.frame_ms, 10);
    EXPECT_EQ(bad, 13u);
}

TEST(SloTargets, AnyBytesAreSurvived) {
    std::mt19937_64 random(5);
    const std::string good = to_text(sample(), "b");
    for (int round = 0; round < 3000; ++round) {
        std::string text = good;
        for (uint64_t i = random() % 8; i > 0; --i) {
            const size_t at = random() % text.size();
            switch (random() % 3) {
                case 0: text[at] = static_cast<char>(random()); break;
                case 1: text.erase(at, random() % 20); break;
                default: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
            }
            if (text.empty()) text = "x";
        }
        size_t bad = 0;
        for (const auto& [name, targets] : parse_targets(text, "b", bad)) {
            EXPECT_TRUE(targets.frames.validate());
            EXPECT_TRUE(targets.steps.validate());
        }
    }
}

}  // namespace
}  // namespace vuda::daemon
