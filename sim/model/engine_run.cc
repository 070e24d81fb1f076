// Whose turn it is, what starts and ends, and the clock.
#include <algorithm>
#include <cmath>

#include "sim/model/engine_impl.h"

namespace vuda::sim {

// --- whose turn it is ------------------------------------------------------------------------------------------------

bool Engine::Impl::serial_kernel(const Kernel& kernel, const Tsg& tsg) const {
    return tsg.graphics_channels != 0 && kernel.shared_memory > params_.scg_concurrent_max &&
           kernel.shared_memory <= params_.scg_serial_max;
}

bool Engine::Impl::frame_in_progress(const Tsg& tsg) {
    // A frame whose channel is not scheduled cannot end, so nothing waits for it.
    return std::any_of(tsg.ready.begin(), tsg.ready.end(), [](const Channel* channel) {
        const Item& front = channel->items.front();
        return std::holds_alternative<Frame>(front.work) && front.start >= 0 && channel->options.enabled;
    });
}

bool Engine::Impl::can_run(const Channel& channel) const {
    if (!channel.options.enabled) return false;
    const Item& front = channel.items.front();
    const auto* kernel = std::get_if<Kernel>(&front.work);
    if (kernel == nullptr) return true;
    if (front.blocks_unplaced == 0) return false;
    return front.start >= 0 || !serial_kernel(*kernel, *channel.tsg) || !frame_in_progress(*channel.tsg);
}

bool Engine::Impl::has_work(const Tsg& tsg) const {
    return std::any_of(tsg.ready.begin(), tsg.ready.end(),
                       [this](const Channel* channel) { return can_run(*channel); });
}

bool Engine::Impl::another_waits() const {
    return std::any_of(tsgs_.begin(), tsgs_.end(),
                       [this](const auto& entry) { return entry.second.get() != loaded_ && has_work(*entry.second); });
}

Tsg* Engine::Impl::next_in_turn() const {
    const auto after = tsgs_.upper_bound(last_loaded_);
    for (auto it = after; it != tsgs_.end(); ++it) {
        if (has_work(*it->second)) return it->second.get();
    }
    for (auto it = tsgs_.begin(); it != after; ++it) {
        if (has_work(*it->second)) return it->second.get();
    }
    return nullptr;
}

void Engine::Impl::begin_slice() {
    slice_end_ = now_ + timeslice(*loaded_);
    draining_ = false;
}

// --- work starts and ends --------------------------------------------------------------------------------------------

void Engine::Impl::became_ready(Channel& channel) { channel.tsg->ready.push_back(&channel); }

void Engine::Impl::finish_front(Channel& channel, WorkStatus status) {
    Item& item = channel.items.front();
    if (status == WorkStatus::kDone) {
        if (std::holds_alternative<Frame>(item.work)) ++stats_.frame_ends;
        if (std::holds_alternative<Kernel>(item.work)) ++stats_.kernel_ends;
    }
    completions_.push_back(
        {item.cookie, channel.tsg->id, channel.id, status, item.submitted, item.start, now_, item.sms});
    channel.items.pop_front();
    std::erase(channel.tsg->ready, &channel);
    if (!channel.items.empty()) became_ready(channel);
}

void Engine::Impl::stop_running(const Channel& channel) {
    if (draw_.channel == &channel) draw_ = {};
    std::erase_if(waves_, [&](const Wave& wave) {
        if (wave.channel != &channel) return false;
        occupancy_.release(wave.placement);
        return true;
    });
}

void Engine::Impl::end_all(Channel& channel, WorkStatus status) {
    stop_running(channel);
    while (!channel.items.empty()) finish_front(channel, status);
}

void Engine::Impl::stop_tsg(Tsg& tsg, FaultKind kind, ChannelId culprit, uint64_t cookie) {
    tsg.faulted = true;
    ++stats_.faults;
    faults_.push_back({kind, tsg.id, culprit, cookie, now_});
    for (Channel* channel : tsg.channels) end_all(*channel, WorkStatus::kFaulted);
}

double Engine::Impl::jittered(TimeNs ns) {
    const double exact = static_cast<double>(ns);
    return params_.jitter == 0 ? exact : exact * (1.0 + params_.jitter * (2.0 * random_.uniform() - 1.0));
}

void Engine::Impl::start_units(Tsg& tsg) {
    for (bool changed = true; changed;) {
        changed = false;
        // By index and from the start after each change: a start can end work, which reorders the list.
        for (size_t i = 0; i < tsg.ready.size() && !changed; ++i) {
            Channel& channel = *tsg.ready[i];
            if (can_run(channel)) changed = start_front(channel);
        }
    }
}

bool Engine::Impl::start_front(Channel& channel) {
    Item& item = channel.items.front();
    if (const auto* frame = std::get_if<Frame>(&item.work)) return start_draw(channel, item, *frame);
    if (const auto* kernel = std::get_if<Kernel>(&item.work)) return start_wave(channel, item, *kernel);
    item.start = now_;
    finish_front(channel, WorkStatus::kDone);
    return true;
}

bool Engine::Impl::start_draw(Channel& channel, Item& item, const Frame& frame) {
    if (draw_.channel != nullptr) return false;
    if (item.start < 0) {
        item.start = now_;
        ++stats_.frame_starts;
        if (frame.draws.empty()) {
            finish_front(channel, WorkStatus::kDone);
            return true;
        }
    }
    const Draw& draw = frame.draws[item.next_draw++];
    ++stats_.draw_starts;
    draw_ = {};
    draw_.channel = &channel;
    draw_.serial = ++draw_serial_;
    draw_.part = GraphicsPart::kVertex;
    draw_.left_ns = jittered(draw.vertex_ns);
    if (topology_.graphics_limited()) {
        double longest = 0;
        for (const Wave& wave : waves_) {
            if ((wave.placement.sms & graphics_sms_).any()) longest = std::max(longest, wave.left_ns);
        }
        draw_.left_ns += std::min(longest, static_cast<double>(params_.regain_ns));
    }
    item.sms |= topology_.sms_of(graphics_tpcs_now(*channel.tsg));
    return true;
}

// How full the fullest SM of a placement is, (0, 1]: its blocks end last. Company that comes or goes later is not
// followed.
double Engine::Impl::fullest(const Placement& placement) const {
    uint32_t units = 0;
    for (int sm = 0; sm < topology_.sm_count(); ++sm) {
        if (placement.sms.test(static_cast<size_t>(sm))) units = std::max(units, occupancy_.used_units(sm));
    }
    return static_cast<double>(units) / kSmUnits;
}

bool Engine::Impl::start_wave(Channel& channel, Item& item, const Kernel& kernel) {
    Tsg& tsg = *channel.tsg;
    if (tsg.graphics_channels != 0 && kernel.shared_memory > params_.scg_serial_max) {
        stop_tsg(tsg, FaultKind::kSharedMemory, channel.id, item.cookie);
        return true;
    }
    const bool inter = tsg.mode == ScgMode::kInterSm;
    SmSet eligible = inter ? tsg.quota_sms : all_sms_;
    if (kernel.disabled_tpcs) eligible &= ~topology_.sms_of(*kernel.disabled_tpcs);
    if (eligible.none()) {
        stop_tsg(tsg, FaultKind::kNoEligibleTpc, channel.id, item.cookie);
        return true;
    }
    // Without a mask the distributor avoids the few graphics TPCs: a kernel that starts beside a draw keeps off them
    // for good, one that starts between draws takes them last. A mask overrides that, and the blocks that land there
    // while a draw runs get no cycles until it is over (seen on an H200 as a p99 of one frame).
    SmSet last;
    uint64_t stuck_behind = 0;
    if (topology_.graphics_limited() && !inter) {
        if (item.start < 0) item.beside_draw = draw_.channel != nullptr;
        const SmSet graphics = eligible & graphics_sms_;
        eligible &= ~graphics_sms_;
        if (kernel.disabled_tpcs) {
            // The mask's order is by number: no TPC is the last.
            if (draw_.channel == nullptr) {
                eligible |= graphics;
            } else {
                last = graphics;
                stuck_behind = draw_.serial;
            }
        } else if (!item.beside_draw && draw_.channel == nullptr) {
            last = graphics;
        }
    }

    const auto place = [&](const SmSet& where, uint64_t stuck) {
        if (item.blocks_unplaced == 0 || !occupancy_.any_room(where)) return false;
        const Placement placement = occupancy_.place(item.blocks_unplaced, kernel.blocks_per_sm, where);
        if (placement.blocks == 0) return false;
        item.blocks_unplaced -= placement.blocks;
        item.blocks_running += placement.blocks;
        item.sms |= placement.sms;
        if (item.start < 0) {
            item.start = now_;
            ++stats_.kernel_starts;
        }
        ++stats_.waves;
        const double left = jittered(kernel.block_ns) * (1.0 - kernel.sm_bound * (1.0 - fullest(placement)));
        waves_.push_back({&channel, placement, left, 0, stuck});
        return true;
    };
    // Blocks behind a draw come first, so that they are there whatever the grid's size is.
    const bool behind = stuck_behind != 0 && place(last, stuck_behind);
    const bool placed = place(eligible, 0);
    return (stuck_behind == 0 && place(last, 0)) || placed || behind;
}

void Engine::Impl::end_draw_part() {
    Channel& channel = *draw_.channel;
    Item& item = channel.items.front();
    const Frame& frame = std::get<Frame>(item.work);
    const Draw& draw = frame.draws[item.next_draw - 1];
    if (draw_.part == GraphicsPart::kVertex) {
        draw_.part = GraphicsPart::kFragment;
        draw_.left_ns = jittered(draw.fragment_ns);
        return;
    }
    const bool yields = draw.yield_after;
    draw_ = {};
    ++stats_.draw_ends;
    if (item.next_draw == frame.draws.size()) finish_front(channel, WorkStatus::kDone);
    if (!yields || draining_ || !another_waits()) return;
    // The slice is given away only when nothing else of the TSG could use it.
    const Tsg& tsg = *channel.tsg;
    const bool others = std::any_of(tsg.ready.begin(), tsg.ready.end(),
                                    [&](const Channel* other) { return other != &channel && can_run(*other); });
    if (!others && waves_.empty()) draining_ = true;
}

void Engine::Impl::end_wave(size_t index) {
    const Wave wave = waves_[index];
    waves_.erase(waves_.begin() + static_cast<std::ptrdiff_t>(index));
    occupancy_.release(wave.placement);
    Item& item = wave.channel->items.front();
    item.blocks_running -= wave.placement.blocks;
    if (item.blocks_running == 0 && item.blocks_unplaced == 0) finish_front(*wave.channel, WorkStatus::kDone);
}

// --- the clock -------------------------------------------------------------------------------------------------------

void Engine::Impl::settle() {
    while (switching_to_ == nullptr) {
        if (loaded_ == nullptr || (!in_flight() && (draining_ || !has_work(*loaded_)))) {
            Tsg* next = next_in_turn();
            if (next == nullptr) {
                draining_ = false;
                break;
            }
            if (next != loaded_) {
                switching_to_ = next;
                loaded_ = nullptr;
                switch_end_ = now_ + params_.switch_ns;
                ++stats_.slice_switches;
                break;
            }
            begin_slice();
        }
        if (!in_flight() && slice_end_ <= now_) begin_slice();  // idle until now: the old slice is history
        if (!draining_) start_units(*loaded_);
        // Markers and empty frames may have used up all work at once.
        if (in_flight() || (!draining_ && has_work(*loaded_))) break;
    }
    update_rates();

    next_event_ = kNever;
    if (switching_to_ != nullptr) {
        next_event_ = switch_end_;
        return;
    }
    if (!in_flight()) return;
    const auto ends = [this](double left_ns, double rate) {
        if (left_ns <= kDoneNs) return now_;
        if (rate <= 0) return kNever;
        const double ns = std::ceil(left_ns / rate);
        return ns >= 9e18 - static_cast<double>(now_) ? kNever : now_ + std::max<TimeNs>(1, static_cast<TimeNs>(ns));
    };
    if (draw_.channel != nullptr) next_event_ = std::min(next_event_, ends(draw_.left_ns, draw_.rate));
    for (const Wave& wave : waves_) next_event_ = std::min(next_event_, ends(wave.left_ns, wave.rate));
    if (!draining_ && another_waits()) {
        // A slice that ended with nobody waiting started again.
        if (slice_end_ < now_) {
            const TimeNs slice = timeslice(*loaded_);
            slice_end_ += (now_ - slice_end_ + slice - 1) / slice * slice;
        }
        next_event_ = std::min(next_event_, slice_end_);
    }
}

Stats Engine::Impl::stats() const {
    Stats stats = stats_;
    const auto elapsed = static_cast<double>(now_ - integrated_to_);
    if (draw_.channel != nullptr) stats.graphics_sm_ns += draw_.sm_speed * elapsed;
    for (const Wave& wave : waves_) stats.compute_sm_ns += wave.rate * wave.placement.sm_equivalents() * elapsed;
    return stats;
}

void Engine::Impl::integrate() {
    if (now_ == integrated_to_) return;
    stats_ = stats();
    const auto elapsed = static_cast<double>(now_ - integrated_to_);
    if (draw_.channel != nullptr) draw_.left_ns -= draw_.rate * elapsed;
    for (Wave& wave : waves_) wave.left_ns -= wave.rate * elapsed;
    if (loaded_ != nullptr && in_flight()) loaded_->run_time += now_ - integrated_to_;
    integrated_to_ = now_;
}

void Engine::Impl::fire() {
    integrate();
    if (switching_to_ != nullptr && switch_end_ <= now_) {
        loaded_ = std::exchange(switching_to_, nullptr);
        last_loaded_ = static_cast<uint32_t>(loaded_->id);
        begin_slice();
    }
    // Backwards, since ending a wave removes it.  Ends come before the slice check: a unit that ends with the slice is
    // done.
    for (size_t i = waves_.size(); i-- > 0;) {
        if (waves_[i].left_ns <= kDoneNs) end_wave(i);
    }
    if (draw_.channel != nullptr && draw_.left_ns <= kDoneNs) end_draw_part();
    if (loaded_ != nullptr && !draining_ && slice_end_ <= now_ && another_waits()) {
        draining_ = true;
        ++stats_.slice_expiries;
    }
    settle();
}

void Engine::Impl::advance_to(TimeNs t) {
    while (next_event_ <= t) {
        now_ = next_event_;
        fire();
    }
    now_ = std::max(now_, t);
}

}  // namespace vuda::sim
