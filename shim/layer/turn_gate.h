// Holds a device's frames back where compute takes turns with them (turn_pacer.h), by the terms of the session page.
//
// A frame begins with the first submission to a queue that can do graphics after the frame before has ended: with
// vkQueuePresentKHR, or, on a device that presents nothing, with a submission that has a fence (one to such a queue, if
// the program ever makes those). The thread that begins it waits; uploads and compute on other queues never do.
#pragma once

#include <vulkan/vulkan_core.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shim/layer/turn_pacer.h"

namespace vuda::layer {

// libvuda's functions (client/session_abi.h).
struct TurnSource {
    // 0: frames go as they come.
    int (*turns)(uint32_t* graphics_permille, uint64_t* frame_ns) = nullptr;
    // 0: ask again.
    int (*slice)(uint32_t us) = nullptr;

    // That of the libvuda.so that is in this process already; empty when there is none.
    static TurnSource find();
    explicit operator bool() const { return turns != nullptr; }
};

class TurnGate {
 public:
    // A wait looks this often whether the terms still hold.
    static constexpr uint64_t kLookNs = 5'000'000;

    explicit TurnGate(const TurnSource& source, std::vector<VkQueueFamilyProperties> families)
        : source_(source), families_(std::move(families)) {}

    // The program got hold of this queue.
    void queue_found(VkQueue queue, uint32_t family);

    // Before a submission. May wait.
    void submitting(VkQueue queue);
    // After it; `fence`: it has one.
    void submitted(VkQueue queue, bool fence);
    void presented();
    // Somebody has to say what submissions take on the GPU, one by one: for a share always. For a target what whole
    // frames take is enough (queue_clock.h), where their end is seen on the queue that draws.
    bool wants_gpu_time() const { return wants_gpu_time_.load(std::memory_order_relaxed); }
    void worked(uint64_t gpu_ns);

 private:
    bool paced(VkQueue queue) const;
    bool terms(TurnPacer::Terms& out) const;
    // The timeslice from now on; 0: the driver's own.
    void ask_for_slice(uint32_t us);

    const TurnSource source_;
    const std::vector<VkQueueFamilyProperties> families_;
    std::atomic<bool> in_frame_{false};
    std::atomic<bool> presents_{false};
    std::atomic<bool> fences_graphics_{false};  // submissions to queues that do graphics have fences
    std::atomic<bool> fences_others_{false};    // submissions to others have, and those had none so far
    std::atomic<bool> wants_gpu_time_{false};
    std::atomic<bool> asked_for_slice_{false};  // and it is not the driver's own again
    mutable std::mutex mutex_;
    std::vector<VkQueue> queues_;  // that can do graphics
    TurnPacer pacer_;
};

}  // namespace vuda::layer
