// Proves, with a kernel of our own on a stream of our own, that what the launch hook is about to write into is a launch
// descriptor and that its mask does what we think. No launch of the program is touched before this has passed.
#pragma once

#include "base/result.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_hook.h"
#include "shim/partition/mask_map.h"
#include "shim/partition/rm_topology.h"

namespace vuda::partition {

struct Proof {
    const QmdLayout* layout = nullptr;
    MaskMap map;
    bool waits = false;      // CUDA told of both ends of the probe's own wait, too
    bool arguments = false;  // CUDA's callbacks named the arguments of the probe's own launches
    bool refuses = false;    // a launch can be kept from running, and its call says so
};

// Makes `context` current on this thread while it runs, which is until all TPCs have been seen with and without their
// bit set: about 15 launches of some ten microseconds on an idle GPU. It asks:
//   - does CUDA call back on this thread, with the parameters of its version and with this context in them?
//   - has the memory that they name the version, the grid and the block of the kernel that was launched, and no mask
//   that we did not expect?
//   - with half of the TPCs masked, sixteen different halves or so, does no block run on an SM of a masked TPC, and
//   does each other TPC get some?
//   - does a launch that is made one without blocks do nothing, return the error that it was given, and leave the
//   stream in order? (If not, kernels that do not fit cannot be refused; splits work all the same.)
// UNAVAILABLE: CUDA refused a call in this context. Any other error is a reason to leave launches alone for good.
Result<Proof> self_check(const CudaDriver& cuda, LaunchHook& hook, const GpuLayout& layout, CuContext context);

}  // namespace vuda::partition
