// RM_ALLOC: which classes exist, which parents they take, and what they make.
#include <algorithm>

#include "sim/rm/call.h"

namespace vuda::sim {

namespace {

enum class Parent : uint8_t { kClient, kDevice, kSubdevice, kDeviceOrSubdevice, kTsg, kTsgOrDevice, kChannel, kAny };

struct ClassInfo {
    uint32_t cls;
    Parent parent;
};

// Classes besides those that rm::cls recognises by family. Parents: resource_list.h.
constexpr ClassInfo kClasses[] = {
    {rm::cls::kDevice, Parent::kClient},
    {rm::cls::kSubdevice, Parent::kDevice},
    {rm::cls::kVaSpace, Parent::kDevice},
    {rm::cls::kMemorySystem, Parent::kDevice},
    {rm::cls::kMemoryLocalUser, Parent::kDevice},
    {rm::cls::kMemoryVirtual, Parent::kDevice},
    {rm::cls::kChannelGroup, Parent::kDevice},
    {rm::cls::kContextShare, Parent::kTsg},
    {rm::cls::kEvent, Parent::kAny},
    {rm::cls::kEventOsEvent, Parent::kAny},
    {0xde, Parent::kSubdevice},    // RM_USER_SHARED_DATA
    {0xfe, Parent::kSubdevice},    // NV_MEMORY_MAPPER
    {0xda, Parent::kSubdevice},    // NV_SEMAPHORE_SURFACE
    {0x2081, Parent::kSubdevice},  // NV2081_BINAPI
    {0x503c, Parent::kSubdevice},  // NV50_THIRD_PARTY_P2P
    {0x50a0, Parent::kDevice},     // NV50_MEMORY_VIRTUAL of older drivers
    {0x9096, Parent::kSubdevice},  // GF100_ZBC_CLEAR
    {0x90e6, Parent::kSubdevice},  // GF100_SUBDEVICE_MASTER
    {0x83de, Parent::kDevice},     // GT200_DEBUGGER
    {0xcb33, Parent::kClient},     // NV_CONFIDENTIAL_COMPUTE
    {0x902d, Parent::kChannel},    // FERMI_TWOD_A
    {rm::cls::kI2m, Parent::kChannel},
    {0xcd40, Parent::kChannel},
};

bool is_usermode(uint32_t cls) { return (cls & 0xff) == 0x61 && cls >= 0xc361 && cls <= 0xcfff; }

bool is_engine_class(uint32_t cls) { return rm::cls::is_3d(cls) || rm::cls::is_compute(cls) || rm::cls::is_copy(cls); }

bool lookup(uint32_t cls, Parent& parent) {
    if (rm::cls::is_gpfifo(cls)) {
        parent = Parent::kTsgOrDevice;
        return true;
    }
    if (is_engine_class(cls)) {
        parent = Parent::kChannel;
        return true;
    }
    if (is_usermode(cls)) {
        parent = Parent::kSubdevice;
        return true;
    }
    for (const ClassInfo& info : kClasses) {
        if (info.cls != cls) continue;
        parent = info.parent;
        return true;
    }
    return false;
}

bool fits(Parent parent, const Client& client, const Object& object) {
    const bool is_device = std::holds_alternative<DeviceObject>(object.payload);
    const bool is_subdevice = std::holds_alternative<SubdeviceObject>(object.payload);
    const bool is_tsg = std::holds_alternative<std::shared_ptr<Tsg>>(object.payload);
    switch (parent) {
        case Parent::kClient: return object.handle == client.handle;
        case Parent::kDevice: return is_device;
        case Parent::kSubdevice: return is_subdevice;
        case Parent::kDeviceOrSubdevice: return is_device || is_subdevice;
        case Parent::kTsg: return is_tsg;
        case Parent::kTsgOrDevice: return is_tsg || is_device;
        case Parent::kChannel: return std::holds_alternative<std::shared_ptr<Channel>>(object.payload);
        case Parent::kAny: return true;
    }
    return false;
}

}  // namespace

uint32_t RmCall::alloc(Handle root, Handle parent, Handle& handle, uint32_t cls, Bytes params) {
    if (cls == rm::cls::kRootClient || cls == rm::cls::kRoot) return alloc_client(handle);
    Parent expected{};
    const bool known = lookup(cls, expected);
    if (!known && on(Rule::kAllocKnownClass)) return rm::nv::kInvalidClass;
    uint32_t status = 0;
    Client* owner = client(root, status);
    if (owner == nullptr) return status;
    Object* above = find(*owner, parent);
    if (above == nullptr) {
        if (on(Rule::kAllocParentExists)) return rm::nv::kObjectNotFound;
        above = find(*owner, owner->handle);
    }
    if (known && !fits(expected, *owner, *above) && on(Rule::kAllocParentClass)) return rm::nv::kInvalidObjectParent;
    const int gpu = gpu_of(*owner, *above);
    const bool chip_class = is_engine_class(cls) || rm::cls::is_gpfifo(cls) || is_usermode(cls);
    if (chip_class && gpu >= 0 && !rm_.gpus_[static_cast<size_t>(gpu)]->has_class(cls)) return rm::nv::kInvalidClass;
    status = new_handle(*owner, handle);
    if (status != rm::nv::kOk) return status;
    Payload made;
    status = construct(*owner, *above, cls, params, handle, made);
    if (status == rm::nv::kOk) insert(*owner, above->handle, handle, cls, std::move(made));
    return status;
}

uint32_t RmCall::alloc_client(Handle& handle) {
    // /dev/nvidiaN makes clients too once it is registered with a control file, but no driver does.
    if (file_.kind != FileKind::kControl) return rm::nv::kInvalidClient;
    if (handle != 0 && any_client(handle) != nullptr) return rm::nv::kInsertDuplicateName;
    if (handle == 0) {
        while (any_client(rm_.next_client_) != nullptr) rm_.next_client_++;
        handle = rm_.next_client_++;
    }
    auto made = std::make_unique<Client>();
    made->handle = handle;
    made->file = file_.id;
    made->pid = caller_.pid;
    made->uid = caller_.uid;
    made->process_name = caller_.name;
    Object& self = made->objects[handle];
    self.handle = handle;
    self.cls = rm::cls::kRootClient;
    rm_.clients_[handle] = std::move(made);
    file_.clients.push_back(handle);
    return rm::nv::kOk;
}

uint32_t RmCall::new_handle(Client& owner, Handle& handle) {
    if (handle == 0) {
        while (find(owner, owner.next_handle) != nullptr || owner.next_handle == 0) owner.next_handle++;
        handle = owner.next_handle++;
        return rm::nv::kOk;
    }
    if (handle == owner.handle) return rm::nv::kInvalidObjectHandle;
    if (find(owner, handle) != nullptr) {
        if (on(Rule::kAllocHandleUnique)) return rm::nv::kInsertDuplicateName;
        free_tree(rm_, owner, handle);
    }
    return rm::nv::kOk;
}

uint32_t RmCall::construct(Client& owner, const Object& parent, uint32_t cls, Bytes params, Handle handle,
                           Payload& made) {
    if (rm::cls::is_gpfifo(cls)) return make_channel(owner, parent, cls, params, handle, made);
    if (rm::cls::is_memory(cls)) return make_memory(owner, parent, cls, params, made);
    if (is_engine_class(cls)) return make_engine_object(parent, cls, made);
    if (is_usermode(cls)) {
        const int gpu = gpu_of(owner, parent);
        if (gpu < 0) return rm::nv::kInvalidObjectParent;
        made = rm_.gpus_[static_cast<size_t>(gpu)]->usermode_page();
        return rm::nv::kOk;
    }
    switch (cls) {
        case rm::cls::kDevice: {
            const auto device = load<rm::DeviceParams>(params);
            if (device.deviceId >= rm_.gpus_.size()) return rm::nv::kInvalidDevice;
            made = DeviceObject{static_cast<int>(device.deviceId), nullptr};
            return rm::nv::kOk;
        }
        case rm::cls::kSubdevice: {
            if (load<rm::SubdeviceParams>(params).subDeviceId != 0) return rm::nv::kInvalidDevice;
            const int gpu = gpu_of(owner, parent);
            if (gpu < 0) return rm::nv::kInvalidObjectParent;
            made = SubdeviceObject{gpu};
            return rm::nv::kOk;
        }
        case rm::cls::kVaSpace: return make_vaspace(parent, params, made);
        case rm::cls::kMemoryVirtual: return make_virtual(owner, parent, params, made);
        case rm::cls::kChannelGroup: return make_tsg(owner, parent, params, made);
        case rm::cls::kContextShare: return make_share(owner, parent, params, made);
        case 0xde: {
            const int gpu = gpu_of(owner, parent);
            made = new_memory(4096, false, gpu);
            return rm::nv::kOk;
        }
        default: made = NoState{}; return rm::nv::kOk;
    }
}

}  // namespace vuda::sim
