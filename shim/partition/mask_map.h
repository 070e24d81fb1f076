// From TPC numbers to the bits of a launch descriptor's mask. Pure.
//
// Hopper numbers them GPC by GPC: bit 9 * g + n is the n-th TPC (ascending TPC number) of virtual GPC g, g < 8; TPCs
// that stand alone, with a virtual GPC of 8 or more, come after those, bit 72 + g - 8. Bits without a TPC are common.
// Seen on an H200 by masking one bit at a time and asking blocks for their %smid; the self-check (self_check.h) proves
// it again in every process. Clusters never run on TPCs that stand alone. Older chips
// number them plainly, in the order of globalTpcId.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "shim/partition/qmd.h"
#include "shim/partition/rm_topology.h"

namespace vuda::partition {

class MaskMap {
 public:
    // FAILED_PRECONDITION: the numbering does not fit into a mask.
    static Result<MaskMap> make(const GpuLayout& layout, const QmdLayout& qmd);

    QmdMask translate(const TpcMask& disable) const;

    // `mask` leaves at least one TPC.
    bool leaves_any(const QmdMask& mask) const {
        return (all_.words[0] & ~mask.words[0]) != 0 || (all_.words[1] & ~mask.words[1]) != 0;
    }
    uint32_t sms() const { return sms_; }
    uint32_t sms_left(const QmdMask& mask) const;
    // `mask` leaves enough SMs in one GPC for a cluster of `blocks`, however large each is.
    bool leaves_cluster(const QmdMask& mask, uint32_t blocks) const;

 private:
    struct Gpc {
        QmdMask tpcs;
        uint32_t sms_per_tpc;  // least of any of its TPCs
    };

    std::vector<uint8_t> bits_;  // of each TPC
    std::vector<uint8_t> tpc_sms_;
    uint32_t sms_ = 0;
    QmdMask all_;
    std::vector<Gpc> gpcs_;  // those that take clusters
};

}  // namespace vuda::partition
