// What one compute run found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/common/samples.h"
#include "bench/common/trace.h"
#include "bench/compute/gpu.h"
#include "bench/compute/holes.h"
#include "bench/compute/options.h"
#include "bench/compute/quota_changes.h"

namespace vuda::bench {

struct ComputeReport {
    ComputeOptions options;  // with the iterations and blocks that were used
    std::string gpu;
    Uuid uuid;
    std::string cuda;       // version of the CUDA driver API
    double init_ms = 0;     // cuInit and finding the GPU
    Samples context_ms;     // one value for each context that was made
    Samples latency_ms;     // of each measured launch, from submitting to synchronised
    double seconds = 0;     // measured time
    uint64_t launches = 0;  // all of them
    uint64_t result_errors = 0;
    uint64_t late_launches = 0;      // paced: measured launches that ended after their successor was due
    bool marked = false;             // with --mark-steps: VUDA was there to be told
    Trace trace;                     // with --report-trace: of each measured launch
    Samples launch_ns;               // with --launch-cost: of each call that launches
    Samples watched_ns;              // the same with VUDA's hook before launches, where it is in this process
    QuotaChangeTimes quota_changes;  // with --quota-changes
    uint32_t cycles = 0;             // completed ones
    std::vector<uint32_t> sms;       // with --report-sms: %smid of measured blocks, ascending
    Holes holes;                     // with --report-holes: of measured launches
    std::optional<Error> error;

    bool device_lost() const;
    int exit_code() const;
    nlohmann::ordered_json to_json();
    std::string to_text();
};

}  // namespace vuda::bench
