#include "daemon/partition.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

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

Status need_pacing(const SplitFacts& facts) {
    if (facts.paced) return {};
    return Error{Code::kFailedPrecondition,
                 "the renderer's frames do not come through VUDA's Vulkan layer, so that they cannot be held back",
                 "start it with vudactl run, or with VUDA_ENABLE_LAYER=1"};
}

// The renderer takes turns with compute.
void decide_turns(Split& split, const SplitFacts& facts) {
    const auto all = static_cast<uint32_t>(facts.topology.tpcs_size());
    split.applied_tpcs = all;
    split.frame_ns = facts.frame_ns;
    switch (split.quota.kind) {
        case Quota::Kind::kNone: break;
        case Quota::Kind::kAutomatic: split.compute_percent = facts.tuned.value_or(0); break;
        case Quota::Kind::kPercent: split.compute_percent = split.quota.amount; break;
        case Quota::Kind::kTpcs:
            if (all == 0) {
                split.note = "waits for the layout of the GPU";
            } else {
                split.compute_percent = (split.quota.amount * 100 + all / 2) / all;
            }
            break;
    }
    split.compute_percent = std::min(split.compute_percent, kMaxPercent);
    if (!facts.paced) {
        split.note = "the renderer's frames cannot be held back now";
    } else if (split.compute_percent == 0 && split.frame_ns == 0 && split.note.empty()) {
        split.note = "neither a quota nor a frame target: turns are as the GPU gives them";
    }
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
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    uint32_t amount = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, amount);
    if (error != std::errc() || stop != end || amount < 1 || amount > (percent ? kMaxPercent : partition::kMaxTpcs))
        return std::nullopt;
    return Quota{percent ? Quota::Kind::kPercent : Quota::Kind::kTpcs, amount};
}

std::vector<uint32_t> sliced_levels() {
    std::vector<uint32_t> levels;
    for (uint32_t percent = 5; percent <= 95; percent += 5) levels.push_back(percent);
    return levels;
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
    if (split.mode == v1::MODE_SLICED) {
        if (const auto inter = levels_of(layout, v1::MODE_INTER_SM)) split.inter_sm_levels = inter->counts();
        decide_turns(split, facts);
        return split;
    }
    if (layout.empty()) {
        if (chosen == v1::MODE_INTER_SM || split.quota.kind == Quota::Kind::kTpcs ||
            split.quota.kind == Quota::Kind::kPercent)
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
    if (split.quota.kind == Quota::Kind::kTpcs) quota = std::min(split.quota.amount, levels->total_tpcs());
    if (split.quota.kind == Quota::Kind::kPercent)
        quota = std::max(split.quota.amount * levels->total_tpcs() / 100, 1u);
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
        case v1::MODE_SLICED: return need_pacing(facts);
        case v1::MODE_INTER_SM: break;
        default:
            return Error{Code::kInvalidArgument, "unknown mode " + std::to_string(mode),
                         "intra-sm, inter-sm or sliced"};
    }
    if (Status ok = need_topology(facts); !ok) return ok;
    if (const auto levels = partition::Levels::make(layout_of(facts.topology), partition::Mode::kInterSm); !levels)
        return levels.error();
    return need_backend(facts);
}

Status check_quota(const Quota& quota, const SplitFacts& facts, v1::Mode mode) {
    const bool percent = quota.kind == Quota::Kind::kPercent;
    if (quota.kind != Quota::Kind::kTpcs && !percent) return {};
    if (percent && (quota.amount < 1 || quota.amount > kMaxPercent)) {
        return Error{Code::kInvalidArgument, "a quota of " + std::to_string(quota.amount) + " % is not possible",
                     "use 1% to 99%, a number of TPCs, auto or none"};
    }
    if (!percent && (quota.amount < 1 || quota.amount > partition::kMaxTpcs)) {
        return Error{Code::kInvalidArgument, "a quota of " + std::to_string(quota.amount) + " TPCs is not possible",
                     "use 1 to the number of the GPU's TPCs, auto or none"};
    }
    if (mode == v1::MODE_SLICED && percent) return need_pacing(facts);
    if (Status ok = need_topology(facts); !ok) return ok;
    const auto levels = partition::Levels::make(
        layout_of(facts.topology), static_cast<partition::Mode>(mode == v1::MODE_SLICED ? v1::MODE_INTRA_SM : mode));
    if (!levels) return levels.error();
    const uint32_t tpcs = percent ? std::max(quota.amount * levels->total_tpcs() / 100, 1u) : quota.amount;
    if (const auto choice = levels->choose(tpcs); !choice) return choice.error();
    return mode == v1::MODE_SLICED ? need_pacing(facts) : need_backend(facts);
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
        case Quota::Kind::kTpcs: return std::to_string(quota.amount);
        case Quota::Kind::kPercent: return std::to_string(quota.amount) + "%";
    }
    return "none";
}

std::string describe(const Split& split, const v1::Topology& topology) {
    std::string text = std::string(mode_text(split.mode)) + ", quota " + quota_text(split.quota);
    if (split.mode == v1::MODE_SLICED) {
        if (split.compute_percent > 0)
            text += ", " + std::to_string(split.compute_percent) + " % of the time for compute";
        if (split.frame_ns > 0) {
            char frames[48];
            std::snprintf(frames, sizeof frames, ", a frame each %.2f ms", static_cast<double>(split.frame_ns) / 1e6);
            text += frames;
        }
        return text;
    }
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
    if (split.mode == v1::MODE_SLICED) {
        out.graphics_permille = split.compute_percent == 0 ? 0 : 1000 - 10 * split.compute_percent;
        out.frame_ns = split.frame_ns;
        return out;
    }
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
