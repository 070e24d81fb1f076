// What the renderer draws, and how.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace vuda::bench {

enum class RenderLoad {
    kFragment,  // full-screen triangle, work in the fragment shader
    kVertex,    // grid of small cells, the same work in the vertex shader
};

struct RenderOptions {
    uint32_t width = 1920;
    uint32_t height = 1080;
    RenderLoad load = RenderLoad::kFragment;
    uint32_t iterations = 500;   // of the shader's loop
    double target_frame_ms = 0;  // > 0: choose the iterations so that a frame takes this much GPU time
    uint32_t draws = 1;          // the frame's work is split into this many draws
    double fps = 0;              // frames a second to start; 0 = free-running
    uint32_t warmup_frames = 30;
    bool report_frames = false;  // say how long each measured frame took
    bool report_trace = false;   // say when each measured frame ended and how long it took
    uint32_t frames_in_flight = 2;
    uint32_t check_stride =
        30;  // each frame compares every n-th row, starting one row further down than the last frame
    int64_t corrupt_frame = -1;  // test hook: this frame (counted from the first compared one) is drawn wrong
};

// `prefix` goes before each option's name, e.g. "render-" makes --render-width.
void add_render_options(CLI::App& app, RenderOptions& options, const std::string& prefix = "");

}  // namespace vuda::bench
