#include "shim/partition/native_graph_calls.h"

#include <cstring>

#include "shim/partition/call_arguments.h"

namespace vuda::partition {
namespace {

// cupti_driver_cbid.h
enum : int {
    kInstantiateOld = 513,
    kInstantiateV2 = 578,
    kInstantiateWithFlags = 643,
    kInstantiateWithParams = 656,
    kInstantiateWithParamsPtsz = 657,
    kGraphLaunch = 514,
    kGraphLaunchPtsz = 515,
    kExecDestroy = 516,
    kSetKernelOld = 538,
    kExecUpdateOld = 561,
    kSetCopy = 562,
    kSetMemset = 563,
    kSetHost = 564,
    kGraphUpload = 580,
    kGraphUploadPtsz = 581,
    kSetChild = 586,
    kSetRecordedEvent = 595,
    kSetAwaitedEvent = 596,
    kSetSignals = 624,
    kSetSemaphoreWaits = 625,
    kEnableNode = 650,
    kSetMemoryOperations = 672,
    kSetKernelV2 = 692,
    kExecUpdateV2 = 696,
    kSetNode = 714,
};
// CUgraphNodeType
enum : int { kTypeKernel = 0, kTypeCopy = 1, kTypeSet = 2, kTypeHost = 3 };

constexpr CuResult kCannotRepeat = 801;  // CUDA_ERROR_NOT_SUPPORTED
CuStream const kThreadsStream = reinterpret_cast<CuStream>(uintptr_t{2});

// CUDA_KERNEL_NODE_PARAMS_v1: without the last two.
CuKernelNode old_kernel_at(uint64_t argument) {
    struct Old {
        uint8_t bytes[offsetof(CuKernelNode, kernel)];
    };
    const auto old = value_at<Old>(argument);
    CuKernelNode kernel{};
    std::memcpy(&kernel, old.bytes, sizeof old.bytes);
    return kernel;
}

// Of cuGraphExecNodeSetParams.
void read_node(uint64_t argument, GraphCall& call) {
    call.params = value_at<CuNodeParams>(argument);
    switch (call.params.type) {
        case kTypeKernel:
            call.kind = GraphCall::Kind::kSetKernel;
            call.kernel = call.params.kernel;
            return;
        case kTypeCopy: call.change = GraphCall::Change::kCopy; return;
        case kTypeSet: call.change = GraphCall::Change::kSet; return;
        case kTypeHost:
            call.change = GraphCall::Change::kHost;
            call.host = pointer_in<const char>(argument) + offsetof(CuNodeParams, words);
            return;
        default: return;
    }
}

}  // namespace

GraphCall::Kind kind_of_graph_call(int function) {
    switch (function) {
        case kInstantiateOld:
        case kInstantiateV2:
        case kInstantiateWithFlags:
        case kInstantiateWithParams:
        case kInstantiateWithParamsPtsz: return GraphCall::Kind::kInstantiate;
        case kExecUpdateOld:
        case kExecUpdateV2: return GraphCall::Kind::kUpdate;
        case kSetKernelOld:
        case kSetKernelV2: return GraphCall::Kind::kSetKernel;
        case kSetCopy:
        case kSetMemset:
        case kSetHost:
        case kSetChild:
        case kSetRecordedEvent:
        case kSetAwaitedEvent:
        case kSetSignals:
        case kSetSemaphoreWaits:
        case kEnableNode:
        case kSetMemoryOperations:
        case kSetNode: return GraphCall::Kind::kChange;
        case kExecDestroy: return GraphCall::Kind::kDestroy;
        case kGraphUpload:
        case kGraphUploadPtsz: return GraphCall::Kind::kUpload;
        case kGraphLaunch:
        case kGraphLaunchPtsz: return GraphCall::Kind::kLaunch;
        default: return GraphCall::Kind::kNone;
    }
}

std::optional<GraphCall> read_graph_call(int function, const void* arguments, bool made) {
    GraphCall call;
    call.kind = kind_of_graph_call(function);
    if (call.kind == GraphCall::Kind::kNone) return std::nullopt;
    const auto first = read_arguments<1>(arguments);
    if (!first) return std::nullopt;
    if (call.kind == GraphCall::Kind::kInstantiate) {
        const auto said = read_arguments<2>(arguments);
        if (!said || !made) return std::nullopt;
        call.exec = value_at<CuGraphExec>((*said)[0]);
        call.graph = pointer_in<void>((*said)[1]);
        if (function == kInstantiateOld || function == kInstantiateV2) return call;
        const auto more = read_arguments<3>(arguments);
        if (!more) return std::nullopt;
        // The first word of CUDA_GRAPH_INSTANTIATE_PARAMS.
        call.flags = function == kInstantiateWithFlags ? (*more)[2] : value_at<uint64_t>((*more)[2]);
        return call;
    }
    call.exec = pointer_in<void>((*first)[0]);
    if (call.kind == GraphCall::Kind::kDestroy) return call;
    const auto second = read_arguments<2>(arguments);
    if (!second) return std::nullopt;
    switch (call.kind) {
        case GraphCall::Kind::kUpload:
        case GraphCall::Kind::kLaunch:
            call.stream = pointer_in<void>((*second)[1]);
            if (call.stream == nullptr && (function == kGraphLaunchPtsz || function == kGraphUploadPtsz))
                call.stream = kThreadsStream;
            return call;
        case GraphCall::Kind::kUpdate: call.graph = pointer_in<void>((*second)[1]); return call;
        default: break;
    }
    call.node = pointer_in<void>((*second)[1]);
    const auto third = read_arguments<3>(arguments);
    if (!third) return std::nullopt;
    const uint64_t said = (*third)[2];
    switch (function) {
        case kSetKernelOld: call.kernel = old_kernel_at(said); break;
        case kSetKernelV2: call.kernel = value_at<CuKernelNode>(said); break;
        case kSetCopy:
            call.change = GraphCall::Change::kCopy;
            call.params.copy.copy = value_at<CuCopy3D>(said);
            break;
        case kSetMemset:
            call.change = GraphCall::Change::kSet;
            call.params.set.set = value_at<CuMemset>(said);
            break;
        case kSetHost:
            call.change = GraphCall::Change::kHost;
            call.host = pointer_in<const void>(said);
            break;
        case kEnableNode:
            call.change = GraphCall::Change::kEnable;
            call.on = static_cast<unsigned>(said);
            break;
        case kSetNode: read_node(said, call); break;
        default: break;
    }
    return call;
}

CuResult repeat_change(const CudaDriver& cuda, const GraphCall& call, CuGraphExec exec, CuGraphNode node,
                       CuContext context) {
    switch (call.change) {
        case GraphCall::Change::kCopy: return cuda.exec_set_copy(exec, node, &call.params.copy.copy, context);
        case GraphCall::Change::kSet: return cuda.exec_set_memset(exec, node, &call.params.set.set, context);
        case GraphCall::Change::kHost: return cuda.exec_set_host(exec, node, call.host);
        case GraphCall::Change::kEnable: return cuda.exec_enable_node(exec, node, call.on);
        case GraphCall::Change::kOther: break;
    }
    return kCannotRepeat;
}

}  // namespace vuda::partition
