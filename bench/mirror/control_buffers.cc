#include "bench/mirror/control_buffers.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/unique_fd.h"
#include "bench/common/try.h"

namespace vuda::bench {
namespace {

// Numbers that neither Vulkan's driver nor VUDA's shim gives.
constexpr uint32_t kFirstHandle = 0x5adc0000;
constexpr uint32_t kFirstImport = 0x5add0000;

// NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD and ..._IMPORT_OBJECTS_FROM_FD.
// Source: open-gpu-kernel-modules, src/common/sdk/nvidia/inc/ctrl/ctrl0000/ctrl0000unix.h
constexpr uint32_t kExportObjects = 0x3d0b;
constexpr uint32_t kImportObjects = 0x3d0c;
constexpr uint32_t kExportPart = 512;
constexpr uint32_t kImportPart = 128;
struct ExportObjects {
    int32_t fd;  // -1: a new one
    uint32_t device;
    uint16_t max_objects;
    uint8_t metadata[64];
    uint8_t pad[2];
    uint32_t objects[kExportPart];
    uint16_t count;
    uint16_t index;
};
static_assert(sizeof(ExportObjects) == 2128);
struct ImportObjects {
    int32_t fd;
    uint32_t parent;
    uint32_t objects[kImportPart];
    uint8_t types[kImportPart];
    uint16_t count;
    uint16_t index;
};
static_assert(sizeof(ImportObjects) == 652);

class Watch {
 public:
    // Milliseconds since the last call, or the beginning.
    double lap() {
        const auto now = std::chrono::steady_clock::now();
        return std::chrono::duration<double, std::milli>(now - std::exchange(start_, now)).count();
    }

 private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Error refused(const char* what, uint32_t status) {
    char text[96];
    std::snprintf(text, sizeof text, "the driver refused %s: NV_STATUS 0x%x", what, status);
    return Error{Code::kInternal, text, ""};
}

}  // namespace

Status ControlBuffers::make(Buffer& buffer, uint32_t number, Times& times) {
    Watch watch;
    rm::VidHeapArgs memory = recipe_.memory;
    memory.allocSize.hMemory = kFirstHandle + number;
    memory.allocSize.size = bytes_;
    if (::ioctl(recipe_.fd, rm::rm_request(rm::escape::kVidHeapControl, sizeof memory), &memory) != 0)
        return errno_error(errno, "allocate memory");
    if (memory.status != 0) return refused("memory", memory.status);
    buffer.memory = memory.allocSize.hMemory;
    times.memory_ms += watch.lap();

    rm::VidHeapArgs address = recipe_.address;
    address.allocSize.hMemory = 0;
    address.allocSize.size = bytes_;
    if (::ioctl(recipe_.fd, rm::rm_request(rm::escape::kVidHeapControl, sizeof address), &address) != 0)
        return errno_error(errno, "reserve an address");
    if (address.status != 0) return refused("an address", address.status);
    buffer.address = address.allocSize.hMemory;
    times.address_ms += watch.lap();

    rm::MapDmaArgs map = recipe_.map;
    map.hDma = buffer.address;
    map.hMemory = buffer.memory;
    map.offset = 0;
    map.length = bytes_;
    map.dmaOffset = 0;
    if (::ioctl(recipe_.fd, rm::rm_request(rm::escape::kMapMemoryDma, sizeof map), &map) != 0)
        return errno_error(errno, "map memory");
    if (map.status != 0) return refused("a mapping", map.status);
    buffer.va = map.dmaOffset;
    const double took = watch.lap();
    times.map_ms += took;
    times.map_max_ms = std::max(times.map_max_ms, took);
    return {};
}

Status ControlBuffers::free_object(uint32_t object) {
    rm::FreeArgs args{};
    args.hRoot = recipe_.map.hClient;
    args.hObjectOld = object;
    if (::ioctl(recipe_.fd, rm::rm_request(rm::escape::kFree, sizeof args), &args) != 0)
        return errno_error(errno, "free");
    return args.status == 0 ? Status{} : refused("to free", args.status);
}

Status ControlBuffers::free(const Buffer& buffer) {
    if (buffer.va != 0) {
        rm::UnmapDmaArgs unmap{};
        unmap.hClient = recipe_.map.hClient;
        unmap.hDevice = recipe_.map.hDevice;
        unmap.hDma = buffer.address;
        unmap.dmaOffset = buffer.va;
        if (::ioctl(recipe_.fd, rm::rm_request(rm::escape::kUnmapMemoryDma, sizeof unmap), &unmap) != 0)
            return errno_error(errno, "unmap");
        if (unmap.status != 0) return refused("to unmap", unmap.status);
    }
    if (buffer.address != 0) VUDA_BENCH_TRY(free_object(buffer.address));
    return buffer.memory != 0 ? free_object(buffer.memory) : Status{};
}

Result<ControlBuffers::Times> ControlBuffers::make_and_free(uint32_t count) {
    Times times;
    times.count = count;
    std::vector<Buffer> buffers(count);
    Status made;
    for (uint32_t i = 0; i < count && made; ++i) made = make(buffers[i], i, times);
    Watch watch;
    for (const Buffer& buffer : buffers) {
        const Status freed = free(buffer);
        if (made && !freed) made = freed;
    }
    times.free_ms = watch.lap();
    if (!made) return made.error();
    return times;
}

uint32_t ControlBuffers::control(uint32_t command, void* params, uint32_t size) {
    rm::ControlArgs args{};
    args.hClient = args.hObject = recipe_.map.hClient;
    args.cmd = command;
    args.params = reinterpret_cast<uintptr_t>(params);
    args.paramsSize = size;
    const int result = ::ioctl(recipe_.fd, rm::rm_request(rm::escape::kControl, sizeof args), &args);
    return result == 0 ? args.status : UINT32_MAX;
}

Result<ControlBuffers::Exports> ControlBuffers::export_and_import(uint32_t count) {
    Exports found;
    found.count = count;
    Times times;
    std::vector<Buffer> buffers(count);
    Status made;
    for (uint32_t i = 0; i < count && made; ++i) made = make(buffers[i], i, times);
    const auto drop_imports = [&] {
        for (uint32_t i = 0; i < count; ++i) static_cast<void>(free_object(kFirstImport + i));
    };

    if (made) {
        std::vector<UniqueFd> fds;
        uint32_t status = 0;
        Watch watch;
        for (uint32_t i = 0; i < count && status == 0; ++i) {
            UniqueFd fd(::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
            rm::ExportObjectParams params{};
            params.type = rm::kObjectTypeRm;
            params.hDevice = params.hParent = recipe_.map.hDevice;
            params.hObject = buffers[i].memory;
            params.fd = fd.get();
            status = control(rm::ctrl::kExportObjectToFd, &params, sizeof params);
            fds.push_back(std::move(fd));
        }
        if (status == 0) found.single_ms = watch.lap();
        for (uint32_t i = 0; i < count && status == 0; ++i) {
            rm::ImportObjectParams params{};
            params.fd = fds[i].get();
            params.type = rm::kObjectTypeRm;
            params.hDevice = params.hParent = recipe_.map.hDevice;
            params.hObject = kFirstImport + i;
            status = control(rm::ctrl::kImportObjectFromFd, &params, sizeof params);
        }
        if (status == 0) found.single_import_ms = watch.lap();
        drop_imports();
    }
    if (made) {
        const auto params = std::make_unique<ExportObjects>();
        params->fd = -1;
        params->device = recipe_.map.hDevice;
        params->max_objects = static_cast<uint16_t>(count);
        uint32_t status = 0;
        Watch watch;
        for (uint32_t at = 0; at < count && status == 0; at += kExportPart) {
            params->index = static_cast<uint16_t>(at);
            params->count = static_cast<uint16_t>(std::min(kExportPart, count - at));
            for (uint32_t i = 0; i < params->count; ++i) params->objects[i] = buffers[at + i].memory;
            status = control(kExportObjects, params.get(), sizeof *params);
        }
        const UniqueFd fd(status == 0 ? params->fd : -1);
        if (status == 0) found.plural_ms = watch.lap();
        const auto import = std::make_unique<ImportObjects>();
        import->fd = fd.get();
        import->parent = recipe_.map.hDevice;
        for (uint32_t at = 0; at < count && status == 0; at += kImportPart) {
            import->index = static_cast<uint16_t>(at);
            import->count = static_cast<uint16_t>(std::min(kImportPart, count - at));
            for (uint32_t i = 0; i < import->count; ++i) import->objects[i] = kFirstImport + at + i;
            status = control(kImportObjects, import.get(), sizeof *import);
        }
        if (status == 0) found.plural_import_ms = watch.lap();
        found.plural_status = status;
        drop_imports();
    }
    for (const Buffer& buffer : buffers) {
        const Status freed = free(buffer);
        if (made && !freed) made = freed;
    }
    if (!made) return made.error();
    return found;
}

}  // namespace vuda::bench
