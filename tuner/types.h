// What goes into the tuner: the ladder of levels, the targets, the samples.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace vuda::tuner {

using TimeNs = int64_t;      // nanoseconds of the caller's monotonic clock
using SessionId = uint64_t;  // vudad's session number; kGraphicsSide stands for the owner of the TSG
inline constexpr SessionId kGraphicsSide = 0;

inline constexpr size_t kMaxLevels = 96;    // a ladder with every TPC of the largest GPU so far
inline constexpr size_t kMaxSessions = 64;  // processes attached to one TSG (it holds 128 channels)
inline constexpr uint32_t kMaxTpcs = 1024;

// Compute TPC counts that the partitioner can put into force, strictly ascending, each in [1, total_tpcs].  TPCs that
// the chip keeps for graphics are in total_tpcs and in no level.
struct Ladder {
    std::vector<uint32_t> tpcs;
    uint32_t total_tpcs = 0;  // of the GPU; 0: one more than the top level

    // kInvalidArgument: empty, not ascending, out of range, longer than kMaxLevels.
    Status validate() const;
    bool operator==(const Ladder&) const = default;
};

// "At most `miss` of the frames take longer than `frame_ms`."
struct GraphicsTarget {
    double frame_ms = 0;  // milliseconds, 0.1 to 60,000; 0: no target
    double miss = 0;      // fraction, [0, 1)

    bool any() const { return frame_ms > 0; }
    // kInvalidArgument, naming the field: negative, NaN, infinite, out of range, or a miss fraction without a bound.
    Status validate() const;
    bool operator==(const GraphicsTarget&) const = default;
};

// For one attached process.  A step is what that process reports as one: a kernel it waited for, an inference.
struct ComputeTarget {
    double latency_ms = 0;    // milliseconds, 0.001 to 600,000; 0: no bound
    double latency_miss = 0;  // fraction of the steps that may be later, [0, 1)
    double throughput = 0;    // floor, steps per second, up to 1e9; 0: none

    bool any() const { return latency_ms > 0 || throughput > 0; }
    // As above.
    Status validate() const;
    bool operator==(const ComputeTarget&) const = default;
};

inline constexpr double kMinWeight = 0.001;
inline constexpr double kMaxWeight = 1000;
// Share of the compute side that a process gets beside others, in [kMinWeight, kMaxWeight].
Status validate_weight(double weight);

enum class SampleKind : uint8_t {
    kFrame,  // one frame: `duration` is compared with frame_ms
    kStep,   // one step: `duration` is compared with latency_ms; counts for the throughput
    kSteps,  // `count` steps without a duration: those whose samples were lost, or batches; counts for the throughput
};

struct Sample {
    SampleKind kind = SampleKind::kFrame;
    SessionId session = kGraphicsSide;  // who; kGraphicsSide for frames
    TimeNs end = 0;                     // when it ended
    int64_t duration = 0;               // nanoseconds, > 0
    uint64_t count = 1;                 // kSteps only
};

}  // namespace vuda::tuner
