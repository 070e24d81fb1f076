// What a process says about its part in splitting the GPU. The C++ form of vuda.v1.PartitionReport.
#pragma once

#include "base/result.h"
#include "shim/partition/topology.h"

namespace vuda::partition {

// vuda.v1.Backend
enum class Backend : uint32_t { kUnspecified = 0, kNone = 1, kScg = 2, kQmdMask = 3 };

struct PartitionState {
    Backend backend = Backend::kUnspecified;
    Error reason{Code::kOk, "", ""};  // why not a better one
    Topology topology;                // empty: not known
    uint32_t shared_limit = 0;        // kernels that want more shared memory a block, bytes, are refused; 0: none is
    bool operator==(const PartitionState& other) const {
        return backend == other.backend && reason.code == other.reason.code && reason.text == other.reason.text &&
               topology == other.topology && shared_limit == other.shared_limit;
    }
};

}  // namespace vuda::partition
