// The cases against fake_features_cuda.cc, which runs their kernels on the host: what they expect is what the kernels
// do.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/common/exit_code.h"
#include "bench/features/run.h"

namespace vuda::bench::features {
namespace {

class Features : public ::testing::Test {
 protected:
    ~Features() override {
        ::unsetenv("FAKE_CUDA_WRONG");
        ::unsetenv("FAKE_CUDA_LOSE");
        ::unsetenv("FAKE_CUDA_SHARED");
    }

    FeatureReport run(const char* name) {
        FeatureOptions options;
        options.case_name = name;
        options.seconds = 0;
        options.rig.libcuda = FAKE_LIBCUDA;
        return run_feature(options);
    }

    static int left_behind() {
        void* library = dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
        return reinterpret_cast<int (*)()>(dlsym(library, "fake_objects"))();
    }
};

// The fake has none of these, and a real GPU may lack them: they say so and nothing fails.
bool is_missing(std::string_view name) {
    return name == "cluster" || name == "dependent-launch" || name == "dynamic-parallelism" ||
           name == "dynamic-parallelism-large" || name == "managed-variable" || name == "ipc" ||
           name == "virtual-memory";
}

TEST_F(Features, EveryCasePassesOrSaysWhyNot) {
    for (const Case& one : cases()) {
        if (one.risk == Risk::kHarmful) continue;
        const FeatureReport report = run(one.name);
        EXPECT_EQ(report.outcome, is_missing(one.name) ? Outcome::kSkipped : Outcome::kPassed)
            << one.name << ": " << report.error;
        EXPECT_EQ(report.exit_code(), is_missing(one.name) ? 77 : kExitOk) << one.name;
        EXPECT_EQ(report.error.empty(), !is_missing(one.name)) << one.name;
        EXPECT_EQ(report.checksum != 0, !is_missing(one.name)) << one.name;
    }
    EXPECT_EQ(left_behind(), 0);
}

TEST_F(Features, AResultIsTheSameEachTime) {
    for (const char* name : {"launch", "contexts-at-once", "graph-memory"}) {
        const FeatureReport one = run(name);
        EXPECT_EQ(one.checksum, run(name).checksum) << name;
    }
    FeatureOptions options;
    options.case_name = "assert";  // well below a millisecond a round
    options.seconds = 0.05;
    options.rig.libcuda = FAKE_LIBCUDA;
    const FeatureReport report = run_feature(options);
    EXPECT_EQ(report.outcome, Outcome::kPassed) << report.error;
    EXPECT_GT(report.rounds, 1u);
    EXPECT_GT(report.p50_ms, 0);
}

TEST_F(Features, WrongResultsAreFoundInEveryCase) {
    const std::pair<const char*, const char*> kernels[] = {
        {"launch", "feature_step"},
        {"constant-memory", "feature_constant"},
        {"events", "feature_spin"},
        {"priorities", "feature_step"},
        {"host-functions", "feature_step"},
        {"stream-memory-operations", "feature_step"},
        {"host-memory", "feature_step"},
        {"memory-pool", "feature_step"},
        {"graph", "feature_step"},
        {"graph-child", "feature_step"},
        {"graph-memory", "feature_step"},
        {"shared-memory", "feature_shared"},
        {"shared-memory-blocks", "feature_residents"},
        {"shared-memory-blocks", "feature_residents:1"},
        {"clock", "feature_clock:2"},
        {"native-module", "feature_constant"},
        {"native-module", "feature_step"},
        {"native-graph", "feature_step"},
        {"native-graph", "feature_constant"},
        {"native-graph-update", "feature_step"},
        {"assert", "feature_assert"},
        {"device-malloc", "feature_malloc"},
        {"cooperative", "feature_grid_sync"},
        {"cooperative-full", "feature_grid_sync"},
        {"local-memory", "feature_local"},
        {"stack-limit", "feature_recurse"},
        {"contexts-in-turns", "feature_step"},
        {"contexts-at-once", "feature_step"},
        {"context-recreated", "feature_step"},
        {"primary-reset", "feature_step"},
        {"managed-faulting", "feature_step"},
        {"managed-prefetched", "feature_step"},
        {"pageable", "feature_step"},
    };
    for (const auto& [name, kernel] : kernels) {
        ::setenv("FAKE_CUDA_WRONG", kernel, 1);
        const FeatureReport report = run(name);
        EXPECT_EQ(report.outcome, Outcome::kWrong) << name << ": " << report.error;
        EXPECT_EQ(report.exit_code(), kExitWrongResult);
    }
    EXPECT_EQ(left_behind(), 0);
}

TEST_F(Features, BlocksOfAMultiprocessorAreFiguresAndNoResult) {
    const FeatureReport alone = run("shared-memory-blocks");
    EXPECT_EQ(alone.figures, nlohmann::ordered_json::parse(R"({
        "blocks_at_most_1024": 32, "blocks_at_most_4096": 32, "blocks_at_most_8192": 25, "blocks_at_most_11264": 19,
        "blocks_at_most_16384": 13, "blocks_at_most_24576": 9, "blocks_at_most_32768": 6, "blocks_at_most_47104": 4,
        "shared_memory_per_sm": 233472})"));
    ::setenv("FAKE_CUDA_SHARED", "49152", 1);
    const FeatureReport beside_graphics = run("shared-memory-blocks");
    EXPECT_EQ(beside_graphics.figures, nlohmann::ordered_json::parse(R"({
        "blocks_at_most_1024": 24, "blocks_at_most_4096": 9, "blocks_at_most_8192": 5, "blocks_at_most_11264": 4,
        "blocks_at_most_16384": 2, "blocks_at_most_24576": 1, "blocks_at_most_32768": 1, "blocks_at_most_47104": 1,
        "shared_memory_per_sm": 49152})"));
    EXPECT_EQ(beside_graphics.outcome, Outcome::kPassed) << beside_graphics.error;
    EXPECT_EQ(beside_graphics.checksum, alone.checksum);
    EXPECT_EQ(left_behind(), 0);
}

TEST_F(Features, TheClockIsAFigureAndNoResult) {
    const FeatureReport report = run("clock");
    EXPECT_EQ(report.outcome, Outcome::kPassed) << report.error;
    EXPECT_NEAR(report.figures["clock_mhz_plain"], 2000, 60);
    EXPECT_NEAR(report.figures["clock_mhz_tensor"], 1800, 60);
    EXPECT_EQ(report.checksum, run("clock").checksum);
    EXPECT_EQ(left_behind(), 0);
}

TEST_F(Features, OfSeveralRoundsTheMostBlocksCount) {
    const auto cuda = Driver::load(FAKE_LIBCUDA);
    ASSERT_TRUE(cuda.ok());
    (*cuda)->init(0);
    Rig rig(**cuda, 0, {});
    ASSERT_TRUE(rig.use_primary().ok());
    for (const char* bytes : {"32768", "49152", "16384"}) {
        ::setenv("FAKE_CUDA_SHARED", bytes, 1);
        ASSERT_TRUE(shared_memory_blocks(rig).ok());
    }
    EXPECT_EQ(rig.figures["blocks_at_most_8192"], 5);
    EXPECT_EQ(rig.figures["shared_memory_per_sm"], 49152);
}

TEST_F(Features, ALostContextIsToldFromAWrongResult) {
    ::setenv("FAKE_CUDA_LOSE", "feature_step", 1);
    const FeatureReport report = run("launch");
    EXPECT_EQ(report.outcome, Outcome::kLost);
    EXPECT_EQ(report.exit_code(), kExitDeviceLost);
    EXPECT_EQ(report.to_json()["outcome"], "lost");
    EXPECT_NE(report.to_json()["error"].get<std::string>().find("719"), std::string::npos);
}

TEST_F(Features, AFailedAssertionIsWhatItsCaseWants) { EXPECT_EQ(run("assert-fails").outcome, Outcome::kPassed); }

TEST_F(Features, NoDriverIsAnErrorAndNoSkip) {
    FeatureOptions options;
    options.case_name = "launch";
    options.rig.libcuda = "/nonexistent/libcuda.so.1";
    const FeatureReport report = run_feature(options);
    EXPECT_EQ(report.outcome, Outcome::kFailed);
    EXPECT_NE(report.error, "");
}

TEST(Cases, WhatCanHurtComesLast) {
    Risk risk = Risk::kPlain;
    for (const Case& one : cases()) {
        EXPECT_GE(one.risk, risk) << one.name;
        risk = one.risk;
        EXPECT_EQ(find_case(one.name), &one);
    }
    EXPECT_EQ(find_case("no-such-case"), nullptr);
}

}  // namespace
}  // namespace vuda::bench::features
