#include "bench/render/options.h"

#include <CLI/CLI.hpp>

namespace vuda::bench {

void add_render_options(CLI::App& app, RenderOptions& options, const std::string& prefix) {
    const auto name = [&](const char* option) { return "--" + prefix + option; };
    app.add_option(name("width"), options.width, "Pixels")->check(CLI::Range(16, 7680))->capture_default_str();
    app.add_option(name("height"), options.height, "Pixels")->check(CLI::Range(16, 4320))->capture_default_str();
    app.add_option_function<std::string>(
           name("load"),
           [&options](const std::string& value) {
               options.load = value == "vertex" ? RenderLoad::kVertex : RenderLoad::kFragment;
           },
           "Where the work is: fragment or vertex")
        ->check(CLI::IsMember({"fragment", "vertex"}));
    app.add_option(name("iterations"), options.iterations, "Iterations of the shader's loop")
        ->check(CLI::Range(1, 10000000))
        ->capture_default_str();
    app.add_option(name("target-frame-ms"), options.target_frame_ms,
                   "Choose the iterations so that a frame takes this much GPU time")
        ->check(CLI::Range(0.0, 1000.0));
    app.add_option(name("draws"), options.draws, "Draws a frame; they share its work")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option(name("fps"), options.fps, "Frames a second; 0 = as many as the GPU gives")
        ->check(CLI::Range(0.0, 10000.0))
        ->capture_default_str();
    app.add_option(name("warmup-frames"), options.warmup_frames, "Frames before the renderer counts as steady")
        ->capture_default_str();
    app.add_option(name("frames-in-flight"), options.frames_in_flight, "Frames queued at a time")
        ->check(CLI::Range(1, 3))
        ->capture_default_str();
    app.add_option(name("check-stride"), options.check_stride,
                   "Compare every n-th row of each frame; all rows are covered in n frames")
        ->check(CLI::Range(1, 4320))
        ->capture_default_str();
    app.add_flag(name("report-frames"), options.report_frames, "Report the time of each measured frame, in order");
    app.add_flag(name("report-trace"), options.report_trace,
                 "Report when each measured frame ended (ms, CLOCK_MONOTONIC) and how long it took from its start");
    app.add_option(name("corrupt-frame"), options.corrupt_frame)->group("");
}

}  // namespace vuda::bench
