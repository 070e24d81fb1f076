// Time as the daemon's logic sees it: passed in, so that tests own it.
#pragma once

#include <chrono>
#include <functional>

namespace vuda::daemon {

using TimePoint = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;
using Clock = std::function<TimePoint()>;

inline Clock steady_clock() {
    return [] { return std::chrono::steady_clock::now(); };
}

}  // namespace vuda::daemon
