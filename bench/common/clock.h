// Wall-clock time for measuring: CLOCK_MONOTONIC, never stepped.
#pragma once

#include <chrono>

namespace vuda::bench {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

inline double ms_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

inline Clock::duration from_seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

}  // namespace vuda::bench
