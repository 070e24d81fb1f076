// Proves, with a graph of our own, that a graph of the program's can run on the native side: that a call can be
// skipped and returns what it is told to, that the twin's kernel sees the program's variables, and that it runs at its
// place. The graph's kernel is the one of native_proof.h.
#pragma once

#include "shim/partition/native_graphs.h"

namespace vuda::partition {

class NativeGraphProof {
 public:
    NativeGraphProof(const CudaDriver& cuda, NativeSide& side, NativeGraphs& graphs)
        : cuda_(cuda), side_(side), graphs_(graphs) {}
    // With the lock of `graphs` held, on an errand, and the side's context made.
    Status prove(CuContext context);

 private:
    struct Own;
    Status prove_with(CuContext context, Own& own);
    Status prove_skip(Own& own);

    const CudaDriver& cuda_;
    NativeSide& side_;
    NativeGraphs& graphs_;
};

}  // namespace vuda::partition
