// Objects of the engine and its public face.
#include "sim/model/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/model/engine_impl.h"

namespace vuda::sim {
namespace {

Error not_found(const char* what) { return Error{Code::kNotFound, std::string("no such ") + what, {}}; }
Error invalid(const char* text) { return Error{Code::kInvalidArgument, text, {}}; }
Error faulted_tsg() { return Error{Code::kFailedPrecondition, "the TSG has faulted", "destroy it and make a new one"}; }

bool is_share(double v) { return v >= 0 && v <= 1; }

Status check_work(const Work& work, const Topology& topology) {
    if (const auto* frame = std::get_if<Frame>(&work)) {
        for (const Draw& draw : frame->draws) {
            if (draw.vertex_ns < 0 || draw.fragment_ns < 0) return invalid("a draw part takes less than no time");
            if (!(draw.fragment_sm_need > 0 && draw.fragment_sm_need <= 1))
                return invalid("fragment_sm_need is not in (0, 1]");
            if (!is_share(draw.vertex_bandwidth) || !is_share(draw.fragment_bandwidth)) {
                return invalid("a draw's bandwidth is not in [0, 1]");
            }
        }
    } else if (const auto* kernel = std::get_if<Kernel>(&work)) {
        if (kernel->blocks == 0) return invalid("a kernel without blocks");
        if (kernel->block_ns < 0) return invalid("a block takes less than no time");
        if (kernel->blocks_per_sm < 1 || kernel->blocks_per_sm > kSmUnits)
            return invalid("blocks_per_sm is not in [1, 64]");
        if (!is_share(kernel->sm_bound)) return invalid("a kernel's sm_bound is not in [0, 1]");
        if (!is_share(kernel->bandwidth)) return invalid("a kernel's bandwidth is not in [0, 1]");
        if (kernel->disabled_tpcs && (topology.all_tpcs() & ~*kernel->disabled_tpcs).none()) {
            return invalid("the mask disables every TPC");
        }
    }
    return {};
}

}  // namespace

Tsg* Engine::Impl::find_tsg(TsgId id) const {
    const auto it = tsgs_.find(static_cast<uint32_t>(id));
    return it == tsgs_.end() ? nullptr : it->second.get();
}

Channel* Engine::Impl::find_channel(ChannelId id) const {
    const auto it = channels_.find(static_cast<uint32_t>(id));
    return it == channels_.end() ? nullptr : it->second.get();
}

TimeNs Engine::Impl::timeslice(const Tsg& tsg) const {
    if (tsg.timeslice_ns != 0) return tsg.timeslice_ns;
    return tsg.graphics_channels != 0 ? params_.graphics_timeslice_ns : params_.compute_timeslice_ns;
}

void Engine::Impl::apply_quota(Tsg& tsg) const {
    const int standard = params_.default_inter_quota != 0 ? params_.default_inter_quota : topology_.tpc_count() / 2;
    tsg.quota_tpcs = topology_.compute_tpcs(tsg.quota.value_or(standard));
    tsg.quota_sms = topology_.sms_of(tsg.quota_tpcs);
    tsg.even = evenly_split(topology_, topology_.graphics_tpcs() & ~tsg.quota_tpcs);
}

TsgId Engine::Impl::create_tsg(TimeNs timeslice_ns) {
    auto tsg = std::make_unique<Tsg>();
    tsg->id = TsgId{++last_id_};
    tsg->timeslice_ns = std::max<TimeNs>(timeslice_ns, 0);
    tsg->mode = topology_.default_mode();
    const TsgId id = tsg->id;
    Tsg& made = *tsg;
    tsgs_.emplace(static_cast<uint32_t>(id), std::move(tsg));
    apply_quota(made);
    return id;
}

Status Engine::Impl::destroy_tsg(TsgId id) {
    integrate();
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    for (Channel* channel : std::vector<Channel*>(tsg->channels)) {
        end_all(*channel, WorkStatus::kAborted);
        channels_.erase(static_cast<uint32_t>(channel->id));
    }
    if (loaded_ == tsg) loaded_ = nullptr;
    if (switching_to_ == tsg) switching_to_ = nullptr;
    tsgs_.erase(static_cast<uint32_t>(id));
    settle();
    return {};
}

Result<ChannelId> Engine::Impl::create_channel(TsgId id, const ChannelOptions& options) {
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    if (tsg->faulted) return faulted_tsg();
    auto channel = std::make_unique<Channel>();
    channel->id = ChannelId{++last_id_};
    channel->tsg = tsg;
    channel->options = options;
    tsg->channels.push_back(channel.get());
    if (options.kind == ChannelKind::kGraphics) ++tsg->graphics_channels;
    const ChannelId made = channel->id;
    channels_.emplace(static_cast<uint32_t>(made), std::move(channel));
    return made;
}

Status Engine::Impl::destroy_channel(ChannelId id) {
    integrate();
    Channel* channel = find_channel(id);
    if (channel == nullptr) return not_found("channel");
    end_all(*channel, WorkStatus::kAborted);
    Tsg& tsg = *channel->tsg;
    std::erase(tsg.channels, channel);
    if (channel->options.kind == ChannelKind::kGraphics) --tsg.graphics_channels;
    channels_.erase(static_cast<uint32_t>(id));
    settle();
    return {};
}

Status Engine::Impl::set_channel_enabled(ChannelId id, bool enabled) {
    integrate();
    Channel* channel = find_channel(id);
    if (channel == nullptr) return not_found("channel");
    if (channel->tsg->faulted) return faulted_tsg();
    channel->options.enabled = enabled;
    settle();
    return {};
}

Status Engine::Impl::submit(ChannelId id, Work work, uint64_t cookie) {
    Channel* channel = find_channel(id);
    if (channel == nullptr) return not_found("channel");
    if (channel->tsg->faulted) return faulted_tsg();
    if (Status checked = check_work(work, topology_); !checked) return checked;
    if (std::holds_alternative<Frame>(work) && channel->options.kind != ChannelKind::kGraphics) {
        return invalid("a frame on a compute channel");
    }
    Item item;
    if (const auto* kernel = std::get_if<Kernel>(&work)) item.blocks_unplaced = kernel->blocks;
    item.work = std::move(work);
    item.cookie = cookie;
    item.submitted = now_;
    channel->items.push_back(std::move(item));
    if (channel->items.size() == 1) {
        integrate();
        became_ready(*channel);
        settle();
    }
    return {};
}

Status Engine::Impl::set_mode(TsgId id, ScgMode mode) {
    integrate();
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    if (tsg->faulted) return faulted_tsg();
    if (topology_.scg() == ScgControl::kNone) return Error{Code::kUnimplemented, "this GPU has no SCG control", {}};
    tsg->mode = mode;
    settle();
    return {};
}

Status Engine::Impl::set_quota(TsgId id, std::optional<int> tpcs) {
    integrate();
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    if (tsg->faulted) return faulted_tsg();
    if (topology_.scg() == ScgControl::kNone) return Error{Code::kUnimplemented, "this GPU has no SCG control", {}};
    if (tpcs) tpcs = std::clamp(*tpcs, 1, topology_.max_compute_quota());
    tsg->quota = tpcs;
    apply_quota(*tsg);
    settle();
    return {};
}

Status Engine::Impl::set_timeslice(TsgId id, TimeNs timeslice_ns) {
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    if (timeslice_ns < 0) return invalid("a timeslice below 0");
    tsg->timeslice_ns = timeslice_ns;
    return {};
}

Status Engine::Impl::fault_tsg(TsgId id, FaultKind kind, ChannelId culprit) {
    integrate();
    Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    if (tsg->faulted) return faulted_tsg();
    stop_tsg(*tsg, kind, culprit, 0);
    settle();
    return {};
}

Result<TsgInfo> Engine::Impl::tsg_info(TsgId id) const {
    const Tsg* tsg = find_tsg(id);
    if (tsg == nullptr) return not_found("TSG");
    TsgInfo info;
    info.faulted = tsg->faulted;
    info.loaded = loaded_ == tsg;
    info.mode = tsg->mode;
    info.quota = tsg->quota;
    info.compute_tpcs = tsg->mode == ScgMode::kInterSm ? tsg->quota_tpcs : topology_.all_tpcs();
    info.timeslice_ns = timeslice(*tsg);
    info.channels = static_cast<uint32_t>(tsg->channels.size());
    for (const Channel* channel : tsg->channels) info.queued += channel->items.size();
    info.run_time = tsg->run_time + (loaded_ == tsg && in_flight() ? now_ - integrated_to_ : 0);
    return info;
}

std::vector<TimeNs> Engine::Impl::timeslices() const {
    std::vector<TimeNs> found;
    for (const auto& [id, tsg] : tsgs_) {
        if (!tsg->channels.empty()) found.push_back(timeslice(*tsg));
    }
    return found;
}

Result<ChannelInfo> Engine::Impl::channel_info(ChannelId id) const {
    const Channel* channel = find_channel(id);
    if (channel == nullptr) return not_found("channel");
    return ChannelInfo{channel->tsg->id, channel->options, channel->items.size()};
}

// --- the public face -------------------------------------------------------------------------------------------------

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::make(Topology topology, Params params) {
    if (Status valid = params.validate(topology); !valid) return valid.error();
    return Engine(std::make_unique<Impl>(std::move(topology), params));
}

Result<Engine> Engine::make(std::string_view preset) {
    Result<Topology> topology = Topology::preset(preset);
    if (!topology) return topology.error();
    const Params params = Params::fitted(*topology);
    return make(*std::move(topology), params);
}

const Topology& Engine::topology() const { return impl_->topology_; }
const Params& Engine::params() const { return impl_->params_; }
TsgId Engine::create_tsg(TimeNs timeslice_ns) { return impl_->create_tsg(timeslice_ns); }
Status Engine::destroy_tsg(TsgId tsg) { return impl_->destroy_tsg(tsg); }
Result<ChannelId> Engine::create_channel(TsgId tsg, const ChannelOptions& options) {
    return impl_->create_channel(tsg, options);
}
Status Engine::destroy_channel(ChannelId channel) { return impl_->destroy_channel(channel); }
Status Engine::set_channel_enabled(ChannelId channel, bool enabled) {
    return impl_->set_channel_enabled(channel, enabled);
}
Status Engine::submit(ChannelId channel, Work work, uint64_t cookie) {
    return impl_->submit(channel, std::move(work), cookie);
}
Status Engine::set_mode(TsgId tsg, ScgMode mode) { return impl_->set_mode(tsg, mode); }
Status Engine::set_quota(TsgId tsg, std::optional<int> tpcs) { return impl_->set_quota(tsg, tpcs); }
Status Engine::set_timeslice(TsgId tsg, TimeNs timeslice_ns) { return impl_->set_timeslice(tsg, timeslice_ns); }
Status Engine::fault_tsg(TsgId tsg, FaultKind kind, ChannelId culprit) { return impl_->fault_tsg(tsg, kind, culprit); }
std::vector<TimeNs> Engine::timeslices() const { return impl_->timeslices(); }
Result<TsgInfo> Engine::tsg_info(TsgId tsg) const { return impl_->tsg_info(tsg); }
Result<ChannelInfo> Engine::channel_info(ChannelId channel) const { return impl_->channel_info(channel); }
TimeNs Engine::now() const { return impl_->now_; }
TimeNs Engine::next_event_time() const { return impl_->next_event_; }
void Engine::advance_to(TimeNs t) { impl_->advance_to(t); }
std::vector<Completion> Engine::take_completions() { return std::exchange(impl_->completions_, {}); }
std::vector<Fault> Engine::take_faults() { return std::exchange(impl_->faults_, {}); }
void Engine::take_completions(std::vector<Completion>& out) {
    out.clear();
    std::swap(out, impl_->completions_);
}
Stats Engine::stats() const { return impl_->stats(); }

}  // namespace vuda::sim
