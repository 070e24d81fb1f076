// Draws real frames, small ones, on whatever Vulkan device there is.
#include "bench/render/renderer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"

namespace vuda::bench {
namespace {

RenderOptions small() {
    RenderOptions options;
    options.width = 100;
    options.height = 60;
    options.iterations = 20;
    options.warmup_frames = 4;
    options.check_stride = 7;
    return options;
}

RenderReport run(const RenderOptions& options, double seconds = 0.1) {
    RunOptions run_options;
    run_options.seconds = seconds;
    run_options.gate.parties = 1;
    StartGate gate(run_options.gate);
    Renderer renderer(options, run_options);
    if (renderer.prepare().ok()) static_cast<void>(renderer.run(gate));
    return renderer.report();
}

TEST(Renderer, EveryFrameMatchesWhatTheCpuComputes) {
    for (const RenderLoad load : {RenderLoad::kFragment, RenderLoad::kVertex}) {
        for (const uint32_t draws : {1u, 7u}) {
            RenderOptions options = small();
            options.load = load;
            options.draws = draws;
            RenderReport report = run(options);
            ASSERT_FALSE(report.error) << report.error->to_string();
            EXPECT_EQ(report.checksum_errors, 0u);
            EXPECT_EQ(report.checked_frames, report.drawn_frames);
            EXPECT_GT(report.frame_ms.size(), 0u);
            EXPECT_GE(report.checked_frames, report.frame_ms.size() + options.warmup_frames);
            EXPECT_EQ(report.exit_code(), kExitOk);
        }
    }
}

TEST(Renderer, FramesAreReportedOnRequest) {
    RenderOptions options = small();
    EXPECT_TRUE(run(options).frames.empty());
    options.report_frames = true;
    const RenderReport report = run(options);
    EXPECT_EQ(report.frames.size(), report.frame_ms.size());
}

TEST(Renderer, ChecksumDependsOnWhatIsDrawnAndNotOnHow) {
    RenderOptions options = small();
    const std::string checksum = run(options).checksum;
    ASSERT_EQ(checksum.size(), 16u);
    options.draws = 5;
    options.frames_in_flight = 3;
    EXPECT_EQ(run(options).checksum, checksum);
    options.iterations += 1;
    options.width += 1;
    EXPECT_NE(run(options).checksum, checksum);
}

TEST(Renderer, OneWrongFrameIsFoundAndFailsTheRun) {
    for (const uint32_t in_flight : {1u, 2u, 3u}) {
        RenderOptions options = small();
        options.frames_in_flight = in_flight;
        options.corrupt_frame = 3;
        RenderReport report = run(options);
        ASSERT_FALSE(report.error) << report.error->to_string();
        EXPECT_EQ(report.checksum_errors, 1u);
        EXPECT_EQ(report.exit_code(), kExitWrongResult);
        EXPECT_EQ(report.to_json()["checksum_errors"], 1);
    }
}

TEST(Renderer, PacedFramesKeepTheirRate) {
    RenderOptions options = small();
    options.fps = 20;
    RenderReport report = run(options, 0.5);
    ASSERT_FALSE(report.error) << report.error->to_string();
    // Never faster than asked for; slower only if the machine is.
    EXPECT_GE(report.frame_ms.size(), 1u);
    EXPECT_LE(report.frame_ms.size(), 12u);
}

TEST(Renderer, CalibrationComesNearTheFrameTime) {
    RenderOptions options = small();
    options.iterations = 1;
    options.target_frame_ms = 4;
    RenderReport report = run(options);
    ASSERT_FALSE(report.error) << report.error->to_string();
    EXPECT_GT(report.options.iterations, 1u);
}

TEST(Renderer, UnknownDeviceIsAnErrorInWords) {
    const auto open = [](const char* which) { return Device::open(which).error(); };
    EXPECT_EQ(open("99").code, Code::kUnavailable);
    EXPECT_NE(open("99").text.find("there is no GPU 99"), std::string::npos);
    EXPECT_EQ(open("fast").code, Code::kInvalidArgument);
    EXPECT_EQ(open("GPU-00000000-1111-2222-3333-444444444444").code, Code::kUnavailable);
}

TEST(Renderer, DeviceIsFoundByItsUuid) {
    const auto device = Device::open("");
    ASSERT_TRUE(device.ok()) << device.error().to_string();
    const auto again = Device::open(device->info().uuid.to_string());
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(again->info().name, device->info().name);
}

TEST(Renderer, JsonHasWhatScriptsRead) {
    auto json = run(small()).to_json();
    for (const char* key : {"program", "gpu", "uuid", "driver", "width", "height", "frames", "fps", "frame_p50_ms",
                            "frame_p99_ms", "checksum", "checksum_errors", "device_lost", "seconds"})
        EXPECT_TRUE(json.contains(key)) << key;
    EXPECT_FALSE(json.contains("error"));
}

}  // namespace
}  // namespace vuda::bench
