// When to try vudad again: twice as long after each failure, and at a random point in the second half of that time, so
// that the programs that lose a daemon at one moment do not come back at one moment.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>

namespace vuda::client {

class Backoff {
 public:
    using Milliseconds = std::chrono::milliseconds;
    using Random = std::function<uint32_t()>;  // uniform

    static constexpr Milliseconds kFirst{50};
    static constexpr Milliseconds kLast{2000};

    explicit Backoff(Random random = differs_by_process()) : random_(std::move(random)) {}

    // How long to wait after one more failure.
    std::chrono::microseconds next() {
        const std::chrono::microseconds half = std::chrono::microseconds(time_) / 2;
        time_ = std::min(time_ * 2, kLast);
        return half + half * (random_() % 1024) / 1023;
    }
    // It went well for a while.
    void reset() { time_ = kFirst; }

    // Processes that start together have other pids.
    static Random differs_by_process() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
        const auto seed = static_cast<unsigned>(::getpid()) ^ static_cast<unsigned>(now);
        return [random = std::minstd_rand(seed)]() mutable { return static_cast<uint32_t>(random()); };
    }

 private:
    Random random_;
    Milliseconds time_ = kFirst;
};

}  // namespace vuda::client
