// Options that every benchmark program has.
#pragma once

#include <string>

#include "bench/common/gate.h"

namespace CLI {
class App;
}

namespace vuda::bench {

struct RunOptions {
    double seconds = 5;  // of measuring; 0 = until SIGINT or SIGTERM
    double linger = 0;   // seconds of further, unmeasured load, so that a program beside this one keeps its company
    std::string device;  // GPU UUID or index; empty: the best one
    bool json = false;
    GateOptions gate;
};

void add_run_options(CLI::App& app, RunOptions& options);

// Driver version of the loaded NVIDIA kernel module, e.g. "580.159.04"; empty without one.
std::string nvidia_driver_version();

}  // namespace vuda::bench
