// Kernels that wait: vudad holds a process whose address spaces lack a control buffer that the renderer has gone on to
// use, until they have it (docs/wire-protocol.md, "Mirrors that follow").
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/page/session_page.h"

namespace vuda::page {

// vudad's. Holds and lets go; each hold has a number of its own.
void hold_launches(DaemonHalf& half, uint64_t number);
void release_launches(DaemonHalf& half);

// The process's side. Any thread.
class LaunchHold {
 public:
    // A program whose vudad died, or whose session cannot follow, is not held for longer, and only once for each hold.
    static constexpr std::chrono::milliseconds kLimit{1000};

    // Before each launch: one relaxed load where nothing holds it. errno stays.
    void wait(const DaemonHalf& half) {
        const uint64_t number = half.hold.load(std::memory_order_acquire);
        if (number == 0 || number == given_up_.load(std::memory_order_relaxed)) [[likely]]
            return;
        wait_for_release(half, number);
    }

 private:
    void wait_for_release(const DaemonHalf& half, uint64_t number);

    std::atomic<uint64_t> given_up_{0};
};

}  // namespace vuda::page
