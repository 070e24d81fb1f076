#include "sim/model/topology.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vuda::sim {
namespace {

struct Preset {
    const char* name;
    std::vector<int> tpcs_per_gpc;
    std::vector<int> graphics_tpcs;  // empty: all
    ScgControl scg;
    ScgMode default_mode;
};

const std::vector<Preset>& presets() {
    // RTX 4090: section 5.3 of the controlled-sharing paper gives the counts; which GPCs are the short ones is not
    // published. A800 (GA100, 108 SMs) and Orin (16 SMs): SM counts are public, the split over GPCs is the usual one.
    // H200: 132 SMs; which two TPCs run graphics differs from card to card.
    static const std::vector<Preset> all = {
        {"rtx4090", {6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5}, {}, ScgControl::kModeAndQuota, ScgMode::kIntraSm},
        {"a800", {8, 8, 8, 8, 8, 7, 7}, {}, ScgControl::kModeAndQuota, ScgMode::kInterSm},
        {"orin", {4, 4}, {}, ScgControl::kModeAndQuota, ScgMode::kIntraSm},
        {"h200", {8, 8, 8, 8, 8, 8, 9, 9}, {0, 1}, ScgControl::kNone, ScgMode::kIntraSm},
    };
    return all;
}

Error unusable(std::string text) { return Error{Code::kInvalidArgument, std::move(text), {}}; }

}  // namespace

Result<Topology> Topology::make(std::string name, std::vector<int> tpcs_per_gpc, int sms_per_tpc, TpcSet graphics_tpcs,
                                ScgControl scg, ScgMode default_mode) {
    if (tpcs_per_gpc.empty()) return unusable("a GPU needs at least one GPC");
    if (sms_per_tpc < 1) return unusable("sms_per_tpc is below 1");
    for (int tpcs : tpcs_per_gpc) {
        if (tpcs < 1 || tpcs > static_cast<int>(kMaxTpcs)) return unusable("a GPC needs 1 to 128 TPCs");
    }
    const int64_t tpcs = std::accumulate(tpcs_per_gpc.begin(), tpcs_per_gpc.end(), int64_t{0});
    if (tpcs > static_cast<int64_t>(kMaxTpcs) || tpcs * sms_per_tpc > static_cast<int64_t>(kMaxSms)) {
        return unusable("at most 128 TPCs and 256 SMs are supported");
    }

    Topology topology;
    topology.name_ = std::move(name);
    topology.tpcs_per_gpc_ = std::move(tpcs_per_gpc);
    topology.sms_per_tpc_ = sms_per_tpc;
    topology.tpc_count_ = static_cast<int>(tpcs);
    topology.scg_ = scg;
    topology.default_mode_ = default_mode;
    for (int tpc = 0; tpc < topology.tpc_count_; ++tpc) topology.all_tpcs_.set(static_cast<size_t>(tpc));
    topology.graphics_tpcs_ = graphics_tpcs.none() ? topology.all_tpcs_ : graphics_tpcs;
    if ((topology.graphics_tpcs_ & ~topology.all_tpcs_).any())
        return unusable("graphics_tpcs names a TPC that does not exist");

    const int gpcs = topology.gpc_count();
    std::vector<int> gpc_first_sm(static_cast<size_t>(gpcs), 0);
    for (int gpc = 1; gpc < gpcs; ++gpc) {
        const auto g = static_cast<size_t>(gpc);
        gpc_first_sm[g] = gpc_first_sm[g - 1] + topology.tpcs_per_gpc_[g - 1] * sms_per_tpc;
    }
    topology.tpc_of_sm_.resize(static_cast<size_t>(topology.sm_count()));
    std::vector<std::vector<int>> members(static_cast<size_t>(gpcs));  // TPC numbers of each GPC, ascending
    for (int round = 0; std::ssize(topology.gpc_of_) < topology.tpc_count_; ++round) {
        for (int gpc = 0; gpc < gpcs; ++gpc) {
            const auto g = static_cast<size_t>(gpc);
            if (round >= topology.tpcs_per_gpc_[g]) continue;
            const int tpc = static_cast<int>(topology.gpc_of_.size());
            const int first_sm = gpc_first_sm[g] + round * sms_per_tpc;
            topology.gpc_of_.push_back(gpc);
            topology.first_sm_of_.push_back(first_sm);
            for (int sm = first_sm; sm < first_sm + sms_per_tpc; ++sm)
                topology.tpc_of_sm_[static_cast<size_t>(sm)] = tpc;
            members[g].push_back(tpc);
        }
    }

    // What each GPC gives, in order: TPCs without graphics first, then from the last one down, and one graphics TPC
    // never.
    std::vector<std::vector<int>> gives(static_cast<size_t>(gpcs));
    for (size_t g = 0; g < gives.size(); ++g) {
        std::vector<int> graphics;
        for (auto it = members[g].rbegin(); it != members[g].rend(); ++it) {
            (topology.graphics_tpcs_.test(static_cast<size_t>(*it)) ? graphics : gives[g]).push_back(*it);
        }
        if (!graphics.empty()) graphics.pop_back();
        gives[g].insert(gives[g].end(), graphics.begin(), graphics.end());
    }
    std::vector<size_t> gpc_order(gives.size());
    std::iota(gpc_order.begin(), gpc_order.end(), size_t{0});
    std::stable_sort(gpc_order.begin(), gpc_order.end(),
                     [&](size_t a, size_t b) { return topology.tpcs_per_gpc_[a] > topology.tpcs_per_gpc_[b]; });
    for (size_t round = 0, took = 1; took != 0; ++round) {
        took = 0;
        for (size_t gpc : gpc_order) {
            if (round >= gives[gpc].size()) continue;
            topology.quota_order_.push_back(gives[gpc][round]);
            ++took;
        }
    }
    if (topology.quota_order_.empty()) return unusable("no TPC is left for compute beside one graphics TPC a GPC");
    return topology;
}

Result<Topology> Topology::preset(std::string_view name) {
    for (const Preset& preset : presets()) {
        if (preset.name != name) continue;
        TpcSet graphics;
        for (int tpc : preset.graphics_tpcs) graphics.set(static_cast<size_t>(tpc));
        return make(preset.name, preset.tpcs_per_gpc, 2, graphics, preset.scg, preset.default_mode);
    }
    std::string names;
    for (const Preset& preset : presets()) names += (names.empty() ? "" : ", ") + std::string(preset.name);
    return Error{Code::kNotFound, "no GPU preset is named '" + std::string(name) + "'", "presets: " + names};
}

std::vector<std::string> Topology::preset_names() {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
    return names;
}

SmSet Topology::sms_of(const TpcSet& tpcs) const {
    SmSet sms;
    for (int sm = 0; sm < sm_count(); ++sm) {
        if (tpcs.test(static_cast<size_t>(tpc_of_sm(sm)))) sms.set(static_cast<size_t>(sm));
    }
    return sms;
}

TpcSet Topology::tpcs_of(const SmSet& sms) const {
    TpcSet tpcs;
    for (int sm = 0; sm < sm_count(); ++sm) {
        if (sms.test(static_cast<size_t>(sm))) tpcs.set(static_cast<size_t>(tpc_of_sm(sm)));
    }
    return tpcs;
}

int Topology::max_compute_quota() const { return static_cast<int>(quota_order_.size()); }

TpcSet Topology::compute_tpcs(int quota) const {
    TpcSet tpcs;
    const auto count = static_cast<size_t>(std::clamp(quota, 0, max_compute_quota()));
    for (size_t i = 0; i < count; ++i) tpcs.set(static_cast<size_t>(quota_order_[i]));
    return tpcs;
}

std::vector<int> Topology::balanced_quotas() const {
    std::vector<int> quotas;
    for (int quota = gpc_count(); quota < max_compute_quota(); quota += gpc_count()) {
        std::vector<int> gave(static_cast<size_t>(gpc_count()), 0);
        for (int i = 0; i < quota; ++i) ++gave[static_cast<size_t>(gpc_of(quota_order_[static_cast<size_t>(i)]))];
        if (std::adjacent_find(gave.begin(), gave.end(), std::not_equal_to<>()) == gave.end()) quotas.push_back(quota);
    }
    quotas.push_back(max_compute_quota());
    return quotas;
}

}  // namespace vuda::sim
