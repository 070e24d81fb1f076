// The frame loop: draws, waits, compares, measures.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/result.h"
#include "bench/common/gate.h"
#include "bench/common/run_options.h"
#include "bench/render/device.h"
#include "bench/render/frame_slot.h"
#include "bench/render/reference.h"
#include "bench/render/report.h"

namespace vuda::bench {

class Renderer {
 public:
    Renderer(const RenderOptions& options, const RunOptions& run);
    Renderer(const Renderer&) = delete;
    Renderer& operator=(const Renderer&) = delete;
    ~Renderer();

    // Opens the GPU, chooses the iterations if asked, draws the reference frame and warms up. On failure report().error
    // says why, and run() must not be called.
    Status prepare();
    // Draws until measured; counts as one party of `gate`.
    Status run(StartGate& gate);

    RenderReport& report() { return report_; }

 private:
    enum class Phase { kCalibrate, kSteady, kMeasure };

    struct Gpu {
        Device device;  // first: destroyed last
        std::vector<FrameSlot> slots;
    };

    Status prepare_all();
    Status run_all(StartGate& gate);
    Status calibrate();
    Status draw_reference();
    Status draw_frame(RowSet rows);
    // Waits until it is time for the next frame and a slot is free; collects what completes meanwhile.
    Status make_room();
    // False: not done within `timeout`.
    Result<bool> wait_oldest(Clock::duration timeout);
    // The same with a limit after which the GPU counts as hung.
    Status finish_oldest();
    Status collect(FrameSlot& slot);
    Status drain();
    RowSet next_rows();

    const RunOptions run_;
    RenderReport report_;
    std::unique_ptr<Gpu> gpu_;
    std::deque<FrameSlot*> in_flight_;  // oldest first
    PushConstants push_{};
    Reference reference_;
    Phase phase_ = Phase::kCalibrate;
    uint64_t compared_submitted_ = 0;
    Clock::time_point due_{};  // paced: when the next frame starts
    Clock::time_point last_completion_{};
    double last_gpu_ms_ = 0;
    bool hung_ = false;  // the GPU did not finish a frame
};

}  // namespace vuda::bench
