// Kernels that would end the TSG are not run, and the program is told so by CUDA's own means.
//
// Their launch descriptor is turned into one of a grid without blocks before it goes to the GPU (launch_hook.h): the
// stream goes on, events fire, nothing is computed. The call that launched it returns an error; where the descriptor
// goes out in no call that is known, the program's next call that waits for the GPU does, as with any error of a
// kernel.
//
// Also: a launch in a context of which nothing is known yet waits until that is known, so that none slips through.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace vuda::limits {

// CUresult
inline constexpr int kLaunchOutOfResources = 701;  // what CUDA says of a kernel that does not fit
inline constexpr int kLaunchFailed = 719;

class LaunchGuard {
 public:
    // A launch that waits to be decided on goes on after this, come what may.
    static constexpr std::chrono::milliseconds kLongestWait{5000};

    // Bytes of shared memory a block; 0: every kernel may run.
    void arm(uint32_t limit) { limit_.store(limit, std::memory_order_release); }
    uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }

    // --- Around each call of CUDA that is known, on the thread that makes it.
    void entered() { ++depth(); }
    // What the call has to return instead of its own result; 0: nothing. `launches`: it is one that launches.
    int left(bool launches);

    // A kernel of this thread is not run. `bytes` > 0; not `counted`: it was one of our own.
    void refused(uint32_t bytes, bool counted = true);
    uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
    uint32_t first_refused_bytes() const { return first_bytes_.load(std::memory_order_relaxed); }

    // --- Launches before a decision.
    // Returns when `decided` says so, it was let go, or time is up. `offer` is called each time something changed.
    void wait_until(const std::function<bool()>& decided, const std::function<void()>& offer);
    // Something was decided.
    void changed();
    // Those that wait now need not wait any longer.
    void let_go();

 private:
    static int& depth();
    static uint32_t& pending();

    std::atomic<uint32_t> limit_{0};
    std::atomic<uint64_t> refusals_{0};
    std::atomic<uint32_t> first_bytes_{0};
    std::atomic<bool> stray_{false};  // refused in no call that is known
    std::mutex mutex_;
    std::condition_variable changes_;
    uint64_t epoch_ = 0;     // of let_go()
    uint64_t sequence_ = 0;  // of changed()
};

}  // namespace vuda::limits
