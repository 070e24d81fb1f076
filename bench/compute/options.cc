#include "bench/compute/options.h"

#include <CLI/CLI.hpp>

namespace vuda::bench {

const char* load_name(ComputeLoad load) {
    switch (load) {
        case ComputeLoad::kFma: return "fma";
        case ComputeLoad::kMemory: return "memory";
        case ComputeLoad::kTiny: return "tiny";
    }
    return "";
}

void add_compute_options(CLI::App& app, ComputeOptions& options, const std::string& prefix) {
    const auto name = [&](const char* option) { return "--" + prefix + option; };
    app.add_option_function<std::string>(
           name("load"),
           [&options](const std::string& value) {
               options.load = value == "memory" ? ComputeLoad::kMemory
                              : value == "tiny" ? ComputeLoad::kTiny
                                                : ComputeLoad::kFma;
           },
           "What the kernels do: fma, memory or tiny")
        ->check(CLI::IsMember({"fma", "memory", "tiny"}));
    app.add_option(name("blocks"), options.blocks, "Blocks a launch; 0 = eight for each multiprocessor")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    app.add_option(name("threads"), options.threads, "Threads a block")
        ->check(CLI::Range(32, 1024))
        ->capture_default_str();
    // fma's results are exact below 2^24.
    app.add_option(name("iterations"), options.iterations, "Iterations of the kernel's loop")
        ->check(CLI::Range(1, 1 << 23))
        ->capture_default_str();
    app.add_option(name("kernel-us"), options.kernel_us,
                   "Choose the iterations so that a launch takes this many microseconds")
        ->check(CLI::Range(0.0, 1e6));
    app.add_option(name("bytes"), options.bytes, "Bytes that the memory load reads and writes")
        ->check(CLI::Range(uint64_t{4096}, uint64_t{64} << 30))
        ->capture_default_str();
    app.add_option(name("smem"), options.shared_bytes, "Bytes of dynamic shared memory a block")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    app.add_option(name("warmup"), options.warmup, "Launches before the program counts as steady")
        ->capture_default_str();
    app.add_option(name("check-every"), options.check_every, "Launches between two looks at the results")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    app.add_option(name("cycles"), options.cycles, "Make and destroy the context this many times instead of measuring")
        ->check(CLI::Range(0, 100000));
    app.add_option(name("cycle-launches"), options.cycle_launches, "Launches in each cycle")->capture_default_str();
    app.add_option(name("launch-cost"), options.launch_cost,
                   "Instead of measuring rates, time this many launches without waiting for each; where VUDA follows "
                   "launches, as many without its hook and with it")
        ->check(CLI::Range(0, 100000000));
    app.add_option(name("quota-changes"), options.quota_changes,
                   "Instead of measuring rates, change the own quota this many times (needs VUDA in this process)")
        ->check(CLI::Range(0, 1000000));
    app.add_option(name("fps"), options.fps, "Launches a second; 0 = one after the other")
        ->check(CLI::Range(0.0, 10000.0))
        ->capture_default_str();
    app.add_flag(name("mark-steps"), options.mark_steps,
                 "Mark each launch as a step (vuda_step_begin, vuda_step_end), when VUDA is in this process");
    app.add_flag(name("report-trace"), options.report_trace,
                 "Report when each measured launch ended (ms, CLOCK_MONOTONIC) and how long it took");
    app.add_flag(name("report-sms"), options.report_sms,
                 "Report the multiprocessors that the measured launches ran on");
    app.add_flag(
        name("report-holes"), options.report_holes,
        "Report where the measured launches, the first 65536 of them, had to wait on the GPU longer than usual: "
        "[begin, length] in ms by the GPU's clock, which the kernels then read");
    app.add_option(name("libcuda"), options.libcuda)->group("");
    app.add_option(name("libvuda"), options.libvuda)->group("");
}

}  // namespace vuda::bench
