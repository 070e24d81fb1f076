// One frame in flight: its image, command buffers, fence, timestamps and the memory that its rows are copied to.
#pragma once

#include <vulkan/vulkan.h>

#include <optional>
#include <span>

#include "base/result.h"
#include "bench/common/clock.h"
#include "bench/render/device.h"
#include "bench/render/expected.h"
#include "bench/render/options.h"
#include "bench/render/target.h"
#include "bench/render/vk_handle.h"

namespace vuda::bench {

// Rows first, first + stride, first + 2 * stride, ... of the image.
struct RowSet {
    uint32_t first = 0;
    uint32_t stride = 1;

    uint32_t count(uint32_t height) const { return first >= height ? 0 : (height - first + stride - 1) / stride; }
};

class FrameSlot {
 public:
    static Result<FrameSlot> create(const Device& device, const RenderOptions& options);

    // Records and submits one frame and, on the copy queue, the copy of `rows` to this slot's memory: checking the
    // pixels costs the renderer no time on the multiprocessors where there is a copy engine. The slot must be idle.
    Status submit(const Device& device, const RenderOptions& options, const PushConstants& push, RowSet rows);

    // Waits at most `timeout` for the frame. False: not yet done.
    Result<bool> wait(const Device& device, Clock::duration timeout);

    bool pending() const { return pending_; }
    Clock::time_point begun() const { return begun_; }
    RowSet rows() const { return rows_; }
    // After wait() said true: the copied rows, one after the other, 4 bytes a pixel.
    std::span<const uint8_t> pixels() const { return {pixels_, bytes_}; }
    // After wait() said true: milliseconds on the GPU; empty where it has no timestamps.
    Result<std::optional<double>> gpu_ms(const Device& device) const;

 private:
    Status create_readback(const Device& device, const RenderOptions& options);
    Status record_frame(const RenderOptions& options, const PushConstants& push);
    void record_draws(const RenderOptions& options, const PushConstants& push);
    Status record_copy(const RenderOptions& options, RowSet rows);

    // A command pool with its one command buffer, which is freed with it.
    struct Commands {
        Status create(VkDevice device, uint32_t family);
        Status begin(VkDevice device);

        VkCommandPoolOwner pool;
        VkCommandBuffer buffer = VK_NULL_HANDLE;
    };

    Target target_;
    Commands draw_;
    Commands copy_;
    VkSemaphoreOwner drawn_;
    VkFenceOwner fence_;
    VkQueryPoolOwner timestamps_;
    VkMemoryOwner memory_;
    VkBufferOwner buffer_;
    const uint8_t* pixels_ = nullptr;  // mapped until memory_ is freed
    size_t bytes_ = 0;
    bool pending_ = false;
    Clock::time_point begun_{};
    RowSet rows_;
};

}  // namespace vuda::bench
