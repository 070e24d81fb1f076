// Work that a simulated channel can carry.  Durations are what the work takes when the GPU does nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "sim/model/topology.h"

namespace vuda::sim {

using TimeNs = int64_t;                      // virtual time, nanoseconds since the engine was made
inline constexpr TimeNs kNever = INT64_MAX;  // "no event is pending"

// One draw: its vertex part, then its fragment part.  A draw that runs is never interrupted (graphics preemption mode
// WFI).
struct Draw {
    TimeNs vertex_ns = 0;    // >= 0
    TimeNs fragment_ns = 0;  // >= 0
    // Share of the graphics TPCs that saturates the fragment part, in (0, 1]; below 1 the rest of its time goes to
    // fixed-function units and memory, so that losing TPCs costs nothing at first.
    double fragment_sm_need = 1.0;
    double vertex_bandwidth = 0.0;    // share of the memory bandwidth used at full speed, 0 to 1
    double fragment_bandwidth = 0.0;  // likewise
    // The channel waits on a semaphore with switching enabled after this draw, which gives the TSG's slice away.
    bool yield_after = false;
};

// A frame is done when its last draw is; a slice can end between two draws.
struct Frame {
    std::vector<Draw> draws;
};

struct Kernel {
    uint32_t blocks = 1;         // >= 1
    TimeNs block_ns = 0;         // time of one block on an SM that is full of blocks of this kernel, >= 0
    uint32_t blocks_per_sm = 1;  // resident at once on one SM, 1 to 64
    // How much of a block's time is the SM's throughput, [0, 1]: with 1 a block that has its SM to itself is
    // blocks_per_sm times as fast, as arithmetic is; with 0 company costs nothing, as with waiting for memory.
    double sm_bound = 0.0;
    // Bytes per block as the launch descriptor counts them: static + dynamic + 1,024 reserved.
    uint32_t shared_memory = 1024;
    double bandwidth = 0.0;  // share of the memory bandwidth used when the kernel fills the whole GPU, 0 to 1
    // TPC_DISABLE_MASK of the launch descriptor: blocks never run on these TPCs.  Must leave at least one TPC.
    std::optional<TpcSet> disabled_tpcs = std::nullopt;
};

// Takes no time once its turn comes: a semaphore release, a method, anything whose moment of execution matters to the
// caller.
struct Marker {};

using Work = std::variant<Frame, Kernel, Marker>;

}  // namespace vuda::sim
