#include "proto/page/launch_hold.h"

#include <cerrno>

#include "proto/page/futex.h"

namespace vuda::page {

void hold_launches(DaemonHalf& half, uint64_t number) { half.hold.store(number, std::memory_order_release); }

void release_launches(DaemonHalf& half) {
    if (half.hold.exchange(0, std::memory_order_release) != 0) wake_all(half.hold);
}

void LaunchHold::wait_for_release(const DaemonHalf& half, uint64_t number) {
    const int saved = errno;
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (auto now = std::chrono::steady_clock::now(); half.hold.load(std::memory_order_acquire) == number;
         now = std::chrono::steady_clock::now()) {
        if (now >= end) {
            given_up_.store(number, std::memory_order_relaxed);
            break;
        }
        wait_while(half.hold, number, std::chrono::duration_cast<std::chrono::nanoseconds>(end - now));
    }
    errno = saved;
}

}  // namespace vuda::page
