// RM_CONTROL: what drivers ask and order.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/rm/call.h"

namespace vuda::sim {

namespace {

constexpr uint32_t kNoGpu = 0xffffffff;  // NV0000_CTRL_GPU_INVALID_ID

}  // namespace

uint32_t RmCall::control(const rm::ControlArgs& args, Bytes params) {
    uint32_t status = 0;
    Client* owner = client(args.hClient, status);
    if (owner == nullptr) return status;
    Object* object = find(*owner, args.hObject);
    if (object == nullptr) return rm::nv::kObjectNotFound;
    if (args.hObject == owner->handle) return control_client(*owner, args.cmd, params);
    if (const auto* tsg = payload<std::shared_ptr<Tsg>>(object)) return control_tsg(*tsg, args.cmd, params);
    if (const auto* channel = payload<std::shared_ptr<Channel>>(object))
        return control_channel(*owner, **channel, args.cmd, params);
    if (gpu_of(*owner, *object) >= 0) return control_gpu(*owner, *object, args.cmd, params);
    return rm::nv::kOk;
}

uint32_t RmCall::control_client(Client& owner, uint32_t cmd, Bytes params) {
    const auto gpu_by_id = [&](uint32_t id) -> int {
        for (size_t i = 0; i < rm_.gpus_.size(); i++) {
            if (rm_.gpus_[i]->identity().gpu_id == id) return static_cast<int>(i);
        }
        return -1;
    };
    switch (cmd) {
        case rm::ctrl::kGpuGetAttachedIds:
        case rm::ctrl::kGpuGetProbedIds: {
            for (size_t i = 0; i < 32; i++) {
                const uint32_t id = i < rm_.gpus_.size() ? rm_.gpus_[i]->identity().gpu_id : kNoGpu;
                store(params, id, i * 4);
                if (cmd == rm::ctrl::kGpuGetProbedIds) store(params, kNoGpu, 128 + i * 4);
            }
            return rm::nv::kOk;
        }
        case 0x288: {  // NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS {numDevices, {gpuId, gpuInstanceId,
                       // computeInstanceId}[]}
            store(params, static_cast<uint32_t>(rm_.gpus_.size()));
            for (size_t i = 0; i < rm_.gpus_.size(); i++) {
                store(params, rm_.gpus_[i]->identity().gpu_id, 4 + i * 12);
                store(params, kNoGpu, 8 + i * 12);
                store(params, kNoGpu, 12 + i * 12);
            }
            return rm::nv::kOk;
        }
        case rm::ctrl::kGpuGetIdInfo: {
            auto info = load<rm::GpuIdInfoParams>(params);
            const int gpu = gpu_by_id(info.gpuId);
            if (gpu < 0) return rm::nv::kInvalidArgument;
            info.deviceInstance = static_cast<uint32_t>(gpu);
            info.subDeviceInstance = 0;
            info.boardId = info.gpuId;
            info.gpuInstance = static_cast<uint32_t>(gpu);
            info.numaId = -1;
            store(params, info);
            return rm::nv::kOk;
        }
        case rm::ctrl::kGpuGetIdInfoV2: {
            auto info = load<rm::GpuIdInfoV2Params>(params);
            const int gpu = gpu_by_id(info.gpuId);
            if (gpu < 0) return rm::nv::kInvalidArgument;
            info.deviceInstance = static_cast<uint32_t>(gpu);
            info.subDeviceInstance = 0;
            info.boardId = info.gpuId;
            info.gpuInstance = static_cast<uint32_t>(gpu);
            info.numaId = -1;
            store(params, info);
            return rm::nv::kOk;
        }
        case rm::ctrl::kGpuAttachIds: {
            const auto first = load<uint32_t>(params);
            return first == kNoGpu || gpu_by_id(first) >= 0 || first == 0 ? rm::nv::kOk : rm::nv::kInvalidArgument;
        }
        case rm::ctrl::kGpuGetUuidFromGpuId: {
            auto query = load<rm::UuidFromGpuIdParams>(params);
            const int gpu = gpu_by_id(query.gpuId);
            if (gpu < 0) return rm::nv::kInvalidArgument;
            const Uuid& uuid = rm_.gpus_[static_cast<size_t>(gpu)]->identity().uuid;
            if (query.flags == rm::kGidBinary) {
                std::memcpy(query.gpuUuid, uuid.bytes.data(), 16);
                query.uuidStrLen = 16;
            } else {
                const std::string text = uuid.to_string();
                std::memcpy(query.gpuUuid, text.c_str(), text.size() + 1);
                query.uuidStrLen = static_cast<uint32_t>(text.size() + 1);
            }
            store(params, query);
            return rm::nv::kOk;
        }
        case rm::ctrl::kExportObjectToFd: return export_object(owner, load<rm::ExportObjectParams>(params));
        case rm::ctrl::kImportObjectFromFd: {
            auto import = load<rm::ImportObjectParams>(params);
            const uint32_t status = import_object(owner, import);
            store(params, import);
            return status;
        }
        case rm::ctrl::kClientShareObject: owner.shared = true; return rm::nv::kOk;
        case 0xd01: {  // NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE {hObject, mapFlags, type out}
            Object* object = find(owner, load<uint32_t>(params));
            if (object == nullptr) return rm::nv::kObjectNotFound;
            const auto* memory = payload<std::shared_ptr<Memory>>(object);
            const uint32_t type = memory == nullptr ? 0 : (*memory)->doorbell ? 3 : (*memory)->vidmem ? 2 : 1;
            store(params, type, 8);
            return rm::nv::kOk;
        }
        default: return rm::nv::kOk;  // system queries: zeros are an answer
    }
}

void RmCall::fill_classes(Gpu& gpu, Bytes params, bool v2) {
    const Identity& id = gpu.identity();
    const uint32_t classes[] = {rm::cls::kDevice,
                                rm::cls::kSubdevice,
                                rm::cls::kVaSpace,
                                rm::cls::kContextShare,
                                rm::cls::kChannelGroup,
                                rm::cls::kMemorySystem,
                                rm::cls::kMemoryLocalUser,
                                rm::cls::kI2m,
                                id.gpfifo,
                                id.compute,
                                id.copy,
                                id.three_d,
                                id.usermode,
                                rm::cls::kGpfifoAmpere,
                                rm::cls::kGpfifoTuring};
    if (!v2) return;  // the older form takes a pointer, which no driver here uses
    store(params, static_cast<uint32_t>(std::size(classes)));
    for (size_t i = 0; i < std::size(classes); i++) store(params, classes[i], 4 + i * 4);
}

uint32_t RmCall::control_gpu(Client& owner, const Object& object, uint32_t cmd, Bytes params) {
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(gpu_of(owner, object))];
    const Identity& id = gpu.identity();
    switch (cmd) {
        case rm::ctrl::kGpuGetGidInfo: {
            auto query = load<rm::GidInfoParams>(params);
            if (query.flags == rm::kGidBinary) {
                std::memcpy(query.data, id.uuid.bytes.data(), 16);
                query.length = 16;
            } else {
                const std::string text = id.uuid.to_string();
                std::memcpy(query.data, text.c_str(), text.size() + 1);
                query.length = static_cast<uint32_t>(text.size() + 1);
            }
            store(params, query);
            return rm::nv::kOk;
        }
        case rm::ctrl::kGpuGetClasslistV2: fill_classes(gpu, params, true); return rm::nv::kOk;
        case 0x20800110:    // NV2080_CTRL_CMD_GPU_GET_NAME_STRING {flags, text}
        case 0x20800111: {  // NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING {text}
            const size_t at = cmd == 0x20800110 ? 4 : 0;
            const std::string& name = cmd == 0x20800110 ? id.name : id.short_name;
            for (size_t i = 0; i <= name.size() && at + i < params.size(); i++)
                params[at + i] = static_cast<uint8_t>(name.c_str()[i]);
            return rm::nv::kOk;
        }
        case 0x20800142: store(params, id.gpu_id); return rm::nv::kOk;  // NV2080_CTRL_CMD_GPU_GET_ID
        case 0x20801801: {  // NV2080_CTRL_CMD_BUS_GET_PCI_INFO {device, subsystem, revision, ext}
            store(params, (uint32_t{id.pci_device} << 16) | 0x10deu);
            store(params, uint32_t{0x18bf10de}, 4);
            store(params, uint32_t{0xa1}, 8);
            store(params, uint32_t{id.pci_device}, 12);
            return rm::nv::kOk;
        }
        case 0x20801701: {  // NV2080_CTRL_CMD_MC_GET_ARCH_INFO {architecture, implementation, revision, sub}
            const uint32_t architecture = (id.compute >> 8) == 0xcb ? 0x180 : (id.compute >> 8) == 0xc9 ? 0x190 : 0x170;
            store(params, architecture);
            store(params, uint32_t{0xa1}, 8);
            return rm::nv::kOk;
        }
        case rm::ctrl::kGrGetGfxGpcAndTpcInfo: {
            auto info = load<rm::GfxGpcTpcInfoParams>(params);
            info.physGfxGpcMask = id.gfx_gpc_mask;
            info.numGfxTpc = id.gfx_tpcs;
            store(params, info);
            return rm::nv::kOk;
        }
        case rm::ctrl::kGrGetGlobalSmOrder: return global_sm_order(gpu, params);
        case rm::ctrl::kGrmgrGetGrFsInfo: return gr_fs_info(gpu, params);
        case 0x2080122a: {  // NV2080_CTRL_CMD_GR_GET_GPC_MASK {route, mask}
            store(params, (1u << gpu.engine().topology().gpc_count()) - 1, 16);
            return rm::nv::kOk;
        }
        case 0x2080122b: {  // NV2080_CTRL_CMD_GR_GET_TPC_MASK {route, gpc, mask}
            const auto gpc = load<uint32_t>(params, 16);
            const Topology& topology = gpu.engine().topology();
            if (gpc >= static_cast<uint32_t>(topology.gpc_count())) return rm::nv::kInvalidArgument;
            store(params, (1u << topology.tpcs_per_gpc()[gpc]) - 1, 20);
            return rm::nv::kOk;
        }
        case 0x20801218: {  // NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE {hChannel, totalBufferSize}
            if (payload<std::shared_ptr<Channel>>(find(owner, load<uint32_t>(params))) == nullptr)
                return rm::nv::kInvalidChannel;
            store(params, uint64_t{0x52f000}, 8);  // as on hardware
            return rm::nv::kOk;
        }
        case rm::ctrl::kGrCtxswZcullBind: return zcull_bind(owner, load<rm::ZcullBindParams>(params));
        case rm::ctrl::kGrSetCtxswPreemptionMode: return preemption_mode(owner, load<rm::PreemptionModeParams>(params));
        case 0x80170d: {  // NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST: handles to ChIDs
            const auto count = load<uint32_t>(params);
            Blob* handles = request_.blob(load<uint64_t>(params, 8));
            Blob* list = request_.blob(load<uint64_t>(params, 16));
            if (handles == nullptr || list == nullptr) return rm::nv::kInvalidPointer;
            for (uint32_t i = 0; i < count; i++) {
                const auto* channel =
                    payload<std::shared_ptr<Channel>>(find(owner, load<uint32_t>(handles->bytes, i * 4)));
                if (channel == nullptr) return rm::nv::kInvalidChannel;
                store(std::span<uint8_t>(list->bytes), (*channel)->id, i * 4);
            }
            return rm::nv::kOk;
        }
        case 0x90670102:  // NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE: kernel clients only
        case 0x2080110c:  // NV2080_CTRL_CMD_FIFO_GET_CHANNEL_MEM_INFO: root only
            return cmd == 0x2080110c && caller_.uid == 0 ? rm::nv::kNotSupported : rm::nv::kInsufficientPermissions;
        default: return rm::nv::kOk;  // information that nothing here depends on: zeros are an answer
    }
}

uint32_t RmCall::zcull_bind(Client& owner, const rm::ZcullBindParams& params) {
    if (params.hClient != owner.handle && on(Rule::kZcullSameClient)) return rm::nv::kInvalidClient;
    Client* named = any_client(params.hClient);
    if (named == nullptr) return rm::nv::kInvalidClient;
    const auto* channel = payload<std::shared_ptr<Channel>>(find(*named, params.hChannel));
    if (channel == nullptr) return rm::nv::kInvalidChannel;
    Tsg& tsg = *(*channel)->tsg;
    switch (params.zcullMode) {
        case rm::kZcullModeGlobal:
            if (on(Rule::kZcullNoGlobal)) return rm::nv::kNotSupported;
            tsg.zcull = ZcullMode::kNoCtxsw;
            return rm::nv::kOk;
        case rm::kZcullModeNoCtxsw: tsg.zcull = ZcullMode::kNoCtxsw; return rm::nv::kOk;
        case rm::kZcullModeSeparateBuffer:
            if ((*channel)->vas->lookup(params.vMemPtr, 1, nullptr) == nullptr) return rm::nv::kInvalidAddress;
            tsg.zcull = ZcullMode::kSeparateBuffer;
            return rm::nv::kOk;
        default: return rm::nv::kInvalidArgument;
    }
}

uint32_t RmCall::preemption_mode(Client& owner, const rm::PreemptionModeParams& params) {
    Object* object = find(owner, params.hChannel);
    Tsg* tsg = nullptr;
    if (const auto* group = payload<std::shared_ptr<Tsg>>(object)) tsg = group->get();
    if (const auto* channel = payload<std::shared_ptr<Channel>>(object)) tsg = (*channel)->tsg.get();
    if (tsg == nullptr) return rm::nv::kInvalidChannel;
    const bool gfxp = (params.flags & rm::kPreemptionModeSetGfxp) != 0 && params.gfxpPreemptMode == rm::kGfxpGfxp;
    if (gfxp && on(Rule::kGspNoGfxp)) return rm::nv::kNoMemory;
    const bool cilp = (params.flags & rm::kPreemptionModeSetCilp) != 0 && params.cilpPreemptMode == rm::kCilpCilp;
    // "Context creation fails with CUDA error 800", which is how libcuda reports a missing permission.
    if (cilp && tsg->has_graphics && on(Rule::kGspNoCilp)) return rm::nv::kInsufficientPermissions;
    return rm::nv::kOk;
}

bool RmCall::schedulable(const Channel& channel) const {
    return !channel.vas->external || channel.tsg->engine != rm::kEngineGr0 || channel.bound;
}

void RmCall::note_unschedulable(const Channel& channel) {
    char line[128];
    std::snprintf(
        line, sizeof line,
        "NVRM: kchannelIsSchedulable_IMPL: Cannot schedule externally-owned channel 0x%08x with unbound allocations!",
        channel.id);
    rm_.log_.write(line);
}

uint32_t RmCall::schedule_tsg(Tsg& tsg, bool enable) {
    if (tsg.dead && enable) return rm::nv::kRcError;
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(tsg.gpu)];
    if (enable && on(Rule::kScheduleWholeTsg)) {
        for (const Channel* channel : tsg.channels) {
            if (schedulable(*channel)) continue;
            note_unschedulable(*channel);
            return rm::nv::kInvalidState;
        }
    }
    tsg.scheduled = enable;
    const std::vector<Channel*> channels = tsg.channels;
    for (Channel* channel : channels) gpu.set_scheduled(*channel, enable);
    return rm::nv::kOk;
}

uint32_t RmCall::control_tsg(const std::shared_ptr<Tsg>& tsg, uint32_t cmd, Bytes params) {
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(tsg->gpu)];
    switch (cmd) {
        case rm::ctrl::kTsgGpfifoSchedule:
            if (params.size() != rm_.config_.layout.schedule_params && on(Rule::kIoctlExactSize))
                return rm::nv::kInvalidParamStruct;
            return schedule_tsg(*tsg, load<rm::GpfifoScheduleParams>(params).bEnable != 0);
        case rm::ctrl::kTsgBind: return rm::nv::kOk;
        case rm::ctrl::kTsgSetTimeslice: {
            const auto us = load<rm::TsgTimesliceParams>(params).timesliceUs;
            if (us == 0) return rm::nv::kInvalidArgument;
            gpu.set_timeslice(*tsg, us);
            return rm::nv::kOk;
        }
        case rm::ctrl::kTsgGetTimeslice: store(params, rm::TsgTimesliceParams{tsg->timeslice_us}); return rm::nv::kOk;
        case rm::ctrl::kTsgPreempt: {
            const auto preempt = load<rm::TsgPreemptParams>(params);
            return preempt.timeoutUs > 1'000'000 ? rm::nv::kInvalidArgument : rm::nv::kOk;
        }
        case rm::ctrl::kTsgGetInfo: store(params, rm::TsgInfoParams{tsg->id}); return rm::nv::kOk;
        case rm::ctrl::kTsgSetInterleaveLevel:
        case rm::ctrl::kTsgMakeRealtime: return caller_.uid == 0 ? rm::nv::kOk : rm::nv::kInsufficientPermissions;
        case rm::ctrl::kTsgGetInterleaveLevel: store(params, rm::TsgInterleaveParams{1}); return rm::nv::kOk;
        default: return rm::nv::kNotSupported;
    }
}

uint32_t RmCall::control_channel(Client& owner, Channel& channel, uint32_t cmd, Bytes params) {
    Gpu& gpu = *rm_.gpus_[static_cast<size_t>(channel.tsg->gpu)];
    switch (cmd) {
        case rm::ctrl::kChannelGpfifoSchedule: {
            if (params.size() != rm_.config_.layout.schedule_params && on(Rule::kIoctlExactSize))
                return rm::nv::kInvalidParamStruct;
            const bool enable = load<rm::GpfifoScheduleParams>(params).bEnable != 0;
            if (channel.tsg->dead && enable) return rm::nv::kRcError;
            if (enable && !on(Rule::kScheduleOneChannel)) return schedule_tsg(*channel.tsg, true);
            if (enable && !schedulable(channel) && on(Rule::kScheduleBoundChannel)) {
                note_unschedulable(channel);
                return rm::nv::kInvalidState;
            }
            gpu.set_scheduled(channel, enable);
            return rm::nv::kOk;
        }
        case rm::ctrl::kChannelBind: {
            const auto engine = load<rm::ChannelBindParams>(params).engineType;
            return engine == channel.tsg->engine ? rm::nv::kOk : rm::nv::kInvalidArgument;
        }
        case rm::ctrl::kChannelGetWorkSubmitToken:
            store(params, rm::WorkSubmitTokenParams{channel.token()});
            return rm::nv::kOk;
        case rm::ctrl::kChannelSetWorkSubmitTokenNotifIndex: return rm::nv::kOk;
        case 0x906f0101: {  // NV906F_CTRL_GET_CLASS_ENGINEID {hObject, classEngineID, classID, engineID}
            const auto* object = payload<EngineObject>(find(owner, load<uint32_t>(params)));
            if (object == nullptr) return rm::nv::kObjectNotFound;
            store(params, object->cls, 4);
            store(params, object->cls, 8);
            store(params, channel.tsg->engine, 12);
            return rm::nv::kOk;
        }
        case rm::ctrl::kChannelSetErrorNotifier: {
            // The driver's own test hook: writes GR_EXCEPTION (13) through the path that a real fault takes.
            if (load<rm::SetErrorNotifierParams>(params).bNotifyEachChannelInTsg != 0)
                gpu.kill(*channel.tsg, &channel, 13, "channel error notifier set by its owner");
            return rm::nv::kOk;
        }
        case rm::ctrl::kChannelStop: gpu.stopped(channel); return rm::nv::kOk;
        default: return rm::nv::kOk;
    }
}

uint32_t RmCall::export_object(Client& owner, const rm::ExportObjectParams& params) {
    if (params.type != rm::kObjectTypeRm || params.fd == -1) return rm::nv::kInvalidParameter;
    Object* object = find(owner, params.hObject);
    if (object == nullptr) return rm::nv::kObjectNotFound;
    const bool copyable = std::holds_alternative<std::shared_ptr<Tsg>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<VaSpace>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<ContextShare>>(object->payload) ||
                          std::holds_alternative<std::shared_ptr<Memory>>(object->payload);
    if (!copyable) return rm::nv::kInvalidArgument;
    if (params.hDevice != 0 && payload<DeviceObject>(find(owner, params.hDevice)) == nullptr)
        return rm::nv::kInvalidParameter;
    const auto target = request_.file_of(params.fd);
    const auto it = target ? rm_.files_.find(*target) : rm_.files_.end();
    if (it == rm_.files_.end()) return rm::nv::kInvalidParameter;
    if (it->second.kind != FileKind::kControl && on(Rule::kExportControlFile)) return rm::nv::kInvalidParameter;
    if (it->second.exported && on(Rule::kExportFreshFile)) return rm::nv::kStateInUse;
    it->second.exported_class = object->cls;
    it->second.exported_gpu = gpu_of(owner, *object);
    if (on(Rule::kExportKeepsAlive)) {
        it->second.exported = object->payload;
    } else {
        it->second.exported = NoState{};
        it->second.exported_from = {owner.handle, object->handle};
    }
    return rm::nv::kOk;
}

uint32_t RmCall::import_object(Client& owner, rm::ImportObjectParams& params) {
    if (params.type != rm::kObjectTypeRm || params.fd == -1) return rm::nv::kInvalidParameter;
    const auto source = request_.file_of(params.fd);
    const auto it = source ? rm_.files_.find(*source) : rm_.files_.end();
    if (it == rm_.files_.end() || it->second.kind != FileKind::kControl) return rm::nv::kInvalidParameter;
    if (!it->second.exported) return on(Rule::kImportNeedsExport) ? rm::nv::kInvalidParameter : rm::nv::kOk;
    Payload payload_copy = *it->second.exported;
    if (std::holds_alternative<NoState>(payload_copy)) {  // export.keeps-alive is off
        Client* origin = any_client(it->second.exported_from.first);
        Object* object = origin == nullptr ? nullptr : find(*origin, it->second.exported_from.second);
        if (object == nullptr) return rm::nv::kObjectNotFound;
        payload_copy = object->payload;
    }
    return place_copy(owner, params.hParent, params.hObject, it->second.exported_class, payload_copy);
}

}  // namespace vuda::sim
