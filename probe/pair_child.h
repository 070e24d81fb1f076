// Starts a process that makes a private pair and tries a kernel on it (pair.h), and takes down what it says.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "probe/limit_plan.h"
#include "probe/pair.h"

namespace vuda::probe {

struct PairCommand {
    std::string program;  // path of vuda-probe-pair
    std::string preload;  // path of libvuda_preload.so
    std::string gpu;      // as the pair knows it: a UUID
    PairOptions options;
    // A process that says nothing for so long has hung: it is killed.
    std::chrono::milliseconds patience{30'000};
};

struct PairRun {
    PairReport report;
    std::optional<PairGpu> gpu;
    bool l1_set = false;
};

// Whether that program can be started; else where it is to be had from.
Status pair_is_there(const std::string& program);

// Of that process: what this one's is (`current`, "NAME=value"), with the preload, in-process sharing required and all
// that would make it known to others taken out. In a process like this no launch guard is at work, and no TSG but its
// own is in reach. Variables of the simulated GPU stay.
std::vector<std::string> pair_environment(const std::vector<std::string>& current, const std::string& preload);

// Adds one line of the process's to `run`. False: it is none of those that are known.
bool read_pair_line(const std::string& line, PairRun& run);

// Returns when the process has ended. UNAVAILABLE: it cannot be started.
Result<PairRun> run_pair(const PairCommand& command);

}  // namespace vuda::probe
