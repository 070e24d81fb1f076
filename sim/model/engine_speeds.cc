// How fast each thing that runs is.
#include <algorithm>

#include "sim/model/engine_impl.h"

namespace vuda::sim {

TpcSet Engine::Impl::graphics_tpcs_now(const Tsg& tsg) const {
    TpcSet tpcs = topology_.graphics_tpcs();
    // While no block runs, graphics has the whole GPU also in inter-SM mode.
    if (tsg.mode != ScgMode::kInterSm || waves_.empty()) return tpcs;
    tpcs &= ~tsg.quota_tpcs;
    for (const Wave& wave : waves_) tpcs &= ~wave.placement.tpcs;  // placed under an earlier quota
    return tpcs;
}

void Engine::Impl::update_rates() {
    if (!in_flight()) return;
    const Tsg& tsg = *loaded_;
    const bool inter = tsg.mode == ScgMode::kInterSm;
    const bool drawing = draw_.channel != nullptr;
    const bool vertex = draw_.part == GraphicsPart::kVertex;
    const bool shared_sms = drawing && !inter && !topology_.graphics_limited();
    const CoResidency& together = vertex ? params_.intra_vertex : params_.intra_fragment;

    double compute_bandwidth = 0;
    double resident = 0;  // SMs' worth of moving blocks on TPCs that graphics uses
    for (Wave& wave : waves_) {
        if (wave.stuck_behind != 0 && (!drawing || draw_.serial != wave.stuck_behind)) wave.stuck_behind = 0;
        wave.rate = wave.stuck_behind != 0 ? 0.0 : shared_sms ? together.compute : 1.0;
        const double sms = wave.placement.sm_equivalents();
        const Kernel& kernel = std::get<Kernel>(wave.channel->items.front().work);
        compute_bandwidth += kernel.bandwidth * wave.rate * sms / topology_.sm_count();
        if (inter || wave.rate == 0) continue;
        if (!topology_.graphics_limited()) {
            resident += sms;
        } else if ((wave.placement.sms & graphics_sms_).any()) {
            for (int sm = 0; sm < topology_.sm_count(); ++sm) {
                const auto s = static_cast<size_t>(sm);
                if (graphics_sms_.test(s)) resident += wave.placement.sm_equivalents_on(s);
            }
        }
    }
    if (!drawing) return;

    const Item& item = draw_.channel->items.front();
    const Draw& draw = std::get<Frame>(item.work).draws[item.next_draw - 1];
    const auto graphics_sms = static_cast<double>(graphics_sms_.count());
    double sms_held = graphics_sms;
    double rate = 1.0;
    if (inter) {
        if (!waves_.empty()) {
            const TpcSet now = graphics_tpcs_now(tsg);
            rate = spatial_rate(topology_, params_, draw_.part, now, vertex ? 1.0 : draw.fragment_sm_need);
            if (vertex) rate *= tsg.even ? params_.inter_vertex_even : params_.inter_vertex_uneven;
            sms_held = static_cast<double>(now.count()) * static_cast<double>(topology_.sms_per_tpc());
        }
    } else {
        const double overlap = std::min(1.0, resident / graphics_sms);
        rate = 1.0 - overlap * (1.0 - (topology_.graphics_limited() ? 0.0 : together.graphics));
    }

    const double graphics_bandwidth = rate * (vertex ? draw.vertex_bandwidth : draw.fragment_bandwidth);
    const BandwidthSplit split = split_bandwidth(params_, graphics_bandwidth, compute_bandwidth);
    // In inter-SM mode `rate` compares with the whole GPU, so the SMs held are busy at most fully; elsewhere it is
    // their use.
    draw_.sm_speed = sms_held * (inter ? 1.0 : rate) * split.graphics;
    draw_.rate = rate * split.graphics;
    if (split.compute < 1.0) {
        for (Wave& wave : waves_) {
            // Only blocks that use memory wait for it.
            if (std::get<Kernel>(wave.channel->items.front().work).bandwidth > 0) wave.rate *= split.compute;
        }
    }
}

}  // namespace vuda::sim
