// The cases of vuda-bench-features, from those that harm nobody to those that may end a context or a TSG.
#pragma once

#include <span>

#include "bench/features/rig.h"

namespace vuda::bench::features {

enum class Risk {
    kPlain,    // what every program does
    kUnusual,  // may not work beside graphics
    kStalls,   // may wait for ever beside graphics: for pages that nobody brings, for SMs that nobody leaves
    kHarmful,  // ends its context; run only when asked for by name
};
const char* risk_name(Risk risk);

struct Case {
    const char* name;  // bench/corunlib/feature_verdicts.py has words for each
    Risk risk;
    // Worth running with compute kept off some TPCs as well: launches that count on their number.
    bool split;
    // One round: does it and compares what came out. UNIMPLEMENTED: not offered here. kWrongResult: it came out wrong.
    // Called again and again in one process; each round gives the same checksum.
    Status (*run)(Rig& rig);
};

// In the order to run them in.
std::span<const Case> cases();
const Case* find_case(std::string_view name);

// What the process does that "ipc" starts: opens the memory, checks it and changes it.
Status ipc_other_side(Rig& rig, const std::string& handle);

// --- cases_*.cc
Status plain_launch(Rig& rig);
Status shared_memory(Rig& rig);
Status shared_memory_blocks(Rig& rig);
Status multiprocessor_clock(Rig& rig);
Status cooperative_launch(Rig& rig);
Status cooperative_full(Rig& rig);
Status cluster_launch(Rig& rig);
Status dependent_launch(Rig& rig);
Status dynamic_parallelism(Rig& rig);
Status dynamic_parallelism_large(Rig& rig);
Status stream_priorities(Rig& rig);
Status events(Rig& rig);
Status host_functions(Rig& rig);
Status stream_memory_operations(Rig& rig);
Status constant_memory(Rig& rig);
Status textures(Rig& rig);
Status host_memory(Rig& rig);
Status memory_pool(Rig& rig);
Status virtual_memory(Rig& rig);
Status ipc_memory(Rig& rig);
Status managed_prefetched(Rig& rig);
Status managed_faulting(Rig& rig);
Status managed_variable(Rig& rig);
Status pageable_memory(Rig& rig);
Status device_printf(Rig& rig);
Status assert_holds(Rig& rig);
Status device_malloc(Rig& rig);
Status local_memory(Rig& rig);
Status stack_limit(Rig& rig);
Status assert_fails(Rig& rig);
Status bad_address(Rig& rig);
Status graph_plain(Rig& rig);
Status graph_memory(Rig& rig);
Status graph_child(Rig& rig);
Status native_module(Rig& rig);
Status native_graph(Rig& rig);
Status native_graph_update(Rig& rig);
Status native_fault(Rig& rig);
Status contexts_in_turns(Rig& rig);
Status contexts_at_once(Rig& rig);
Status context_recreated(Rig& rig);
Status primary_reset(Rig& rig);

}  // namespace vuda::bench::features
