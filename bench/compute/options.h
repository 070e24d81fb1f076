// What vuda-bench-compute launches, and how.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace vuda::bench {

enum class ComputeLoad {
    kFma,     // fused multiply-adds: arithmetic units
    kMemory,  // reads and writes a buffer: memory bandwidth
    kTiny,    // next to nothing: launch latency
};

const char* load_name(ComputeLoad load);

struct ComputeOptions {
    ComputeLoad load = ComputeLoad::kFma;
    uint32_t blocks = 0;          // 0: eight for each multiprocessor (tiny: one)
    uint32_t threads = 256;       // of a block
    uint32_t iterations = 20000;  // of the kernel's loop (fma), passes over the buffer (memory)
    double kernel_us = 0;  // > 0: choose the iterations so that an idle GPU takes this long from launch to synchronised
    uint64_t bytes = 256ull << 20;  // of the memory load's buffer
    uint32_t shared_bytes = 0;      // dynamic shared memory a block
    uint32_t warmup = 50;           // launches before the program counts as steady
    uint32_t check_every = 256;     // launches between two looks at the results
    uint32_t cycles = 0;            // > 0: instead of measuring, make and destroy the context this many times
    uint32_t cycle_launches = 20;   // launches in each cycle
    uint32_t launch_cost = 0;       // > 0: instead of measuring rates, time this many launches without waiting for them
    double fps = 0;                 // launches a second to start; 0 = the next one as soon as the last one is done
    bool mark_steps = false;        // tell VUDA, if it is in this process, when each launch begins and ends
    bool report_trace = false;      // say when each measured launch ended and how long it took
    uint32_t quota_changes = 0;     // > 0: instead of measuring rates, change the own quota this many times
    bool report_sms = false;        // say which multiprocessors measured blocks ran on
    bool report_holes = false;      // say where measured launches had to wait on the GPU
    std::string libcuda = "libcuda.so.1";
    std::string libvuda = "libvuda.so.0";  // where marks go
};

// `prefix` goes before each option's name.
void add_compute_options(CLI::App& app, ComputeOptions& options, const std::string& prefix = "");

}  // namespace vuda::bench
