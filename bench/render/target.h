// The image that a frame is drawn to, and the pipeline that draws it.
#pragma once

#include <vulkan/vulkan.h>

#include "base/result.h"
#include "bench/render/device.h"
#include "bench/render/options.h"
#include "bench/render/vk_handle.h"

namespace vuda::bench {

class Target {
 public:
    static Result<Target> create(const Device& device, const RenderOptions& options);

    VkImage image() const { return image_.get(); }
    VkRenderPass render_pass() const { return render_pass_.get(); }
    VkFramebuffer framebuffer() const { return framebuffer_.get(); }
    VkPipeline pipeline() const { return pipeline_.get(); }
    VkPipelineLayout layout() const { return layout_.get(); }

 private:
    Status create_image(const Device& device, const RenderOptions& options);
    Status create_render_pass(const Device& device, const RenderOptions& options);
    Status create_pipeline(const Device& device, const RenderOptions& options);

    VkMemoryOwner memory_;
    VkImageOwner image_;
    VkImageViewOwner view_;
    VkRenderPassOwner render_pass_;
    VkFramebufferOwner framebuffer_;
    VkPipelineLayoutOwner layout_;
    VkPipelineOwner pipeline_;
};

}  // namespace vuda::bench
