// Layouts for tests: real GPUs, and any shape in the usual numbering.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "shim/partition/topology.h"

namespace vuda::partition::testing {

// TPC numbers go round the GPCs; SM numbers follow TPC numbers, `sms` to a TPC.
inline Topology round_robin(const std::vector<int>& tpcs_of_gpc, int sms) {
    Topology topology;
    uint32_t next_sm = 0;
    const int rounds = *std::max_element(tpcs_of_gpc.begin(), tpcs_of_gpc.end());
    for (int round = 0; round < rounds; ++round) {
        for (uint32_t gpc = 0; gpc < tpcs_of_gpc.size(); ++gpc) {
            if (round >= tpcs_of_gpc[gpc]) continue;
            Tpc tpc{gpc, true, {}};
            for (int sm = 0; sm < sms; ++sm) tpc.sms.push_back(next_sm++);
            topology.tpcs.push_back(std::move(tpc));
        }
    }
    return topology;
}

inline Topology rtx4090() { return round_robin({6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5}, 2); }
// 54 TPCs; NVIDIA does not say how they lie, this is one possible card.
inline Topology a800() { return round_robin({8, 8, 8, 8, 8, 7, 7}, 2); }
inline Topology orin() { return round_robin({4, 4}, 2); }

// As a card reported it (docs/partitioning.md): {gpc of TPC 0, gpc of TPC 1, ...}; graphics on TPCs 1 and 25.
inline Topology h200() {
    static constexpr uint8_t kGpcs[] = {1, 0, 2, 3, 4, 5, 6, 7, 1, 0, 2, 3, 4, 5, 6, 7, 1, 0, 2, 3, 4, 5,
                                        6, 7, 1, 0, 2, 3, 4, 5, 6, 7, 0, 2, 3, 4, 5, 6, 7, 0, 2, 3, 4, 5,
                                        6, 7, 0, 2, 3, 4, 5, 6, 7, 0, 2, 3, 4, 5, 6, 7, 6, 7, 1, 5, 1, 1};
    Topology topology;
    for (uint32_t t = 0; t < sizeof kGpcs; ++t)
        topology.tpcs.push_back({kGpcs[t], t == 1 || t == 25, {2 * t, 2 * t + 1}});
    return topology;
}

}  // namespace vuda::partition::testing
