// A program's vkQueueSubmit or vkQueueSubmit2 with a frame's timestamps added.
#pragma once

#include <vulkan/vulkan_core.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "shim/layer/queue_clock.h"

namespace vuda::layer {

// The two generations of the same call.
template <typename Submit>
struct SubmitTraits;

template <>
struct SubmitTraits<VkSubmitInfo> {
    using Buffer = VkCommandBuffer;
    static constexpr VkStructureType kType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    static Buffer wrap(VkCommandBuffer buffer) { return buffer; }
    static uint32_t count(const VkSubmitInfo& submit) { return submit.commandBufferCount; }
    static const Buffer* buffers(const VkSubmitInfo& submit) { return submit.pCommandBuffers; }
    static void set(VkSubmitInfo& submit, uint32_t count, const Buffer* buffers) {
        submit.commandBufferCount = count;
        submit.pCommandBuffers = buffers;
    }
    static bool plain(const VkSubmitInfo&) { return true; }
};

template <>
struct SubmitTraits<VkSubmitInfo2> {
    using Buffer = VkCommandBufferSubmitInfo;
    static constexpr VkStructureType kType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    static Buffer wrap(VkCommandBuffer buffer) {
        return {VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, nullptr, buffer, 0};
    }
    static uint32_t count(const VkSubmitInfo2& submit) { return submit.commandBufferInfoCount; }
    static const Buffer* buffers(const VkSubmitInfo2& submit) { return submit.pCommandBufferInfos; }
    static void set(VkSubmitInfo2& submit, uint32_t count, const Buffer* buffers) {
        submit.commandBufferInfoCount = count;
        submit.pCommandBufferInfos = buffers;
    }
    // Protected command buffers and others do not mix.
    static bool plain(const VkSubmitInfo2& submit) { return submit.flags == 0; }
};

template <typename Submit>
class StampedSubmit {
 public:
    // What to hand on is in count() and batches() then. `fence` 0: the frame goes on after this submission.
    StampedSubmit(QueueClock& clock, uint32_t count, const Submit* submits, uint64_t fence, uint64_t frame)
        : count_(count), batches_(submits) {
        const bool fits = count <= kBatches;
        if (clock.open_frame() == nullptr) {
            const uint32_t first = fits ? first_with_work(count, submits) : count;
            if (first == count || !plain(submits[first]) || Traits::count(submits[first]) > kBuffers) return;
            const QueueClock::Slot* slot = clock.begin_frame();
            if (slot == nullptr) return;
            copy(count, submits);
            buffers_[0] = Traits::wrap(slot->before);
            std::copy_n(Traits::buffers(submits[first]), Traits::count(submits[first]), buffers_.begin() + 1);
            Traits::set(copies_[first], Traits::count(submits[first]) + 1, buffers_.data());
        } else if (!fits) {
            clock.drop_frame();
            return;
        }
        if (fence == 0) return;
        if (batches_ == submits) copy(count, submits);
        ending_ = clock.open_frame();
        after_ = Traits::wrap(ending_->after);
        copies_[count] = {};
        copies_[count].sType = Traits::kType;
        Traits::set(copies_[count], 1, &after_);
        count_ = count + 1;
        clock.end_frame(fence, frame);
    }
    StampedSubmit(const StampedSubmit&) = delete;
    StampedSubmit& operator=(const StampedSubmit&) = delete;

    uint32_t count() const { return count_; }
    const Submit* batches() const { return batches_; }

    // The driver refused it: nothing of it runs.
    void refused(QueueClock& clock) {
        if (ending_ != nullptr) QueueClock::undo(*ending_);
        clock.drop_frame();
    }

 private:
    using Traits = SubmitTraits<Submit>;
    static constexpr uint32_t kBatches = 16;
    static constexpr uint32_t kBuffers = 63;

    static uint32_t first_with_work(uint32_t count, const Submit* submits) {
        uint32_t first = 0;
        while (first < count && Traits::count(submits[first]) == 0) ++first;
        return first;
    }

    // Nothing in its chain speaks of its command buffers one by one.
    static bool plain(const Submit& submit) {
        for (auto* at = static_cast<const VkBaseInStructure*>(submit.pNext); at != nullptr; at = at->pNext) {
            if (at->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO) return false;
        }
        return Traits::plain(submit);
    }

    void copy(uint32_t count, const Submit* submits) {
        std::copy_n(submits, count, copies_.begin());
        batches_ = copies_.data();
    }

    uint32_t count_;
    const Submit* batches_;
    QueueClock::Slot* ending_ = nullptr;
    std::array<Submit, kBatches + 1> copies_;
    std::array<typename Traits::Buffer, kBuffers + 1> buffers_;
    typename Traits::Buffer after_;
};

}  // namespace vuda::layer
