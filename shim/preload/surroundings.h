// What around a process keeps its CUDA work out of a renderer's TSG, as far as the resource manager's calls do not
// tell: who debugs it, what its environment asks CUDA for, and MPS.
#pragma once

#include "shim/preload/reason.h"

namespace vuda::shim {

struct Surroundings {
    const char* proc = "/proc";
    const char* mps = "/tmp/nvidia-mps";  // where CUDA looks for MPS unless CUDA_MPS_PIPE_DIRECTORY says otherwise
};

// The first reason that holds:
//   kDebugger   a process named cuda-gdb... traces this one. Other tracers (gdb, strace) stop its threads and not the
//               GPU. One that attaches later goes unseen.
//   kCoreDumps  an environment variable asks CUDA for GPU core dumps
//               (https://docs.nvidia.com/cuda/cuda-gdb/, "GPU core dump support"): then CUDA debugs itself.
//   kMps        somebody listens on the MPS control daemon's socket, as which CUDA would find it
//               (https://docs.nvidia.com/deploy/mps/). It is connected to and left, which is a line in the daemon's
//               log.
// Keeps errno. Some system calls; no memory is allocated.
Refusal unfit_surroundings(const Surroundings& around = {});

// Whether CUDA makes this process a client of MPS (kMps). Its channels are then its server's, so that nothing which is
// followed comes by. Likewise.
bool client_of_mps(const Surroundings& around = {});

}  // namespace vuda::shim
