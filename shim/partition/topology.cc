#include "shim/partition/topology.h"

#include <algorithm>
#include <bit>
#include <string>

namespace vuda::partition {
namespace {

Error broken(std::string what) {
    return Error{Code::kFailedPrecondition, "the GPU's layout " + std::move(what), "please report this"};
}

}  // namespace

size_t Topology::sm_count() const {
    size_t total = 0;
    for (const Tpc& tpc : tpcs) total += tpc.sms.size();
    return total;
}

size_t Topology::gpc_count() const {
    std::vector<uint32_t> seen;
    for (const Tpc& tpc : tpcs) {
        if (std::find(seen.begin(), seen.end(), tpc.gpc) == seen.end()) seen.push_back(tpc.gpc);
    }
    return seen.size();
}

size_t Topology::graphics_count() const {
    return static_cast<size_t>(std::count_if(tpcs.begin(), tpcs.end(), [](const Tpc& tpc) { return tpc.graphics; }));
}

bool Topology::graphics_limited() const {
    const size_t graphics = graphics_count();
    return graphics > 0 && graphics < tpcs.size();
}

size_t count(const TpcMask& mask) {
    size_t bits = 0;
    for (const uint64_t word : mask) bits += static_cast<size_t>(std::popcount(word));
    return bits;
}

Status check(const Topology& topology) {
    if (topology.empty()) {
        return Error{Code::kFailedPrecondition, "the GPU's layout is not known", "see vudactl status for the reason"};
    }
    if (topology.tpcs.size() > kMaxTpcs) return broken("has more than " + std::to_string(kMaxTpcs) + " TPCs");
    std::vector<bool> taken(kMaxSms);
    for (size_t t = 0; t < topology.tpcs.size(); ++t) {
        const Tpc& tpc = topology.tpcs[t];
        if (tpc.gpc >= kMaxTpcs) return broken("has a GPC numbered " + std::to_string(tpc.gpc));
        if (tpc.sms.empty()) return broken("has no SM in TPC " + std::to_string(t));
        for (const uint32_t sm : tpc.sms) {
            if (sm >= kMaxSms) return broken("has an SM numbered " + std::to_string(sm));
            if (taken[sm]) return broken("has SM " + std::to_string(sm) + " twice");
            taken[sm] = true;
        }
    }
    return {};
}

}  // namespace vuda::partition
