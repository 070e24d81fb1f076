// The shape of a simulated GPU: GPCs, TPCs, SMs, and which TPCs a quota hands to compute.  Pure.
//
// Numbering, as seen on an H200: TPC numbers go round-robin over the GPCs (TPC 0 is GPC 0's first, TPC 1 is GPC 1's
// first, ...), SM numbers are contiguous within a GPC.  So masking TPC 0 and 1 of a GPC row of 8 TPCs frees SMs 0, 1,
// 16, 17.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vuda::sim {

inline constexpr size_t kMaxTpcs = 128;  // width of the TPC mask in a launch descriptor (16 bytes)
inline constexpr size_t kMaxSms = 256;

using TpcSet = std::bitset<kMaxTpcs>;
using SmSet = std::bitset<kMaxSms>;

// What SCG (simultaneous compute and graphics) can be told on this GPU.
enum class ScgControl : uint8_t {
    kModeAndQuota,  // class method 0x0270: intra-SM or inter-SM, compute quota (Maxwell 2 to Ada, GA100)
    kNone,          // the method does not exist (GH100); only a mask per kernel steers blocks
};

enum class ScgMode : uint8_t {
    kIntraSm,  // graphics and compute may be resident on one SM
    kInterSm,  // separate TPCs
};

class Topology {
 public:
    // `tpcs_per_gpc`: one entry a GPC, each at least 1; at most kMaxTpcs TPCs and kMaxSms SMs altogether.
    // `graphics_tpcs`: TPCs that can run graphics shaders; empty means all.  Errors: kInvalidArgument.
    static Result<Topology> make(std::string name, std::vector<int> tpcs_per_gpc, int sms_per_tpc, TpcSet graphics_tpcs,
                                 ScgControl scg, ScgMode default_mode);

    // Presets: "rtx4090" (11 GPCs: nine of 6 TPCs, two of 5), "a800" (GA100, 54 TPCs, inter-SM by default), "orin" (8
    // TPCs), "h200" (66 TPCs, of which 2 run graphics).  Errors: kNotFound, with the names in the hint.
    static Result<Topology> preset(std::string_view name);
    static std::vector<std::string> preset_names();

    const std::string& name() const { return name_; }
    int gpc_count() const { return static_cast<int>(tpcs_per_gpc_.size()); }
    const std::vector<int>& tpcs_per_gpc() const { return tpcs_per_gpc_; }
    int tpc_count() const { return tpc_count_; }
    int sms_per_tpc() const { return sms_per_tpc_; }
    int sm_count() const { return tpc_count_ * sms_per_tpc_; }
    int gpc_of(int tpc) const { return gpc_of_[static_cast<size_t>(tpc)]; }
    int first_sm_of(int tpc) const { return first_sm_of_[static_cast<size_t>(tpc)]; }
    int tpc_of_sm(int sm) const { return tpc_of_sm_[static_cast<size_t>(sm)]; }
    const TpcSet& all_tpcs() const { return all_tpcs_; }
    const TpcSet& graphics_tpcs() const { return graphics_tpcs_; }
    // True where only some TPCs run graphics (GH100): there compute keeps off them while a draw runs.
    bool graphics_limited() const { return graphics_tpcs_ != all_tpcs_; }
    ScgControl scg() const { return scg_; }
    ScgMode default_mode() const { return default_mode_; }

    SmSet sms_of(const TpcSet& tpcs) const;
    TpcSet tpcs_of(const SmSet& sms) const;

    // Largest compute quota: every GPC that can run graphics keeps one graphics TPC (53 of 64 on an RTX 4090).
    int max_compute_quota() const;

    // The TPCs that a compute quota of `quota` (clamped to [0, max_compute_quota()]) hands to compute: rounds of one
    // TPC a GPC, GPCs with more TPCs first, so that two GPCs never differ by more than one in what they gave unless one
    // is at its floor.
    TpcSet compute_tpcs(int quota) const;

    // Quotas at which every GPC gave the same number of TPCs, or all are at their floor: 11, 22, 33, 44, 53 on an RTX
    // 4090.
    std::vector<int> balanced_quotas() const;

 private:
    Topology() = default;

    std::string name_;
    std::vector<int> tpcs_per_gpc_;
    std::vector<int> gpc_of_;
    std::vector<int> first_sm_of_;
    std::vector<int> tpc_of_sm_;
    std::vector<int> quota_order_;  // TPC numbers in the order in which growing quotas take them
    TpcSet all_tpcs_;
    TpcSet graphics_tpcs_;
    int tpc_count_ = 0;
    int sms_per_tpc_ = 0;
    ScgControl scg_ = ScgControl::kModeAndQuota;
    ScgMode default_mode_ = ScgMode::kIntraSm;
};

}  // namespace vuda::sim
