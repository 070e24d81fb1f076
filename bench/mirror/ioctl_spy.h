// What NVIDIA's Vulkan driver in this process asks of the resource manager when it maps a control buffer, so that the
// same can be asked again. The program's own ioctl() stands before libc's (and before VUDA's preload, which it calls).
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "rm/abi.h"

namespace vuda::bench {

struct MappingRecipe {
    int fd = -1;                // nvidiactl, as the driver has it open
    rm::VidHeapArgs memory{};   // system memory
    rm::VidHeapArgs address{};  // below 4 GiB, in the TSG's address space
    rm::MapDmaArgs map{};
};

// The last of each kind that succeeded for one client; nullopt until there was one.
std::optional<MappingRecipe> seen_recipe();
// What it means that there was none.
Error no_recipe();

}  // namespace vuda::bench
