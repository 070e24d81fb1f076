// Which of a renderer's mappings are control buffers: memory that the GPU may read or write on behalf of any channel of
// the renderer's TSG, at the renderer's addresses, in whatever address space that channel has. CUDA's must hold them.
#pragma once

#include <cstdint>

namespace vuda::shim {

// The lowest address that CUDA uses itself. Source: measured on GH100 with CUDA 13.0.
inline constexpr uint64_t kCudaLowest = 0x2'0000'0000;

// A mapping is one when all of this holds:
//   * the client that owns the TSG made it. Other clients of the process have other work;
//   * it lies in the address space that the TSG's channels run in. Others the GPU does not reach from there;
//   * it lies below `limit`. NVIDIA's Vulkan driver reserves the addresses of what its channels need (rings, USERD,
//     state, scratch) from 64 MiB upwards, which it names to RM as the lower bound (the upper one is 896 GiB - 1), and
//     what the program allocates elsewhere. Source: ioctl traces of driver 580.159.04 (tests/data/traces).
// All of these are mirrored. Which of them a given kernel makes the GPU read depends on graphics state that nobody
// documents, one that is missing ends the TSG, and all of them together are 43 MiB that exist anyway.
struct MirrorRule {
    uint64_t limit = uint64_t{1} << 32;

    bool covers(bool of_the_tsgs_client, bool in_its_address_space, uint64_t va) const {
        return of_the_tsgs_client && in_its_address_space && va < limit;
    }
};
static_assert(MirrorRule{}.limit <= kCudaLowest, "nothing of the renderer's may lie where CUDA's own memory is");

}  // namespace vuda::shim
