// Why the tuner did something, with the numbers: for the journal, `vudactl top` and `vudactl watch`.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tuner/decision.h"

namespace vuda::tuner {

enum class EventKind : uint8_t {
    kLevel,    // the level changed
    kShares,   // the compute side was divided anew
    kState,    // a target changed its state
    kTarget,   // a target was set, changed or cleared
    kSession,  // a process came or went
    kLadder,   // the partitioner offers other levels
    kClock,    // the caller's clock went backwards
    kWait,     // a target is missed, but by experience that will pass by itself: the level stays
};

enum class Cause : uint8_t {
    kNone,
    kStart,         // first level
    kForced,        // the caller set it
    kGraphicsMiss,  // frames are late
    kComputeMiss,   // steps are late, or the rate is under its floor
    kTight,         // few are late yet, but median and spread say that too many will be
    kSlack,         // all targets hold with room to spare, and this level is known or expected to give more
    kProbe,         // likewise, but nothing is known of this level
    kMargin,        // same rates, more room to the targets
    kSearch,        // a target is missed and no known level holds it: try another
    kCompromise,    // every level was tried, none holds all targets
    kSweep,         // no target: measure the sum of rates here
    kBest,          // no target: the best of those measured
    kLadder,        // the old level is not in the new ladder
};

struct Event {
    EventKind kind = EventKind::kLevel;
    Cause cause = Cause::kNone;
    TimeNs time = 0;  // the caller's clock
    Regime regime = Regime::kNone;
    uint32_t old_level = 0;  // TPCs
    uint32_t new_level = 0;
    SessionId session = kGraphicsSide;  // whose target or share
    TargetKind target = TargetKind::kFrame;
    TargetState old_state = TargetState::kNoData;
    TargetState new_state = TargetState::kNoData;
    double bound = 0;  // of the target that decided; ms or steps/s
    double allowed_miss = 0;
    double observed = 0;       // what was seen: median of the latest durations in ms, or steps/s
    double observed_miss = 0;  // kTight: fraction expected to be late
    double expected = 0;       // the same at the new level, as learned or guessed; 0: unknown
    uint64_t misses = 0;       // late among the samples that raised the alarm
    uint64_t samples = 0;      // how many those were
    double utility_old = 0;    // what the regime optimises, at the old and (as expected) at the new level
    double utility_new = 0;

    // One line, no trailing period, e.g.
    // "compute TPCs 33 -> 22: 3 of 5 frames over 16.67 ms (1% may be), median 19.2 ms, 14.1 ms expected".
    std::string text() const;
    // The same as journal fields: upper-case names with the prefix VUDA_, numbers in plain decimal.
    std::vector<std::pair<std::string, std::string>> fields() const;
};

std::string_view to_string(EventKind kind);
std::string_view to_string(Cause cause);

}  // namespace vuda::tuner
