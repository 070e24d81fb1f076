#include "shim/partition/native_twin.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace vuda::partition {
namespace {

// CUgraphNodeType
enum : int { kTwinKernel = 0, kTwinCopy = 1, kTwinSet = 2, kTwinHost = 3, kTwinChild = 4, kTwinEmpty = 5 };
// CUfunction_attribute
constexpr int kStaticShared = 1;
// Of a block, from compute capability 8.0 on (CUDA C++ Programming Guide, "Shared Memory").
constexpr uint32_t kReservedShared = 1024;
constexpr uint32_t kSharedAlign = 128;
constexpr unsigned kDeviceUpdatable = 13;  // CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
constexpr size_t kMaxArguments = 4096;     // a kernel has 32,764 bytes of them at most
// CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE
void* const kEnd = nullptr;
void* const kBufferPointer = reinterpret_cast<void*>(uintptr_t{1});
void* const kBufferSize = reinterpret_cast<void*>(uintptr_t{2});
constexpr int kDeepestTwin = 16;  // graphs in graphs

Error of_graph(const std::string& what, CuResult result) {
    return Error{Code::kUnimplemented, what + (result == 0 ? "" : " (CUDA error " + std::to_string(result) + ")"), ""};
}

Result<std::vector<CuGraphNode>> nodes_of(const CudaDriver& cuda, CuGraph graph) {
    size_t count = 0;
    CuResult r = cuda.graph_get_nodes(graph, nullptr, &count);
    std::vector<CuGraphNode> nodes(count);
    if (r == 0 && count != 0) r = cuda.graph_get_nodes(graph, nodes.data(), &count);
    if (r != 0 || count != nodes.size()) return of_graph("CUDA does not tell what a graph is made of", r);
    return nodes;
}

// `visit` gets each node and its type, also those of graphs in the graph, but not the nodes that hold those.
template <typename Visit>
Status for_each_node(const CudaDriver& cuda, CuGraph graph, const Visit& visit, int depth = 0) {
    if (depth > kDeepestTwin) return of_graph("a graph has too many graphs in each other", 0);
    const auto nodes = nodes_of(cuda, graph);
    if (!nodes) return nodes.error();
    for (const CuGraphNode node : *nodes) {
        int type = -1;
        CuGraph child = nullptr;
        CuResult r = cuda.graph_node_type(node, &type);
        if (r == 0 && type == kTwinChild) r = cuda.graph_of_child(node, &child);
        if (r != 0) return of_graph("CUDA does not tell what a graph's node is", r);
        Status visited = child == nullptr ? visit(node, type) : for_each_node(cuda, child, visit, depth + 1);
        if (!visited) return visited;
    }
    return {};
}

Status can_move(const CudaDriver& cuda, CuGraphNode node, int type) {
    if (type == kTwinCopy || type == kTwinSet || type == kTwinHost || type == kTwinEmpty) return {};
    if (type != kTwinKernel) {
        return of_graph(
            "a graph with a kernel over the limit has nodes other than kernels, copies, memsets and functions", 0);
    }
    uint64_t attribute[8] = {};  // CUlaunchAttributeValue
    if (cuda.kernel_node_attribute(node, kDeviceUpdatable, attribute) == 0 && static_cast<uint32_t>(attribute[0]) != 0)
        return of_graph("a graph with a kernel over the limit has nodes that kernels change", 0);
    return {};
}

Status move_node(const CudaDriver& cuda, CuGraphNode node, int type, CuContext own, const FindKernel& find) {
    CuResult r = 0;
    if (type == kTwinKernel) {
        Result<KernelNode> kernel = KernelNode::read(cuda, node);
        if (!kernel) return kernel.error();
        const Result<CuKernel> found = find(*kernel);
        if (!found) return found.error();
        const CuKernelNode moved = kernel->as(*found, own);
        r = cuda.kernel_node_set(node, &moved);
    } else if (type == kTwinCopy || type == kTwinSet) {
        CuNodeParams moved;
        std::memset(&moved, 0, sizeof moved);
        moved.type = type;
        if (type == kTwinCopy) {
            r = cuda.copy_node_get(node, &moved.copy.copy);
            moved.copy.context = own;
        } else {
            r = cuda.set_node_get(node, &moved.set.set);
            moved.set.context = own;
        }
        if (r == 0) r = cuda.graph_node_set(node, &moved);
    }
    if (r != 0) return of_graph("CUDA does not move a graph's node into another context", r);
    return {};
}

}  // namespace

Result<KernelNode> KernelNode::read(const CudaDriver& cuda, CuGraphNode node) {
    CuKernelNode read{};
    if (const CuResult r = cuda.kernel_node_get(node, &read); r != 0)
        return of_graph("CUDA does not tell which kernel a graph has", r);
    return copy(cuda, read);
}

Result<KernelNode> KernelNode::copy(const CudaDriver& cuda, const CuKernelNode& given) {
    KernelNode own;
    own.node_ = given;
    if (own.handle() == nullptr) return of_graph("CUDA does not tell which kernel a graph has", 0);
    if (Status copied = own.copy_arguments(cuda); !copied) return copied.error();
    return own;
}

Status KernelNode::copy_arguments(const CudaDriver& cuda) {
    if (node_.extra != nullptr && node_.parameters == nullptr) {
        const void* from = nullptr;
        for (void** at = node_.extra; *at != kEnd; at += 2) {
            if (at[0] == kBufferPointer) {
                from = at[1];
            } else if (at[0] == kBufferSize) {
                buffer_bytes_ = *static_cast<const size_t*>(at[1]);
            } else {
                return of_graph("a graph's kernel has arguments of a kind that is not known", 0);
            }
        }
        if (from == nullptr || buffer_bytes_ > kMaxArguments * 8)
            return of_graph("a graph's kernel has arguments of a kind that is not known", 0);
        const auto* bytes = static_cast<const uint8_t*>(from);
        buffer_.assign(bytes, bytes + buffer_bytes_);
        return {};
    }
    for (size_t i = 0; i < kMaxArguments; ++i) {
        size_t offset = 0, bytes = 0;
        const CuResult r = node_.function != nullptr ? cuda.function_parameter(node_.function, i, &offset, &bytes)
                                                     : cuda.kernel_parameter(node_.kernel, i, &offset, &bytes);
        if (r == 1) return {};  // CUDA_ERROR_INVALID_VALUE: there are no more
        if (r != 0 || node_.parameters == nullptr)
            return of_graph("CUDA does not tell what a graph's kernel has for arguments", r);
        const auto* from = static_cast<const uint8_t*>(node_.parameters[i]);
        arguments_.emplace_back(from, from + bytes);
    }
    return of_graph("a graph's kernel has too many arguments", 0);
}

CuKernelNode KernelNode::as(CuKernel kernel, CuContext context) {
    CuKernelNode other = node_;
    other.function = nullptr;
    other.kernel = kernel;
    other.context = context;
    const LaunchCall own = call();
    other.parameters = own.parameters;
    other.extra = own.extra;
    return other;
}

LaunchCall KernelNode::call() {
    LaunchCall own;
    own.function = handle();
    std::copy(std::begin(node_.grid), std::end(node_.grid), own.grid);
    std::copy(std::begin(node_.block), std::end(node_.block), own.block);
    own.shared_bytes = node_.shared_bytes;
    if (node_.extra != nullptr && node_.parameters == nullptr) {
        extra_[0] = kBufferPointer;
        extra_[1] = buffer_.data();
        extra_[2] = kBufferSize;
        extra_[3] = &buffer_bytes_;
        extra_[4] = kEnd;
        own.extra = extra_;
        return own;
    }
    pointers_.clear();
    for (auto& argument : arguments_) pointers_.push_back(argument.data());
    own.parameters = pointers_.empty() ? nullptr : pointers_.data();
    return own;
}

Result<uint32_t> shared_bytes_of(const CudaDriver& cuda, const CuKernelNode& node, int device) {
    int fixed = 0;
    const CuResult r = node.function != nullptr ? cuda.function_get_attribute(&fixed, kStaticShared, node.function)
                                                : cuda.kernel_get_attribute(&fixed, kStaticShared, node.kernel, device);
    if (r != 0 || fixed < 0) return of_graph("CUDA does not tell how much shared memory a kernel has", r);
    // Where dynamic memory begins after the static is CUDA's affair.
    const uint32_t aligned = (static_cast<uint32_t>(fixed) + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
    return aligned + node.shared_bytes + kReservedShared;
}

Result<GraphLook> look_at(const CudaDriver& cuda, CuGraph graph, uint32_t limit, int device) {
    GraphLook look;
    Status seen = for_each_node(cuda, graph, [&](CuGraphNode node, int type) -> Status {
        if (type != kTwinKernel) return {};
        CuKernelNode kernel{};
        if (const CuResult r = cuda.kernel_node_get(node, &kernel); r != 0)
            return of_graph("CUDA does not tell which kernel a graph has", r);
        const auto shared = shared_bytes_of(cuda, kernel, device);
        if (!shared) return shared.error();
        look.shared_bytes = std::max(look.shared_bytes, *shared);
        return {};
    });
    if (seen && look.shared_bytes > limit) {
        const Status can =
            for_each_node(cuda, graph, [&](CuGraphNode node, int type) { return can_move(cuda, node, type); });
        if (!can) look.cannot = can.error();
    }
    if (!seen) return seen.error();
    return look;
}

Status move_nodes(const CudaDriver& cuda, CuGraph clone, CuContext own, const FindKernel& find) {
    return for_each_node(cuda, clone,
                         [&](CuGraphNode node, int type) -> Status { return move_node(cuda, node, type, own, find); });
}

}  // namespace vuda::partition
