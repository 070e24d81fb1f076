// What a GPU is made of, as far as splitting it matters. The C++ form of vuda.v1.Topology. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace vuda::partition {

inline constexpr size_t kMaxTpcs = 256;
inline constexpr size_t kMaxSms = 1024;

struct Tpc {
    uint32_t gpc = 0;
    bool graphics = false;      // can run graphics work
    std::vector<uint32_t> sms;  // %smid of its multiprocessors
    bool operator==(const Tpc&) const = default;
};

// A TPC's place is its number: globalTpcId of GR_GET_GLOBAL_SM_ORDER. (Launch descriptors number TPCs in their own way:
// mask_map.h.)
struct Topology {
    std::vector<Tpc> tpcs;
    bool operator==(const Topology&) const = default;

    bool empty() const { return tpcs.empty(); }
    size_t sm_count() const;
    size_t gpc_count() const;
    size_t graphics_count() const;
    // Only some TPCs do graphics (GH100: two of them).
    bool graphics_limited() const;
};

// One bit a TPC.
using TpcMask = std::array<uint64_t, kMaxTpcs / 64>;

constexpr bool test(const TpcMask& mask, size_t tpc) { return (mask[tpc / 64] >> (tpc % 64) & 1) != 0; }
constexpr void set(TpcMask& mask, size_t tpc) { mask[tpc / 64] |= uint64_t{1} << (tpc % 64); }
size_t count(const TpcMask& mask);

// FAILED_PRECONDITION: empty, too large, a TPC without SMs, an SM in two TPCs. What a peer sends is checked with this
// before it is used.
Status check(const Topology& topology);

}  // namespace vuda::partition
