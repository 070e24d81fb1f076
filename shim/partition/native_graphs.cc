#include "shim/partition/native_graphs.h"

#include <string>

#include "shim/partition/native_graph_calls.h"
#include "shim/partition/native_graph_proof.h"
#include "shim/partition/native_scope.h"

namespace vuda::partition {
namespace {

constexpr unsigned long long kUploads = 2;         // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
constexpr unsigned long long kDeviceLaunched = 4;  // CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH

Error no_twin(const std::string& what, CuResult result) {
    return Error{Code::kUnimplemented, what + (result == 0 ? "" : " (CUDA error " + std::to_string(result) + ")"), ""};
}

}  // namespace

bool NativeGraphs::is_of_graphs(int function) { return kind_of_graph_call(function) != GraphCall::Kind::kNone; }

void NativeGraphs::on_entered(int function, const void* arguments) {
    const std::optional<GraphCall> call = read_graph_call(function, arguments, false);
    if (!call || call->kind != GraphCall::Kind::kDestroy) return;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    const auto found = twins_.find(call->exec);
    if (found == twins_.end()) return;
    destroy(found->second);
    twins_.erase(found);
    any_.store(!twins_.empty(), std::memory_order_release);
}

std::optional<Status> NativeGraphs::on_left(int function, const void* arguments, CuContext context, uint32_t limit) {
    const std::optional<GraphCall> call = read_graph_call(function, arguments, true);
    if (!call || call->exec == nullptr || limit == 0 || !cuda_.has_graphs()) return std::nullopt;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const RelaxedCapture relaxed(cuda_);
    const std::lock_guard lock(mutex_);
    std::optional<Status> became;
    Where where{context, 0, limit};
    if (cuda_.ctx_get_device(&where.device) != 0) return std::nullopt;
    switch (call->kind) {
        case GraphCall::Kind::kInstantiate: became = instantiated(*call, where); break;
        case GraphCall::Kind::kUpdate: became = updated(*call, where); break;
        case GraphCall::Kind::kSetKernel: became = kernel_changed(*call, where); break;
        case GraphCall::Kind::kChange: became = changed(*call); break;
        default: break;
    }
    any_.store(!twins_.empty(), std::memory_order_release);
    return became;
}

std::optional<Status> NativeGraphs::on_launch(int function, const void* arguments, CuContext context) {
    const std::optional<GraphCall> call = read_graph_call(function, arguments, true);
    if (!call || (call->kind != GraphCall::Kind::kLaunch && call->kind != GraphCall::Kind::kUpload))
        return std::nullopt;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    const auto found = twins_.find(call->exec);
    if (found == twins_.end()) return std::nullopt;
    if (found->second.refused) return Status{*found->second.refused};
    int capturing = 0;
    // In a capture it becomes a node of another graph, whose kernels are looked at when that is instantiated.
    if (cuda_.stream_is_capturing(call->stream, &capturing) != 0 || capturing != 0) return std::nullopt;
    if (call->kind == GraphCall::Kind::kUpload) return Status{};
    CuContext of_stream = nullptr;
    if (cuda_.stream_get_context(call->stream, &of_stream) != 0 || of_stream == nullptr) of_stream = context;
    return launch(found->second, call->stream, of_stream);
}

BankMap& NativeGraphs::banks_of(CuContext context) {
    if (outdated_.exchange(false, std::memory_order_acq_rel)) {
        for (auto& [home, banks] : banks_) banks.outdate();
    }
    return banks_[context];
}

std::optional<Error> NativeGraphs::why_not(int function, const void* arguments) {
    const std::optional<GraphCall> call = read_graph_call(function, arguments, true);
    if (!call) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto found = twins_.find(call->exec);
    return found == twins_.end() ? std::nullopt : found->second.refused;
}

std::optional<Status> NativeGraphs::instantiated(const GraphCall& call, const Where& where) {
    // CUDA gives the address of one that is gone to another.
    if (const auto before = twins_.find(call.exec); before != twins_.end()) {
        destroy(before->second);
        twins_.erase(before);
    }
    const Result<GraphLook> look = look_at(cuda_, call.graph, where.limit, where.device);
    if (!look || look->shared_bytes <= where.limit) return std::nullopt;
    Twin& twin = twins_[call.exec];
    if (look->cannot) return refuse(twin, *look->cannot);
    if ((call.flags & kDeviceLaunched) != 0)
        return refuse(twin, no_twin("a graph with a kernel over the limit is launched by kernels", 0));
    Result<Twin> made = make(call.graph, call.flags & ~kUploads, where.context);
    if (!made) return refuse(twin, made.error());
    twin = *std::move(made);
    return Status{};
}

std::optional<Status> NativeGraphs::updated(const GraphCall& call, const Where& where) {
    const auto found = twins_.find(call.exec);
    if (found == twins_.end() || found->second.refused) return instantiated(call, where);
    Twin& twin = found->second;
    GraphCall again = call;
    again.flags = twin.flags;
    const Result<GraphLook> look = look_at(cuda_, call.graph, 0, where.device);
    if (!look) return refuse(twin, look.error());
    if (look->cannot) return refuse(twin, *look->cannot);
    Learned learned;
    const Result<CuGraph> clone = moved_clone(call.graph, twin.home, learned);
    if (!clone) return refuse(twin, clone.error());
    uint64_t result_info[3] = {};  // CUgraphExecUpdateResultInfo
    CuResult r = 0;
    {
        const CurrentContext current(cuda_, side_.own());
        r = current.result() != 0 ? current.result() : cuda_.exec_update(twin.exec, *clone, result_info);
    }
    cuda_.graph_destroy(*clone);
    // What the program's can follow, ours need not.
    return r == 0 ? Status{} : instantiated(again, where);
}

std::optional<Status> NativeGraphs::kernel_changed(const GraphCall& call, const Where& where) {
    const auto found = twins_.find(call.exec);
    if (found == twins_.end()) {
        const Result<uint32_t> bytes = shared_bytes_of(cuda_, call.kernel, where.device);
        if (!bytes || *bytes <= where.limit) return std::nullopt;
        return refuse(twins_[call.exec],
                      no_twin("a graph's kernel was exchanged for one over the limit; instantiate it again", 0));
    }
    Twin& twin = found->second;
    if (twin.refused) return Status{*twin.refused};
    Result<KernelNode> copy = KernelNode::copy(cuda_, call.kernel);
    if (!copy) return refuse(twin, copy.error());
    Learned learned;
    const Result<CuKernel> own = find(*copy, twin.home, learned);
    if (!own) return refuse(twin, own.error());
    const CuKernelNode moved = copy->as(*own, side_.own());
    CuGraphNode node = nullptr;
    const CurrentContext current(cuda_, side_.own());
    CuResult r = current.result() != 0 ? current.result() : cuda_.graph_find_in_clone(&node, call.node, twin.graph);
    if (r == 0) r = cuda_.exec_set_kernel(twin.exec, node, &moved);
    if (r != 0) return refuse(twin, no_twin("CUDA does not change a kernel of a graph in another context", r));
    return Status{};
}

std::optional<Status> NativeGraphs::changed(const GraphCall& call) {
    const auto found = twins_.find(call.exec);
    if (found == twins_.end()) return std::nullopt;
    Twin& twin = found->second;
    if (twin.refused) return Status{*twin.refused};
    CuGraphNode node = nullptr;
    const CurrentContext current(cuda_, side_.own());
    CuResult r = current.result() != 0 ? current.result() : cuda_.graph_find_in_clone(&node, call.node, twin.graph);
    if (r == 0) r = repeat_change(cuda_, call, twin.exec, node, side_.own());
    if (r != 0) return refuse(twin, no_twin("a graph in another context does not follow a change", r));
    return Status{};
}

// Our context is there, and graphs are proved.
Status NativeGraphs::ready(CuContext context) {
    if (Status opened = side_.open(context); !opened) return opened;
    if (never_) return *never_;
    if (proved_) return {};
    Status proved = NativeGraphProof(cuda_, side_, *this).prove(context);
    if (proved)
        proved_ = true;
    else
        never_ = proved.error();
    return proved;
}

Result<NativeGraphs::Twin> NativeGraphs::make(CuGraph graph, unsigned long long flags, CuContext context) {
    if (Status is = ready(context); !is) return is.error();
    return make_unproved(graph, flags, context);
}

Result<NativeGraphs::Twin> NativeGraphs::make_unproved(CuGraph graph, unsigned long long flags, CuContext context) {
    Learned learned;
    const Result<CuGraph> clone = moved_clone(graph, context, learned);
    if (!clone) return clone.error();
    Twin twin{*clone, nullptr, context, flags, std::nullopt};
    CuResult r = 0;
    {
        const CurrentContext current(cuda_, side_.own());
        r = current.result() != 0 ? current.result() : cuda_.graph_instantiate(&twin.exec, twin.graph, flags);
    }
    if (r != 0) {
        destroy(twin);
        return no_twin("CUDA does not make a graph in another context", r);
    }
    const Result<unsigned> given = upload(twin);
    if (!given || *given != learned.with_variables) {
        destroy(twin);
        return given ? no_twin("of a graph's kernels with variables, " + std::to_string(learned.with_variables) +
                                   ", CUDA uploads " + std::to_string(*given) + " as expected",
                               0)
                     : given.error();
    }
    return twin;
}

Result<CuGraph> NativeGraphs::moved_clone(CuGraph graph, CuContext context, Learned& learned) {
    CuGraph clone = nullptr;
    if (const CuResult r = cuda_.graph_clone(&clone, graph); r != 0) return no_twin("CUDA does not copy a graph", r);
    const Status moved =
        move_nodes(cuda_, clone, side_.own(), [&](KernelNode& node) { return find(node, context, learned); });
    if (moved) return clone;
    cuda_.graph_destroy(clone);
    return moved.error();
}

Result<CuKernel> NativeGraphs::find(KernelNode& node, CuContext context, Learned& learned) {
    Found& found = learned.kernels[node.handle()];
    if (found.kernel == nullptr || node.as_given().shared_bytes > found.shared_bytes) {
        const Result<CuKernel> kernel = side_.modules().kernel_of(node.handle(), context);
        if (!kernel) return kernel.error();
        const auto banks = side_.banks_of(node.call(), *kernel, context);
        if (!banks) return banks.error();
        if (!banks_of(context).learn(banks->here, banks->home))
            return no_twin("the variables of a graph's kernel are not alike in two contexts", 0);
        found = {*kernel, has_variables(banks->here), node.as_given().shared_bytes};
    }
    if (found.variables) ++learned.with_variables;
    return found.kernel;
}

Result<unsigned> NativeGraphs::upload(const Twin& twin) {
    const Result<CuStream> lane = side_.spare_lane();
    if (!lane) return lane.error();
    NativeErrand errand(NativeErrand::Kind::kGraph, side_.layout(), side_.own());
    errand.map = &banks_of(twin.home);
    const OnErrand on(errand);
    const CurrentContext current(cuda_, side_.own());
    CuResult r = current.result() != 0 ? current.result() : cuda_.exec_upload(twin.exec, *lane);
    // That a launch waits for an upload in another stream is not written anywhere.
    if (r == 0) r = cuda_.stream_synchronize(*lane);
    if (r != 0) return no_twin("CUDA does not upload a graph in another context", r);
    return errand.given;
}

Status NativeGraphs::launch(const Twin& twin, CuStream stream, CuContext context) {
    return side_.run_in_place(stream, context, [&](CuStream lane) {
        NativeErrand errand(NativeErrand::Kind::kGraph, side_.layout(), side_.own());
        errand.map = &banks_of(twin.home);
        const OnErrand on(errand);
        return cuda_.exec_launch(twin.exec, lane);
    });
}

Status NativeGraphs::refuse(Twin& twin, const Error& why) {
    destroy(twin);
    twin.refused = why;
    return why;
}

// Launches that are under way come to their end first: CUDA's doing.
void NativeGraphs::destroy(Twin& twin) {
    if (twin.exec == nullptr && twin.graph == nullptr) return;
    const CurrentContext current(cuda_, side_.own());
    if (twin.exec != nullptr) cuda_.exec_destroy(twin.exec);
    if (twin.graph != nullptr) cuda_.graph_destroy(twin.graph);
    twin.exec = nullptr;
    twin.graph = nullptr;
}

}  // namespace vuda::partition
