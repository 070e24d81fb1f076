#include "shim/layer/queue_clock.h"

#include <new>

#include "shim/layer/bind.h"

namespace vuda::layer {
ClockCalls ClockCalls::find(PFN_vkGetDeviceProcAddr next, VkDevice device) {
    ClockCalls calls;
    bind(&calls.create_command_pool, next, device, "vkCreateCommandPool");
    bind(&calls.destroy_command_pool, next, device, "vkDestroyCommandPool");
    bind(&calls.allocate_command_buffers, next, device, "vkAllocateCommandBuffers");
    bind(&calls.begin_command_buffer, next, device, "vkBeginCommandBuffer");
    bind(&calls.end_command_buffer, next, device, "vkEndCommandBuffer");
    bind(&calls.reset_query_pool, next, device, "vkCmdResetQueryPool");
    bind(&calls.write_timestamp, next, device, "vkCmdWriteTimestamp");
    bind(&calls.create_query_pool, next, device, "vkCreateQueryPool");
    bind(&calls.destroy_query_pool, next, device, "vkDestroyQueryPool");
    bind(&calls.get_query_pool_results, next, device, "vkGetQueryPoolResults");
    return calls;
}

bool ClockCalls::complete() const {
    return create_command_pool != nullptr && destroy_command_pool != nullptr && allocate_command_buffers != nullptr &&
           begin_command_buffer != nullptr && end_command_buffer != nullptr && reset_query_pool != nullptr &&
           write_timestamp != nullptr && create_query_pool != nullptr && destroy_query_pool != nullptr &&
           get_query_pool_results != nullptr;
}

std::unique_ptr<QueueClock> QueueClock::make(VkDevice device, const ClockCalls& calls, uint32_t family,
                                             uint32_t valid_bits, double period_ns,
                                             PFN_vkSetDeviceLoaderData set_loader_data) {
    std::unique_ptr<QueueClock> clock(new (std::nothrow) QueueClock(device, calls, valid_bits, period_ns));
    if (clock == nullptr || !clock->record(family, set_loader_data)) return nullptr;
    return clock;
}

QueueClock::~QueueClock() {
    // The command buffers go with their pool.
    if (commands_ != VK_NULL_HANDLE) calls_.destroy_command_pool(device_, commands_, nullptr);
    if (queries_ != VK_NULL_HANDLE) calls_.destroy_query_pool(device_, queries_, nullptr);
}

bool QueueClock::record(uint32_t family, PFN_vkSetDeviceLoaderData set_loader_data) {
    VkQueryPoolCreateInfo queries{};
    queries.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
    queries.queryCount = 2 * kSlots;
    if (calls_.create_query_pool(device_, &queries, nullptr, &queries_) != VK_SUCCESS) return false;
    VkCommandPoolCreateInfo pool{};
    pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pool.queueFamilyIndex = family;
    if (calls_.create_command_pool(device_, &pool, nullptr, &commands_) != VK_SUCCESS) return false;
    std::array<VkCommandBuffer, 2 * kSlots> buffers{};
    VkCommandBufferAllocateInfo allocate{};
    allocate.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    allocate.commandPool = commands_;
    allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    allocate.commandBufferCount = static_cast<uint32_t>(buffers.size());
    if (calls_.allocate_command_buffers(device_, &allocate, buffers.data()) != VK_SUCCESS) return false;

    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    // A slot is used again when its timestamps were read, which may be a moment before the submission counts as ended.
    begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
    for (uint32_t i = 0; i < kSlots; ++i) {
        Slot& slot = slots_[i];
        slot.number = i;
        slot.before = buffers[2 * i];
        slot.after = buffers[2 * i + 1];
        for (const VkCommandBuffer buffer : {slot.before, slot.after}) {
            // Layers further down find their device by a word that the loader writes into what programs get from it.
            if (set_loader_data != nullptr && set_loader_data(device_, buffer) != VK_SUCCESS) return false;
        }
        if (calls_.begin_command_buffer(slot.before, &begin) != VK_SUCCESS) return false;
        calls_.reset_query_pool(slot.before, queries_, 2 * i, 2);
        calls_.write_timestamp(slot.before, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, queries_, 2 * i);
        if (calls_.end_command_buffer(slot.before) != VK_SUCCESS) return false;
        if (calls_.begin_command_buffer(slot.after, &begin) != VK_SUCCESS) return false;
        calls_.write_timestamp(slot.after, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, 2 * i + 1);
        if (calls_.end_command_buffer(slot.after) != VK_SUCCESS) return false;
    }
    return true;
}

QueueClock::Slot* QueueClock::begin_frame() {
    for (Slot& slot : slots_) {
        Slot::State free = Slot::State::kFree;
        if (!slot.state.compare_exchange_strong(free, Slot::State::kOpen, std::memory_order_acquire)) continue;
        open_ = &slot;
        return open_;
    }
    return nullptr;
}

void QueueClock::end_frame(uint64_t fence, uint64_t frame) {
    // A fence ends one submission at a time: whatever still waits for this one was never asked about.
    for (Slot& slot : slots_) {
        Slot::State pending = Slot::State::kPending;
        if (slot.fence.load(std::memory_order_relaxed) == fence)
            slot.state.compare_exchange_strong(pending, Slot::State::kFree, std::memory_order_relaxed);
    }
    open_->fence.store(fence, std::memory_order_relaxed);
    open_->frame.store(frame, std::memory_order_relaxed);
    open_->state.store(Slot::State::kPending, std::memory_order_release);
    open_ = nullptr;
}

void QueueClock::drop_frame() {
    if (open_ != nullptr) undo(*open_);
    open_ = nullptr;
}

uint64_t QueueClock::signalled(uint64_t fence, uint64_t now_ns, const SampleSink& sink) {
    uint64_t took = 0;
    for (Slot& slot : slots_) {
        if (slot.state.load(std::memory_order_acquire) != Slot::State::kPending ||
            slot.fence.load(std::memory_order_relaxed) != fence) {
            continue;
        }
        Slot::State pending = Slot::State::kPending;
        if (!slot.state.compare_exchange_strong(pending, Slot::State::kReading, std::memory_order_acquire)) continue;
        // The slot may have come by another fence since it was looked at.
        if (slot.fence.load(std::memory_order_relaxed) == fence) {
            if (const auto known = read(slot, false); known && *known != kNoTime) {
                took = *known;
                sink.push(kGpuFrameSample, slot.frame.load(std::memory_order_relaxed), now_ns, took);
            }
        }
        slot.state.store(Slot::State::kFree, std::memory_order_release);
    }
    return took;
}

uint64_t QueueClock::poll() {
    uint64_t took = 0;
    for (Slot& slot : slots_) {
        Slot::State pending = Slot::State::kPending;
        if (slot.state.load(std::memory_order_acquire) != pending ||
            (slot.fence.load(std::memory_order_relaxed) & kUnfenced) != kUnfenced ||
            !slot.state.compare_exchange_strong(pending, Slot::State::kReading, std::memory_order_acquire)) {
            continue;
        }
        const std::optional<uint64_t> known = read(slot, true);
        if (known && *known != kNoTime) took += *known;
        slot.state.store(known ? Slot::State::kFree : Slot::State::kPending, std::memory_order_release);
    }
    return took;
}

std::optional<uint64_t> QueueClock::read(Slot& slot, bool may_be_old) {
    uint64_t ticks[2] = {};
    if (calls_.get_query_pool_results(device_, queries_, 2 * slot.number, 2, sizeof ticks, ticks, sizeof ticks[0],
                                      VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
        return std::nullopt;
    }
    if (may_be_old && ticks[1] == slot.seen_end) return std::nullopt;
    slot.seen_end = ticks[1];
    // The first timestamp is written when the front end gets there, which may be while the frame before still runs:
    // that time is the other frame's.
    const uint64_t last = last_end_.exchange(ticks[1], std::memory_order_relaxed);
    const uint64_t whole = (ticks[1] - ticks[0]) & mask_;
    const uint64_t since_last = (ticks[1] - last) & mask_;
    const uint64_t own = last != 0 && since_last < whole ? since_last : whole;
    // A counter that ran backwards looks like ages.
    if (own > mask_ / 2) return kNoTime;
    return static_cast<uint64_t>(static_cast<double>(own) * period_ns_);
}

}  // namespace vuda::layer
