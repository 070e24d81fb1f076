// The launch hook's dealings with kernels that must not run in a TSG that is shared, whatever their size
// (module_watch.h): the guard withholds them, and so are graphs that hold one refused.
#include "shim/partition/launch_hook.h"
#include "shim/partition/launch_hook_parts.h"
#include "shim/partition/native_graph_calls.h"
#include "shim/partition/native_scope.h"

#include <vector>

namespace vuda::partition {

using namespace hook;

namespace {

constexpr int kNodeOfKernel = 0;  // CU_GRAPH_NODE_TYPE_KERNEL
constexpr int kNodeOfGraph = 4;   // CU_GRAPH_NODE_TYPE_GRAPH
constexpr int kGraphsDeep = 16;   // graphs in graphs

}  // namespace

Cared& hook::cared_kernel() {
    constinit thread_local Cared own;
    return own;
}

void LaunchHook::watch_modules(int function, const void* arguments, bool enter) {
    if (!ModuleWatch::is_watched(function)) return;
    if (enter)
        watch_.on_entered(function, arguments);
    else
        watch_.on_left(function, arguments);
    if (!watch_.any() || (guard_.attention() & kCare) != 0) return;
    // For good: what was loaded once is likely to come again.
    guard_.attend(kCare);
    tell_launches();
}

// A call begins that loads code with managed variables. CUDA gives those their first values with a kernel of its own,
// in the program's context, which fetches them by page faults: Xid 31 when that shares. True: it is skipped.
bool LaunchHook::refuses_code(int function, const void* parameters, CuContext context) {
    const void* const arguments = arguments_of(parameters, callback_);
    if (!ModuleWatch::is_watched(function) || !watch_.loads_managed(function, arguments)) return false;
    if (held(context)) hold(context);
    // A library comes to each context of the process later.
    const bool shares =
        ModuleWatch::is_library(function) ? guard_.limit() != 0 : verdict(context) == Verdict::kApproved;
    if (guard_.limit() == 0 || !shares || !can_skip(parameters)) return false;
    skip(parameters, limits::kNotSupported);
    managed_refused_.fetch_add(1, std::memory_order_relaxed);
    wake();
    return true;
}

ModuleWatch::Care LaunchHook::care_of(const void* function, uint32_t* bytes) const {
    const uint32_t limit = guard_.limit();
    return limit == 0 ? ModuleWatch::Care::kNone : watch_.care_of(function, limit, bytes);
}

// A call that launches begins.
void LaunchHook::consider_care(int function, const void* arguments, CuContext context) const {
    Cared& cared = cared_kernel();
    cared = {};
    if (verdict(context) == Verdict::kApproved)
        cared.care = care_of(ModuleWatch::launched(function, arguments), &cared.bytes);
}

bool LaunchHook::graph_needs_care(CuGraph graph, int depth) const {
    size_t count = 0;
    if (depth > kGraphsDeep || cuda_.graph_get_nodes(graph, nullptr, &count) != 0) return false;
    std::vector<CuGraphNode> nodes(count);
    if (count == 0 || cuda_.graph_get_nodes(graph, nodes.data(), &count) != 0) return false;
    nodes.resize(count);
    for (const CuGraphNode node : nodes) {
        int type = 0;
        CuGraph child = nullptr;
        CuKernelNode kernel{};
        if (cuda_.graph_node_type(node, &type) != 0) continue;
        if (type == kNodeOfGraph && cuda_.graph_of_child(node, &child) == 0 && graph_needs_care(child, depth + 1))
            return true;
        if (type == kNodeOfKernel && cuda_.kernel_node_get(node, &kernel) == 0 && kernel_needs_care(kernel))
            return true;
    }
    return false;
}

bool LaunchHook::kernel_needs_care(const CuKernelNode& kernel) const {
    return care_of(kernel.function != nullptr ? kernel.function : kernel.kernel, nullptr) != ModuleWatch::Care::kNone;
}

// A call came to a good end that makes or changes an executable graph. True: the program is told that it did not.
bool LaunchHook::refuses_graph(int function, const void* arguments, const void* parameters, CuContext context) {
    if ((guard_.attention() & kCare) == 0 || !cuda_.has_graphs() || verdict(context) != Verdict::kApproved)
        return false;
    const std::optional<GraphCall> call = read_graph_call(function, arguments, true);
    if (!call) return false;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const bool made = call->kind == GraphCall::Kind::kInstantiate;
    const bool needs = made || call->kind == GraphCall::Kind::kUpdate ? graph_needs_care(call->graph, 0)
                       : call->kind == GraphCall::Kind::kSetKernel    ? kernel_needs_care(call->kernel)
                                                                      : false;
    if (!needs) return false;
    // One that was changed stays as it is now; programs that are told so make another, or end.
    if (made && call->exec != nullptr) cuda_.exec_destroy(call->exec);
    answer(parameters, limits::kNotSupported, false);
    managed_refused_.fetch_add(1, std::memory_order_relaxed);
    wake();
    return true;
}

}  // namespace vuda::partition
