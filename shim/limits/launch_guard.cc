#include "shim/limits/launch_guard.h"

#include <utility>

namespace vuda::limits {

// Of the calls of CUDA that this thread is in: one may be made in a callback of another.
int& LaunchGuard::depth() {
    constinit thread_local int depth = 0;
    return depth;
}

// Bytes that a kernel refused in this thread's call wanted; 0: none was.
uint32_t& LaunchGuard::pending() {
    constinit thread_local uint32_t bytes = 0;
    return bytes;
}

int LaunchGuard::left(bool launches) {
    int& in = depth();
    if (in > 0) --in;
    if (pending() != 0 && (launches || in == 0)) {
        pending() = 0;
        return kLaunchOutOfResources;
    }
    if (!launches && stray_.load(std::memory_order_relaxed) && stray_.exchange(false)) return kLaunchFailed;
    return 0;
}

void LaunchGuard::refused(uint32_t bytes, bool counted) {
    if (counted) {
        uint32_t none = 0;
        first_bytes_.compare_exchange_strong(none, bytes, std::memory_order_relaxed);
        refusals_.fetch_add(1, std::memory_order_release);
    }
    if (depth() > 0) {
        pending() = bytes;
    } else if (counted) {
        stray_.store(true);
    }
}

void LaunchGuard::wait_until(const std::function<bool()>& decided, const std::function<void()>& offer) {
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    std::unique_lock lock(mutex_);
    const uint64_t begun = epoch_;
    while (epoch_ == begun) {
        const uint64_t seen = sequence_;
        lock.unlock();
        if (decided()) return;
        offer();
        lock.lock();
        if (!changes_.wait_until(lock, deadline, [&] { return sequence_ != seen || epoch_ != begun; })) return;
    }
}

void LaunchGuard::changed() {
    {
        const std::lock_guard lock(mutex_);
        ++sequence_;
    }
    changes_.notify_all();
}

void LaunchGuard::let_go() {
    {
        const std::lock_guard lock(mutex_);
        ++epoch_;
    }
    changes_.notify_all();
}

}  // namespace vuda::limits
