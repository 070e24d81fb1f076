#include "shim/partition/mask_map.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

namespace vuda::partition {
namespace {

constexpr uint32_t kGroups = 8;
constexpr uint32_t kGroupBits = 9;

void set_bit(QmdMask& mask, uint32_t bit) { mask.words[bit / 64] |= uint64_t{1} << (bit % 64); }

}  // namespace

Result<MaskMap> MaskMap::make(const GpuLayout& layout, const QmdLayout& qmd) {
    const bool grouped = qmd.grouped;
    const std::vector<Tpc>& tpcs = layout.topology.tpcs;
    if (layout.virtual_gpcs.size() != tpcs.size()) return Error{Code::kInternal, "the GPU's layout is incomplete", ""};
    MaskMap map;
    std::map<uint32_t, Gpc> gpcs;
    std::map<uint32_t, uint32_t> next_of_gpc;
    for (size_t t = 0; t < tpcs.size(); ++t) {
        const uint32_t group = layout.virtual_gpcs[t];
        const bool alone = group >= kGroups;
        const uint32_t in_gpc = alone ? 0 : next_of_gpc[tpcs[t].gpc]++;
        uint32_t bit = static_cast<uint32_t>(t);
        if (grouped) bit = alone ? kGroups * kGroupBits + group - kGroups : group * kGroupBits + in_gpc;
        const bool taken = bit < qmd.mask_bits && (map.all_.words[bit / 64] >> (bit % 64) & 1) != 0;
        if (bit >= qmd.mask_bits || taken || (grouped && !alone && in_gpc >= kGroupBits)) {
            return Error{Code::kFailedPrecondition,
                         "TPC " + std::to_string(t) + " has no place in a launch descriptor's mask that VUDA knows",
                         "please report this GPU"};
        }
        map.bits_.push_back(static_cast<uint8_t>(bit));
        set_bit(map.all_, bit);
        const auto sms = static_cast<uint32_t>(tpcs[t].sms.size());
        map.tpc_sms_.push_back(static_cast<uint8_t>(sms));
        map.sms_ += sms;
        if (grouped && alone) continue;
        Gpc& gpc = gpcs.try_emplace(tpcs[t].gpc, Gpc{{}, sms}).first->second;
        set_bit(gpc.tpcs, bit);
        gpc.sms_per_tpc = std::min(gpc.sms_per_tpc, sms);
    }
    for (const auto& [number, gpc] : gpcs) map.gpcs_.push_back(gpc);
    return map;
}

QmdMask MaskMap::translate(const TpcMask& disable) const {
    QmdMask mask;
    for (size_t t = 0; t < bits_.size(); ++t) {
        if (test(disable, t)) set_bit(mask, bits_[t]);
    }
    return mask;
}

uint32_t MaskMap::sms_left(const QmdMask& mask) const {
    uint32_t left = 0;
    for (size_t t = 0; t < bits_.size(); ++t) {
        if ((mask.words[bits_[t] / 64] >> (bits_[t] % 64) & 1) == 0) left += tpc_sms_[t];
    }
    return left;
}

bool MaskMap::leaves_cluster(const QmdMask& mask, uint32_t blocks) const {
    return std::any_of(gpcs_.begin(), gpcs_.end(), [&](const Gpc& gpc) {
        const auto left = static_cast<uint32_t>(std::popcount(gpc.tpcs.words[0] & ~mask.words[0]) +
                                                std::popcount(gpc.tpcs.words[1] & ~mask.words[1]));
        return left * gpc.sms_per_tpc >= blocks;
    });
}

}  // namespace vuda::partition
