#include "bench/render/renderer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "bench/common/exit_code.h"
#include "bench/common/stop_signal.h"
#include "bench/common/try.h"

namespace vuda::bench {
namespace {

// A frame that takes longer is taken for a hung GPU.
constexpr auto kFrameTimeout = std::chrono::seconds(20);
constexpr int kCalibrationRounds = 14;
constexpr int kCalibrationFrames = 5;
constexpr double kCalibrationTolerance = 0.02;

}  // namespace

Renderer::Renderer(const RenderOptions& options, const RunOptions& run) : run_(run) { report_.options = options; }

Renderer::~Renderer() {
    if (!gpu_) return;
    // Destroying objects that a hung GPU still uses is undefined; the kernel frees them when the process ends.
    if (hung_)
        static_cast<void>(gpu_.release());
    else
        vkDeviceWaitIdle(gpu_->device.handle());
}

Status Renderer::prepare() {
    Status status = prepare_all();
    if (!status.ok()) report_.error = status.error();
    return status;
}

Status Renderer::run(StartGate& gate) {
    Status status = run_all(gate);
    if (!status.ok()) report_.error = status.error();
    return status;
}

Status Renderer::prepare_all() {
    auto device = Device::open(run_.device);
    VUDA_BENCH_TRY(device);
    report_.gpu = device->info();
    gpu_ = std::make_unique<Gpu>(Gpu{*std::move(device), {}});
    for (uint32_t i = 0; i < report_.options.frames_in_flight; ++i) {
        auto slot = FrameSlot::create(gpu_->device, report_.options);
        VUDA_BENCH_TRY(slot);
        gpu_->slots.push_back(*std::move(slot));
    }
    push_ = push_constants(report_.options);
    if (report_.options.target_frame_ms > 0) VUDA_BENCH_TRY(calibrate());
    VUDA_BENCH_TRY(draw_reference());
    phase_ = Phase::kSteady;
    for (uint32_t i = 0; i < report_.options.warmup_frames && !stop_requested(); ++i)
        VUDA_BENCH_TRY(draw_frame(next_rows()));
    return {};
}

Status Renderer::calibrate() {
    const double target = report_.options.target_frame_ms;
    for (int round = 0; round < kCalibrationRounds && !stop_requested(); ++round) {
        Samples times;
        for (int i = 0; i < kCalibrationFrames; ++i) {
            VUDA_BENCH_TRY(draw_frame({0, report_.options.height}));
            VUDA_BENCH_TRY(drain());
            if (i > 0) times.add(last_gpu_ms_);  // the first frame after a change warms caches and clocks
        }
        const double measured = std::max(times.median(), 1e-3);
        if (std::abs(measured - target) <= kCalibrationTolerance * target) return {};
        const double factor = std::clamp(target / measured, 1.0 / 16, 16.0);
        const double wanted = std::clamp(std::round(push_.iterations * factor), 1.0, 1e7);
        if (static_cast<uint32_t>(wanted) == push_.iterations) return {};
        push_.iterations = static_cast<uint32_t>(wanted);
        report_.options.iterations = push_.iterations;
    }
    return {};
}

Status Renderer::draw_reference() {
    VUDA_BENCH_TRY(draw_frame({0, 1}));
    const FrameSlot& slot = *in_flight_.front();
    VUDA_BENCH_TRY(drain());
    auto reference = Reference::from_frame(push_, report_.options.load, slot.pixels());
    VUDA_BENCH_TRY(reference);
    reference_ = *std::move(reference);
    report_.checksum = reference_.checksum();
    return {};
}

RowSet Renderer::next_rows() {
    const uint32_t stride = std::min(report_.options.check_stride, report_.options.height);
    return {static_cast<uint32_t>(compared_submitted_ % stride), stride};
}

Status Renderer::run_all(StartGate& gate) {
    VUDA_BENCH_TRY(gate.ready());
    while (!stop_requested()) {
        auto started = gate.started();
        VUDA_BENCH_TRY(started);
        if (*started) break;
        VUDA_BENCH_TRY(draw_frame(next_rows()));
    }
    // A frame counts when it completes inside the window, so the ones in flight at either end even out.
    phase_ = Phase::kMeasure;
    const auto start = Clock::now();
    last_completion_ = start;
    const auto end = run_.seconds > 0 ? start + from_seconds(run_.seconds) : Clock::time_point::max();
    Status status;
    while (status.ok() && !stop_requested() && Clock::now() < end) status = draw_frame(next_rows());
    report_.seconds = ms_between(start, Clock::now()) / 1e3;
    phase_ = Phase::kSteady;
    VUDA_BENCH_TRY(status);
    const auto linger_end = Clock::now() + from_seconds(run_.linger);
    while (!stop_requested() && Clock::now() < linger_end) VUDA_BENCH_TRY(draw_frame(next_rows()));
    // The last frame is compared whole.
    VUDA_BENCH_TRY(draw_frame({0, 1}));
    return drain();
}

Status Renderer::draw_frame(RowSet rows) {
    VUDA_BENCH_TRY(make_room());
    auto slot = std::find_if(gpu_->slots.begin(), gpu_->slots.end(), [](const FrameSlot& s) { return !s.pending(); });
    PushConstants push = push_;
    if (phase_ != Phase::kCalibrate) {
        if (report_.options.corrupt_frame == static_cast<int64_t>(compared_submitted_)) push.seed = 1;
        ++compared_submitted_;
    }
    VUDA_BENCH_TRY(slot->submit(gpu_->device, report_.options, push, rows));
    in_flight_.push_back(&*slot);
    if (phase_ != Phase::kCalibrate) ++report_.drawn_frames;
    return {};
}

Status Renderer::make_room() {
    if (report_.options.fps > 0 && phase_ != Phase::kCalibrate) {
        const auto period = from_seconds(1 / report_.options.fps);
        const auto now = Clock::now();
        // After a stall the frames that were missed are not made up for.
        due_ = due_ + period < now ? now : due_ + period;
        while (!in_flight_.empty() && Clock::now() < due_) {
            auto done = wait_oldest(due_ - Clock::now());
            VUDA_BENCH_TRY(done);
            if (*done) continue;
            if (phase_ == Phase::kMeasure) ++report_.late_frames;
            break;
        }
        std::this_thread::sleep_until(due_);
    }
    return in_flight_.size() < gpu_->slots.size() ? Status{} : finish_oldest();
}

Result<bool> Renderer::wait_oldest(Clock::duration timeout) {
    FrameSlot& slot = *in_flight_.front();
    auto done = slot.wait(gpu_->device, timeout);
    VUDA_BENCH_TRY(done);
    if (!*done) return false;
    in_flight_.pop_front();
    VUDA_BENCH_TRY(collect(slot));
    return true;
}

Status Renderer::finish_oldest() {
    auto done = wait_oldest(kFrameTimeout);
    VUDA_BENCH_TRY(done);
    if (*done) return {};
    hung_ = true;
    return Error{Code::kDeadlineExceeded, "the GPU did not finish a frame in 20 s", ""};
}

Status Renderer::collect(FrameSlot& slot) {
    const auto now = Clock::now();
    auto gpu_ms = slot.gpu_ms(gpu_->device);
    VUDA_BENCH_TRY(gpu_ms);
    const double latency = ms_between(slot.begun(), now);
    last_gpu_ms_ = gpu_ms->value_or(latency);
    if (phase_ == Phase::kCalibrate) return {};
    if (phase_ == Phase::kMeasure) {
        report_.frame_ms.add(ms_between(last_completion_, now));
        if (report_.options.report_frames) report_.frames.push_back(ms_between(last_completion_, now));
        report_.latency_ms.add(latency);
        if (report_.options.report_trace) report_.trace.add(now, latency);
        if (gpu_ms->has_value()) report_.gpu_ms.add(**gpu_ms);
    }
    last_completion_ = now;
    ++report_.checked_frames;
    if (!reference_.matches(slot.rows(), slot.pixels())) ++report_.checksum_errors;
    return {};
}

Status Renderer::drain() {
    while (!in_flight_.empty()) VUDA_BENCH_TRY(finish_oldest());
    return {};
}

}  // namespace vuda::bench
