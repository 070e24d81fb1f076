// Where CUDA puts what it allocates for itself, launch descriptors among it, in every process: one region that begins
// at the same GPU virtual address, unless something else is there in the process's own address space; then at the next
// free place. Seen with CUDA 13.0, driver 580.159.04, on an H200: 0x2_0000_0000 to 0x3_0020_0000, and behind what was
// reserved there before CUDA came.
#pragma once

#include <cstdint>

namespace vuda::rm {

inline constexpr uint64_t kUsualVaBase = 0x2'0000'0000;
// More than the region's size: regions this far apart have no address in common.
inline constexpr uint64_t kVaStride = uint64_t{8} << 30;
// All below 2^40, where CUDA has other things.
inline constexpr uint32_t kVaSlots = 32;

}  // namespace vuda::rm
