#include "bench/render/target.h"

#include <span>

#include "bench/common/try.h"
#include "bench/render/expected.h"
#include "bench/render/vk_check.h"

namespace vuda::bench {
namespace {

constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;

// SPIR-V, compiled at build time.
constexpr uint32_t kFragmentVert[] = {
#include "fragment.vert.inc"
};
constexpr uint32_t kFragmentFrag[] = {
#include "fragment.frag.inc"
};
constexpr uint32_t kVertexVert[] = {
#include "vertex.vert.inc"
};
constexpr uint32_t kVertexFrag[] = {
#include "vertex.frag.inc"
};

Result<VkShaderModuleOwner> load_shader(VkDevice device, std::span<const uint32_t> code) {
    VkShaderModuleCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    create.codeSize = code.size_bytes();
    create.pCode = code.data();
    VkShaderModuleOwner module;
    VUDA_BENCH_TRY(vk_check(vkCreateShaderModule(device, &create, nullptr, module.put(device)), "load a shader"));
    return module;
}

}  // namespace

Result<Target> Target::create(const Device& device, const RenderOptions& options) {
    Target target;
    VUDA_BENCH_TRY(target.create_image(device, options));
    VUDA_BENCH_TRY(target.create_render_pass(device, options));
    VUDA_BENCH_TRY(target.create_pipeline(device, options));
    return target;
}

Status Target::create_image(const Device& device, const RenderOptions& options) {
    VkImageCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    create.imageType = VK_IMAGE_TYPE_2D;
    create.format = kFormat;
    create.extent = {options.width, options.height, 1};
    create.mipLevels = 1;
    create.arrayLayers = 1;
    create.samples = VK_SAMPLE_COUNT_1_BIT;
    create.usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
    const uint32_t families[] = {device.queue_family(), device.copy_family()};
    if (families[0] != families[1]) {
        create.sharingMode = VK_SHARING_MODE_CONCURRENT;
        create.queueFamilyIndexCount = 2;
        create.pQueueFamilyIndices = families;
    }
    const VkDevice handle = device.handle();
    VUDA_BENCH_TRY(vk_check(vkCreateImage(handle, &create, nullptr, image_.put(handle)), "create the render target"));

    VkMemoryRequirements requirements;
    vkGetImageMemoryRequirements(handle, image_.get(), &requirements);
    auto memory = device.allocate(requirements, 0, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    VUDA_BENCH_TRY(memory);
    memory_ = *std::move(memory);
    VUDA_BENCH_TRY(vk_check(vkBindImageMemory(handle, image_.get(), memory_.get(), 0), "bind the render target"));

    VkImageViewCreateInfo view = {};
    view.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO;
    view.image = image_.get();
    view.viewType = VK_IMAGE_VIEW_TYPE_2D;
    view.format = kFormat;
    view.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    return vk_check(vkCreateImageView(handle, &view, nullptr, view_.put(handle)), "create the render target's view");
}

Status Target::create_render_pass(const Device& device, const RenderOptions& options) {
    VkAttachmentDescription color = {};
    color.format = kFormat;
    color.samples = VK_SAMPLE_COUNT_1_BIT;
    color.loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR;
    color.storeOp = VK_ATTACHMENT_STORE_OP_STORE;
    color.stencilLoadOp = VK_ATTACHMENT_LOAD_OP_DONT_CARE;
    color.stencilStoreOp = VK_ATTACHMENT_STORE_OP_DONT_CARE;
    color.initialLayout = VK_IMAGE_LAYOUT_UNDEFINED;
    color.finalLayout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
    const VkAttachmentReference reference = {0, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
    VkSubpassDescription subpass = {};
    subpass.pipelineBindPoint = VK_PIPELINE_BIND_POINT_GRAPHICS;
    subpass.colorAttachmentCount = 1;
    subpass.pColorAttachments = &reference;
    // The last frame's copy of this image ended before its fence, on which the next one waited. The copy of this one
    // waits for a semaphore; the second dependency puts the change of layout before that.
    VkSubpassDependency dependencies[2] = {};
    dependencies[0].srcSubpass = VK_SUBPASS_EXTERNAL;
    dependencies[0].dstSubpass = 0;
    dependencies[0].srcStageMask = VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT;
    dependencies[0].dstStageMask = VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT;
    dependencies[0].srcAccessMask = VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT;
    dependencies[0].dstAccessMask = VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT;
    dependencies[1].srcSubpass = 0;
    dependencies[1].dstSubpass = VK_SUBPASS_EXTERNAL;
    dependencies[1].srcStageMask = VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT;
    dependencies[1].dstStageMask = VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT;
    dependencies[1].srcAccessMask = VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT;
    dependencies[1].dstAccessMask = 0;
    VkRenderPassCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO;
    create.attachmentCount = 1;
    create.pAttachments = &color;
    create.subpassCount = 1;
    create.pSubpasses = &subpass;
    create.dependencyCount = 2;
    create.pDependencies = dependencies;
    const VkDevice handle = device.handle();
    VUDA_BENCH_TRY(
        vk_check(vkCreateRenderPass(handle, &create, nullptr, render_pass_.put(handle)), "create the render pass"));

    const VkImageView view = view_.get();
    VkFramebufferCreateInfo framebuffer = {};
    framebuffer.sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO;
    framebuffer.renderPass = render_pass_.get();
    framebuffer.attachmentCount = 1;
    framebuffer.pAttachments = &view;
    framebuffer.width = options.width;
    framebuffer.height = options.height;
    framebuffer.layers = 1;
    return vk_check(vkCreateFramebuffer(handle, &framebuffer, nullptr, framebuffer_.put(handle)),
                    "create the framebuffer");
}

Status Target::create_pipeline(const Device& device, const RenderOptions& options) {
    const VkDevice handle = device.handle();
    const bool by_vertex = options.load == RenderLoad::kVertex;
    auto vertex = load_shader(handle, by_vertex ? std::span<const uint32_t>(kVertexVert) : kFragmentVert);
    VUDA_BENCH_TRY(vertex);
    auto fragment = load_shader(handle, by_vertex ? std::span<const uint32_t>(kVertexFrag) : kFragmentFrag);
    VUDA_BENCH_TRY(fragment);

    const VkPushConstantRange range = {VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT, 0,
                                       sizeof(PushConstants)};
    VkPipelineLayoutCreateInfo layout = {};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &range;
    VUDA_BENCH_TRY(
        vk_check(vkCreatePipelineLayout(handle, &layout, nullptr, layout_.put(handle)), "create the pipeline layout"));

    VkPipelineShaderStageCreateInfo stages[2] = {};
    for (auto& stage : stages) {
        stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
        stage.pName = "main";
    }
    stages[0].stage = VK_SHADER_STAGE_VERTEX_BIT;
    stages[0].module = vertex->get();
    stages[1].stage = VK_SHADER_STAGE_FRAGMENT_BIT;
    stages[1].module = fragment->get();
    VkPipelineVertexInputStateCreateInfo input = {};
    input.sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO;
    VkPipelineInputAssemblyStateCreateInfo assembly = {};
    assembly.sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO;
    assembly.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST;
    const VkViewport area = {0, 0, static_cast<float>(options.width), static_cast<float>(options.height), 0, 1};
    VkPipelineViewportStateCreateInfo viewport = {};
    viewport.sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO;
    viewport.viewportCount = 1;
    viewport.pViewports = &area;
    viewport.scissorCount = 1;  // dynamic
    VkPipelineRasterizationStateCreateInfo raster = {};
    raster.sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO;
    raster.lineWidth = 1;
    VkPipelineMultisampleStateCreateInfo samples = {};
    samples.sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO;
    samples.rasterizationSamples = VK_SAMPLE_COUNT_1_BIT;
    VkPipelineColorBlendAttachmentState attachment = {};
    attachment.colorWriteMask =
        VK_COLOR_COMPONENT_R_BIT | VK_COLOR_COMPONENT_G_BIT | VK_COLOR_COMPONENT_B_BIT | VK_COLOR_COMPONENT_A_BIT;
    VkPipelineColorBlendStateCreateInfo blend = {};
    blend.sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO;
    blend.attachmentCount = 1;
    blend.pAttachments = &attachment;
    const VkDynamicState scissor = VK_DYNAMIC_STATE_SCISSOR;
    VkPipelineDynamicStateCreateInfo dynamic = {};
    dynamic.sType = VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO;
    dynamic.dynamicStateCount = 1;
    dynamic.pDynamicStates = &scissor;
    VkGraphicsPipelineCreateInfo create = {};
    create.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO;
    create.stageCount = 2;
    create.pStages = stages;
    create.pVertexInputState = &input;
    create.pInputAssemblyState = &assembly;
    create.pViewportState = &viewport;
    create.pRasterizationState = &raster;
    create.pMultisampleState = &samples;
    create.pColorBlendState = &blend;
    create.pDynamicState = &dynamic;
    create.layout = layout_.get();
    create.renderPass = render_pass_.get();
    return vk_check(vkCreateGraphicsPipelines(handle, VK_NULL_HANDLE, 1, &create, nullptr, pipeline_.put(handle)),
                    "create the graphics pipeline");
}

}  // namespace vuda::bench
