#include "bench/render/frame_slot.h"

#include <vector>

#include "bench/common/try.h"
#include "bench/render/vk_check.h"

namespace vuda::bench {

Status FrameSlot::Commands::create(VkDevice device, uint32_t family) {
    VkCommandPoolCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    create.queueFamilyIndex = family;
    VUDA_BENCH_TRY(vk_check(vkCreateCommandPool(device, &create, nullptr, pool.put(device)), "create a command pool"));
    VkCommandBufferAllocateInfo allocate = {};
    allocate.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    allocate.commandPool = pool.get();
    allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    allocate.commandBufferCount = 1;
    return vk_check(vkAllocateCommandBuffers(device, &allocate, &buffer), "allocate a command buffer");
}

Status FrameSlot::Commands::begin(VkDevice device) {
    VUDA_BENCH_TRY(vk_check(vkResetCommandPool(device, pool.get(), 0), "reset a command pool"));
    VkCommandBufferBeginInfo begin = {};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    return vk_check(vkBeginCommandBuffer(buffer, &begin), "record a frame");
}

Result<FrameSlot> FrameSlot::create(const Device& device, const RenderOptions& options) {
    FrameSlot slot;
    const VkDevice handle = device.handle();
    auto target = Target::create(device, options);
    VUDA_BENCH_TRY(target);
    slot.target_ = *std::move(target);
    VUDA_BENCH_TRY(slot.draw_.create(handle, device.queue_family()));
    VUDA_BENCH_TRY(slot.copy_.create(handle, device.copy_family()));
    VkSemaphoreCreateInfo semaphore = {};
    semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    VUDA_BENCH_TRY(
        vk_check(vkCreateSemaphore(handle, &semaphore, nullptr, slot.drawn_.put(handle)), "create a semaphore"));
    VkFenceCreateInfo fence = {};
    fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    VUDA_BENCH_TRY(vk_check(vkCreateFence(handle, &fence, nullptr, slot.fence_.put(handle)), "create a fence"));
    if (device.info().ns_per_tick > 0) {
        VkQueryPoolCreateInfo queries = {};
        queries.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
        queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
        queries.queryCount = 2;
        VUDA_BENCH_TRY(vk_check(vkCreateQueryPool(handle, &queries, nullptr, slot.timestamps_.put(handle)),
                                "create a timestamp pool"));
    }
    VUDA_BENCH_TRY(slot.create_readback(device, options));
    return slot;
}

Status FrameSlot::create_readback(const Device& device, const RenderOptions& options) {
    const VkDevice handle = device.handle();
    VkBufferCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    create.size = VkDeviceSize{4} * options.width * options.height;
    create.usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VUDA_BENCH_TRY(
        vk_check(vkCreateBuffer(handle, &create, nullptr, buffer_.put(handle)), "create the readback buffer"));
    VkMemoryRequirements requirements;
    vkGetBufferMemoryRequirements(handle, buffer_.get(), &requirements);
    // Cached: the CPU compares every frame's rows, and reading write-combined memory is slow.
    auto memory =
        device.allocate(requirements, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                        VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
    VUDA_BENCH_TRY(memory);
    memory_ = *std::move(memory);
    VUDA_BENCH_TRY(vk_check(vkBindBufferMemory(handle, buffer_.get(), memory_.get(), 0), "bind the readback buffer"));
    void* mapped = nullptr;
    VUDA_BENCH_TRY(
        vk_check(vkMapMemory(handle, memory_.get(), 0, VK_WHOLE_SIZE, 0, &mapped), "map the readback buffer"));
    pixels_ = static_cast<const uint8_t*>(mapped);
    return {};
}

void FrameSlot::record_draws(const RenderOptions& options, const PushConstants& push) {
    const VkCommandBuffer commands = draw_.buffer;
    VkClearValue clear = {};
    VkRenderPassBeginInfo pass = {};
    pass.sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO;
    pass.renderPass = target_.render_pass();
    pass.framebuffer = target_.framebuffer();
    pass.renderArea = {{0, 0}, {options.width, options.height}};
    pass.clearValueCount = 1;
    pass.pClearValues = &clear;
    vkCmdBeginRenderPass(commands, &pass, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_GRAPHICS, target_.pipeline());
    vkCmdPushConstants(commands, target_.layout(), VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, 0,
                       sizeof push, &push);
    VkRect2D area = pass.renderArea;
    vkCmdSetScissor(commands, 0, 1, &area);
    // Each draw does its share of the frame: a band of rows, or a range of cells.
    const bool by_vertex = options.load == RenderLoad::kVertex;
    const uint64_t units = by_vertex ? uint64_t{push.cells_x} * push.cells_y : options.height;
    for (uint32_t draw = 0; draw < options.draws; ++draw) {
        const auto first = static_cast<uint32_t>(units * draw / options.draws);
        const auto last = static_cast<uint32_t>(units * (draw + 1) / options.draws);
        if (first == last) continue;
        if (by_vertex) {
            vkCmdDraw(commands, 6 * (last - first), 1, 6 * first, 0);
        } else {
            area = {{0, static_cast<int32_t>(first)}, {options.width, last - first}};
            vkCmdSetScissor(commands, 0, 1, &area);
            vkCmdDraw(commands, 3, 1, 0, 0);
        }
    }
    vkCmdEndRenderPass(commands);
}

Status FrameSlot::record_frame(const RenderOptions& options, const PushConstants& push) {
    // Bottom of pipe at both ends: the first timestamp is then the end of the frame before, not the moment of queueing.
    const VkCommandBuffer commands = draw_.buffer;
    if (timestamps_.get()) {
        vkCmdResetQueryPool(commands, timestamps_.get(), 0, 2);
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, timestamps_.get(), 0);
    }
    record_draws(options, push);
    if (timestamps_.get()) vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, timestamps_.get(), 1);
    return vk_check(vkEndCommandBuffer(commands), "record a frame");
}

Status FrameSlot::record_copy(const RenderOptions& options, RowSet rows) {
    std::vector<VkBufferImageCopy> regions;
    VkBufferImageCopy region = {};
    region.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};
    if (rows.stride == 1) {
        region.imageOffset.y = static_cast<int32_t>(rows.first);
        region.imageExtent = {options.width, options.height - rows.first, 1};
        regions.push_back(region);
    } else {
        region.imageExtent = {options.width, 1, 1};
        for (uint32_t row = rows.first; row < options.height; row += rows.stride) {
            region.imageOffset.y = static_cast<int32_t>(row);
            regions.push_back(region);
            region.bufferOffset += VkDeviceSize{4} * options.width;
        }
    }
    vkCmdCopyImageToBuffer(copy_.buffer, target_.image(), VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, buffer_.get(),
                           static_cast<uint32_t>(regions.size()), regions.data());
    VkMemoryBarrier barrier = {};
    barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    barrier.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
    barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
    vkCmdPipelineBarrier(copy_.buffer, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0,
                         nullptr, 0, nullptr);
    return vk_check(vkEndCommandBuffer(copy_.buffer), "record a copy");
}

Status FrameSlot::submit(const Device& device, const RenderOptions& options, const PushConstants& push, RowSet rows) {
    begun_ = Clock::now();
    rows_ = rows;
    bytes_ = size_t{4} * options.width * rows.count(options.height);
    const VkDevice handle = device.handle();
    const VkFence fence = fence_.get();
    VUDA_BENCH_TRY(vk_check(vkResetFences(handle, 1, &fence), "reset a fence"));
    VUDA_BENCH_TRY(draw_.begin(handle));
    VUDA_BENCH_TRY(record_frame(options, push));
    VUDA_BENCH_TRY(copy_.begin(handle));
    VUDA_BENCH_TRY(record_copy(options, rows));

    const VkSemaphore drawn = drawn_.get();
    VkSubmitInfo draw = {};
    draw.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    draw.commandBufferCount = 1;
    draw.pCommandBuffers = &draw_.buffer;
    draw.signalSemaphoreCount = 1;
    draw.pSignalSemaphores = &drawn;
    VUDA_BENCH_TRY(vk_check(vkQueueSubmit(device.queue(), 1, &draw, VK_NULL_HANDLE), "submit a frame"));
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkSubmitInfo copy = {};
    copy.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    copy.waitSemaphoreCount = 1;
    copy.pWaitSemaphores = &drawn;
    copy.pWaitDstStageMask = &stage;
    copy.commandBufferCount = 1;
    copy.pCommandBuffers = &copy_.buffer;
    VUDA_BENCH_TRY(vk_check(vkQueueSubmit(device.copy_queue(), 1, &copy, fence), "submit a copy"));
    pending_ = true;
    return {};
}

Result<bool> FrameSlot::wait(const Device& device, Clock::duration timeout) {
    const VkFence fence = fence_.get();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
    const VkResult result =
        vkWaitForFences(device.handle(), 1, &fence, VK_TRUE, ns > 0 ? static_cast<uint64_t>(ns) : 0);
    if (result == VK_TIMEOUT) return false;
    VUDA_BENCH_TRY(vk_check(result, "wait for a frame"));
    pending_ = false;
    return true;
}

Result<std::optional<double>> FrameSlot::gpu_ms(const Device& device) const {
    if (!timestamps_.get()) return std::optional<double>();
    uint64_t ticks[2] = {};
    const VkResult result = vkGetQueryPoolResults(device.handle(), timestamps_.get(), 0, 2, sizeof ticks, ticks,
                                                  sizeof ticks[0], VK_QUERY_RESULT_64_BIT);
    VUDA_BENCH_TRY(vk_check(result, "read a frame's timestamps"));
    if (result == VK_NOT_READY) return std::optional<double>();
    const uint64_t passed = (ticks[1] - ticks[0]) & device.info().timestamp_mask;
    return std::optional<double>(static_cast<double>(passed) * device.info().ns_per_tick * 1e-6);
}

}  // namespace vuda::bench
