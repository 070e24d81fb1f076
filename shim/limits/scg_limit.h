// How much shared memory a block may take where it runs beside graphics in one TSG (SCG). Pure.
//
// Bytes as the launch descriptor counts them: static, dynamic, and the 1,024 that CUDA reserves from compute capability
// 8.0 on. A block above the limit does not wait for graphics to be done: it ends the TSG, and with it both programs,
// whether anything is being drawn at that moment or not.
#pragma once

#include <cstdint>

namespace vuda::limits {

struct ScgLimit {
    uint32_t bytes;
    bool measured;        // else: what NVIDIA documents for CUDA in Graphics, or less
    uint32_t beside = 0;  // up to here a block does not wait for the end of a frame; 0: not known
};

// Of a GPU of this compute capability. Never 0: what is not known gets the lowest limit of all.
//   9.0        measured on an H200 (docs/compatibility.md): 48,128 runs beside graphics, 49,152 once a frame is done,
//              50,176 ends both programs. `vuda-probe limit` tries it
//   7.5, 8.x   CUDA programming guide, "CUDA in Graphics": 48 KiB a block
//   10.0 on    the same: 84 KiB, but 48 KiB beside a compute queue of normal priority (TensorRT-RTX documentation,
//              "Simultaneous Compute and Graphics"). How a renderer of Vulkan stands there nobody told or tried, and
//              what is too large ends both programs: the lower one
ScgLimit scg_limit(int major, int minor);

}  // namespace vuda::limits
