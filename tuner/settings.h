// The controller's constants.  docs/tuner.md says why each has its value; a person has no reason to change them.
#pragma once

#include <cstdint>

#include "tuner/types.h"

namespace vuda::tuner {

inline constexpr TimeNs kMs = 1'000'000;
inline constexpr TimeNs kSecond = 1'000 * kMs;

// Who wins when no level holds all targets.
enum class Priority : uint8_t {
    kGraphicsFirst,  // the level that serves the frame target best, among equals the one that serves compute best
    kComputeFirst,
};

struct Settings {
    Priority priority = Priority::kGraphicsFirst;
    double graphics_alone_fps = 0;  // known rate alone, for the normalised sum; 0: the best rate seen counts as 1
};

}  // namespace vuda::tuner
