#include "bench/compute/runner.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "bench/common/clock.h"
#include "bench/common/stop_signal.h"
#include "bench/common/try.h"
#include "bench/compute/launch_watch.h"
#include "bench/compute/quota_changes.h"

namespace vuda::bench {
namespace {

constexpr int kCalibrationRounds = 14;
constexpr int kCalibrationLaunches = 9;
constexpr double kCalibrationTolerance = 0.02;
constexpr double kMaxIterations = 1 << 23;

}  // namespace

ComputeRunner::ComputeRunner(const ComputeOptions& options, const RunOptions& run) : run_(run) {
    report_.options = options;
}

Status ComputeRunner::prepare() {
    Status status = prepare_all();
    if (!status.ok()) {
        report_.error = status.error();
        session_.reset();
    }
    return status;
}

Status ComputeRunner::run(StartGate& gate) {
    Status status = run_all(gate);
    if (!status.ok()) report_.error = status.error();
    session_.reset();
    return status;
}

Status ComputeRunner::prepare_all() {
    const auto start = Clock::now();
    auto api = CudaApi::load(report_.options.libcuda);
    VUDA_BENCH_TRY(api);
    auto gpu = open_cuda_gpu(*std::move(api), run_.device);
    VUDA_BENCH_TRY(gpu);
    gpu_ = *std::move(gpu);
    report_.init_ms = ms_between(start, Clock::now());
    report_.gpu = gpu_.name;
    report_.uuid = gpu_.uuid;
    report_.cuda = gpu_.cuda_version;
    VUDA_BENCH_TRY(open_session());
    if (report_.options.kernel_us > 0) VUDA_BENCH_TRY(calibrate());
    for (uint32_t i = 0; i < report_.options.warmup && !stop_requested(); ++i) VUDA_BENCH_TRY(step(false));
    return look();
}

Status ComputeRunner::open_session() {
    auto session = Session::open(gpu_, report_.options);
    VUDA_BENCH_TRY(session);
    session_ = *std::move(session);
    report_.options.blocks = session_->blocks();
    report_.context_ms.add(session_->context_ms());
    if (report_.options.mark_steps) marks_ = StepMarks::find(report_.options.libvuda);
    report_.marked = marks_.found();
    return {};
}

Status ComputeRunner::calibrate() {
    if (report_.options.load == ComputeLoad::kTiny)
        return Error{Code::kInvalidArgument, "the tiny load has no length to choose", "leave --kernel-us out"};
    const double target = report_.options.kernel_us / 1e3;
    for (int round = 0; round < kCalibrationRounds && !stop_requested(); ++round) {
        Samples times;
        for (int i = 0; i < kCalibrationLaunches; ++i) {
            const auto ms = session_->launch();
            VUDA_BENCH_TRY(ms);
            ++report_.launches;
            if (i > 0) times.add(*ms);  // the first launch after a change warms caches and clocks
        }
        VUDA_BENCH_TRY(look());
        const double measured = std::max(times.median(), 1e-4);
        if (std::abs(measured - target) <= kCalibrationTolerance * target) return {};
        const double factor = std::clamp(target / measured, 1.0 / 16, 16.0);
        const double wanted = std::clamp(std::round(session_->iterations() * factor), 1.0, kMaxIterations);
        if (static_cast<uint32_t>(wanted) == session_->iterations()) return {};
        session_->set_iterations(static_cast<uint32_t>(wanted));
        report_.options.iterations = session_->iterations();
    }
    return {};
}

Status ComputeRunner::step(bool measured) {
    if (report_.options.fps > 0) {
        const auto period = from_seconds(1 / report_.options.fps);
        const auto now = Clock::now();
        const bool late = due_ + period < now;
        // After a late one the launches that were missed are not made up for.
        due_ = late ? now : due_ + period;
        if (late && measured) ++report_.late_launches;
        std::this_thread::sleep_until(due_);
    }
    marks_.begin(report_.launches);
    const auto ms = session_->launch();
    marks_.end(report_.launches);
    VUDA_BENCH_TRY(ms);
    ++report_.launches;
    if (measured) {
        report_.latency_ms.add(*ms);
        if (report_.options.report_trace) report_.trace.add(Clock::now(), *ms);
    }
    ++since_look_;
    // A look is a pause that this program makes by itself: among the holes it would be one. The kernels go on checking
    // each other.
    if (measured && report_.options.report_holes) return {};
    return since_look_ >= report_.options.check_every ? look() : Status{};
}

Status ComputeRunner::look() {
    since_look_ = 0;
    const auto wrong = session_->check_results();
    VUDA_BENCH_TRY(wrong);
    report_.result_errors += *wrong;
    return {};
}

Status ComputeRunner::run_all(StartGate& gate) {
    VUDA_BENCH_TRY(gate.ready());
    while (!stop_requested()) {
        const auto started = gate.started();
        VUDA_BENCH_TRY(started);
        if (*started) break;
        VUDA_BENCH_TRY(step(false));
    }
    if (report_.options.cycles > 0) return run_cycles();
    if (report_.options.launch_cost > 0) return time_launches();
    if (report_.options.quota_changes > 0) return time_quota_changes();

    if (report_.options.report_sms) VUDA_BENCH_TRY(session_->clear_sms());
    session_->time_launches();
    const auto start = Clock::now();
    const auto end = run_.seconds > 0 ? start + from_seconds(run_.seconds) : Clock::time_point::max();
    Status status;
    while (status.ok() && !stop_requested() && Clock::now() < end) status = step(true);
    report_.seconds = ms_between(start, Clock::now()) / 1e3;
    VUDA_BENCH_TRY(status);
    if (report_.options.report_holes) {
        const auto times = session_->launch_times();
        VUDA_BENCH_TRY(times);
        report_.holes = find_holes(*times);
    }
    if (report_.options.report_sms) {
        auto sms = session_->sms();
        VUDA_BENCH_TRY(sms);
        report_.sms = *std::move(sms);
    }
    const auto linger_end = Clock::now() + from_seconds(run_.linger);
    while (!stop_requested() && Clock::now() < linger_end) VUDA_BENCH_TRY(step(false));
    return look();
}

Status ComputeRunner::time_launches() {
    // As many as fit into the GPU's queue: a full one would be what is measured.
    constexpr uint32_t kQueued = 256;
    const LaunchWatch watch(report_.options.libvuda);
    const auto start = Clock::now();
    for (uint32_t done = 0; done < report_.options.launch_cost && !stop_requested();) {
        const uint32_t batch = std::min(kQueued, report_.options.launch_cost - done);
        // In turns within one process: from one process to the next a launch differs by more than the hook costs.
        const bool both = watch.set(false);
        VUDA_BENCH_TRY(session_->launch_batch(batch, report_.launch_ns));
        report_.launches += batch;
        if (both && watch.set(true)) {
            VUDA_BENCH_TRY(session_->launch_batch(batch, report_.watched_ns));
            report_.launches += batch;
        }
        done += batch;
    }
    report_.seconds = ms_between(start, Clock::now()) / 1e3;
    return look();
}

Status ComputeRunner::time_quota_changes() {
    const auto start = Clock::now();
    auto times = change_quota(report_.options.quota_changes, report_.options.libvuda);
    VUDA_BENCH_TRY(times);
    report_.seconds = ms_between(start, Clock::now()) / 1e3;
    report_.quota_changes = *std::move(times);
    VUDA_BENCH_TRY(step(false));
    return look();
}

Status ComputeRunner::run_cycles() {
    const auto start = Clock::now();
    while (report_.cycles < report_.options.cycles && !stop_requested()) {
        if (!session_) VUDA_BENCH_TRY(open_session());
        for (uint32_t i = 0; i < report_.options.cycle_launches; ++i) VUDA_BENCH_TRY(step(true));
        VUDA_BENCH_TRY(look());
        session_.reset();
        ++report_.cycles;
    }
    report_.seconds = ms_between(start, Clock::now()) / 1e3;
    return {};
}

}  // namespace vuda::bench
