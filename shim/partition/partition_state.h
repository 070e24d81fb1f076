// What a process says about its part in splitting the GPU. The C++ form of vuda.v1.PartitionReport.
#pragma once

#include <string>

#include "base/result.h"
#include "shim/limits/over_limit.h"
#include "shim/partition/topology.h"

namespace vuda::partition {

// vuda.v1.Backend
enum class Backend : uint32_t { kUnspecified = 0, kNone = 1, kScg = 2, kQmdMask = 3 };

struct PartitionState {
    Backend backend = Backend::kUnspecified;
    Error reason{Code::kOk, "", ""};  // why not a better one
    Topology topology;                // empty: not known
    uint32_t shared_limit = 0;        // kernels that want more shared memory a block, bytes, do not share; 0: all do
    limits::OverLimit over_limit = limits::kDefaultOverLimit;  // what becomes of those; the client fills it in
    uint64_t native_launches = 0;                              // of those, how many ran in a TSG of CUDA's own
    std::string native_reason = {};  // why none can, one line; empty: they can, or nobody wanted it
    bool operator==(const PartitionState& other) const {
        return backend == other.backend && reason.code == other.reason.code && reason.text == other.reason.text &&
               topology == other.topology && shared_limit == other.shared_limit && over_limit == other.over_limit &&
               native_launches == other.native_launches && native_reason == other.native_reason;
    }
};

}  // namespace vuda::partition
