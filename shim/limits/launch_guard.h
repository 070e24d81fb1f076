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
inline constexpr int kNotSupported = 801;

class LaunchGuard {
 public:
    // A launch that waits to be decided on goes on after this, come what may.
    static constexpr std::chrono::milliseconds kLongestWait{5000};

    // Bytes of shared memory a block; 0: every kernel may run.
    void arm(uint32_t limit) { limit_.store(limit, std::memory_order_release); }
    uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }

    // What it knows of a thread.
    struct Thread {
        uint32_t pending = 0;  // bytes that the newest kernel wanted that was not run, and no call said so; 0: none
        uint32_t pending_kernels = 0;
        uint64_t pending_of = 0;  // number of the guard that withheld it
        bool follows = false;     // the kernel that it launches is withheld whatever its size (partition::NativeSide)
        void* errand = nullptr;   // not null: its launches are VUDA's own (partition::NativeErrand)
    };
    static Thread& thread();

    // What becomes of a call.
    struct Verdict {
        int result = 0;        // what it has to return instead of its own result; 0: nothing
        uint32_t bytes = 0;    // what the last kernel wanted that was not run
        uint32_t kernels = 0;  // so many were not
    };
    // --- Around each call of CUDA that is known, on the thread that makes it. Neither is needed while attention() is
    // 0. A call begins. With kernels: they were withheld in no call that is known, so that the next wait returns an
    // error.
    Verdict entered(Thread& thread);
    // `launches`: it is one that launches. What was not run counts as refused when counted() says so.
    Verdict left(Thread& thread, bool launches);

    // A kernel of this thread is not run. `bytes` > 0.
    void withheld(Thread& thread, uint32_t bytes);
    // 0: callbacks need not look at anything, which is how it is for nearly all launches. Else things that some call
    // has to return yet, kOne each, and what the guard's owner asked for.
    static constexpr uint32_t kOne = 0x100;
    uint32_t attention() const { return attention_.load(std::memory_order_acquire); }
    void attend(uint32_t bits) { attention_.fetch_or(bits, std::memory_order_release); }
    void ignore(uint32_t bits) { attention_.fetch_and(~bits, std::memory_order_release); }
    void attend_one() { attention_.fetch_add(kOne, std::memory_order_release); }
    void ignore_one() { attention_.fetch_sub(kOne, std::memory_order_release); }
    // It stays at that: refused.
    void counted(uint32_t bytes, uint32_t kernels = 1);
    uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
    uint32_t first_refused_bytes() const { return first_bytes_.load(std::memory_order_relaxed); }

    // --- Launches before a decision.
    // Returns when `decided` says so, it was let go, or time is up. `offer` is called each time something changed.
    void wait_until(const std::function<bool()>& decided, const std::function<void()>& offer);
    // Something was decided.
    void changed();
    // Those that wait now need not wait any longer.
    void let_go();

    bool has_pending(const Thread& thread) const { return thread.pending != 0 && thread.pending_of == number_; }

    static uint64_t next_number();
    const uint64_t number_ = next_number();
    alignas(64) std::atomic<uint32_t> attention_{0};
    std::atomic<uint32_t> limit_{0};
    std::atomic<uint64_t> refusals_{0};
    std::atomic<uint32_t> first_bytes_{0};
    std::atomic<bool> stray_{false};  // withheld in no call that is known
    std::mutex mutex_;
    std::condition_variable changes_;
    uint64_t epoch_ = 0;     // of let_go()
    uint64_t sequence_ = 0;  // of changed()
};

}  // namespace vuda::limits
