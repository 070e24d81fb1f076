#include "shim/partition/levels.h"

#include <algorithm>
#include <map>

namespace vuda::partition {

const char* mode_name(Mode mode) {
    switch (mode) {
        case Mode::kIntraSm: return "intra-sm";
        case Mode::kInterSm: return "inter-sm";
        case Mode::kSliced: return "sliced";
        case Mode::kUnspecified: break;
    }
    return "unspecified";
}

Result<Levels> Levels::make(const Topology& topology, Mode mode) {
    if (mode != Mode::kIntraSm && mode != Mode::kInterSm && mode != Mode::kSliced) {
        return Error{Code::kInvalidArgument, "unknown mode", "use intra-sm, inter-sm or sliced"};
    }
    if (Status valid = check(topology); !valid) return valid.error();

    // What compute can get of each GPC: TPCs without graphics first, and what graphics keeps not at all.
    std::map<uint32_t, std::vector<uint32_t>> free_of_gpc;
    const bool limited = topology.graphics_limited();
    for (const bool graphics : {false, true}) {
        if (graphics && limited && mode == Mode::kInterSm) break;
        for (uint32_t t = 0; t < topology.tpcs.size(); ++t) {
            if (topology.tpcs[t].graphics == graphics) free_of_gpc[topology.tpcs[t].gpc].push_back(t);
        }
    }
    if (mode == Mode::kInterSm) {
        if (topology.gpc_count() < 2) {
            return Error{Code::kFailedPrecondition, "this GPU has a single GPC, which graphics needs as a whole",
                         "use mode intra-sm"};
        }
        if (!limited && topology.graphics_count() > 0) {
            for (auto& [gpc, tpcs] : free_of_gpc) {
                const bool does_graphics =
                    std::any_of(tpcs.begin(), tpcs.end(), [&](uint32_t t) { return topology.tpcs[t].graphics; });
                if (does_graphics) tpcs.pop_back();
            }
        }
    }

    Levels levels;
    levels.total_ = static_cast<uint32_t>(topology.tpcs.size());
    for (size_t round = 0;; ++round) {
        const size_t before = levels.order_.size();
        for (const auto& [gpc, tpcs] : free_of_gpc) {
            if (round < tpcs.size()) levels.order_.push_back(tpcs[round]);
        }
        if (levels.order_.size() == before) break;
        levels.counts_.push_back(static_cast<uint32_t>(levels.order_.size()));
    }
    if (levels.counts_.empty()) {
        return Error{Code::kFailedPrecondition, "this GPU has no TPC to spare for compute alone", "use mode intra-sm"};
    }
    return levels;
}

Result<Choice> Levels::choose(std::optional<uint32_t> quota) const {
    if (quota && (*quota == 0 || *quota > total_)) {
        return Error{
            Code::kInvalidArgument,
            "a quota of " + std::to_string(*quota) + " TPCs is not possible; this GPU has " + std::to_string(total_),
            "use 1 to " + std::to_string(total_) + ", auto or none"};
    }
    Choice choice;
    choice.applied_tpcs = counts_.back();
    if (quota) {
        const auto above = std::upper_bound(counts_.begin(), counts_.end(), *quota);
        choice.applied_tpcs = above == counts_.begin() ? counts_.front() : *(above - 1);
        if (choice.applied_tpcs > *quota) {
            choice.note = "the smallest share is one TPC of each GPC";
        } else if (*quota > counts_.back()) {
            choice.note = "graphics keeps the other TPCs";
        } else if (choice.applied_tpcs < *quota) {
            choice.note = "shares grow by one TPC of each GPC";
        }
    }
    for (size_t t = 0; t < total_; ++t) set(choice.disable, t);
    for (size_t i = 0; i < choice.applied_tpcs; ++i)
        choice.disable[order_[i] / 64] &= ~(uint64_t{1} << (order_[i] % 64));
    return choice;
}

}  // namespace vuda::partition
