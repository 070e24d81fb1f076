// The controller's numbers.  docs/tuner.md says what they are for.
#pragma once

#include <algorithm>

#include "tuner/settings.h"

namespace vuda::tuner {

inline constexpr TimeNs kDwell = 400 * kMs;     // after a change, before the next one that nothing forces
inline constexpr TimeNs kProbeDwell = kSecond;  // likewise after a miss, before a level that nothing is known of
inline constexpr TimeNs kOptimiseEvery = 100 * kMs;
inline constexpr TimeNs kLongestDwell = 30 * kSecond;  // it doubles with each reversal up to here
inline constexpr TimeNs kCompromiseDwell = 5 * kSecond;
inline constexpr TimeNs kFirstCompromises = 8 * kSecond;
inline constexpr TimeNs kMarginDwell = 3 * kSecond;
inline constexpr TimeNs kCalm = 2 * kSecond;  // without an alarm: what was infeasible is met again
inline constexpr TimeNs kForgiveEvery = 30 * kSecond;

inline constexpr TimeNs kBan = 180 * kSecond;       // a level that failed when it was new
inline constexpr TimeNs kBanProven = 60 * kSecond;  // one that had held its targets for kProven
inline constexpr TimeNs kProven = 10 * kSecond;
inline constexpr TimeNs kLongestBan = 1800 * kSecond;
inline constexpr TimeNs kEarly = 4 * kSecond;  // when the load has become lighter since; four times as long each time
inline constexpr uint32_t kMostFails = 8;

inline constexpr double kGain = 0.03;         // of utility, below which a change is not worth its transient
inline constexpr double kMarginGain = 0.004;  // likewise for one that only brings room
inline constexpr double kMarginStep = 0.06;
inline constexpr double kTight = 0.08;      // room below which more of it is worth a change
inline constexpr double kRoomKnown = 0.03;  // that a forecast from measurements must leave
inline constexpr double kRoomCut = 0.02;    // likewise when a miss forces the change
inline constexpr double kRoomGuess = 0.05;
inline constexpr double kProbeSlack = 0.05;      // room at the present level, to try one that nothing is known of
inline constexpr double kProbeSlackWide = 0.15;  // likewise, whatever the line between two measured levels says
inline constexpr double kProbeSlackLine = 0.03;  // likewise when two measured levels point to it
inline constexpr double kRetryWorst = 1.3;       // a failed level is tried again after its ban, if it failed by no more
inline constexpr double kProbeCost = 4;          // late samples until a probe that fails is taken back
inline constexpr double kProbeBudget = 10;
inline constexpr double kBurstShare = 0.6;
inline constexpr double kProbeShare = 0.3;    // of the misses that are allowed, what probes may use up
inline constexpr double kProbeRefill = 0.02;  // a second, at least
inline constexpr uint32_t kMostSearched = 12;
inline constexpr double kSpread = 0.02;  // search: a level's worth for each step away from what is known
inline constexpr double kHopeless = 1.25;
inline constexpr double kNear = 1.05;    // likewise, to be tried for the side that goes first
inline constexpr double kSame = 1.02;    // compromises within this of the best are equals
inline constexpr double kMissed = 1.01;  // what a miss counts at least, whatever the forecast

inline TimeNs doubled(TimeNs base, uint32_t times, TimeNs most) {
    return std::min(most, base << std::min<uint32_t>(times, 20));
}

}  // namespace vuda::tuner
