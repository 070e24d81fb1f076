// Keeps the program's streams behind kernels of the native side, and lets them go when such a kernel fails.
//
// An event of our context would do for the first, but not for the second: when a kernel faults, CUDA gives up the
// context that it ran in, so an event there never comes, and a stream of the program's that waits for it waits for
// ever. So the program's stream waits for a number in host memory instead (cuStreamWaitValue32), which our stream
// writes behind the kernel (cuStreamWriteValue32) and which the host can write as well. Whether both work is proved
// when the memory is made; if not, events are used and a fault stays unnoticed.
//
// A thread looks after our streams while something is under way on them, every kInterval: the program may be in a call
// that waits, so nobody else would. When CUDA says that our context has failed, the error is told first (from then on
// no kernel of the program runs, and every call returns the error: launch_hook.h), then the numbers are written that
// anything waits for. What the program had put into its streams behind the kernel before that still runs, on
// whatever is in memory: CUDA alone would have dropped it. It cannot be taken back, and waiting for ever is worse.
#pragma once

#include <pthread.h>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "shim/partition/cuda_driver.h"

namespace vuda::partition {

class NativeFault {
 public:
    // Told once, on the thread that looks or one that launches, with no lock of the native side's but this one's.
    class Listener {
     public:
        virtual ~Listener() = default;
        virtual void native_fault(CuResult error) = 0;
    };

    static constexpr size_t kLanes = 8;
    static constexpr std::chrono::milliseconds kInterval{20};

    explicit NativeFault(const CudaDriver& cuda) : cuda_(cuda) {}
    ~NativeFault();
    NativeFault(const NativeFault&) = delete;
    NativeFault& operator=(const NativeFault&) = delete;

    // nullptr: nobody any more, and nobody is being told when it returns.
    void listen(Listener* listener);

    // Makes the numbers, on an errand of the native side's. `own` is our context, `context` one of the program's. An
    // error: they do not work here, and none of what follows may be called but error().
    Status open(CuContext own, CuContext context);
    bool works() const { return numbers_ != nullptr; }

    // `stream` is our lane of that number; our context is current. What comes later on a stream for which wait() was
    // called waits for what is on the lane.
    CuResult signal(size_t lane, CuStream stream);
    // The context of `stream` is current.
    CuResult wait(size_t lane, CuStream stream);
    // Nothing is under way on the lane.
    bool done(size_t lane) const;
    // What our context has failed with; 0: it has not.
    CuResult error() const { return error_.load(std::memory_order_acquire); }
    // Something did not work in our context: has a look, whoever waits.
    void suspect(CuStream stream);

 private:
    struct Lane {
        std::atomic<CuStream> stream{nullptr};
        std::atomic<uint32_t> wanted{0};
    };
    static void* thread_main(void* self);
    void look_after();
    void look();
    void failed(CuResult error);
    bool under_way() const;
    Status prove(CuContext own, CuContext context);
    std::atomic_ref<uint32_t> number(size_t lane) const { return std::atomic_ref<uint32_t>(numbers_[lane * kStride]); }
    CuDevicePtr address(size_t lane) const { return reinterpret_cast<CuDevicePtr>(numbers_ + lane * kStride); }

    static constexpr size_t kStride = 16;  // words: a cache line each

    const CudaDriver& cuda_;
    CuContext own_ = nullptr;
    uint32_t* numbers_ = nullptr;  // never freed: the GPU may write there as long as the process lives
    std::array<Lane, kLanes> lanes_;
    std::atomic<CuResult> error_{0};

    std::mutex mutex_;
    std::condition_variable changes_;
    bool stopping_ = false;
    bool idle_ = false;  // the thread sleeps until something is under way
    bool started_ = false;
    pthread_t thread_{};
    std::mutex listener_mutex_;
    Listener* listener_ = nullptr;
};

}  // namespace vuda::partition
