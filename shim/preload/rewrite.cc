// What happens to each kind of call on its way to the kernel.
#include <algorithm>

#include "shim/preload/decode.h"
#include "shim/preload/state.h"

namespace vuda::shim {
namespace {

constexpr uint16_t kAllocParent = offsetof(rm::AllocArgs, hObjectParent);
constexpr uint16_t kChannelError = offsetof(rm::ChannelParams, hObjectError);
constexpr uint16_t kChannelFlags = offsetof(rm::ChannelParams, flags);
constexpr uint16_t kChannelCtxshare = offsetof(rm::ChannelParams, hContextShare);
constexpr uint16_t kChannelVaSpace = offsetof(rm::ChannelParams, hVASpace);

void edit_arg(Plan* plan, uint16_t offset, uint64_t value) {
    plan->edits.push_back({Edit::Where::kArg, offset, 4, value, ~uint64_t{0}});
}

void edit_param(Plan* plan, uint16_t offset, uint64_t value, uint64_t keep = ~uint64_t{0}) {
    plan->edits.push_back({Edit::Where::kParams, offset, 4, value, keep});
}

}  // namespace

Plan Redirector::State::answer_ok(const Call& call) const {
    Plan plan;
    plan.disposition = Plan::Disposition::kAnswer;
    plan.status = kNvOk;
    plan.status_offset = static_cast<uint16_t>(status_offset(call.role, call.request, *abi));
    return plan;
}

// CUDA's context share under the renderer's TSG. VEID 0 belongs to graphics, so never SYNC; `veid`: that one.
void Redirector::State::move_ctxshare(uint32_t shared, std::optional<uint32_t> veid, Bytes params, Plan* plan) const {
    edit_arg(plan, kAllocParent, shared);
    if (veid) {
        edit_param(plan, offsetof(rm::ContextShareParams, flags), rm::kCtxShareSpecified);
        edit_param(plan, offsetof(rm::ContextShareParams, subctxId), *veid, 0);
    } else if (load<rm::ContextShareParams>(params).flags != rm::kCtxShareAsync) {
        edit_param(plan, offsetof(rm::ContextShareParams, flags), rm::kCtxShareAsync);
    }
}

// CUDA's channel under the renderer's TSG. `ctxshare` replaces the caller's when not 0.
void Redirector::State::move_channel(const Tsg& t, uint32_t shared, uint32_t ctxshare, Bytes params, Plan* plan) const {
    edit_arg(plan, kAllocParent, shared);
    if (ctxshare != 0) {
        edit_param(plan, kChannelCtxshare, ctxshare);
        if (load<uint32_t>(params, kChannelVaSpace) != 0) edit_param(plan, kChannelVaSpace, 0);
    }
    // Beside graphics, compute outside of VEID 0 must come through the second runqueue: GSP refuses the compute object
    // otherwise. Delayed scheduling, because the group is running already and the channel must not run before UVM knows
    // it.
    constexpr uint32_t kOurs = rm::kChannelRunqueueOne | rm::kChannelDelayScheduling;
    edit_param(plan, kChannelFlags, load<uint32_t>(params, kChannelFlags) | kOurs, kOurs);
    // A channel without an error notifier gets its group's, but a duplicate of a group has none to give.
    if (load<uint32_t>(params, kChannelError) == 0 && t.error_notifier != 0) {
        edit_param(plan, kChannelError, t.error_notifier);
    }
}

Plan Redirector::State::before_alloc(const Call& call) {
    Plan plan;
    const auto args = load<rm::AllocArgs>(call.arg);
    const ParamsRef wanted = params_of(call.role, call.request, call.arg, *abi);
    Client* owner = client(args.hRoot);
    Tsg* t = tsg(args.hRoot, args.hObjectParent);
    if (owner == nullptr || t == nullptr || !t->graphics_engine || wanted.needed == 0 ||
        call.params.size() < wanted.needed) {
        return plan;
    }
    if (t->stage == Tsg::Stage::kMerging) return plan;  // another thread is at it: stay out of its way

    if (args.hClass == rm::cls::kContextShare) {
        if (t->merge != nullptr && !t->merge->partial) {
            plan.intent.kind = Intent::Kind::kMoveCtxshare;
            plan.intent.client = args.hRoot;
            plan.intent.tsg = args.hObjectParent;
            move_ctxshare(t->merge->shared, std::nullopt, call.params, &plan);
            return plan;
        }
        if (t->stage == Tsg::Stage::kOpen) {
            return merge(call, args.hRoot, args.hObjectParent, load<rm::ContextShareParams>(call.params).hVASpace,
                         false);
        }
        return plan;
    }
    if (!rm::cls::is_gpfifo(args.hClass)) return plan;

    const auto ctxshare = load<uint32_t>(call.params, kChannelCtxshare);
    if (t->merge != nullptr) {
        const Merge& m = *t->merge;
        if (m.moved >= m.limit) return plan;
        // A context share that stayed native (made while another thread merged) keeps its channels native.
        const auto own = owner->ctxshares.find(ctxshare);
        if (m.ctxshare == 0 && (own == owner->ctxshares.end() || !own->second.moved)) return plan;
        plan.intent.kind = Intent::Kind::kMoveChannel;
        plan.intent.client = args.hRoot;
        plan.intent.tsg = args.hObjectParent;
        move_channel(*t, m.shared, m.ctxshare, call.params, &plan);
        return plan;
    }
    if (ctxshare != 0 || t->stage != Tsg::Stage::kOpen) return plan;

    const uint32_t space_handle = t->va_space;
    const VaSpace* space = va_space(args.hRoot, space_handle);
    if (space != nullptr && space->external) return merge(call, args.hRoot, args.hObjectParent, space_handle, true);
    return inject(call, args.hRoot, args.hObjectParent);
}

// A renderer's TSG whose first channel has no context share would take none later. In a process that was asked to share
// it gets one (and VEID 1 for channels of the second thread), as RM itself would have made in secret.
Plan Redirector::State::inject(const Call& call, uint32_t client_handle, uint32_t tsg_handle) {
    Plan plan;
    Client& owner = *client(client_handle);
    Tsg& t = *tsg(client_handle, tsg_handle);
    const bool asked = wishes.share_renderer || wishes.share_in_process;
    if (!asked || t.legacy) return plan;

    const bool other_thread = (load<uint32_t>(call.params, kChannelFlags) & rm::kChannelThreadMask) != 0;
    const uint32_t existing = other_thread ? t.injected_thread : t.injected;
    plan.intent.kind = Intent::Kind::kInject;
    plan.intent.client = client_handle;
    plan.intent.tsg = tsg_handle;
    plan.intent.ctxshare = existing;
    plan.intent.partial = other_thread;
    plan.on_failure = Plan::OnFailure::kUndo;
    if (existing == 0) {
        plan.intent.ctxshare = fresh_handle(owner);
        plan.before.push_back(AllocCtxshare{owner.file, client_handle, tsg_handle, plan.intent.ctxshare, t.va_space,
                                            other_thread ? rm::kCtxShareSpecified : rm::kCtxShareSync,
                                            other_thread ? 1u : 0u});
    }
    edit_param(&plan, kChannelCtxshare, plan.intent.ctxshare);
    if (load<uint32_t>(call.params, kChannelVaSpace) != 0) edit_param(&plan, kChannelVaSpace, 0);
    return plan;
}

Plan Redirector::State::before_control(const Call& call) {
    Plan plan;
    const auto args = load<rm::ControlArgs>(call.arg);
    Client* owner = client(args.hClient);
    if (owner == nullptr) return plan;

    // Names a channel or TSG that runs in the renderer's TSG.
    const auto shared_target = [&](uint32_t handle) {
        const auto channel = owner->channels.find(handle);
        if (channel != owner->channels.end()) return channel->second.moved;
        const auto group = owner->tsgs.find(handle);
        return group != owner->tsgs.end() && group->second.merge != nullptr && !group->second.merge->partial;
    };

    switch (args.cmd) {
        case rm::ctrl::kGrCtxswZcullBind: {
            // Saving the zcull buffer per context switch makes every context share of the group read it at the
            // renderer's address; CUDA's first kernel would fault.
            const auto params = load<rm::ZcullBindParams>(call.params);
            if (call.params.size() < sizeof(rm::ZcullBindParams)) return plan;
            if (params.zcullMode != rm::kZcullModeSeparateBuffer) return plan;
            if (!wishes.share_renderer && !wishes.share_in_process) {
                Client* const owner = client(params.hClient);
                if (owner == nullptr) return plan;
                const auto channel = owner->channels.find(params.hChannel);
                if (channel == owner->channels.end()) return plan;
                const auto group = owner->tsgs.find(channel->second.tsg);
                if (group != owner->tsgs.end()) group->second.saves_zcull = true;
                return plan;
            }
            edit_param(&plan, offsetof(rm::ZcullBindParams, zcullMode), rm::kZcullModeNoCtxsw);
            return plan;
        }
        case rm::ctrl::kGrSetCtxswPreemptionMode: {
            // Compute-instruction-level preemption is not allowed beside graphics; the group keeps the renderer's mode.
            const auto handle = load<uint32_t>(call.params, offsetof(rm::PreemptionModeParams, hChannel));
            return shared_target(handle) ? answer_ok(call) : plan;
        }
        case rm::ctrl::kGrCtxswPreemptionBind: {
            const auto handle = load<uint32_t>(call.params, offsetof(rm::PreemptionBindParams, hChannel));
            return shared_target(handle) ? answer_ok(call) : plan;
        }
        case rm::ctrl::kGrCtxswSetupBind: {
            const auto handle = load<uint32_t>(call.params, offsetof(rm::SetupBindParams, hChannel));
            return shared_target(handle) ? answer_ok(call) : plan;
        }
        default: break;
    }

    const auto group = owner->tsgs.find(args.hObject);
    if (group == owner->tsgs.end() || group->second.merge == nullptr) return plan;
    const Merge& m = *group->second.merge;
    switch (args.cmd) {
        case rm::ctrl::kTsgGpfifoSchedule:
        case rm::ctrl::kTsgBind: return per_channel(call, args, group->first, group->second);
        case rm::ctrl::kTsgGetInfo:
            if (!m.partial) edit_arg(&plan, offsetof(rm::ControlArgs, hObject), m.shared);
            return plan;
        // The time slice, level and preemption of the group are the renderer's. CUDA's own group is empty, so that
        // forwarding would do nothing (or fail, for PREEMPT); sending PREEMPT to the shared group would stop the
        // renderer for CUDA's sake. CUDA preempts before it disables or frees channels, and RM does that itself for
        // each channel.
        case rm::ctrl::kTsgSetTimeslice:
        case rm::ctrl::kTsgSetInterleaveLevel:
        case rm::ctrl::kTsgMakeRealtime:
        case rm::ctrl::kTsgPreempt: return m.partial ? plan : answer_ok(call);
        default: return plan;
    }
}

// A control of the whole group becomes one for each moved channel: RM's group-level schedule looks at all channels of
// the shared TSG, also at those of other programs that are not ready yet, and its "disable" would stop the renderer.
Plan Redirector::State::per_channel(const Call& call, const rm::ControlArgs& args, uint32_t tsg_handle, Tsg& t) {
    Plan plan;
    Merge& m = *t.merge;
    Client& owner = *client(args.hClient);
    const size_t at_least = args.cmd == rm::ctrl::kTsgBind ? sizeof(rm::ChannelBindParams) : 2;
    std::array<uint8_t, 16> params{};
    if (call.params.size() < at_least || call.params.size() > params.size()) return plan;
    std::ranges::copy(call.params, params.begin());

    plan.disposition = m.partial ? Plan::Disposition::kForward : Plan::Disposition::kAnswer;
    plan.status_offset = static_cast<uint16_t>(status_offset(call.role, call.request, *abi));
    plan.on_failure = Plan::OnFailure::kAnswer;
    plan.intent.client = args.hClient;
    plan.intent.tsg = tsg_handle;
    const bool schedule = args.cmd == rm::ctrl::kTsgGpfifoSchedule;
    if (schedule && params[0] != 0) plan.intent.kind = Intent::Kind::kSchedule;

    uint32_t native = 0;
    uint32_t first_moved = 0;
    for (const auto& [handle, channel] : owner.channels) {
        if (channel.tsg != tsg_handle) continue;
        if (!channel.moved) {
            native = handle;
            continue;
        }
        if (first_moved == 0) first_moved = handle;
        ChannelControl control;
        control.file = call.file;
        control.client = args.hClient;
        control.channel = handle;
        control.command = schedule ? rm::ctrl::kChannelGpfifoSchedule : rm::ctrl::kChannelBind;
        control.params = params;
        control.params_size = static_cast<uint32_t>(call.params.size());
        plan.before.push_back(control);
    }
    if (plan.intent.kind == Intent::Kind::kSchedule && m.partial && !m.bootstrapped && first_moved != 0) {
        plan.before.push_back(BootstrapSubcontext{owner.file, m.uvm, args.hClient, t.device, t.va_space, m.ctxshare,
                                                  first_moved, native});
    }
    return plan;
}

// True when freeing what `args` name takes this TSG along.
bool Redirector::State::frees(const rm::FreeArgs& args, uint32_t tsg_handle, const Tsg& t) {
    return args.hObjectOld == args.hRoot || args.hObjectOld == tsg_handle || args.hObjectOld == t.device;
}

void Redirector::State::forget_freed(const rm::FreeArgs& args) {
    Client* owner = client(args.hRoot);
    if (owner == nullptr) return;
    for (auto& group : owner->tsgs) {
        if (group.second.merge == nullptr || !frees(args, group.first, group.second)) continue;
        const auto moved = [&](const auto& entry) { return entry.second.moved && entry.second.tsg == group.first; };
        std::erase_if(owner->channels, moved);
        std::erase_if(owner->ctxshares, moved);
        group.second.merge->va_space->merging = false;
        end_merge(&group.second, {});
    }
}

Plan Redirector::State::before_free(const Call& call, bool impatient) {
    Plan plan;
    const auto args = load<rm::FreeArgs>(call.arg);
    Client* owner = client(args.hRoot);
    if (owner == nullptr) return plan;
    for (const auto& [handle, t] : owner->tsgs) {
        if (t.merge == nullptr || !frees(args, handle, t)) continue;
        if (t.merge->va_space->busy() && !impatient) {
            plan = {};
            plan.disposition = Plan::Disposition::kWait;
            plan.intent.kind = Intent::Kind::kFree;
            return plan;
        }
        plan.intent.kind = Intent::Kind::kFree;
        clean_up(args.hRoot, handle, &plan.before, &plan.before);
    }
    for (const auto& [handle, t] : owner->tsgs) {
        if (t.merge != nullptr && frees(args, handle, t)) t.merge->va_space->merging = true;
    }
    plan.on_failure = Plan::OnFailure::kIgnore;
    return plan;
}

Plan Redirector::State::before_uvm(const Call& call) {
    Plan plan;
    if (call.request != rm::uvm::kRegisterChannel) return plan;
    const auto args = load<rm::UvmRegisterChannelArgs>(call.arg);
    Client* owner = client(args.hClient);
    if (owner == nullptr || args.length == 0) return plan;
    const auto channel = owner->channels.find(args.hChannel);
    if (channel == owner->channels.end() || !channel->second.moved) return plan;
    const Tsg& t = owner->tsgs.at(channel->second.tsg);
    if (t.merge == nullptr || !t.merge->partial) return plan;
    // Channels share the window of context buffers within one TSG only, and CUDA's other channels use the given one.
    plan.edits.push_back(
        {Edit::Where::kArg, offsetof(rm::UvmRegisterChannelArgs, base), 8, options.partial_window, ~uint64_t{0}});
    return plan;
}

}  // namespace vuda::shim
