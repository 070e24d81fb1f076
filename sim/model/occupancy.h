// Which SM holds how many thread blocks.
#pragma once

#include <array>
#include <cstdint>

#include "sim/model/topology.h"

namespace vuda::sim {

// Room of one SM; a block of a kernel with N blocks an SM takes 64 / N of it.
inline constexpr uint32_t kSmUnits = 64;

// Blocks placed at one moment.
struct Placement {
    uint32_t blocks = 0;
    uint32_t units_per_block = kSmUnits;
    std::array<uint8_t, kMaxSms> blocks_on{};  // by SM number
    SmSet sms;
    TpcSet tpcs;

    double sm_equivalents_on(size_t sm) const {
        return static_cast<double>(blocks_on[sm]) * units_per_block / kSmUnits;
    }
    double sm_equivalents() const { return static_cast<double>(blocks) * units_per_block / kSmUnits; }
};

class Occupancy {
 public:
    // `topology` outlives this object.
    explicit Occupancy(const Topology& topology) : topology_(&topology) {}

    // False: place() would place nothing there, whatever the kernel.
    bool any_room(const SmSet& eligible) const { return (eligible & ~full_).any(); }
    // Places up to `blocks` blocks on free room of `eligible` SMs, spread breadth first over the TPCs in number order.
    Placement place(uint32_t blocks, uint32_t blocks_per_sm, const SmSet& eligible);
    void release(const Placement& placement);

    uint32_t used_units(int sm) const { return used_[static_cast<size_t>(sm)]; }

 private:
    const Topology* topology_;
    std::array<uint8_t, kMaxSms> used_{};
    SmSet full_;  // SMs without any room
};

}  // namespace vuda::sim
