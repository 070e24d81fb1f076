#include "bench/common/run_options.h"

#include <CLI/CLI.hpp>
#include <fstream>

namespace vuda::bench {

void add_run_options(CLI::App& app, RunOptions& options) {
    app.add_option("--seconds", options.seconds, "Seconds to measure; 0 = until SIGINT or SIGTERM")
        ->check(CLI::Range(0.0, 86400.0))
        ->capture_default_str();
    app.add_option("--linger", options.linger, "Seconds of further load after measuring")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    app.add_option("--device", options.device, "GPU by UUID (GPU-...) or index; default: the best one");
    app.add_option("--ready-file", options.gate.ready_file, "Create this file once the load is steady");
    app.add_option("--start-file", options.gate.start_file, "Measure from the moment this file exists");
    app.add_option("--start-timeout", options.gate.start_timeout, "Seconds to wait for the start file")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    app.add_flag("--json", options.json, "Print one line of JSON instead of text");
}

std::string nvidia_driver_version() {
    std::ifstream file("/sys/module/nvidia/version");
    std::string version;
    std::getline(file, version);
    return version;
}

}  // namespace vuda::bench
