// CLOCK_MONOTONIC, the axis of every timing sample. Needs libc only.
#pragma once

#include <time.h>

#include <cstdint>

namespace vuda {

inline uint64_t monotonic_ns() {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace vuda
