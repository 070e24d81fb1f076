#include "sim/rm/request.h"

#include <cerrno>

#include "rm/abi.h"

namespace vuda::sim {

namespace {

Need nothing() { return {}; }
Need read(uint64_t address, uint32_t length) { return {Need::Kind::kRead, address, length, -1, 0}; }
Need file(int fd) { return {Need::Kind::kFile, 0, 0, fd, 0}; }
Need refuse(int error) { return {Need::Kind::kError, 0, 0, -1, error}; }

const Blob* find(const Request& request, uint64_t at) {
    for (const Blob& blob : request.blobs) {
        if (blob.address == at) return &blob;
    }
    return nullptr;
}

Need need_file(const Request& request, int fd) { return request.file_of(fd) ? nothing() : file(fd); }

Need need_argument(const Request& request, uint32_t length) {
    if (request.argument.size() == length) return nothing();
    if (!request.argument.empty() || request.address == 0) return refuse(EFAULT);
    return read(request.address, length);
}

Need need_control(const Request& request, std::span<const uint8_t> argument) {
    if (argument.size() < sizeof(rm::ControlArgs)) return nothing();
    const auto control = load<rm::ControlArgs>(argument);
    if (control.params == 0 || control.paramsSize == 0) return nothing();
    if (control.paramsSize > kMaxBlob) return refuse(EINVAL);
    const Blob* params = find(request, control.params);
    if (params == nullptr) return read(control.params, control.paramsSize);
    switch (control.cmd) {
        case rm::ctrl::kExportObjectToFd: return need_file(request, load<rm::ExportObjectParams>(params->bytes).fd);
        case rm::ctrl::kImportObjectFromFd: return need_file(request, load<rm::ImportObjectParams>(params->bytes).fd);
        case 0x80170d: {  // NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST {numChannels, handles, list}
            const auto count = load<uint32_t>(params->bytes);
            const auto handles = load<uint64_t>(params->bytes, 8);
            const auto list = load<uint64_t>(params->bytes, 16);
            if (count == 0 || count > 4096 || handles == 0 || list == 0) return nothing();
            if (find(request, handles) == nullptr) return read(handles, count * 4);
            if (list != handles && find(request, list) == nullptr) return read(list, count * 4);
            return nothing();
        }
        default: return nothing();
    }
}

Need need_rm(const Request& request, unsigned escape, std::span<const uint8_t> argument, const Layout& layout) {
    namespace esc = rm::escape;
    switch (escape) {
        case esc::kAlloc: {
            if (argument.size() < sizeof(rm::AllocArgsShort)) return nothing();
            const auto alloc = load<rm::AllocArgsShort>(argument);
            const uint32_t length = layout.class_params(alloc.hClass);
            if (alloc.pAllocParms == 0 || length == 0 || find(request, alloc.pAllocParms) != nullptr) return nothing();
            return read(alloc.pAllocParms, length);
        }
        case esc::kControl: return need_control(request, argument);
        case esc::kRegisterFd:
            return argument.size() == sizeof(rm::RegisterFdArgs) ? need_file(request, load<int32_t>(argument))
                                                                 : nothing();
        case esc::kMapMemory:
            return argument.size() == sizeof(rm::MapMemoryArgs)
                       ? need_file(request, load<rm::MapMemoryArgs>(argument).fd)
                       : nothing();
        case esc::kAllocMemory: {
            if (argument.size() != sizeof(rm::AllocMemoryArgs)) return nothing();
            const int fd = load<rm::AllocMemoryArgs>(argument).fd;
            return fd >= 0 ? need_file(request, fd) : nothing();
        }
        default: return nothing();
    }
}

}  // namespace

Blob* Request::blob(uint64_t at) {
    for (Blob& blob : blobs) {
        if (blob.address == at) return &blob;
    }
    return nullptr;
}

void Request::supply(uint64_t at, std::span<const uint8_t> bytes) {
    if (at == address && argument.empty()) {
        argument.assign(bytes.begin(), bytes.end());
    } else {
        blobs.push_back({at, {bytes.begin(), bytes.end()}});
    }
}

std::optional<FileId> Request::file_of(int fd) const {
    for (const auto& [number, id] : files) {
        if (number == fd) return id;
    }
    return std::nullopt;
}

std::optional<Call> resolve_call(Request& request) {
    const unsigned escape = rm::ioctl_number(request.number);
    if (escape != rm::escape::kXferCmd) return Call{escape, request.argument};
    if (request.argument.size() < sizeof(rm::XferArgs)) return std::nullopt;
    const auto xfer = load<rm::XferArgs>(request.argument);
    Blob* inner = request.blob(xfer.ptr);
    if (inner == nullptr || xfer.cmd == rm::escape::kXferCmd) return std::nullopt;
    return Call{xfer.cmd, inner->bytes};
}

Need next_need(const Request& request, FileKind kind, const Layout& layout) {
    if (kind == FileKind::kUvm) {
        const uint32_t length = layout.uvm_argument(request.number);
        if (length == 0) return nothing();
        return need_argument(request, length);
    }
    if (kind == FileKind::kUvmTools) {
        if (request.number == rm::uvm::kToolsEventQueueEnableEvents)
            return need_argument(request, sizeof(rm::UvmToolsEnableEventsArgs));
        if (request.number != rm::uvm::kToolsInitEventTracker) return nothing();
        const Need need = need_argument(request, sizeof(rm::UvmToolsInitEventTrackerArgs));
        if (need.kind != Need::Kind::kNothing) return need;
        return need_file(request, static_cast<int>(load<rm::UvmToolsInitEventTrackerArgs>(request.argument).uvmFd));
    }
    if (rm::ioctl_type(request.number) != rm::kRmIoctlType) return nothing();
    const uint32_t length = rm::ioctl_size(request.number);
    if (const Need need = need_argument(request, length); need.kind != Need::Kind::kNothing) return need;
    const unsigned escape = rm::ioctl_number(request.number);
    if (escape == rm::escape::kXferCmd) {
        if (request.argument.size() != sizeof(rm::XferArgs)) return nothing();
        const auto xfer = load<rm::XferArgs>(request.argument);
        if (xfer.ptr == 0 || xfer.size == 0 || xfer.size > kMaxBlob) return refuse(EINVAL);
        const Blob* inner = find(request, xfer.ptr);
        if (inner == nullptr) return read(xfer.ptr, xfer.size);
        return need_rm(request, xfer.cmd, inner->bytes, layout);
    }
    return need_rm(request, escape, request.argument, layout);
}

}  // namespace vuda::sim
