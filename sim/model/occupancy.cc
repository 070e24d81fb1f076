#include "sim/model/occupancy.h"

#include <algorithm>

namespace vuda::sim {

Placement Occupancy::place(uint32_t blocks, uint32_t blocks_per_sm, const SmSet& eligible) {
    Placement placement;
    placement.units_per_block = kSmUnits / blocks_per_sm;
    const uint32_t units = placement.units_per_block;

    std::array<uint8_t, kMaxSms> fit{};
    uint32_t total = 0;
    for (int sm = 0; sm < topology_->sm_count(); ++sm) {
        const auto s = static_cast<size_t>(sm);
        if (!eligible.test(s)) continue;
        fit[s] = static_cast<uint8_t>(std::min((kSmUnits - used_[s]) / units, blocks_per_sm));
        total += fit[s];
    }

    placement.blocks = std::min(blocks, total);
    if (placement.blocks == total) {
        placement.blocks_on = fit;
    } else {
        uint32_t left = placement.blocks;
        for (uint32_t level = 0; left != 0; ++level) {
            for (int lane = 0; lane < topology_->sms_per_tpc() && left != 0; ++lane) {
                for (int tpc = 0; tpc < topology_->tpc_count() && left != 0; ++tpc) {
                    const auto s = static_cast<size_t>(topology_->first_sm_of(tpc)) + static_cast<size_t>(lane);
                    if (fit[s] <= level) continue;
                    ++placement.blocks_on[s];
                    --left;
                }
            }
        }
    }

    for (int sm = 0; sm < topology_->sm_count(); ++sm) {
        const auto s = static_cast<size_t>(sm);
        if (placement.blocks_on[s] == 0) continue;
        used_[s] = static_cast<uint8_t>(used_[s] + placement.blocks_on[s] * units);
        full_.set(s, used_[s] == kSmUnits);
        placement.sms.set(s);
        placement.tpcs.set(static_cast<size_t>(topology_->tpc_of_sm(sm)));
    }
    return placement;
}

void Occupancy::release(const Placement& placement) {
    for (int sm = 0; sm < topology_->sm_count(); ++sm) {
        const auto s = static_cast<size_t>(sm);
        used_[s] = static_cast<uint8_t>(used_[s] - placement.blocks_on[s] * placement.units_per_block);
    }
    full_ &= ~placement.sms;
}

}  // namespace vuda::sim
