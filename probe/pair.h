// A renderer and a CUDA context of one process, in one TSG that belongs to nobody else: where a kernel is tried that
// may end it. The process does nothing else, and ends with it.
//
// It shares with nobody: no name is registered and none attached to, so the TSG's handle never leaves the process.
// VUDA's launch guard is part of the partitioner, which VUDA_PARTITION=off keeps out of it (pair_child.h); nothing else
// lifts the guard, here or in any other process.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace vuda::probe {

using PairClock = std::chrono::steady_clock;

struct PairGpu {
    std::string name;
    std::string driver;
    std::string cuda;
    int capability_major = 0;
    int capability_minor = 0;
    uint32_t reserved = 0;  // bytes of shared memory a block that CUDA takes for itself: the smallest size
    uint32_t largest = 0;   // bytes a block at the most, the reserved ones included
};

struct PairFrame {
    double end_ms = 0;  // on PairClock
    double ms = 0;
};

class Pair {
 public:
    virtual ~Pair() = default;

    // Makes both, the renderer first. Nothing is drawn yet when it returns.
    virtual Result<PairGpu> open() = 0;
    // Draws frames until stop(), on a thread of its own. DATA_LOSS: the device was lost.
    virtual Status draw() = 0;
    virtual void stop() = 0;
    // Once draw() has returned.
    virtual std::vector<PairFrame> frames() = 0;
    virtual uint64_t wrong_frames() = 0;

    // A kernel whose blocks have so much shared memory, launched and waited for: milliseconds. DATA_LOSS: the device is
    // lost; any other error: CUDA did not run it.
    virtual Result<double> launch(uint32_t bytes) = 0;
    // Results of kernels that were wrong since the last call.
    virtual Result<uint64_t> wrong_results() = 0;
};

struct PairOptions {
    uint32_t bytes = 0;
    std::optional<uint32_t> l1;
    double seconds = 1;  // of launches of that size; half as long for the smallest
};

inline double pair_ms(PairClock::time_point at) {
    return std::chrono::duration<double, std::milli>(at.time_since_epoch()).count();
}

// Sends SET_L1_CONFIGURATION to the subcontext of this process's renderer, by way of libvuda_preload.so.
Status set_l1(uint32_t value);

// Tries it and tells `out`, one line of JSON after the other, each as soon as it is known (pair_child.h reads them):
//   {"pair": {...}}        what there is
//   {"tries": BYTES}       the kernel is about to be launched
//   {"launches": {...}}    what became of it
//   {"frames": {...}}      how frames went meanwhile, and the smallest kernel before
// Returns the exit status.
int try_pair(Pair& pair, const PairOptions& options, std::FILE* out);

// The command line of a process that tries: --gpu, --bytes, --l1, --seconds. False: bad usage, which was said on
// stderr.
bool parse_pair_options(int argc, char** argv, PairOptions& options, std::string& gpu);

}  // namespace vuda::probe
