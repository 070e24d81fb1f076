// Holes: where launches that follow each other at once had to wait, because the GPU was with somebody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vuda::bench {

// Of a launch, on the GPU's clock.
struct LaunchTime {
    uint64_t begin_ns = 0;  // of its first block
    uint64_t end_ns = 0;    // of its last one
};

struct Hole {
    double begin_ms = 0;  // from the begin of the first launch
    double ms = 0;
};

struct Holes {
    size_t launches = 0;  // that were looked at
    double ms = 0;        // from the begin of the first of them to the end of the last
    // Lower quartiles: where half of the launches have a hole, the median is one.
    double usual_gap_ms = 0;
    double usual_kernel_ms = 0;
    std::vector<Hole> holes;  // in order of time
};

// What is longer than usual by more than 0.05 ms and a tenth: a gap between two launches, as long as it is, and what a
// launch takes beyond the usual, which counts from its begin, since nobody knows where in it the hole was. Looks no
// further once it has `most` of them.
Holes find_holes(const std::vector<LaunchTime>& launches, size_t most = 4096);

}  // namespace vuda::bench
