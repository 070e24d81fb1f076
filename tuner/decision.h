// What comes out of the tuner at each tick.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tuner/types.h"

namespace vuda::tuner {

// Which targets are set, and so what is optimised.
enum class Regime : uint8_t {
    kNone,      // no target: the sum of normalised rates
    kGraphics,  // frame target only: compute's rate, under the target
    kCompute,   // compute targets only: the renderer's speed, under the targets
    kBoth,      // compute's rate, under all targets
};

enum class TargetState : uint8_t {
    kNoData,      // too few samples, or none for a while; the level is not moved towards this target
    kTuning,      // missed, or not long enough at this level to tell
    kMeeting,     // holds over the window
    kInfeasible,  // no level holds all targets; this one is missed at the best measured compromise
};

enum class TargetKind : uint8_t { kFrame, kLatency, kThroughput };

// One target, what was asked and what came out over the sliding window.
struct TargetReport {
    TargetKind kind = TargetKind::kFrame;
    SessionId session = kGraphicsSide;
    TargetState state = TargetState::kNoData;
    double bound = 0;         // ms, or steps/s
    double allowed_miss = 0;  // fraction; 0 for a throughput floor
    double attained = 0;      // ms at the percentile that the target names, or steps/s; 0 without samples
    double miss = 0;          // fraction of the window's samples over the bound; for a floor 1 or 0
    double margin = 0;        // (bound - attained) / bound, for a floor (attained - bound) / bound, within [-10, 1]
    uint64_t samples = 0;     // in the window
};

// What one attached process may use of the compute side.
struct SessionShare {
    SessionId session = 0;
    double share = 0;        // fraction of the level, (0, 1]
    uint32_t first_tpc = 0;  // place in the compute side's list of TPCs, [0, level)
    uint32_t tpcs = 0;       // how many from there on, wrapping round; at least 1
    bool counted = false;    // false: idle, so nobody's share is cut for it and it may use the whole level
    bool operator==(const SessionShare&) const = default;
};

struct Decision {
    Regime regime = Regime::kNone;
    uint32_t level = 0;                 // compute TPCs; always one of the ladder
    size_t index = 0;                   // its place there
    bool changed = false;               // level or shares differ from the tick before
    bool holding = false;               // samples that a move would need are missing or stale
    bool infeasible = false;            // no level holds all targets; `level` is the best measured compromise
    std::vector<SessionShare> shares;   // in order of session number
    std::vector<TargetReport> targets;  // the graphics side's first, then by session number
};

std::string_view to_string(Regime regime);
std::string_view to_string(TargetState state);  // "no data", "tuning", "meeting", "infeasible"
std::string_view to_string(TargetKind kind);

}  // namespace vuda::tuner
