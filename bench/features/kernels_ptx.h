#pragma once

namespace vuda::bench::features {

extern const char kKernelsPtx[];      // kernels.ptx, terminated
extern const char kKernelsSm90Ptx[];  // kernels_sm90.ptx, terminated

}  // namespace vuda::bench::features
