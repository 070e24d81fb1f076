// One kernel's launch, as the program asked CUDA for it: what it takes to ask for the same again on another stream.
#pragma once

#include <array>
#include <optional>

#include "shim/partition/cuda_driver.h"

namespace vuda::partition {

struct LaunchCall {
    static constexpr unsigned kAttributes = 16;

    CuFunction function = nullptr;
    unsigned grid[3] = {};
    unsigned block[3] = {};
    unsigned shared_bytes = 0;
    // 0 and 1: the legacy default stream of the current context; 2: the thread's default stream.
    CuStream stream = nullptr;
    void** parameters = nullptr;  // as the caller gave them: good until its call returns
    void** extra = nullptr;
    std::array<CuLaunchAttribute, kAttributes> attributes{};
    unsigned attribute_count = 0;

    // For launch_config(). Points into this object.
    CuLaunchConfig config_on(CuStream where);
};

// `function`: number in CUPTI's cupti_driver_cbid.h; `parameters`: address of CUDA's block of that call's arguments,
// which is not trusted. nullopt: it launches something else than one kernel, or says something about the launch that
// does not carry over: events of the program that it sets off, or a kind of attribute that is not known.
std::optional<LaunchCall> read_launch_call(int function, const void* parameters);

}  // namespace vuda::partition
