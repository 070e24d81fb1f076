// Channel groups (TSGs), context shares (subcontexts, VEIDs), channels and the objects on them.
#include <algorithm>

#include "sim/rm/call.h"

namespace vuda::sim {

uint32_t RmCall::make_tsg(Client& owner, const Object& parent, Bytes params, Payload& made) {
    const auto group = load<rm::ChannelGroupParams>(params);
    const bool known_engine = group.engineType >= 1 && group.engineType <= 0x40;
    if (!known_engine && on(Rule::kTsgEngineRequired)) return rm::nv::kInvalidArgument;
    if (group.engineType > rm::kEngineGr0 && group.engineType < rm::kEngineCopy0)
        return rm::nv::kInvalidArgument;  // GR1..: MIG only
    if (group.hVASpace != 0 && payload<std::shared_ptr<VaSpace>>(find(owner, group.hVASpace)) == nullptr)
        return rm::nv::kObjectNotFound;
    const int gpu = gpu_of(owner, parent);
    if (gpu < 0) return rm::nv::kInvalidArgument;
    auto tsg = std::make_shared<Tsg>();
    tsg->id = rm_.next_tsg_++;
    tsg->gpu = gpu;
    tsg->creator = owner.handle;
    tsg->engine = group.engineType;
    tsg->vas = group.hVASpace != 0 ? *payload<std::shared_ptr<VaSpace>>(find(owner, group.hVASpace)) : nullptr;
    if (group.hObjectError != 0) {
        if (const uint32_t status = channel_notifier(owner, group.hObjectError, tsg->notifier); status != rm::nv::kOk)
            return status;
    }
    rm_.gpus_[static_cast<size_t>(gpu)]->add(*tsg);
    made = std::move(tsg);
    return rm::nv::kOk;
}

uint32_t RmCall::take_veid(Tsg& tsg, uint32_t flags, uint32_t& veid) {
    const auto free_from_top = [&]() -> std::optional<uint32_t> {
        for (size_t i = Tsg::kVeids; i-- > 1;) {
            if (!tsg.veids.test(i)) return static_cast<uint32_t>(i);
        }
        return tsg.veids.test(0) ? std::nullopt : std::optional<uint32_t>(0);
    };
    const auto free_from_bottom = [&]() -> std::optional<uint32_t> {
        for (size_t i = 1; i < Tsg::kVeids; i++) {
            if (!tsg.veids.test(i)) return static_cast<uint32_t>(i);
        }
        return tsg.veids.test(0) ? std::nullopt : std::optional<uint32_t>(0);
    };
    std::optional<uint32_t> chosen;
    switch (flags) {
        case rm::kCtxShareSync:
            chosen = on(Rule::kShareSyncIsZero) ? std::optional<uint32_t>(0) : free_from_bottom();
            break;
        case rm::kCtxShareAsync: chosen = on(Rule::kShareAsyncFromTop) ? free_from_top() : free_from_bottom(); break;
        case rm::kCtxShareSpecified:
            if (veid >= Tsg::kVeids) return rm::nv::kInvalidArgument;
            chosen = on(Rule::kShareSpecified) ? std::optional<uint32_t>(veid) : free_from_top();
            break;
        case rm::kCtxShareAsyncPreferLower:
            chosen = on(Rule::kSharePreferLower) ? free_from_bottom() : free_from_top();
            break;
        default: return rm::nv::kInvalidArgument;
    }
    if (!chosen || (tsg.veids.test(*chosen) && on(Rule::kShareVeidUnique))) return rm::nv::kNoMemory;
    veid = *chosen;
    return rm::nv::kOk;
}

uint32_t RmCall::make_share(Client& owner, const Object& parent, Bytes params, Payload& made) {
    auto share = load<rm::ContextShareParams>(params);
    const auto* group = std::get_if<std::shared_ptr<Tsg>>(&parent.payload);
    if (group == nullptr) return rm::nv::kInvalidObjectHandle;
    Tsg& tsg = **group;
    // The TSG's parent is taken for the device, whatever it is (kernel_ctxshare.c): a duplicate under anything else
    // fails here.
    const Object* device = find(owner, parent.parent);
    const bool under_device = device != nullptr && std::holds_alternative<DeviceObject>(device->payload);
    if (!under_device && on(Rule::kShareTsgUnderDevice)) return rm::nv::kInvalidArgument;
    const auto vas = vas_or_default(owner, parent.parent, share.hVASpace);
    if (vas == nullptr) return share.hVASpace != 0 ? rm::nv::kObjectNotFound : rm::nv::kInvalidState;
    if (vas->external && !vas->registered && on(Rule::kShareExternalNeedsUvm)) return rm::nv::kInvalidState;
    if (tsg.legacy && on(Rule::kShareLegacyFull)) return rm::nv::kNoMemory;
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(tsg.gpu)];
    const bool foreign =
        std::none_of(tsg.channels.begin(), tsg.channels.end(), [&](const Channel* c) { return c->vas == vas; });
    if (gpu.wedged() && tsg.has_graphics && foreign && on(Rule::kFaultWedges)) {
        rm_.log_.xid(gpu.identity().bus, 109, owner.pid, owner.process_name,
                     "Ch 00000000, errorString CTX SWITCH TIMEOUT (simulated)");
        return rm::nv::kBusyRetry;
    }
    uint32_t veid = share.subctxId & 0xff;
    if (const uint32_t status = take_veid(tsg, share.flags, veid); status != rm::nv::kOk) return status;
    auto context = std::make_shared<ContextShare>();
    context->tsg = *group;
    context->veid = veid;
    context->vas = vas;
    context->returns_veid = on(Rule::kShareVeidReturned);
    tsg.veids.set(veid);
    if (const auto before = tsg.computed.find(veid); before != tsg.computed.end()) before->second = {vas, false};
    share.subctxId = veid;
    store(params, share);
    made = std::move(context);
    return rm::nv::kOk;
}

uint32_t RmCall::enter_legacy(Tsg& tsg, const std::shared_ptr<Tsg>& owner, const std::shared_ptr<VaSpace>& vas) {
    if (tsg.veids.any() && on(Rule::kChannelLegacyNeedsEmpty)) return rm::nv::kInvalidState;
    if (vas == nullptr) return rm::nv::kInvalidState;
    tsg.legacy = true;
    for (uint32_t veid = 0; veid < 2; veid++) {
        auto share = std::make_shared<ContextShare>();
        share->tsg = owner;
        share->veid = veid;
        share->vas = vas;
        tsg.veids.set(veid);
        tsg.legacy_shares[veid] = std::move(share);
    }
    return rm::nv::kOk;
}

uint32_t RmCall::channel_notifier(Client& owner, Handle handle, std::optional<ErrorNotifier>& notifier) {
    Object* object = find(owner, handle);
    if (const auto* dma = payload<ErrorNotifier>(object)) {
        notifier = *dma;
    } else if (const auto* memory = payload<std::shared_ptr<Memory>>(object)) {
        notifier = ErrorNotifier{*memory, 0};
    } else if (on(Rule::kChannelNotifierExists)) {
        return rm::nv::kInvalidState;
    }
    return rm::nv::kOk;
}

uint32_t RmCall::make_channel(Client& owner, const Object& parent, uint32_t, Bytes params, Handle handle,
                              Payload& made) {
    auto wanted = load<rm::ChannelParams>(params);
    if (wanted.hContextShare != 0 && wanted.hVASpace != 0 && on(Rule::kChannelShareXorVas))
        return rm::nv::kInvalidArgument;
    const auto* group = std::get_if<std::shared_ptr<Tsg>>(&parent.payload);
    const bool bare = group == nullptr;
    std::shared_ptr<Tsg> tsg;
    if (bare) {
        if (wanted.hContextShare != 0 && on(Rule::kChannelBareNoShare)) return rm::nv::kInvalidArgument;
        // RM wraps it in a TSG of its own.
        Payload wrapped;
        rm::ChannelGroupParams own{};
        own.hVASpace = wanted.hVASpace;
        own.engineType = wanted.engineType;
        std::vector<uint8_t> bytes(sizeof own);
        store(std::span<uint8_t>(bytes), own);
        if (const uint32_t status = make_tsg(owner, parent, bytes, wrapped); status != rm::nv::kOk) return status;
        tsg = std::get<std::shared_ptr<Tsg>>(wrapped);
    } else {
        if (wanted.hVASpace != 0 && on(Rule::kChannelTsgNoVas)) return rm::nv::kInvalidArgument;
        tsg = *group;
    }
    auto channel = std::make_shared<Channel>();
    if (wanted.hObjectError != 0) {
        if (const uint32_t status = channel_notifier(owner, wanted.hObjectError, channel->notifier);
            status != rm::nv::kOk)
            return status;
    } else if (tsg->creator == owner.handle) {
        channel->notifier = tsg->notifier;  // a duplicate has no fall-back: it does not copy the notifier
    }
    const bool explicit_share = wanted.hContextShare != 0;
    if (!tsg->channels.empty() && tsg->legacy == explicit_share && on(Rule::kChannelNoMixing))
        return rm::nv::kInvalidArgument;
    if (explicit_share) {
        Object* share = find(owner, wanted.hContextShare);
        if (share == nullptr && !on(Rule::kChannelShareSameClient)) {
            for (const auto& [other_handle, other] : rm_.clients_) {
                if (share == nullptr) share = find(*other, wanted.hContextShare);
            }
        }
        const auto* context = payload<std::shared_ptr<ContextShare>>(share);
        if (context == nullptr) return rm::nv::kObjectNotFound;
        if (share->parent != parent.handle && on(Rule::kChannelShareSameParent) &&
            find(owner, wanted.hContextShare) == share)
            return rm::nv::kInvalidObjectParent;
        channel->share = *context;
    } else {
        if (!tsg->legacy) {
            const auto vas =
                tsg->vas != nullptr ? tsg->vas : vas_or_default(owner, bare ? parent.handle : parent.parent, 0);
            if (const uint32_t status = enter_legacy(*tsg, tsg, vas); status != rm::nv::kOk) return status;
        }
        const uint32_t thread = (wanted.flags & rm::kChannelThreadMask) >> rm::kChannelThreadShift;
        channel->share = tsg->legacy_shares[thread == 0 ? 0 : 1];
        if (channel->share == nullptr) return rm::nv::kInvalidState;
    }
    if (wanted.engineType != 0 && wanted.engineType != tsg->engine && on(Rule::kChannelEngineMatches))
        return rm::nv::kInvalidArgument;
    channel->runqueue1 = (wanted.flags & rm::kChannelRunqueueOne) != 0;
    const bool thread_one = ((wanted.flags & rm::kChannelThreadMask) >> rm::kChannelThreadShift) == 1;
    if (thread_one && !channel->runqueue1 && on(Rule::kChannelThreadRunqueue)) return rm::nv::kInvalidArgument;
    if (wanted.hUserdMemory[0] == 0 && rm_.config_.layout.branch >= 595 && on(Rule::kChannelUserdRequired))
        return rm::nv::kInvalidArgument;
    if (wanted.hUserdMemory[0] != 0) {
        const auto* userd = payload<std::shared_ptr<Memory>>(find(owner, wanted.hUserdMemory[0]));
        if (userd == nullptr) return rm::nv::kObjectNotFound;
        const uint64_t offset = wanted.userdOffset[0];
        if (offset % work::kUserdBytes != 0 || offset >= (*userd)->bytes ||
            (*userd)->bytes - offset < work::kUserdBytes)
            return rm::nv::kInvalidOffset;
        channel->userd = *userd;
        channel->userd_offset = offset;
    }
    if (tsg->channels.size() >= Tsg::kMaxChannels && on(Rule::kChannelMax128)) return rm::nv::kInsufficientResources;
    channel->tsg = tsg;
    channel->vas = channel->share->vas;
    channel->client = owner.handle;
    channel->handle = handle;
    channel->owner_pid = owner.pid;
    channel->owner_name = owner.process_name;
    channel->gpfifo = wanted.gpFifoOffset;
    channel->gpfifo_entries = wanted.gpFifoEntries;
    constexpr uint32_t kPrivileged = 1u << 5;  // NVOS04_FLAGS_PRIVILEGED_CHANNEL_TRUE
    if (owner.uid == 0 && on(Rule::kChannelAdminFlag)) wanted.flags |= kPrivileged;
    channel->flags = wanted.flags;
    channel->dead = tsg->dead;
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(tsg->gpu)];
    wanted.cid = gpu.add(*channel);
    tsg->channels.push_back(channel.get());
    if (tsg->scheduled && (wanted.flags & rm::kChannelDelayScheduling) == 0 && on(Rule::kScheduleInherited))
        gpu.set_scheduled(*channel, true);
    store(params, wanted);
    made = std::move(channel);
    return rm::nv::kOk;
}

uint32_t RmCall::make_engine_object(const Object& parent, uint32_t cls, Payload& made) {
    const auto* channel_ptr = std::get_if<std::shared_ptr<Channel>>(&parent.payload);
    if (channel_ptr == nullptr) return rm::nv::kInvalidObjectParent;
    Channel& channel = **channel_ptr;
    Tsg& tsg = *channel.tsg;
    const bool gr = rm::cls::is_3d(cls) || rm::cls::is_compute(cls);
    if (gr && tsg.engine != rm::kEngineGr0) return rm::nv::kInvalidClass;
    if (rm::cls::is_3d(cls) && (channel.share->veid != 0 || channel.runqueue1) && on(Rule::kGspGraphicsVeid0))
        return rm::nv::kInvalidObject;
    if (rm::cls::is_compute(cls) && tsg.has_graphics && channel.share->veid != 0 && !channel.runqueue1 &&
        on(Rule::kGspComputeRunqueue))
        return rm::nv::kInvalidObject;
    if (gr) rm_.gpus_[static_cast<size_t>(tsg.gpu)]->add_object(channel, cls);
    made = EngineObject{cls};
    return rm::nv::kOk;
}

}  // namespace vuda::sim
