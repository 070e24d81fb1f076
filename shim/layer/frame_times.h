// Frame times, from the calls that a renderer makes anyway: no thread waits. What a frame takes on the GPU itself is
// queue_clock.h's business.
//
//   latency    submission with a fence, until the program sees that fence signalled: at most as early as the GPU was
//   done interval   from one vkQueuePresentKHR to the next; of a device that presents nothing, from one submission with
//   a fence
//              to the next
//
// Samples go to libvuda.so, if this process has loaded it for sharing. Any thread; locks nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vuda::layer {

// Kinds of sample: vuda::page::SampleKind (proto/page/session_page.h).
inline constexpr uint32_t kFrameSample = 1;
inline constexpr uint32_t kIntervalSample = 2;
inline constexpr uint32_t kGpuFrameSample = 5;

// libvuda's functions (client/session_abi.h).
struct SampleSink {
    int (*wants)(uint32_t kind) = nullptr;
    void (*push)(uint32_t kind, uint64_t id, uint64_t end_ns, uint64_t duration_ns) = nullptr;

    // Those of the libvuda.so that is in this process already; empty when there is none.
    static SampleSink find();
    explicit operator bool() const { return wants != nullptr && push != nullptr; }
};

class FrameTimes {
 public:
    explicit FrameTimes(const SampleSink& sink) : sink_(sink) {}

    // `fence` 0: a submission without one, which is not taken for the end of a frame. Returns the frame's number.
    uint64_t submitted(uint64_t fence, uint64_t now_ns);
    void signalled(uint64_t fence, uint64_t now_ns);
    void presented(uint64_t now_ns);

 private:
    // A program has few frames in flight; a fence that finds its place taken takes it over.
    static constexpr size_t kPending = 64;
    struct Pending {
        std::atomic<uint64_t> fence{0};
        std::atomic<uint64_t> submitted_ns{0};
        std::atomic<uint64_t> frame{0};
    };

    Pending& place(uint64_t fence);
    void interval(uint64_t now_ns);

    const SampleSink sink_;
    std::atomic<uint64_t> frames_{0};
    std::atomic<uint64_t> last_ns_{0};
    std::atomic<bool> presents_{false};
    Pending pending_[kPending];
};

}  // namespace vuda::layer
