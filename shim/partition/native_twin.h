// A graph of the program's, once more, with every node in our context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_call.h"

namespace vuda::partition {

// A kernel node's parameters with copies of its arguments, which outlive the node's own.
class KernelNode {
 public:
    // The node as it is. UNIMPLEMENTED: CUDA does not tell enough of it.
    static Result<KernelNode> read(const CudaDriver& cuda, CuGraphNode node);
    // As a program gave them to a call.
    static Result<KernelNode> copy(const CudaDriver& cuda, const CuKernelNode& given);
    // A handle that launches it in the program's context.
    CuFunction handle() const { return node_.function != nullptr ? node_.function : node_.kernel; }
    const CuKernelNode& as_given() const { return node_; }
    // For kernel_node_set(): `kernel` in `context`, with the copies; good as long as this object.
    CuKernelNode as(CuKernel kernel, CuContext context);
    LaunchCall call();

 private:
    Status copy_arguments(const CudaDriver& cuda);
    CuKernelNode node_{};
    std::vector<std::vector<uint8_t>> arguments_;
    std::vector<void*> pointers_;
    std::vector<uint8_t> buffer_;  // of `extra`
    size_t buffer_bytes_ = 0;
    void* extra_[5] = {};
};

// What a node's kernel takes for a block, bytes: static, dynamic, and what CUDA keeps for itself. `device` is its GPU.
Result<uint32_t> shared_bytes_of(const CudaDriver& cuda, const CuKernelNode& node, int device);

// What a graph is made of, with all graphs in it.
struct GraphLook {
    uint32_t shared_bytes = 0;    // of the kernel that wants most
    std::optional<Error> cannot;  // why it cannot run in another context; nullopt: it can, or it fits
};
// `limit`: bytes of shared memory a block that may share.
Result<GraphLook> look_at(const CudaDriver& cuda, CuGraph graph, uint32_t limit, int device);

// Moves every node of `clone`, a copy of the program's graph, into `own`. `find` says which kernel a node's function
// is, and learns what it needs to know of it.
using FindKernel = std::function<Result<CuKernel>(KernelNode& node)>;
Status move_nodes(const CudaDriver& cuda, CuGraph clone, CuContext own, const FindKernel& find);

}  // namespace vuda::partition
