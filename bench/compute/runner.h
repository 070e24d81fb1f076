// The launch loop: launches, waits, checks, measures. All of it happens on the calling thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "bench/common/clock.h"
#include "bench/common/gate.h"
#include "bench/common/run_options.h"
#include "bench/compute/report.h"
#include "bench/compute/session.h"
#include "bench/compute/step_marks.h"

namespace vuda::bench {

class ComputeRunner {
 public:
    ComputeRunner(const ComputeOptions& options, const RunOptions& run);

    // Makes the context, chooses the iterations if asked, and warms up. On failure report().error says why, and run()
    // must not be called.
    Status prepare();
    // Launches until measured (or does the cycles); counts as one party of `gate`. Ends with the context destroyed.
    Status run(StartGate& gate);

    ComputeReport& report() { return report_; }

 private:
    Status prepare_all();
    Status run_all(StartGate& gate);
    Status run_cycles();
    Status time_launches();
    Status time_quota_changes();
    Status open_session();
    Status calibrate();
    // One launch when it is due, and a look at the results when it is time.
    Status step(bool measured);
    Status look();

    const RunOptions run_;
    ComputeReport report_;
    CudaGpu gpu_;
    std::unique_ptr<Session> session_;
    StepMarks marks_;
    Clock::time_point due_{};  // paced: when the next launch starts
    uint32_t since_look_ = 0;
};

}  // namespace vuda::bench
