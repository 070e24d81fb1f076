#include "shim/limits/launch_guard.h"

#include <utility>

namespace vuda::limits {

LaunchGuard::Thread& LaunchGuard::thread() {
    constinit thread_local Thread own;
    return own;
}

// Threads may outlive a guard.
uint64_t LaunchGuard::next_number() {
    constinit static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

LaunchGuard::Verdict LaunchGuard::entered(Thread& thread) {
    if (!has_pending(thread)) return {};
    // attention() counts it on: the next wait is to tell.
    if (stray_.exchange(true)) ignore_one();
    return {0, std::exchange(thread.pending, 0), std::exchange(thread.pending_kernels, 0)};
}

LaunchGuard::Verdict LaunchGuard::left(Thread& thread, bool launches) {
    if (has_pending(thread)) {
        ignore_one();
        return {kLaunchOutOfResources, std::exchange(thread.pending, 0), std::exchange(thread.pending_kernels, 0)};
    }
    if (!launches && stray_.load(std::memory_order_relaxed) && stray_.exchange(false)) {
        ignore_one();
        return {kLaunchFailed, 0, 0};
    }
    return {};
}

void LaunchGuard::withheld(Thread& thread, uint32_t bytes) {
    if (!has_pending(thread)) {
        thread.pending_kernels = 0;
        thread.pending_of = number_;
        attend_one();
    }
    thread.pending = bytes;
    ++thread.pending_kernels;
}

void LaunchGuard::counted(uint32_t bytes, uint32_t kernels) {
    uint32_t none = 0;
    first_bytes_.compare_exchange_strong(none, bytes, std::memory_order_relaxed);
    refusals_.fetch_add(kernels, std::memory_order_release);
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
