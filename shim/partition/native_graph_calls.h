// Calls of the driver that make, change, launch and destroy executable graphs, as CUDA's callbacks tell of them.
#pragma once

#include <optional>

#include "shim/partition/cuda_driver.h"

namespace vuda::partition {

struct GraphCall {
    enum class Kind : uint8_t {
        kNone,
        kInstantiate,
        kUpdate,     // from a whole graph
        kSetKernel,  // of one node
        kChange,     // something else of one node
        kDestroy,
        kUpload,
        kLaunch,
    };
    enum class Change : uint8_t { kOther, kCopy, kSet, kHost, kEnable };

    Kind kind = Kind::kNone;
    Change change = Change::kOther;
    CuGraphExec exec = nullptr;  // that was made, where the call makes one
    CuGraph graph = nullptr;
    CuGraphNode node = nullptr;
    CuStream stream = nullptr;  // 2: the thread's default stream
    unsigned long long flags = 0;
    CuKernelNode kernel{};
    CuNodeParams params{};       // kCopy, kSet
    const void* host = nullptr;  // kHost: as the call had it
    unsigned on = 0;             // kEnable
};

// By the function's number in cupti_driver_cbid.h.
GraphCall::Kind kind_of_graph_call(int function);
// nullopt: it is none of these, or cannot be read. `made`: the call is over, and what it was to make is made.
std::optional<GraphCall> read_graph_call(int function, const void* arguments, bool made);
// Does a kChange again, to `node` of `exec` in `context`, which is current. CUDA_ERROR_NOT_SUPPORTED: not that one.
CuResult repeat_change(const CudaDriver& cuda, const GraphCall& call, CuGraphExec exec, CuGraphNode node,
                       CuContext context);

}  // namespace vuda::partition
