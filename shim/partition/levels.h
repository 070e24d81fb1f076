// The splits that a GPU offers between graphics and compute, and the one that fits a request. Pure; vudad and the shim
// use it.
//
// Graphics work is bound to a GPC early in its pipeline, so a GPC that lost more TPCs than the others holds up every
// frame. Therefore compute's share grows by one TPC of each GPC at a time, and each GPC that does graphics keeps one
// TPC for it. Where only some TPCs can do graphics (GH100) those are the last that compute would get, and in mode
// inter-sm it never does. Source of the rule: section 5.3 of "VUDA: Enabling Controlled Spatial Sharing of Graphics and
// Compute on NVIDIA GPUs".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "shim/partition/topology.h"

namespace vuda::partition {

// vuda.v1.Mode
enum class Mode : uint32_t { kUnspecified = 0, kIntraSm = 1, kInterSm = 2, kSliced = 3 };

const char* mode_name(Mode mode);

struct Choice {
    uint32_t applied_tpcs = 0;  // TPCs that compute may use
    TpcMask disable{};          // TPCs that it must not use
    std::string note;           // when applied differs from what was asked for; else empty
};

class Levels {
 public:
    // INVALID_ARGUMENT: a mode that is none. FAILED_PRECONDITION: nothing to split (layout unknown or broken, a single
    // GPC, no TPC to spare).
    static Result<Levels> make(const Topology& topology, Mode mode);

    // Values that Choice::applied_tpcs can have, ascending, at least one.
    const std::vector<uint32_t>& counts() const { return counts_; }
    uint32_t total_tpcs() const { return total_; }
    // TPCs in the order in which growing levels take them: a level is a beginning of it.
    const std::vector<uint32_t>& order() const { return order_; }

    // `quota`: TPCs for compute, nullopt for no limit beyond the mode's. The largest level that is not above it, or the
    // first level. INVALID_ARGUMENT: 0, or more than the GPU has.
    Result<Choice> choose(std::optional<uint32_t> quota) const;

 private:
    Levels() = default;

    std::vector<uint32_t> counts_;
    std::vector<uint32_t> order_;
    uint32_t total_ = 0;
};

}  // namespace vuda::partition
