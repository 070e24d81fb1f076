// Escapes of /dev/nvidiactl and /dev/nvidiaN: dispatch, lifetime of objects, DUP and SHARE, card information.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sim/rm/call.h"

namespace vuda::sim {

namespace {

// Runs `body` on a copy of the argument struct and writes it back.
template <typename T, typename Body>
Outcome with(std::span<uint8_t> argument, Body body) {
    T args = load<T>(argument);
    body(args);
    store(argument, args);
    return {};
}

}  // namespace

Outcome RmCall::run() {
    if (file_.kind == FileKind::kUvm) return run_uvm(request_.argument);
    if (file_.kind == FileKind::kUvmTools) return run_uvm_tools(request_.argument);
    if (rm::ioctl_type(request_.number) != rm::kRmIoctlType) return {ENOTTY};
    const auto call = resolve_call(request_);
    if (!call) return {EINVAL};
    return run_rm(call->escape, call->argument);
}

Outcome RmCall::run_rm(unsigned escape, Bytes argument) {
    namespace esc = rm::escape;
    const Layout& layout = rm_.config_.layout;
    // ioctl.exact-size: without it a shorter argument is read as if zeros followed.
    const auto sized = [&](size_t size) { return argument.size() == size || !on(Rule::kIoctlExactSize); };
    switch (escape) {
        case esc::kFree:
            if (!sized(sizeof(rm::FreeArgs))) return {EINVAL};
            return with<rm::FreeArgs>(argument, [&](auto& args) { args.status = free_object(args); });
        case esc::kAlloc: {
            const bool is_short = argument.size() == sizeof(rm::AllocArgsShort);
            if (!is_short && !sized(layout.alloc_long)) return {EINVAL};
            auto args = load<rm::AllocArgsShort>(argument);
            Blob* blob = args.pAllocParms == 0 ? nullptr : request_.blob(args.pAllocParms);
            uint32_t status = 0;
            if (const auto injected = rm_.injected('a', args.hClass)) {
                status = *injected;
            } else {
                status = alloc(args.hRoot, args.hObjectParent, args.hObjectNew, args.hClass,
                               blob == nullptr ? Bytes{} : Bytes{blob->bytes});
            }
            store(argument, args.hObjectNew, offsetof(rm::AllocArgsShort, hObjectNew));
            store(argument, status,
                  is_short                ? offsetof(rm::AllocArgsShort, status)
                  : argument.size() == 40 ? offsetof(rm::AllocArgs525, status)
                                          : offsetof(rm::AllocArgs, status));
            return {};
        }
        case esc::kControl: {
            if (!sized(sizeof(rm::ControlArgs))) return {EINVAL};
            auto args = load<rm::ControlArgs>(argument);
            Blob* blob = args.params == 0 || args.paramsSize == 0 ? nullptr : request_.blob(args.params);
            if (const auto injected = rm_.injected('c', args.cmd)) {
                args.status = *injected;
            } else if (args.paramsSize != 0 && blob == nullptr) {
                args.status = rm::nv::kInvalidPointer;
            } else {
                args.status = control(args, blob == nullptr ? Bytes{} : Bytes{blob->bytes});
            }
            store(argument, args);
            return {};
        }
        case esc::kDupObject:
            if (!sized(sizeof(rm::DupArgs))) return {EINVAL};
            return with<rm::DupArgs>(argument, [&](auto& args) {
                const auto injected = rm_.injected('e', escape);
                args.status = injected ? *injected : dup(args);
            });
        case esc::kShare:
            if (!sized(sizeof(rm::ShareArgs))) return {EINVAL};
            return with<rm::ShareArgs>(argument, [&](auto& args) { args.status = share(args); });
        case esc::kAllocMemory:
            if (!sized(sizeof(rm::AllocMemoryArgs))) return {EINVAL};
            return with<rm::AllocMemoryArgs>(argument, [&](auto& args) { args.status = alloc_memory(args); });
        case esc::kVidHeapControl:
            if (!sized(sizeof(rm::VidHeapArgs))) return {EINVAL};
            return with<rm::VidHeapArgs>(argument, [&](auto& args) { args.status = vid_heap(args); });
        case esc::kMapMemory:
            if (!sized(sizeof(rm::MapMemoryArgs))) return {EINVAL};
            return with<rm::MapMemoryArgs>(argument, [&](auto& args) { args.status = map_memory(args); });
        case esc::kUnmapMemory:
            if (!sized(sizeof(rm::UnmapMemoryArgs))) return {EINVAL};
            return with<rm::UnmapMemoryArgs>(argument, [&](auto& args) { args.status = unmap_memory(args); });
        case esc::kMapMemoryDma:
            if (!sized(layout.map_dma)) return {EINVAL};
            if (argument.size() == sizeof(rm::MapDmaArgs575)) {
                return with<rm::MapDmaArgs575>(argument, [&](auto& args) {
                    args.status = map_dma(args.hClient, args.hDma, args.hMemory, args.offset, args.length, args.flags,
                                          args.dmaOffset);
                });
            }
            return with<rm::MapDmaArgs>(argument, [&](auto& args) {
                args.status = map_dma(args.hClient, args.hDma, args.hMemory, args.offset, args.length, args.flags,
                                      args.dmaOffset);
            });
        case esc::kUnmapMemoryDma:
            if (!sized(layout.unmap_dma)) return {EINVAL};
            if (argument.size() == sizeof(rm::UnmapDmaArgs535)) {
                return with<rm::UnmapDmaArgs535>(
                    argument, [&](auto& args) { args.status = unmap_dma(args.hClient, args.hDma, args.dmaOffset); });
            }
            return with<rm::UnmapDmaArgs>(
                argument, [&](auto& args) { args.status = unmap_dma(args.hClient, args.hDma, args.dmaOffset); });
        case esc::kAllocContextDma2: return context_dma(argument);
        case esc::kIdleChannels:
        case esc::kUpdateDeviceMappingInfo:
            return {};  // nothing to remember; the status field is 0 as the caller cleared it
        case esc::kRegisterFd: {
            if (!sized(sizeof(rm::RegisterFdArgs))) return {EINVAL};
            const auto control = request_.file_of(load<rm::RegisterFdArgs>(argument).ctlFd);
            const File* target = control ? rm_.file(*control) : nullptr;
            if (file_.kind != FileKind::kGpu || target == nullptr || target->kind != FileKind::kControl)
                return {EINVAL};
            file_.control = *control;
            return {};
        }
        case esc::kAllocOsEvent:
        case esc::kFreeOsEvent: {
            if (!sized(sizeof(rm::OsEventArgs))) return {EINVAL};
            return with<rm::OsEventArgs>(argument, [&](auto& args) { (void)client(args.hClient, args.status); });
        }
        case esc::kCardInfo: card_info(argument); return {};
        case esc::kCheckVersionStr:
            if (!sized(sizeof(rm::CheckVersionArgs))) return {EINVAL};
            {
                auto args = load<rm::CheckVersionArgs>(argument);
                const uint32_t status = check_version(args);
                store(argument, args);
                return status == rm::nv::kOk ? Outcome{} : Outcome{EINVAL};
            }
        case esc::kSysParams:
        case esc::kNumaInfo:
        case esc::kAttachGpusToFd:
        case esc::kWaitOpenComplete: return {};
        case esc::kStatusCode:
        default: return {EINVAL};
    }
}

Client* RmCall::any_client(Handle handle) const {
    const auto it = rm_.clients_.find(handle);
    return it == rm_.clients_.end() ? nullptr : it->second.get();
}

Client* RmCall::client(Handle handle, uint32_t& status) {
    Client* found = any_client(handle);
    status = rm::nv::kInvalidClient;
    if (found == nullptr) return nullptr;
    // A file of /dev/nvidiaN speaks for the nvidiactl file that it was registered with.
    const FileId speaks_for = file_.kind == FileKind::kGpu ? file_.control : file_.id;
    if (found->file != speaks_for && on(Rule::kClientBoundToFile)) return nullptr;
    status = rm::nv::kOk;
    return found;
}

Object* RmCall::find(Client& client, Handle handle) {
    const auto it = client.objects.find(handle);
    return it == client.objects.end() ? nullptr : &it->second;
}

int RmCall::gpu_of(Client& client, const Object& object) {
    for (const Object* at = &object; at != nullptr;) {
        if (const auto* device = std::get_if<DeviceObject>(&at->payload)) return device->gpu;
        if (at->handle == client.handle) return -1;
        at = find(client, at->parent);
    }
    return -1;
}

void RmCall::insert(Client& client, Handle parent, Handle handle, uint32_t cls, Payload made) {
    Object& object = client.objects[handle];
    object.handle = handle;
    object.parent = parent;
    object.cls = cls;
    object.payload = std::move(made);
    client.objects[parent].children.push_back(handle);
}

void RmCall::free_tree(ResourceManager& rm, Client& client, Handle handle) {
    Object* object = find(client, handle);
    if (object == nullptr) return;
    // Newest first, as the real one does: channels go before the context share that they use.
    std::vector<Handle> children = object->children;
    if (rm.rules_.on(Rule::kFreeRecursive)) {
        for (auto it = children.rbegin(); it != children.rend(); ++it) free_tree(rm, client, *it);
    } else {
        for (const Handle child : children) {
            client.objects[child].parent = client.handle;
            client.objects[client.handle].children.push_back(child);
        }
    }
    object = find(client, handle);
    if (Object* parent = find(client, object->parent); parent != nullptr && parent != object) {
        auto& siblings = parent->children;
        siblings.erase(std::remove(siblings.begin(), siblings.end(), handle), siblings.end());
    }
    if (const auto* tsg = std::get_if<std::shared_ptr<Tsg>>(&object->payload);
        tsg != nullptr && (*tsg)->creator == client.handle && !rm.rules_.on(Rule::kTsgOutlivesOwner)) {
        (*tsg)->dead = true;
        for (Channel* channel : (*tsg)->channels) channel->dead = true;
    }
    // The payload's destructor may look at the client's other objects: take it out of the map first.
    const auto taken = client.objects.extract(handle);
}

void RmCall::free_client(ResourceManager& rm, Handle handle) {
    const auto it = rm.clients_.find(handle);
    if (it == rm.clients_.end()) return;
    Client& client = *it->second;
    while (!client.objects[handle].children.empty()) free_tree(rm, client, client.objects[handle].children.back());
    if (const auto file = rm.files_.find(client.file); file != rm.files_.end()) {
        auto& clients = file->second.clients;
        clients.erase(std::remove(clients.begin(), clients.end(), handle), clients.end());
    }
    rm.clients_.erase(it);
}

uint32_t RmCall::free_object(const rm::FreeArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hRoot, status);
    if (owner == nullptr) return status;
    if (args.hObjectOld == owner->handle) {
        free_client(rm_, owner->handle);
        return rm::nv::kOk;
    }
    if (find(*owner, args.hObjectOld) == nullptr)
        return on(Rule::kFreeUnknownIsOk) ? rm::nv::kOk : rm::nv::kObjectNotFound;
    free_tree(rm_, *owner, args.hObjectOld);
    return rm::nv::kOk;
}

uint32_t RmCall::place_copy(Client& owner, Handle parent, Handle& handle, uint32_t cls, const Payload& copied) {
    if (find(owner, parent) == nullptr) return rm::nv::kObjectNotFound;
    if (const uint32_t status = new_handle(owner, handle); status != rm::nv::kOk) return status;
    insert(owner, parent, handle, cls, copied);
    return rm::nv::kOk;
}

uint32_t RmCall::dup(rm::DupArgs& args) {
    uint32_t status = 0;
    Client* destination = client(args.hClient, status);
    if (destination == nullptr) return status;
    Client* source = any_client(args.hClientSrc);
    if (source == nullptr) return rm::nv::kInvalidClient;
    // dup.share-no-help: without it an owner's RM_SHARE opens the way for others.
    const bool same = source->pid == destination->pid || (source->shared && !on(Rule::kDupShareNoHelp));
    if (!same && on(Rule::kDupSameProcess)) return rm::nv::kInvalidObjectHandle;
    Object* object = find(*source, args.hObjectSrc);
    if (object == nullptr) return rm::nv::kObjectNotFound;
    const bool copyable = std::holds_alternative<std::shared_ptr<Tsg>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<ContextShare>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<VaSpace>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<Memory>>(object->payload);
    if (!copyable && on(Rule::kDupCopyable)) return rm::nv::kInvalidArgument;
    return place_copy(*destination, args.hParent, args.hObject, object->cls, object->payload);
}

uint32_t RmCall::share(const rm::ShareArgs& args) {
    uint32_t status = 0;
    Client* owner = client(args.hClient, status);
    if (owner == nullptr) return status;
    if (find(*owner, args.hObject) == nullptr) return rm::nv::kObjectNotFound;
    constexpr uint16_t kLastType = 7;  // RS_SHARE_TYPE_FM
    if (args.type > kLastType) return rm::nv::kInvalidArgument;
    owner->shared = true;
    return rm::nv::kOk;
}

void RmCall::card_info(Bytes argument) {
    const size_t slots = argument.size() / sizeof(rm::CardInfo);
    for (size_t i = 0; i < slots; i++) {
        rm::CardInfo card{};
        if (i < rm_.gpus_.size()) {
            const Identity& identity = rm_.gpus_[i]->identity();
            card.valid = 1;
            card.pciBus = static_cast<uint8_t>(identity.bus);
            card.vendorId = 0x10de;
            card.deviceId = identity.pci_device;
            card.gpuId = identity.gpu_id;
            card.interruptLine = 41;
            card.regAddress = 0x104002000000;
            card.regSize = 0x1000000;
            card.fbAddress = 0x100000000000;
            card.fbSize = 0x4000000000;
            card.minorNumber = static_cast<uint32_t>(i);
        }
        store(argument, card, i * sizeof card);
    }
}

uint32_t RmCall::check_version(rm::CheckVersionArgs& args) {
    constexpr uint32_t kQuery = '2';  // NV_RM_API_VERSION_CMD_QUERY; 0 is strict, '1' relaxed
    const std::string& ours = rm_.config_.layout.version;
    const std::string_view theirs(args.versionString, strnlen(args.versionString, sizeof args.versionString));
    const bool match = theirs == ours;
    std::memset(args.versionString, 0, sizeof args.versionString);
    std::memcpy(args.versionString, ours.data(), std::min(ours.size(), sizeof args.versionString - 1));
    args.reply = match || args.cmd == kQuery || !on(Rule::kVersionMatches) ? 1 : 0;
    if (args.reply == 0)
        rm_.log_.write("NVRM: API mismatch: the client has the version " + std::string(theirs) +
                       ", but this kernel module has the version " + ours + " (simulated)");
    return args.reply == 1 ? rm::nv::kOk : rm::nv::kLibRmVersionMismatch;
}

Outcome RmCall::context_dma(Bytes argument) {
    struct Args {  // NVOS39
        Handle hClient, hSubDevice, hObjectNew;
        uint32_t hClass, flags, selector;
        Handle hMemory;
        uint32_t pad0;
        uint64_t offset, limit;
        uint32_t status, pad1;
    };
    static_assert(sizeof(Args) == 56);
    if (argument.size() != sizeof(Args)) return {EINVAL};
    return with<Args>(argument, [&](Args& args) {
        Client* owner = client(args.hClient, args.status);
        if (owner == nullptr) return;
        const auto* memory = payload<std::shared_ptr<Memory>>(find(*owner, args.hMemory));
        if (memory == nullptr) {
            args.status = rm::nv::kObjectNotFound;
            return;
        }
        if (args.offset >= (*memory)->bytes || args.limit >= (*memory)->bytes - args.offset) {
            args.status = rm::nv::kInvalidLimit;
            return;
        }
        args.status = new_handle(*owner, args.hObjectNew);
        if (args.status == rm::nv::kOk)
            insert(*owner, find(*owner, args.hMemory)->parent, args.hObjectNew, args.hClass,
                   ErrorNotifier{*memory, args.offset});
    });
}

}  // namespace vuda::sim
