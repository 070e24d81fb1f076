// The launch loop against fake_cuda.cc.
#include "bench/compute/runner.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"
#include "bench/compute/session.h"

namespace vuda::bench {
namespace {

class ComputeRunnerTest : public ::testing::Test {
 protected:
    ComputeRunnerTest() {
        options_.libcuda = FAKE_LIBCUDA;
        options_.iterations = 3;
        options_.bytes = 64 << 10;
        options_.warmup = 5;
        options_.check_every = 16;
        run_options_.seconds = 0.02;
    }
    ~ComputeRunnerTest() override {
        for (const char* name : {"FAKE_CUDA_NO_DEVICE", "FAKE_CUDA_FAULT_AT", "FAKE_CUDA_LOSE", "FAKE_CUDA_WRONG",
                                 "FAKE_CUDA_NS", "FAKE_CUDA_HOLE_EVERY", "FAKE_CUDA_HOLE_US", "FAKE_CUDA_HOLE_INSIDE"})
            ::unsetenv(name);
    }

    ComputeReport run() {
        StartGate gate(run_options_.gate);
        ComputeRunner runner(options_, run_options_);
        if (runner.prepare().ok()) static_cast<void>(runner.run(gate));
        return runner.report();
    }

    ComputeOptions options_;
    RunOptions run_options_;
};

TEST_F(ComputeRunnerTest, EveryLoadRunsAndChecksItself) {
    for (const ComputeLoad load : {ComputeLoad::kFma, ComputeLoad::kMemory, ComputeLoad::kTiny}) {
        options_.load = load;
        ComputeReport report = run();
        ASSERT_FALSE(report.error) << report.error->to_string();
        EXPECT_EQ(report.result_errors, 0u) << load_name(load);
        EXPECT_GT(report.latency_ms.size(), 0u);
        EXPECT_EQ(report.launches, report.latency_ms.size() + options_.warmup);
        EXPECT_EQ(report.options.blocks, load == ComputeLoad::kTiny ? 1u : 16u);
        EXPECT_EQ(report.exit_code(), kExitOk);
        EXPECT_EQ(report.gpu, "Fake GPU");
        EXPECT_EQ(report.cuda, "13.0");
    }
}

TEST_F(ComputeRunnerTest, MultiprocessorsAreReportedOnRequest) {
    EXPECT_FALSE(run().to_json().contains("sms"));
    options_.report_sms = true;
    ComputeReport report = run();
    EXPECT_EQ(report.sms, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(report.to_json()["sms"], (nlohmann::ordered_json{0, 1}));
}

TEST_F(ComputeRunnerTest, HolesAreReportedOnRequest) {
    EXPECT_FALSE(run().to_json().contains("holes"));
    ::setenv("FAKE_CUDA_NS", "20000", 1);
    ::setenv("FAKE_CUDA_HOLE_EVERY", "10", 1);
    ::setenv("FAKE_CUDA_HOLE_US", "300", 1);
    options_.iterations = 5;
    options_.report_holes = true;
    run_options_.seconds = 0.1;
    run_options_.linger = 0.02;
    for (const ComputeLoad load : {ComputeLoad::kFma, ComputeLoad::kMemory, ComputeLoad::kTiny}) {
        options_.load = load;
        ComputeReport report = run();
        ASSERT_FALSE(report.error) << report.error->to_string();
        EXPECT_EQ(report.result_errors, 0u) << load_name(load);
        const auto json = report.to_json();
        const size_t measured = report.latency_ms.size();
        EXPECT_EQ(json["timed_launches"], measured) << "neither those before nor those after";
        ASSERT_GE(measured, 5u);
        const double kernel_ms = load == ComputeLoad::kTiny ? 0.02 : 0.1;
        EXPECT_EQ(json["usual_gap_ms"], 0.005);
        EXPECT_EQ(json["usual_kernel_ms"], kernel_ms);
        // Launches 10, 20, ... of all; the first five warmed up, and what is before the first measured one is no gap.
        const size_t holes = (measured + 5) / 10;
        ASSERT_EQ(json["holes"].size(), holes);
        EXPECT_EQ(json["holes"][0][0], std::round((4 * (kernel_ms + 0.005) - 0.005) * 1e3) / 1e3);
        for (const auto& hole : json["holes"]) EXPECT_EQ(hole[1], 0.305);
        const double all =
            static_cast<double>(measured) * (kernel_ms + 0.005) - 0.005 + 0.3 * static_cast<double>(holes);
        EXPECT_NEAR(json["timed_ms"].get<double>(), all, 0.001);
    }
}

TEST_F(ComputeRunnerTest, HolesInTheMidstOfALaunchAreFound) {
    ::setenv("FAKE_CUDA_NS", "20000", 1);
    ::setenv("FAKE_CUDA_HOLE_EVERY", "10", 1);
    ::setenv("FAKE_CUDA_HOLE_US", "10300", 1);
    ::setenv("FAKE_CUDA_HOLE_INSIDE", "1", 1);
    options_.iterations = 5;
    options_.report_holes = true;
    run_options_.seconds = 0.1;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    const auto json = report.to_json();
    ASSERT_GT(json["holes"].size(), 0u);
    EXPECT_EQ(json["holes"][0], (nlohmann::ordered_json{0.42, 10.3}));
}

TEST_F(ComputeRunnerTest, NoLookAtTheResultsIsTakenForAHole) {
    options_.report_holes = true;
    options_.check_every = 1;
    ::setenv("FAKE_CUDA_NS", "10000", 1);  // so that there is room for the times of all launches
    ::setenv("FAKE_CUDA_LOSE", "9", 1);
    ComputeReport report = run();
    // Found by the kernel after it, and counted at the end.
    EXPECT_EQ(report.result_errors, report.options.blocks);
    EXPECT_EQ(report.exit_code(), kExitWrongResult);
    EXPECT_EQ(report.holes.launches, report.latency_ms.size() - 1) << "one did nothing, and has no times";
}

TEST_F(ComputeRunnerTest, TimesHaveRoomForSoManyLaunches) {
    options_.load = ComputeLoad::kTiny;
    options_.report_holes = true;
    const auto api = CudaApi::load(options_.libcuda);
    ASSERT_TRUE(api.ok());
    const auto gpu = open_cuda_gpu(*api, "");
    ASSERT_TRUE(gpu.ok());
    const auto session = Session::open(*gpu, options_);
    ASSERT_TRUE(session.ok());
    EXPECT_TRUE((*session)->launch_times()->empty());
    Samples ns;
    (*session)->time_launches();
    ASSERT_TRUE((*session)->launch_batch(65536 + 10, ns).ok());
    const auto times = (*session)->launch_times();
    ASSERT_TRUE(times.ok());
    ASSERT_EQ(times->size(), 65536u);
    for (size_t i = 1; i < times->size(); ++i) ASSERT_EQ((*times)[i].begin_ns, (*times)[i - 1].end_ns + 5000) << i;
}

TEST_F(ComputeRunnerTest, StepsArePaced) {
    options_.fps = 200;
    options_.warmup = 2;
    run_options_.seconds = 0.1;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    // 20 on an idle machine, fewer on a busy one, never more: what was missed is not made up for.
    EXPECT_GE(report.latency_ms.size(), 2u);
    EXPECT_LE(report.latency_ms.size(), 22u);
    EXPECT_EQ(report.to_json()["fps_target"], 200);
}

TEST_F(ComputeRunnerTest, LateStepsAreCountedAndNotMadeUpFor) {
    ::setenv("FAKE_CUDA_NS", "10000000", 1);  // 10 ms an iteration: 30 ms for a period of 5 ms
    options_.fps = 200;
    options_.warmup = 1;
    options_.report_trace = true;
    run_options_.seconds = 0.2;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_LE(report.latency_ms.size(), 8u);
    EXPECT_GE(report.late_launches + 1, report.latency_ms.size());
    const auto trace = report.to_json()["trace"];
    ASSERT_EQ(trace.size(), report.latency_ms.size());
    for (size_t i = 0; i < trace.size(); ++i) {
        EXPECT_GE(trace[i][1], 29.0);
        // Ends are on one axis, each at least a launch after the one before.
        if (i > 0) {
            EXPECT_GE(trace[i][0].get<double>() - trace[i - 1][0].get<double>(), 29.0);
        }
    }
}

TEST_F(ComputeRunnerTest, StepsAreMarkedWhereVudaIs) {
    options_.mark_steps = true;
    options_.libvuda = "libvuda-there-is-no-such-library.so";
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_EQ(report.to_json()["marked"], false);

    // A library that nobody loaded is not loaded for marking.
    options_.libvuda = FAKE_MARKS;
    EXPECT_FALSE(run().marked);
    void* library = ::dlopen(FAKE_MARKS, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    report = run();
    const auto steps = reinterpret_cast<uint64_t (*)()>(::dlsym(library, "fake_marks_steps"));
    const auto wrong = reinterpret_cast<uint64_t (*)()>(::dlsym(library, "fake_marks_wrong"));
    ASSERT_TRUE(steps != nullptr && wrong != nullptr);
    EXPECT_TRUE(report.marked);
    EXPECT_EQ(steps(), report.launches);
    EXPECT_EQ(wrong(), 0u);
}

TEST_F(ComputeRunnerTest, LaunchesAreTimedWithoutWaiting) {
    options_.load = ComputeLoad::kTiny;
    options_.launch_cost = 1000;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_EQ(report.launch_ns.size(), 1000u);
    EXPECT_EQ(report.result_errors, 0u);
    EXPECT_TRUE(report.to_json().contains("launch_p50_ns"));
    EXPECT_FALSE(report.to_json().contains("watched_p50_ns")) << "without VUDA there is no hook";

    void* library = ::dlopen(FAKE_QUOTA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto watched = reinterpret_cast<uint64_t (*)(int)>(::dlsym(library, "fake_watched"));
    ASSERT_NE(watched, nullptr);
    options_.libvuda = FAKE_QUOTA;
    report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_EQ(report.launch_ns.size(), 1000u);
    EXPECT_EQ(report.watched_ns.size(), 1000u);
    EXPECT_EQ(watched(0), 4u) << "batches of 256, in turns";
    EXPECT_EQ(watched(1), 4u);
    EXPECT_TRUE(report.to_json().contains("watched_p50_ns"));
}

TEST_F(ComputeRunnerTest, QuotaChangesAreTimedUntilTheyAreInForce) {
    options_.quota_changes = 5;
    options_.libvuda = "libvuda-there-is-no-such-library.so";
    EXPECT_EQ(run().error->code, Code::kNotFound);

    void* library = ::dlopen(FAKE_QUOTA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    options_.libvuda = FAKE_QUOTA;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    const auto changes = reinterpret_cast<uint64_t (*)()>(::dlsym(library, "fake_quota_changes"));
    ASSERT_NE(changes, nullptr);
    EXPECT_EQ(changes(), 5u);
    EXPECT_EQ(report.quota_changes.call_us.size(), 5u);
    EXPECT_EQ(report.quota_changes.applied_us.size(), 5u);
    EXPECT_TRUE(report.to_json().contains("quota_applied_p99_us"));

    ::setenv("FAKE_QUOTA_NO_BACKEND", "1", 1);
    const ComputeReport refused = run();
    ::unsetenv("FAKE_QUOTA_NO_BACKEND");
    ASSERT_TRUE(refused.error);
    EXPECT_EQ(refused.error->code, Code::kFailedPrecondition);
    EXPECT_EQ(refused.error->hint, "as the test wants");

    ::setenv("FAKE_QUOTA_STUCK", "1", 1);
    const ComputeReport stuck = run();
    ::unsetenv("FAKE_QUOTA_STUCK");
    ASSERT_TRUE(stuck.error);
    EXPECT_EQ(stuck.error->code, Code::kDeadlineExceeded);
}

TEST_F(ComputeRunnerTest, LostLaunchIsFoundByTheNextOne) {
    for (const ComputeLoad load : {ComputeLoad::kFma, ComputeLoad::kMemory, ComputeLoad::kTiny}) {
        options_.load = load;
        ::setenv("FAKE_CUDA_LOSE", "9", 1);
        ComputeReport report = run();
        ASSERT_FALSE(report.error) << report.error->to_string();
        EXPECT_GT(report.result_errors, 0u) << load_name(load);
        EXPECT_EQ(report.exit_code(), kExitWrongResult);
    }
}

TEST_F(ComputeRunnerTest, LastLaunchIsCheckedToo) {
    options_.cycles = 1;
    options_.cycle_launches = 7;
    ::setenv("FAKE_CUDA_LOSE", "12", 1);  // 5 to warm up and 7: the last
    EXPECT_EQ(run().result_errors, 16u);
}

TEST_F(ComputeRunnerTest, WrongArithmeticIsCountedOnce) {
    ::setenv("FAKE_CUDA_WRONG", "7", 1);
    ComputeReport report = run();
    EXPECT_EQ(report.result_errors, 1u);
    EXPECT_EQ(report.to_json()["result_errors"], 1);
}

TEST_F(ComputeRunnerTest, FaultIsADeviceLostWithItsExitCode) {
    ::setenv("FAKE_CUDA_FAULT_AT", "20", 1);
    ComputeReport report = run();
    ASSERT_TRUE(report.error);
    EXPECT_TRUE(report.device_lost());
    EXPECT_EQ(report.exit_code(), kExitDeviceLost);
    EXPECT_NE(report.error->text.find("CUDA_ERROR_LAUNCH_FAILED, 719"), std::string::npos) << report.error->text;
    const auto json = report.to_json();
    EXPECT_EQ(json["device_lost"], true);
    EXPECT_EQ(json["launches"], 19);
}

TEST_F(ComputeRunnerTest, FaultWhileWarmingUpIsReportedToo) {
    ::setenv("FAKE_CUDA_FAULT_AT", "2", 1);
    EXPECT_TRUE(run().device_lost());
}

TEST_F(ComputeRunnerTest, CyclesMakeAndDestroyTheContext) {
    options_.cycles = 4;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_EQ(report.cycles, 4u);
    EXPECT_EQ(report.context_ms.size(), 4u);
    EXPECT_EQ(report.launches, options_.warmup + 4 * options_.cycle_launches);
    EXPECT_EQ(report.to_json()["cycles"], 4);
}

TEST_F(ComputeRunnerTest, CalibrationFindsTheIterations) {
    ::setenv("FAKE_CUDA_NS", "10000", 1);
    options_.iterations = 1;
    options_.kernel_us = 5000;
    ComputeReport report = run();
    ASSERT_FALSE(report.error) << report.error->to_string();
    // 500 on an idle machine; fewer where waking up takes long.
    EXPECT_GT(report.options.iterations, 100u);
    EXPECT_LE(report.options.iterations, 520u);
    EXPECT_EQ(report.result_errors, 0u);
}

TEST_F(ComputeRunnerTest, CalibratedMemoryLoadStaysRight) {
    ::setenv("FAKE_CUDA_NS", "100000", 1);
    options_.load = ComputeLoad::kMemory;
    options_.iterations = 1;
    options_.kernel_us = 1000;
    EXPECT_EQ(run().result_errors, 0u);
}

TEST_F(ComputeRunnerTest, MissingDriverAndMissingDeviceAreUnavailable) {
    ::setenv("FAKE_CUDA_NO_DEVICE", "1", 1);
    ComputeReport report = run();
    ASSERT_TRUE(report.error);
    EXPECT_EQ(report.exit_code(), kExitNoDevice);
    EXPECT_NE(report.error->text.find("no CUDA-capable device"), std::string::npos);

    options_.libcuda = "libvuda-there-is-no-such-library.so";
    report = run();
    ASSERT_TRUE(report.error);
    EXPECT_EQ(report.exit_code(), kExitNoDevice);

    options_.libcuda = "libc.so.6";
    report = run();
    ASSERT_TRUE(report.error);
    EXPECT_NE(report.error->text.find("has no cuInit"), std::string::npos) << report.error->text;
}

TEST_F(ComputeRunnerTest, DeviceIsChosenByUuidOrIndex) {
    run_options_.device = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10";
    EXPECT_FALSE(run().error);
    run_options_.device = "0";
    EXPECT_FALSE(run().error);
    for (const char* bad : {"1", "-1", "x", "GPU-ffffffff-0506-0708-090a-0b0c0d0e0f10"}) {
        run_options_.device = bad;
        EXPECT_TRUE(run().error) << bad;
    }
}

TEST_F(ComputeRunnerTest, SharedMemoryOverTheLimitIsAnError) {
    options_.shared_bytes = 65536;
    EXPECT_FALSE(run().error);
    options_.shared_bytes = 300000;
    const ComputeReport report = run();
    ASSERT_TRUE(report.error);
    EXPECT_NE(report.error->text.find("300000 bytes of shared memory"), std::string::npos);
}

TEST_F(ComputeRunnerTest, TinyLoadCannotBeCalibrated) {
    options_.load = ComputeLoad::kTiny;
    options_.kernel_us = 10;
    EXPECT_EQ(run().exit_code(), kExitUsage);
}

}  // namespace
}  // namespace vuda::bench
