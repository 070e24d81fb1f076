#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr Case kCases[] = {
    {"launch", Risk::kPlain, false, plain_launch},
    {"constant-memory", Risk::kPlain, false, constant_memory},
    {"textures", Risk::kPlain, false, textures},
    {"events", Risk::kPlain, false, events},
    {"priorities", Risk::kPlain, false, stream_priorities},
    {"host-functions", Risk::kPlain, false, host_functions},
    {"stream-memory-operations", Risk::kPlain, false, stream_memory_operations},
    {"host-memory", Risk::kPlain, false, host_memory},
    {"memory-pool", Risk::kPlain, false, memory_pool},
    {"virtual-memory", Risk::kPlain, false, virtual_memory},
    {"ipc", Risk::kPlain, false, ipc_memory},
    {"graph", Risk::kPlain, true, graph_plain},
    {"graph-child", Risk::kPlain, false, graph_child},
    {"graph-memory", Risk::kPlain, false, graph_memory},
    {"shared-memory", Risk::kUnusual, true, shared_memory},
    {"shared-memory-blocks", Risk::kUnusual, true, shared_memory_blocks},
    {"clock", Risk::kUnusual, false, multiprocessor_clock},
    {"native-module", Risk::kUnusual, false, native_module},
    {"native-graph", Risk::kUnusual, false, native_graph},
    {"native-graph-update", Risk::kUnusual, false, native_graph_update},
    {"printf", Risk::kUnusual, false, device_printf},
    {"assert", Risk::kUnusual, false, assert_holds},
    {"device-malloc", Risk::kUnusual, false, device_malloc},
    {"cooperative", Risk::kUnusual, true, cooperative_launch},
    {"cluster", Risk::kUnusual, true, cluster_launch},
    {"dependent-launch", Risk::kUnusual, true, dependent_launch},
    {"local-memory", Risk::kUnusual, true, local_memory},
    {"stack-limit", Risk::kUnusual, false, stack_limit},
    {"dynamic-parallelism", Risk::kUnusual, true, dynamic_parallelism},
    {"contexts-in-turns", Risk::kUnusual, false, contexts_in_turns},
    {"contexts-at-once", Risk::kUnusual, false, contexts_at_once},
    {"context-recreated", Risk::kUnusual, false, context_recreated},
    {"primary-reset", Risk::kUnusual, false, primary_reset},
    {"cooperative-full", Risk::kStalls, true, cooperative_full},
    {"managed-prefetched", Risk::kStalls, false, managed_prefetched},
    {"managed-faulting", Risk::kStalls, false, managed_faulting},
    {"managed-variable", Risk::kStalls, false, managed_variable},
    {"dynamic-parallelism-large", Risk::kStalls, false, dynamic_parallelism_large},
    {"pageable", Risk::kStalls, false, pageable_memory},
    {"assert-fails", Risk::kHarmful, false, assert_fails},
    {"bad-address", Risk::kHarmful, false, bad_address},
    {"native-fault", Risk::kHarmful, false, native_fault},
};

}  // namespace

const char* risk_name(Risk risk) {
    switch (risk) {
        case Risk::kPlain: return "plain";
        case Risk::kUnusual: return "unusual";
        case Risk::kStalls: return "stalls";
        case Risk::kHarmful: return "harmful";
    }
    return "";
}

std::span<const Case> cases() { return kCases; }

const Case* find_case(std::string_view name) {
    for (const Case& one : kCases)
        if (name == one.name) return &one;
    return nullptr;
}

}  // namespace vuda::bench::features
