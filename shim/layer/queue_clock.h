// What frames take on the GPU, by its own clock: a timestamp before a frame's first command buffer and one after its
// last.
//
// The command buffers that write them are recorded once and handed in with the program's own, in its own
// vkQueueSubmit: one goes in front of the first command buffer (behind the semaphores that it waits for), one makes a
// batch of its own at the end. A frame begins with the first submission after a fenced one and ends with the next
// fenced one. Where something does not fit (unknown extension structures, more batches than kBatches), the frame goes
// untimed and as the program made it.
#pragma once

#include <vulkan/vk_layer.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "shim/layer/frame_times.h"

namespace vuda::layer {

// The next layer's functions.
struct ClockCalls {
    PFN_vkCreateCommandPool create_command_pool = nullptr;
    PFN_vkDestroyCommandPool destroy_command_pool = nullptr;
    PFN_vkAllocateCommandBuffers allocate_command_buffers = nullptr;
    PFN_vkBeginCommandBuffer begin_command_buffer = nullptr;
    PFN_vkEndCommandBuffer end_command_buffer = nullptr;
    PFN_vkCmdResetQueryPool reset_query_pool = nullptr;
    PFN_vkCmdWriteTimestamp write_timestamp = nullptr;
    PFN_vkCreateQueryPool create_query_pool = nullptr;
    PFN_vkDestroyQueryPool destroy_query_pool = nullptr;
    PFN_vkGetQueryPoolResults get_query_pool_results = nullptr;

    static ClockCalls find(PFN_vkGetDeviceProcAddr next, VkDevice device);
    bool complete() const;
};

class QueueClock {
 public:
    // A frame whose timestamps are on their way.
    struct Slot {
        enum class State : uint32_t { kFree, kOpen, kPending, kReading };
        std::atomic<State> state{State::kFree};
        std::atomic<uint64_t> fence{0};
        std::atomic<uint64_t> frame{0};
        uint32_t number = 0;
        uint64_t seen_end = 0;  // ticks that were read last: until the GPU gets to it, the slot still holds those
        VkCommandBuffer before = VK_NULL_HANDLE;
        VkCommandBuffer after = VK_NULL_HANDLE;
    };

    // nullptr: the driver refused something; frames of this queue are not timed. `set_loader_data` may be nullptr.
    // `valid_bits`, `period_ns`: VkQueueFamilyProperties::timestampValidBits (not 0),
    // VkPhysicalDeviceLimits::timestampPeriod.
    static std::unique_ptr<QueueClock> make(VkDevice device, const ClockCalls& calls, uint32_t family,
                                            uint32_t valid_bits, double period_ns,
                                            PFN_vkSetDeviceLoaderData set_loader_data);
    // Nothing of the device is in use any more (vkDestroyDevice wants that, too).
    ~QueueClock();
    QueueClock(const QueueClock&) = delete;
    QueueClock& operator=(const QueueClock&) = delete;

    // --- In vkQueueSubmit, which a program calls in one thread at a time for a queue.
    Slot* open_frame() const { return open_; }
    // nullptr: all slots wait for the GPU.
    Slot* begin_frame();
    // The end is about to be submitted with this fence.
    void end_frame(uint64_t fence, uint64_t frame);
    // The open frame cannot be timed.
    void drop_frame();
    // The submission with the slot's end was refused.
    static void undo(Slot& slot) { slot.state.store(Slot::State::kFree, std::memory_order_release); }

    // --- Any thread: the program saw this fence signalled. Returns what the frame took, nanoseconds; 0: not known.
    uint64_t signalled(uint64_t fence, uint64_t now_ns, const SampleSink& sink);

    // --- Work that no fence follows: each submission is timed by itself, for who wants the sum (turn_gate.h).
    // A stamp for end_frame() instead of a fence.
    uint64_t unfenced() { return kUnfenced | ++unfenced_; }
    // What such work took of which that has become known, nanoseconds. In vkQueueSubmit, as begin_frame().
    uint64_t poll();

 private:
    // No handle looks like it: addresses in a process have no upper half like this, and counters do not come so far.
    static constexpr uint64_t kUnfenced = 0xfeed'0000'0000'0000;
    static constexpr uint32_t kSlots = 8;  // frames in flight of one queue

    QueueClock(VkDevice device, const ClockCalls& calls, uint32_t valid_bits, double period_ns)
        : device_(device),
          calls_(calls),
          mask_(valid_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << valid_bits) - 1),
          period_ns_(period_ns) {}

    bool record(uint32_t family, PFN_vkSetDeviceLoaderData set_loader_data);
    static constexpr uint64_t kNoTime = ~uint64_t{0};
    // nullopt: the GPU is not so far. kNoTime: what it wrote makes no sense.
    std::optional<uint64_t> read(Slot& slot, bool may_be_old);

    const VkDevice device_;
    const ClockCalls calls_;
    const uint64_t mask_;
    const double period_ns_;
    VkCommandPool commands_ = VK_NULL_HANDLE;
    VkQueryPool queries_ = VK_NULL_HANDLE;
    std::array<Slot, kSlots> slots_;
    Slot* open_ = nullptr;
    uint64_t unfenced_ = 0;
    std::atomic<uint64_t> last_end_{0};  // of the frame that was read last, in ticks
};

}  // namespace vuda::layer
