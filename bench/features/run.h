// One case, round after round, and what came of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/common/gate.h"
#include "bench/features/cases.h"

namespace vuda::bench::features {

struct FeatureOptions {
    std::string case_name;
    std::string device;      // GPU UUID or index; empty: the first
    double seconds = 0.2;    // rounds begin until then; at least one does
    GateOptions before;      // its rounds begin; the primary context is there
    GateOptions after;       // they are over, and what was printed of them is complete
    std::string ipc_handle;  // it is the other process of case "ipc"
    RigOptions rig;
};

enum class Outcome {
    kPassed,
    kSkipped,  // not offered by this GPU, driver or build
    kWrong,    // something else came out than should have
    kFailed,   // an error of CUDA
    kLost,     // one that ends the context
};
const char* outcome_name(Outcome outcome);

struct FeatureReport {
    const Case* one = nullptr;
    std::string gpu;
    std::string uuid;
    std::string cuda;
    Outcome outcome = Outcome::kFailed;
    std::string error;
    uint64_t checksum = 0;  // of the first round; equal for all of them
    uint32_t rounds = 0;
    double first_ms = 0;  // with whatever had to be made or compiled
    double p50_ms = 0;    // of the others; of the first when there is no other
    nlohmann::ordered_json figures;

    nlohmann::ordered_json to_json() const;
    int exit_code() const;  // of the process; skipped: 77
};

// Everything but printing. `options.after` is the caller's.
FeatureReport run_feature(const FeatureOptions& options);

}  // namespace vuda::bench::features
