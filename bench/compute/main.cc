// vuda-bench-compute: launches CUDA kernels one after the other, checks each one's result and says how long they took.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"
#include "bench/common/stop_signal.h"
#include "bench/compute/runner.h"

int main(int argc, char** argv) {
    using namespace vuda::bench;
    CLI::App app{"Launches CUDA kernels one after the other, checks each one's result and says how long they took.",
                 "vuda-bench-compute"};
    ComputeOptions options;
    RunOptions run;
    add_compute_options(app, options);
    add_run_options(app, run);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kExitOk : kExitUsage;
    }

    install_stop_signals();
    StartGate gate(run.gate);
    ComputeRunner runner(options, run);
    if (runner.prepare().ok()) static_cast<void>(runner.run(gate));
    ComputeReport& report = runner.report();
    if (report.error) std::fprintf(stderr, "vuda-bench-compute: %s\n", report.error->to_string().c_str());
    std::printf("%s\n", run.json ? report.to_json().dump().c_str() : report.to_text().c_str());
    std::fflush(stdout);
    return report.exit_code();
}
