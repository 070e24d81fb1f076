#include "shim/preload/rm_calls.h"

#include <fcntl.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fault_point.h"
#include "base/monotonic.h"
#include "rm/abi.h"
#include "shim/preload/bootstrap.h"
#include "shim/preload/next.h"

namespace vuda::shim {
namespace {

// UvmGpuMappingTypeReadWriteAtomic
constexpr uint32_t kReadWriteAtomic = 1;

// What the end of a process takes RM, generously; and how often it is asked.
constexpr uint64_t kVeidPatienceNs = 500'000'000;
constexpr long kVeidNapNs = 2'000'000;

// RM's heap of VEIDs has no room at that place.
bool is_taken(uint32_t status) {
    return status == rm::nv::kNoMemory || status == rm::nv::kInsufficientResources || status == rm::nv::kInUse;
}

void nap(long ns) {
    const timespec time{0, ns};
    ::nanosleep(&time, nullptr);
}

uint32_t call(int fd, unsigned long request, void* arg, const uint32_t* status) {
    if (fd < 0) return rm::nv::kInvalidClient;
    int result = 0;
    do {
        result = next::ioctl(fd, request, arg);
    } while (result < 0 && errno == EINTR);
    if (result < 0) return kNvErrOperatingSystem;
    uint32_t value = 0;
    std::memcpy(&value, status, sizeof value);
    return value;
}

template <typename Args>
uint32_t rm_call(int fd, unsigned escape, Args* args) {
    return call(fd, rm::rm_request(escape, sizeof(Args)), args, &args->status);
}

}  // namespace

uint32_t RmCalls::control(FileId file, uint32_t client, uint32_t object, uint32_t command, void* params,
                          uint32_t size) {
    rm::ControlArgs args{};
    args.hClient = client;
    args.hObject = object;
    args.cmd = command;
    args.params = reinterpret_cast<uintptr_t>(params);
    args.paramsSize = size;
    return rm_call(files_.descriptor(file), rm::escape::kControl, &args);
}

int RmCalls::export_object(FileId file, uint32_t client, uint32_t device, uint32_t object, uint32_t* status) {
    const int fd = next::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        *status = kNvErrOperatingSystem;
        return -1;
    }
    rm::ExportObjectParams params{};
    params.type = rm::kObjectTypeRm;
    params.hDevice = device;
    params.hParent = device;
    params.hObject = object;
    params.fd = fd;
    *status = control(file, client, client, rm::ctrl::kExportObjectToFd, &params, sizeof params);
    if (*status == kNvOk) return fd;
    next::close(fd);
    return -1;
}

bool RmCalls::gpu_uuid(FileId file, uint32_t client, uint32_t subdevice, Uuid* out) {
    rm::GidInfoParams params{};
    params.flags = rm::kGidBinary;
    const uint32_t status = control(file, client, subdevice, rm::ctrl::kGpuGetGidInfo, &params, sizeof params);
    if (status != kNvOk || params.length != out->bytes.size()) return false;
    std::memcpy(out->bytes.data(), params.data, out->bytes.size());
    return true;
}

ActionResult RmCalls::run(const Action& action) {
    ActionResult result;
    if (const auto* dup = std::get_if<DupObject>(&action)) {
        rm::DupArgs args{};
        args.hClient = dup->client;
        args.hParent = dup->parent;
        args.hObject = dup->object;
        args.hClientSrc = dup->source_client;
        args.hObjectSrc = dup->source_object;
        result.status = rm_call(files_.descriptor(dup->file), rm::escape::kDupObject, &args);
    } else if (const auto* import = std::get_if<ImportObject>(&action)) {
        rm::ImportObjectParams params{};
        params.fd = import->fd;
        params.type = rm::kObjectTypeRm;
        params.hDevice = import->device;
        params.hParent = import->device;
        params.hObject = import->object;
        result.status = control(import->file, import->client, import->client, rm::ctrl::kImportObjectFromFd, &params,
                                sizeof params);
        VUDA_FAULT_POINT(shim_object_imported);
    } else if (const auto* transfer = std::get_if<TransferObject>(&action)) {
        const int fd = export_object(transfer->source_file, transfer->source_client, transfer->source_device,
                                     transfer->source_object, &result.status);
        if (fd < 0) return result;
        result = run(ImportObject{transfer->file, transfer->client, transfer->device, transfer->object, fd});
        next::close(fd);
    } else if (const auto* ctxshare = std::get_if<AllocCtxshare>(&action)) {
        rm::ContextShareParams params{};
        params.hVASpace = ctxshare->va_space;
        params.flags = ctxshare->flags;
        params.subctxId = ctxshare->veid;
        // The tail after the pointer moved between branches; its members stay zero, and the status is where the table
        // says.
        rm::AllocArgs args{};
        args.hRoot = ctxshare->client;
        args.hObjectParent = ctxshare->tsg;
        args.hObjectNew = ctxshare->object;
        args.hClass = rm::cls::kContextShare;
        args.pAllocParms = reinterpret_cast<uintptr_t>(&params);
        const auto* status =
            reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(&args) + abi_.alloc_status);
        const auto ask = [&] {
            return call(files_.descriptor(ctxshare->file), rm::rm_request(rm::escape::kAlloc, abi_.alloc_size), &args,
                        status);
        };
        const uint64_t until = monotonic_ns() + (ctxshare->patient ? kVeidPatienceNs : 0);
        // RM tells nobody when it has freed what another process had, so it is asked again.
        while ((result.status = ask()) != kNvOk && is_taken(result.status) && monotonic_ns() < until) nap(kVeidNapNs);
        result.veid = params.subctxId;
        if (ctxshare->optional && is_taken(result.status)) result = {};
    } else if (const auto* range = std::get_if<UvmCreateRange>(&action)) {
        rm::UvmCreateExternalRangeArgs args{};
        args.base = range->va;
        args.length = range->length;
        result.status = call(files_.descriptor(range->uvm), rm::uvm::kCreateExternalRange, &args, &args.rmStatus);
        VUDA_FAULT_POINT(shim_range_created);
    } else if (const auto* map = std::get_if<UvmMapRange>(&action)) {
        // 9 KiB of which the front and the tail are used; the tail's place depends on the branch.
        struct Tail {
            uint64_t attributes_count;
            int32_t ctl_fd;
            uint32_t client;
            uint32_t memory;
            uint32_t status;
        };
        static_assert(sizeof(Tail) ==
                      sizeof(rm::UvmMapExternalArgs) - offsetof(rm::UvmMapExternalArgs, attributesCount));
        const auto block = std::make_unique<rm::UvmMapExternalArgs>();
        block->base = map->va;
        block->length = map->length;
        block->offset = map->offset;
        std::memcpy(block->attributes[0].gpuUuid, map->gpu.bytes.data(), map->gpu.bytes.size());
        block->attributes[0].gpuMappingType = kReadWriteAtomic;
        const Tail tail{1, files_.descriptor(map->file), map->client, map->memory, 0};
        char* const end = reinterpret_cast<char*>(block.get()) + abi_.uvm_map_external_size - sizeof(Tail);
        std::memcpy(end, &tail, sizeof tail);
        result.status = call(files_.descriptor(map->uvm), rm::uvm::kMapExternalAllocation, block.get(),
                             reinterpret_cast<const uint32_t*>(end + offsetof(Tail, status)));
        VUDA_FAULT_POINT(shim_buffer_mapped);
    } else if (const auto* unrange = std::get_if<UvmFreeRange>(&action)) {
        rm::UvmFreeArgs580 args{};
        args.base = unrange->va;
        const bool has_length = abi_.uvm_free_size == sizeof(rm::UvmFreeArgs580);
        if (has_length) args.length = unrange->length;
        const size_t status_at =
            has_length ? offsetof(rm::UvmFreeArgs580, rmStatus) : offsetof(rm::UvmFreeArgs, rmStatus);
        result.status = call(files_.descriptor(unrange->uvm), rm::uvm::kFree, &args,
                             reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(&args) + status_at));
    } else if (const auto* free = std::get_if<FreeObject>(&action)) {
        rm::FreeArgs args{};
        args.hRoot = free->client;
        args.hObjectOld = free->object;
        result.status = rm_call(files_.descriptor(free->file), rm::escape::kFree, &args);
        VUDA_FAULT_POINT(shim_object_freed);
    } else if (const auto* one = std::get_if<ChannelControl>(&action)) {
        std::array<uint8_t, 16> params = one->params;
        result.status = control(one->file, one->client, one->channel, one->command, params.data(), one->params_size);
        VUDA_FAULT_POINT(shim_channel_scheduled);
    } else if (const auto* subcontext = std::get_if<BootstrapSubcontext>(&action)) {
        Bootstrap* const bootstrap = bootstrap_for_this_build();
        result.status = bootstrap == nullptr ? rm::nv::kNotSupported : bootstrap->start(*subcontext);
    }
    return result;
}

}  // namespace vuda::shim
