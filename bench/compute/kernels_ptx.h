#pragma once

namespace vuda::bench {

extern const char kKernelsPtx[];  // kernels.ptx, terminated

}  // namespace vuda::bench
