#include "shim/preload/decode.h"

namespace vuda::shim {
namespace {

rm::Surface surface_of(FileRole role) { return role == FileRole::kUvm ? rm::Surface::kUvm : rm::Surface::kRm; }

bool is_followed(FileRole role, uint32_t request) {
    if (role == FileRole::kUvm) {
        switch (request) {
            case rm::uvm::kRegisterGpuVaSpace:
            case rm::uvm::kUnregisterGpuVaSpace:
            case rm::uvm::kCreateExternalRange:
            case rm::uvm::kRegisterChannel: return true;
            default: return false;
        }
    }
    if (!is_rm_file(role) || rm::ioctl_type(request) != rm::kRmIoctlType) return false;
    switch (rm::ioctl_number(request)) {
        case rm::escape::kAlloc:
        case rm::escape::kControl:
        case rm::escape::kFree:
        case rm::escape::kDupObject:
        case rm::escape::kMapMemoryDma:
        case rm::escape::kUnmapMemoryDma:
        case rm::escape::kAllocContextDma2:
        case rm::escape::kVidHeapControl: return true;
        default: return false;
    }
}

size_t alloc_needs(uint32_t hclass) {
    if (rm::cls::is_gpfifo(hclass)) return rm::kChannelParamsStablePrefix;
    switch (hclass) {
        case rm::cls::kChannelGroup: return offsetof(rm::ChannelGroupParams, isCallingContextVgpuPlugin);
        case rm::cls::kContextShare: return sizeof(rm::ContextShareParams);
        case rm::cls::kVaSpace: return offsetof(rm::VaSpaceParams, vaSize);
        case rm::cls::kDevice: return sizeof(uint32_t);
        default: return 0;
    }
}

size_t control_needs(uint32_t command) {
    switch (command) {
        case rm::ctrl::kGrCtxswZcullBind: return sizeof(rm::ZcullBindParams);
        case rm::ctrl::kGrSetCtxswPreemptionMode: return offsetof(rm::PreemptionModeParams, route);
        case rm::ctrl::kGrCtxswPreemptionBind: return offsetof(rm::PreemptionBindParams, pad0);
        case rm::ctrl::kGrCtxswSetupBind: return offsetof(rm::SetupBindParams, vMemPtr);
        case rm::ctrl::kTsgGpfifoSchedule: return offsetof(rm::GpfifoScheduleParams, bSkipEnable);
        case rm::ctrl::kTsgBind: return sizeof(rm::ChannelBindParams);
        default: return 0;
    }
}

// Answers that are looked at and never changed: the first bytes of blocks that newer drivers made longer.
size_t answer_needs(uint32_t command) {
    switch (command) {
        case rm::ctrl::kGpuGetVirtualizationMode:
        case rm::ctrl::kConfComputeGetCapabilities: return sizeof(uint32_t);
        default: return 0;
    }
}

}  // namespace

size_t arg_size(FileRole role, uint32_t request, const rm::DriverAbi& abi) {
    return is_followed(role, request) ? rm::argument_size(surface_of(role), request, abi) : 0;
}

size_t status_offset(FileRole role, uint32_t request, const rm::DriverAbi& abi) {
    if (!is_followed(role, request)) return 0;
    const size_t offset = rm::status_offset(surface_of(role), request, abi);
    return offset == rm::kNoStatus ? 0 : offset;
}

ParamsRef params_of(FileRole role, uint32_t request, Bytes arg, const rm::DriverAbi& abi) {
    ParamsRef ref;
    if (!is_rm_file(role) || !is_followed(role, request)) return ref;
    const rm::IoctlView view = rm::decode(rm::Surface::kRm, request, arg, abi);
    rm::ParamBlock block;
    if (const auto* alloc = std::get_if<rm::Alloc>(&view)) {
        ref.needed = alloc_needs(alloc->cls);
        ref.pointer_offset = offsetof(rm::AllocArgs, pAllocParms);
    } else if (const auto* control = std::get_if<rm::Control>(&view)) {
        ref.needed = control_needs(control->cmd);
        ref.pointer_offset = offsetof(rm::ControlArgs, params);
        if (const size_t answer = answer_needs(control->cmd); answer != 0 && control->params_size >= answer) {
            ref.needed = answer;
            block = {control->params, static_cast<uint32_t>(answer)};
        }
    }
    if (ref.needed != 0 && block.address == 0) block = rm::param_block(view, abi);
    if (block.address == 0 || block.size < ref.needed) return ref;
    ref.pointer = block.address;
    ref.size = block.size;
    return ref;
}

}  // namespace vuda::shim
