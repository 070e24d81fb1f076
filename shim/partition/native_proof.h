// Proves, with a kernel of our own, that a kernel of the program's context can run in ours: that CUDA's callbacks name
// its arguments, that it sees the program's variables, and that it runs at its place.
//
// The kernel copies a __device__ and a __constant__ variable of its code, withheld in the program's context and run in
// ours, between two writes to where it copies to. Both contexts have such variables, with other values.
#pragma once

#include "shim/partition/native_side.h"

namespace vuda::partition {

class NativeProof {
 public:
    // With the side's lock held, and its context made.
    explicit NativeProof(NativeSide& side) : side_(side), cuda_(side.cuda_) {}

    // A library's kernel: without that nothing goes. FAILED_PRECONDITION with the reason.
    Status prove(CuContext context);
    // A module's function, which runs as the kernel that NativeModules finds for it. The library's is proved already.
    Status prove_modules(CuContext context);

 private:
    Status prove_with(CuContext context, CuFunction kernel, CuDevicePtr device, CuDevicePtr constant);

    NativeSide& side_;
    const CudaDriver& cuda_;
};

}  // namespace vuda::partition
