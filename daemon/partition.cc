#include "daemon/partition.h"

#include <algorithm>
#include <charconv>

#include "daemon/access.h"

namespace vuda::daemon {
namespace {

// Levels of a mode; nullopt where the GPU has none.
std::optional<partition::Levels> levels_of(const partition::Topology& layout, v1::Mode mode) {
    Result<partition::Levels> levels = partition::Levels::make(layout, static_cast<partition::Mode>(mode));
    if (!levels) return std::nullopt;
    return *std::move(levels);
}

Status need_backend(const SplitFacts& facts) {
    if (facts.backend || facts.no_backend.empty()) return {};
    return Error{Code::kFailedPrecondition, "no program that shares this TSG can keep to a split: " + facts.no_backend,
                 "see SPLIT BY in vudactl status"};
}

Status need_topology(const SplitFacts& facts) {
    if (facts.topology.tpcs_size() > 0) return {};
    return Error{Code::kFailedPrecondition,
                 "the layout of the GPU is not known: no program of this TSG could read it" +
                     (facts.no_backend.empty() ? "" : " (" + facts.no_backend + ")"),
                 "attach a CUDA program first"};
}

}  // namespace

std::optional<Quota> parse_quota(std::string_view text) {
    if (text == "none") return Quota{};
    if (text == "auto") return Quota{Quota::Kind::kAutomatic, 0};
    uint32_t tpcs = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, tpcs);
    if (error != std::errc() || stop != end || tpcs < 1 || tpcs > partition::kMaxTpcs) return std::nullopt;
    return Quota{Quota::Kind::kTpcs, tpcs};
}

bool may_split(const Peer& caller, const Peer& owner, const PartitionSettings& settings) {
    if (may_control(caller, owner)) return true;
    if (!settings.admin_group) return false;
    const gid_t group = *settings.admin_group;
    return caller.gid == group || std::find(caller.groups.begin(), caller.groups.end(), group) != caller.groups.end();
}

Split decide(const SplitWish& wish, const SplitFacts& facts, const PartitionSettings& settings) {
    const partition::Topology layout = layout_of(facts.topology);
    Split split;
    split.quota = wish.quota.value_or(settings.quota);
    const std::optional<v1::Mode> chosen = wish.mode ? wish.mode : settings.mode;
    // Where only a few TPCs can do graphics, keeping off them costs compute next to nothing and frees it from the
    // frames.
    // And a tuner needs levels that leave something to graphics.
    const bool automatic = split.quota.kind == Quota::Kind::kAutomatic;
    split.mode = chosen                                                      ? *chosen
                 : (layout.graphics_limited() || automatic) && facts.backend ? v1::MODE_INTER_SM
                                                                             : v1::MODE_INTRA_SM;
    if (layout.empty()) {
        if (chosen == v1::MODE_INTER_SM || split.quota.kind == Quota::Kind::kTpcs)
            split.note = "waits for the layout of the GPU";
        split.mode = v1::MODE_INTRA_SM;
        return split;
    }
    if (const auto inter = levels_of(layout, v1::MODE_INTER_SM)) split.inter_sm_levels = inter->counts();
    std::optional<partition::Levels> levels = levels_of(layout, split.mode);
    if (!levels) {  // chosen in vudad.toml, for a GPU that cannot
        split.mode = v1::MODE_INTRA_SM;
        levels = levels_of(layout, split.mode);
    }
    if (!levels) return split;
    split.levels = levels->counts();
    std::optional<uint32_t> quota;
    if (split.quota.kind == Quota::Kind::kTpcs) quota = std::min(split.quota.tpcs, levels->total_tpcs());
    if (automatic && facts.tuned) quota = std::clamp(*facts.tuned, 1u, levels->total_tpcs());
    Result<partition::Choice> choice = levels->choose(quota);
    if (!choice) return split;
    split.applied_tpcs = choice->applied_tpcs;
    split.disable = choice->disable;
    split.order.assign(levels->order().begin(), levels->order().begin() + choice->applied_tpcs);
    split.note = choice->note;
    if (!facts.backend && partition::count(split.disable) > 0) split.note = "no program can keep to it now";
    return split;
}

Status check_mode(v1::Mode mode, const SplitFacts& facts) {
    switch (mode) {
        case v1::MODE_INTRA_SM: return {};
        case v1::MODE_SLICED:
            return Error{Code::kUnimplemented, "mode sliced is not offered: this vudad cannot steer time slices",
                         "intra-sm or inter-sm"};
        case v1::MODE_INTER_SM: break;
        default: return Error{Code::kInvalidArgument, "unknown mode " + std::to_string(mode), "intra-sm or inter-sm"};
    }
    if (Status ok = need_topology(facts); !ok) return ok;
    if (const auto levels = partition::Levels::make(layout_of(facts.topology), partition::Mode::kInterSm); !levels)
        return levels.error();
    return need_backend(facts);
}

Status check_quota(const Quota& quota, const SplitFacts& facts, v1::Mode mode) {
    if (quota.kind != Quota::Kind::kTpcs) return {};
    if (quota.tpcs < 1 || quota.tpcs > partition::kMaxTpcs) {
        return Error{Code::kInvalidArgument, "a quota of " + std::to_string(quota.tpcs) + " TPCs is not possible",
                     "use 1 to the number of the GPU's TPCs, auto or none"};
    }
    if (Status ok = need_topology(facts); !ok) return ok;
    const auto levels = partition::Levels::make(layout_of(facts.topology), static_cast<partition::Mode>(mode));
    if (!levels) return levels.error();
    if (const auto choice = levels->choose(quota.tpcs); !choice) return choice.error();
    return need_backend(facts);
}

Status check_topology(const v1::Topology& topology) {
    if (topology.tpcs_size() == 0) return {};
    if (static_cast<size_t>(topology.tpcs_size()) > partition::kMaxTpcs)
        return Error{Code::kInvalidArgument, "a topology of more than 256 TPCs", ""};
    if (const Status ok = partition::check(layout_of(topology)); !ok)
        return Error{Code::kInvalidArgument, ok.error().text, ok.error().hint};
    return {};
}

partition::Topology layout_of(const v1::Topology& topology) {
    partition::Topology layout;
    for (const v1::Tpc& tpc : topology.tpcs())
        layout.tpcs.push_back({tpc.gpc(), tpc.graphics(), {tpc.sms().begin(), tpc.sms().end()}});
    return layout;
}

const char* mode_text(v1::Mode mode) {
    switch (mode) {
        case v1::MODE_INTRA_SM: return "intra-sm";
        case v1::MODE_INTER_SM: return "inter-sm";
        case v1::MODE_SLICED: return "sliced";
        default: return "unknown";
    }
}

std::string quota_text(const Quota& quota) {
    switch (quota.kind) {
        case Quota::Kind::kNone: return "none";
        case Quota::Kind::kAutomatic: return "auto";
        case Quota::Kind::kTpcs: return std::to_string(quota.tpcs);
    }
    return "none";
}

std::string describe(const Split& split, const v1::Topology& topology) {
    std::string text = std::string(mode_text(split.mode)) + ", quota " + quota_text(split.quota);
    if (split.applied_tpcs > 0) {
        text += ", compute on " + std::to_string(split.applied_tpcs) + " of " + std::to_string(topology.tpcs_size()) +
                " TPCs";
    }
    return text;
}

page::Split to_page(const Split& split, uint64_t generation, Portion portion) {
    page::Split out;
    out.generation = generation;
    out.mode = static_cast<page::SplitMode>(split.mode);
    out.applied_tpcs = split.applied_tpcs;
    std::copy(split.disable.begin(), split.disable.end(), out.disable);
    const auto all = static_cast<uint32_t>(split.order.size());
    if (portion.count == 0 || portion.count >= all) return out;
    out.applied_tpcs = portion.count;
    for (uint32_t i = portion.count; i < all; ++i) {
        const uint32_t tpc = split.order[(portion.first + i) % all];
        out.disable[tpc / 64] |= uint64_t{1} << (tpc % 64);
    }
    return out;
}

}  // namespace vuda::daemon
