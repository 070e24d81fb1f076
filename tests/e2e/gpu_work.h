// One frame, and one kernel that looks at the renderer's control buffers.
#pragma once

#include <cstdint>
#include <cstring>

#include "sim/standin/compute.h"
#include "sim/standin/renderer.h"

namespace vuda::e2e {

inline uint32_t submit_frame(sim::standin::Renderer& renderer) {
    sim::work::Draw draw{};
    draw.vertex_ns = 20'000;
    draw.fragment_ns = 1'000'000;
    uint32_t words[1 + sizeof draw / 4] = {1};
    std::memcpy(words + 1, &draw, sizeof draw);
    renderer.queue().block(0, sim::work::kSimFrame, words, sizeof words);
    return renderer.queue().submit();
}

inline uint32_t submit_kernel(sim::standin::Compute& compute) {
    sim::work::Launch launch{};
    launch.blocks_per_sm = 1;
    launch.blocks = 2 * compute.sm_count();
    launch.block_ns = 100'000;
    launch.shared_memory = 1024;
    launch.flags = sim::work::kLaunchControlState | sim::work::kLaunchLocalMemory;
    compute.queue(0).block(1, sim::work::kSimLaunch, &launch, sizeof launch);
    return compute.queue(0).submit();
}

}  // namespace vuda::e2e
