// Deciding whether and how a CUDA TSG's channels go into a renderer's TSG, and what has to happen first.
#include <algorithm>
#include <iterator>
#include <utility>

#include "shim/preload/decode.h"
#include "shim/preload/state.h"

namespace vuda::shim {

Plan Redirector::State::decline(const Call& call, const Intent& intent, const Refusal& why, bool turn_open) {
    if (Tsg* t = tsg(intent.client, intent.tsg)) t->stage = Tsg::Stage::kNative;
    stop_merging(intent);
    if (turn_open) {
        Notice done;
        done.kind = Notice::Kind::kAttachDone;
        done.turn = true;
        done.started_ns = intent.started_ns;
        done.refusal = why;
        notices.push_back(done);
    }
    notice(Notice::Kind::kUnshared, why);
    Plan plan;
    if (wishes.require) {
        plan.disposition = Plan::Disposition::kAnswer;
        plan.status = why.status != kNvOk ? why.status : rm::nv::kInvalidState;
        plan.status_offset = static_cast<uint16_t>(status_offset(call.role, call.request, *abi));
    }
    return plan;
}

void Redirector::State::stop_merging(const Intent& intent) {
    if (intent.kind != Intent::Kind::kMerge) return;
    if (VaSpace* space = va_space(intent.client, intent.va_space)) space->merging = space->awaiting = false;
}

Refusal Redirector::State::unfit(const Client& owner, const Tsg& t) const {
    if (wishes.unfit) return wishes.unfit;
    if (confidential) return {Reason::kConfidential, 0, 0, 0};
    if (owner.virtual_gpus.contains(t.device)) return {Reason::kVirtualGpu, 0, 0, 0};
    if (!owner.partitions.empty()) return {Reason::kMig, 0, 0, 0};
    return {};
}

// First half of a decision: everything that can be known without vudad. A pass-through plan when the answer is no.
Plan Redirector::State::merge(const Call& call, uint32_t client_handle, uint32_t tsg_handle, uint32_t space_handle,
                              bool legacy) {
    Plan plan;
    if (call.unshared || (!wishes.attach && !wishes.share_in_process) || wishes.reserve == 0) return plan;
    Client& owner = *client(client_handle);
    Tsg& t = *tsg(client_handle, tsg_handle);
    VaSpace* space = va_space(client_handle, space_handle);
    // Not a CUDA context. Nothing to report: the renderer's own TSGs come this way.
    if (space == nullptr || !space->external) return plan;
    // A group that runs 3D work is a renderer's own, whatever address space it is given: it would be merged with
    // itself.
    if (t.has_3d) return plan;

    Refusal why;
    if (stopped) {
        why = stopped;
    } else if (const Refusal no = unfit(owner, t)) {
        why = no;
    } else if (space->uvm == 0) {
        why.reason = Reason::kNotRegistered;
    }
    plan.intent.client = client_handle;
    plan.intent.tsg = tsg_handle;
    if (why) return decline(call, plan.intent, why, false);
    if (space->busy()) {
        plan.disposition = Plan::Disposition::kWait;
        return plan;
    }

    plan.intent.kind = Intent::Kind::kMerge;
    plan.intent.va_space = space_handle;
    plan.intent.legacy = legacy;
    plan.intent.partial = wishes.reserve < wishes.cuda_channels && options.bootstrap;
    if (plan.intent.partial) plan.intent.limit = wishes.reserve;
    plan.intent.started_ns = call.now_ns;

    const Host host = this->host();
    const uint32_t channels =
        std::min(plan.intent.partial ? wishes.reserve : wishes.cuda_channels, options.tsg_channels_max);
    if (host.client != 0 && (wishes.share_in_process || !wishes.attach)) {
        const auto device = owner.devices.find(t.device);
        const uint32_t instance = device == owner.devices.end() ? 0 : device->second;
        if (host.unfit != Reason::kNone) {
            why.reason = host.unfit;
        } else if (host.device_instance != instance) {
            why = {Reason::kOtherGpu, 0, instance, host.device_instance};
        } else if (host.channels + channels > options.tsg_channels_max) {
            why = {Reason::kTsgFull, 0, host.channels, 0};
        } else {
            return merge_with(call, std::move(plan), &host, nullptr);
        }
    } else if (!wishes.attach) {
        why.reason = Reason::kNoHost;
    } else {
        t.stage = Tsg::Stage::kMerging;
        space->merging = space->awaiting = true;
        plan.disposition = Plan::Disposition::kAttach;
        plan.attach = {space->gpu, channels, call.now_ns, space->base};
        plan.intent.attach = true;
        return plan;
    }
    return decline(call, plan.intent, why, false);
}

// Second half: the host is known. Exactly one of `host` and `offer` is set.
Plan Redirector::State::merge_with(const Call& call, Plan plan, const Host* host, const Offer* offer) {
    Intent& intent = plan.intent;
    const auto refuse = [&](const Refusal& why) { return decline(call, intent, why, intent.attach); };
    Client* owner = client(intent.client);
    Tsg* t = tsg(intent.client, intent.tsg);
    VaSpace* space = va_space(intent.client, intent.va_space);
    if (owner == nullptr || t == nullptr || space == nullptr || space->uvm == 0)
        return refuse({Reason::kContextGone, 0, 0, 0});

    plan.disposition = Plan::Disposition::kForward;
    plan.on_failure = Plan::OnFailure::kUndo;
    plan.before.clear();
    plan.edits.clear();
    t->stage = Tsg::Stage::kMerging;
    space->merging = true;
    space->awaiting = false;

    // The TSG itself.
    intent.shared = fresh_handle(*owner);
    if (host != nullptr) {
        plan.before.push_back(DupObject{owner->file, intent.client, t->device, intent.shared, host->client, host->tsg});
    } else {
        if (offer->channels_in_use + plan.attach.channels > options.tsg_channels_max) {
            return refuse({Reason::kTsgFull, 0, offer->channels_in_use, 0});
        }
        plan.before.push_back(ImportObject{owner->file, intent.client, t->device, intent.shared, offer->tsg_fd});
    }

    // Its control buffers, at the same addresses. Before the context share: from then on the GPU may read them in
    // CUDA's space.
    std::vector<OfferedBuffer> buffers;
    if (host != nullptr) {
        // What comes from now on is told to it; what others in this process have not heard of is told to it, too.
        if (local.order != host->order) {
            follow(local, host->order);
            local.buffers.told(host->buffers);
        }
        for (const HostBuffer& b : host->buffers)
            buffers.push_back({static_cast<int>(b.memory), b.va, b.length, b.offset, b.order});
    } else {
        buffers = tidy(offer->buffers);
    }
    intent.buffers = static_cast<uint32_t>(buffers.size());
    if (space->mirror_users > 0) {
        // Another context in this address space shares already. The same set serves both, and has followed the renderer
        // since; two renderers' cannot coexist.
        const bool same = space->mirrors.holds(buffers);
        if (!same) return refuse({Reason::kBufferOverlap, 0, buffers.empty() ? 0 : buffers.front().va, 0});
    } else {
        space->by_transfer = intent.transfer;
        for (const OfferedBuffer& b : buffers)
            std::ranges::move(mirror_actions(*owner, intent.client, *t, *space, b, host),
                              std::back_inserter(plan.before));
    }

    const std::optional<uint32_t> veid = take_stale(*owner, host != nullptr ? stale_veids() : offer->stale_veids,
                                                    offer != nullptr ? offer->unknown_veids : 0, plan);

    // The context share: ours when CUDA has none of its own (legacy) or keeps it (partial); else CUDA's own one moves.
    if (intent.partial || intent.legacy) {
        intent.ctxshare = fresh_handle(*owner);
        plan.before.push_back(AllocCtxshare{owner->file, intent.client, intent.shared, intent.ctxshare, intent.va_space,
                                            veid ? rm::kCtxShareSpecified : rm::kCtxShareAsync, veid.value_or(0)});
    }
    if (intent.legacy) {
        move_channel(*t, intent.shared, intent.ctxshare, call.params, &plan);
    } else if (!intent.partial) {
        move_ctxshare(intent.shared, veid, call.params, &plan);
    }
    return plan;
}

// The forwarded call of a kMerge plan came back. False: it failed, and the plan must be undone.
bool Redirector::State::finish_merge(const Plan& plan, std::span<const ActionResult> results) {
    const Intent& intent = plan.intent;
    Client* owner = client(intent.client);
    Tsg* t = tsg(intent.client, intent.tsg);
    VaSpace* space = va_space(intent.client, intent.va_space);
    if (owner == nullptr || t == nullptr || space == nullptr) return false;
    stop_merging(intent);

    auto made = std::make_unique<Merge>();
    made->shared = intent.shared;
    made->ctxshare = intent.ctxshare;
    made->partial = intent.partial;
    made->limit = intent.limit;
    made->buffers = intent.buffers;
    made->turn_open = true;
    made->attach = intent.attach;
    made->started_ns = intent.started_ns;
    made->uvm = space->uvm;
    made->va_space = owner->va_spaces.at(intent.va_space);
    for (size_t i = 0; i < plan.before.size() && i < results.size(); ++i) {
        if (const auto* range = std::get_if<UvmCreateRange>(&plan.before[i]))
            space->mirrors.put(range->va, {range->length, range->mapping});
        const auto* share = std::get_if<AllocCtxshare>(&plan.before[i]);
        if (share == nullptr) continue;
        if (share->object == intent.ctxshare) made->veid = results[i].veid;
        const auto given_back = [&](const Action& action) {
            const auto* gone = std::get_if<FreeObject>(&action);
            return gone != nullptr && gone->object == share->object;
        };
        if ((!share->patient && !share->optional) || results[i].veid != share->veid ||
            std::ranges::any_of(plan.before, given_back))
            continue;
        made->taken.push_back(share->object);
        made->veids |= uint64_t{1} << share->veid;
    }
    ++space->mirror_users;
    t->merge = std::move(made);
    t->stage = Tsg::Stage::kMerged;
    if (wishes.reserve < wishes.cuda_channels && !intent.partial) {
        notice(Notice::Kind::kNote, {Reason::kPartialUnsupported, 0, wishes.reserve, wishes.cuda_channels});
    }
    return true;
}

// A context share or channel that went into the shared TSG.
void Redirector::State::mark_moved(const Call& call, const Outcome& outcome, const Intent& intent) {
    Client* owner = client(intent.client);
    Tsg* t = tsg(intent.client, intent.tsg);
    if (owner == nullptr || t == nullptr || t->merge == nullptr) return;
    const auto object = load<uint32_t>(outcome.arg, offsetof(rm::AllocArgs, hObjectNew));
    const auto hclass = load<uint32_t>(call.arg, offsetof(rm::AllocArgs, hClass));
    if (hclass == rm::cls::kContextShare) {
        const auto found = owner->ctxshares.find(object);
        if (found == owner->ctxshares.end() || t->merge->partial) return;
        found->second.moved = true;
        t->merge->veid = found->second.veid;
    } else {
        const auto found = owner->channels.find(object);
        if (found == owner->channels.end()) return;
        found->second.moved = true;
        ++t->merge->moved;
    }
}

// CUDA scheduled its group: the channels run, the attach is over.
void Redirector::State::scheduled(const Intent& intent, uint32_t status) {
    Tsg* t = tsg(intent.client, intent.tsg);
    if (t == nullptr || t->merge == nullptr || !t->merge->turn_open) return;
    Merge& m = *t->merge;
    m.turn_open = false;
    m.bootstrapped = status == kNvOk;
    if (!m.attach) {
        same_host();
        computed |= m.veids_had();
    }
    Notice done;
    done.kind = Notice::Kind::kAttachDone;
    done.turn = m.attach;
    done.moved = m.moved;
    done.veid = m.veid;
    done.veids = m.veids_had();
    done.buffers = m.buffers;
    done.started_ns = m.started_ns;
    if (status != kNvOk) done.refusal = {Reason::kChannelRefused, status, 0, 0};
    notices.push_back(done);
}

// What takes the merge of this TSG back, in the order that RM wants: channels, context shares, the TSG handle, then the
// ranges.
void Redirector::State::clean_up(uint32_t client_handle, uint32_t tsg_handle, std::vector<Action>* objects,
                                 std::vector<Action>* ranges) {
    Client* owner = client(client_handle);
    Tsg* t = tsg(client_handle, tsg_handle);
    if (owner == nullptr || t == nullptr || t->merge == nullptr) return;
    const Merge& merge = *t->merge;
    for (const auto& [handle, channel] : owner->channels) {
        if (channel.tsg == tsg_handle && channel.moved)
            objects->push_back(FreeObject{owner->file, client_handle, handle});
    }
    for (const auto& [handle, ctxshare] : owner->ctxshares) {
        if (ctxshare.tsg == tsg_handle && ctxshare.moved)
            objects->push_back(FreeObject{owner->file, client_handle, handle});
    }
    if (merge.ctxshare != 0) objects->push_back(FreeObject{owner->file, client_handle, merge.ctxshare});
    for (const uint32_t taken : merge.taken) objects->push_back(FreeObject{owner->file, client_handle, taken});
    objects->push_back(FreeObject{owner->file, client_handle, merge.shared});
    if (++merge.va_space->leaving == merge.va_space->mirror_users) {
        for (const auto& [va, mirror] : merge.va_space->mirrors.entries())
            ranges->push_back(UvmFreeRange{merge.uvm, va, mirror.length});
    }
}

// Forgets the merge and says so; `why` is empty when CUDA's context simply went away.
void Redirector::State::end_merge(Tsg* t, const Refusal& why) {
    if (t->merge == nullptr) return;
    const Merge& merge = *t->merge;
    VaSpace& space = *merge.va_space;
    if (space.leaving > 0) --space.leaving;
    if (--space.mirror_users == 0) space.mirrors.clear();
    Notice gone;
    gone.kind = merge.turn_open ? Notice::Kind::kAttachDone : Notice::Kind::kDetached;
    gone.turn = merge.turn_open && merge.attach;
    gone.started_ns = merge.started_ns;
    gone.refusal = merge.turn_open && !why ? Refusal{Reason::kContextGone, 0, 0, 0} : why;
    const bool attached = merge.attach;
    t->merge.reset();
    t->stage = Tsg::Stage::kNative;
    gone.attach = attached;
    gone.veids = sharing_veids(attached);
    gone.moved = sharing_channels(attached);
    notices.push_back(gone);
}

// The first channel did not get into the shared TSG: CUDA's context share goes back to CUDA's own TSG under the same
// handle and VEID, so that CUDA never notices. Only possible before any channel moved.
Plan Redirector::State::back_to_native(const Call& call, uint32_t client_handle, uint32_t tsg_handle,
                                       const Refusal& why) {
    Plan plan;
    plan.intent.kind = Intent::Kind::kOldWay;
    plan.intent.client = client_handle;
    plan.intent.tsg = tsg_handle;
    Client* owner = client(client_handle);
    Tsg* t = tsg(client_handle, tsg_handle);
    if (owner == nullptr || t == nullptr || t->merge == nullptr) return plan;

    std::vector<Action> ranges;
    clean_up(client_handle, tsg_handle, &plan.before, &ranges);
    plan.before.insert(plan.before.end(), ranges.begin(), ranges.end());
    for (auto& [handle, ctxshare] : owner->ctxshares) {
        if (ctxshare.tsg != tsg_handle || !ctxshare.moved) continue;
        plan.before.push_back(AllocCtxshare{owner->file, client_handle, tsg_handle, handle, ctxshare.va_space,
                                            rm::kCtxShareSpecified, ctxshare.veid});
        ctxshare.moved = false;
    }
    end_merge(t, why);
    const Plan answer = decline(call, plan.intent, why, false);
    plan.disposition = answer.disposition;
    plan.status = answer.status;
    plan.status_offset = answer.status_offset;
    return plan;
}

}  // namespace vuda::shim
