// For tests: a process under the preload library whose kernel is the simulated resource manager. Its ioctls go through
// the production redirector and call runner; only the last step, ioctl(2) itself, is replaced.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "rm/driver_table.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/decode.h"
#include "sim/rm/test_process.h"

namespace vuda::sim {

inline constexpr rm::Handle kShimHandles = 0x5ada0000;
inline bool of_shim(rm::Handle handle) { return (handle & 0xffff0000u) == kShimHandles; }

inline shim::FileRole role_of(FileKind kind) {
    switch (kind) {
        case FileKind::kControl: return shim::FileRole::kControl;
        case FileKind::kGpu: return shim::FileRole::kGpu;
        case FileKind::kUvm: return shim::FileRole::kUvm;
        case FileKind::kUvmTools: break;  // not followed
    }
    return shim::FileRole::kOther;
}

// A process under the preload library: its ioctls go through a redirector of its own.  Descriptors are RM's file
// numbers.
class Program : public shim::RedirectorAccess, public shim::Executor, public shim::Attacher {
 public:
    Program(ResourceManager& manager, pid_t pid)
        : rm_(manager), pid_(pid), kernel_(manager, pid), redirector_(rm::abi_580()) {}

    // ioctl(2) as the program calls it: 0 or an errno.
    int ioctl(FileId file, unsigned long request, void* arg) {
        const File* opened = rm_.file(file);
        if (opened == nullptr) return EBADF;
        const shim::FileRole role = role_of(opened->kind);
        const size_t size = shim::arg_size(role, static_cast<uint32_t>(request), rm::abi_580());
        if (size == 0) return kernel_.ioctl(file, request, arg);
        const auto* bytes = static_cast<const uint8_t*>(arg);
        const std::vector<uint8_t> block(bytes, bytes + size);
        const shim::ParamsRef ref = shim::params_of(role, static_cast<uint32_t>(request), block, rm::abi_580());
        const auto* from = reinterpret_cast<const uint8_t*>(ref.pointer);
        const std::vector<uint8_t> params(from, from + ref.size);

        UserCall call(kernel_, file, request, arg, reinterpret_cast<uint8_t*>(ref.pointer), ref.pointer_offset);
        shim::Call seen;
        seen.file = static_cast<shim::FileId>(file);
        seen.role = role;
        seen.request = static_cast<uint32_t>(request);
        seen.now_ns = now_ns_ += 1000;
        seen.arg = block;
        seen.params = params;
        const int result = shim::run_call(*this, *this, *this, call, seen);
        const int error = errno;
        (void)redirector_.take_notices();
        return result == 0 ? 0 : error;
    }

    FileId open(FileKind kind) { return kernel_.open(kind); }
    void close(FileId file) {
        kernel_.close(file);
        for (const shim::Action& action : redirector_.file_closed(static_cast<shim::FileId>(file))) run(action);
        (void)redirector_.take_notices();
    }

    // What vudad would hand to an attacher: this process's renderer TSG and its control buffers on fresh files.
    shim::Offer export_host() {
        shim::Offer offer;
        const shim::Host host = redirector_.host();
        if (host.client == 0 || host.unfit != shim::Reason::kNone) return offer;
        const auto export_one = [&](rm::Handle object) {
            const FileId file = kernel_.open(FileKind::kControl);
            rm::ExportObjectParams params{
                rm::kObjectTypeRm, host.device, host.device, object, static_cast<int32_t>(file), 0};
            if (control(host.file, host.client, host.client, rm::ctrl::kExportObjectToFd, &params, sizeof params) ==
                0) {
                return static_cast<int>(file);
            }
            kernel_.close(file);
            return -1;
        };
        offer.tsg_fd = export_one(host.tsg);
        if (offer.tsg_fd < 0) return offer;
        offer.ok = true;
        offer.channels_in_use = host.channels;
        for (const shim::HostBuffer& buffer : host.buffers) {
            const int fd = export_one(buffer.memory);
            if (fd >= 0) offer.buffers.push_back({fd, buffer.va, buffer.length, buffer.offset});
        }
        return offer;
    }
    void close_offer(const shim::Offer& offer) {
        if (offer.tsg_fd >= 0) kernel_.close(static_cast<FileId>(offer.tsg_fd));
        for (const shim::OfferedBuffer& buffer : offer.buffers) kernel_.close(static_cast<FileId>(buffer.fd));
    }

    TestProcess& kernel() { return kernel_; }
    shim::Redirector& redirector() { return redirector_; }
    pid_t pid() const { return pid_; }
    void set_renderer(Program* renderer) { renderer_ = renderer; }
    void pass_time(uint64_t ns) { now_ns_ += ns; }

    // --- shim::RedirectorAccess ---
    shim::Plan before(const shim::Call& call) override { return redirector_.before(call); }
    shim::Plan attached(const shim::Plan& plan, const shim::Call& call, const shim::Offer& offer) override {
        return redirector_.attached(plan, call, offer);
    }
    shim::Plan refused(const shim::Plan& plan, const shim::Call& call, size_t failed,
                       std::span<const shim::ActionResult> results) override {
        return redirector_.refused(plan, call, failed, results);
    }
    shim::Plan after(const shim::Plan& plan, const shim::Call& call, const shim::Outcome& outcome,
                     std::span<const shim::ActionResult> results) override {
        return redirector_.after(plan, call, outcome, results);
    }
    void abandoned(const shim::Plan& plan) override { redirector_.abandoned(plan); }
    shim::Plan wait(const shim::Plan& plan, const shim::Call& call) override {
        ADD_FAILURE() << "a single thread waits for itself";
        return attached(plan, call, {});
    }

    // --- shim::Attacher ---
    shim::Offer attach(const shim::AttachWish&) override {
        return renderer_ == nullptr ? shim::Offer{} : renderer_->export_host();
    }
    void release(shim::Offer* offer) override {
        if (renderer_ != nullptr) renderer_->close_offer(*offer);
    }

    // --- shim::Executor: the actions as ioctls, straight to RM ---
    shim::ActionResult run(const shim::Action& action) override {
        shim::ActionResult result;
        if (const auto* dup = std::get_if<shim::DupObject>(&action)) {
            rm::DupArgs args{dup->client, dup->parent, dup->object, dup->source_client, dup->source_object, 0, 0};
            result.status = escape(dup->file, rm::escape::kDupObject, args);
        } else if (const auto* import = std::get_if<shim::ImportObject>(&action)) {
            rm::ImportObjectParams params{import->fd, rm::kObjectTypeRm, import->device, import->device,
                                          import->object};
            result.status = control(import->file, import->client, import->client, rm::ctrl::kImportObjectFromFd,
                                    &params, sizeof params);
        } else if (const auto* transfer = std::get_if<shim::TransferObject>(&action)) {
            const FileId file = kernel_.open(FileKind::kControl);
            rm::ExportObjectParams params{rm::kObjectTypeRm,       transfer->source_device,    transfer->source_device,
                                          transfer->source_object, static_cast<int32_t>(file), 0};
            result.status = control(transfer->source_file, transfer->source_client, transfer->source_client,
                                    rm::ctrl::kExportObjectToFd, &params, sizeof params);
            if (result.status == shim::kNvOk) {
                result = run(shim::ImportObject{transfer->file, transfer->client, transfer->device, transfer->object,
                                                static_cast<int>(file)});
            }
            kernel_.close(file);
        } else if (const auto* share = std::get_if<shim::AllocCtxshare>(&action)) {
            rm::ContextShareParams params{share->va_space, share->flags, share->veid};
            rm::AllocArgs args{};
            args.hRoot = share->client;
            args.hObjectParent = share->tsg;
            args.hObjectNew = share->object;
            args.hClass = rm::cls::kContextShare;
            args.pAllocParms = reinterpret_cast<rm::UserPtr>(&params);
            result.status = escape(share->file, rm::escape::kAlloc, args);
            result.veid = params.subctxId;
        } else if (const auto* range = std::get_if<shim::UvmCreateRange>(&action)) {
            rm::UvmCreateExternalRangeArgs args{};
            args.base = range->va;
            args.length = range->length;
            result.status = kernel_.uvm(range->uvm, rm::uvm::kCreateExternalRange, args);
        } else if (const auto* map = std::get_if<shim::UvmMapRange>(&action)) {
            const auto args = std::make_unique<rm::UvmMapExternalArgs>();
            args->base = map->va;
            args->length = map->length;
            args->offset = map->offset;
            std::memcpy(args->attributes[0].gpuUuid, map->gpu.bytes.data(), map->gpu.bytes.size());
            args->attributes[0].gpuMappingType = 1;
            args->attributesCount = 1;
            args->rmCtrlFd = static_cast<int32_t>(map->file);
            args->hClient = map->client;
            args->hMemory = map->memory;
            result.status = kernel_.uvm(map->uvm, rm::uvm::kMapExternalAllocation, *args);
        } else if (const auto* unrange = std::get_if<shim::UvmFreeRange>(&action)) {
            rm::UvmFreeArgs580 args{};
            args.base = unrange->va;
            args.length = unrange->length;
            result.status = kernel_.uvm(unrange->uvm, rm::uvm::kFree, args);
        } else if (const auto* free = std::get_if<shim::FreeObject>(&action)) {
            rm::FreeArgs args{free->client, 0, free->object, 0};
            result.status = escape(free->file, rm::escape::kFree, args);
        } else if (const auto* one = std::get_if<shim::ChannelControl>(&action)) {
            std::array<uint8_t, 16> params = one->params;
            result.status =
                control(one->file, one->client, one->channel, one->command, params.data(), one->params_size);
        } else {
            ADD_FAILURE() << "an action that was not asked for";
            result.status = rm::nv::kNotSupported;
        }
        return result;
    }

 private:
    class UserCall : public shim::Forwarder {
     public:
        UserCall(TestProcess& kernel, FileId file, unsigned long request, void* arg, uint8_t* params, size_t pointer)
            : kernel_(kernel),
              file_(file),
              request_(request),
              arg_(static_cast<uint8_t*>(arg)),
              params_(params),
              pointer_(pointer) {}

        int forward() override { return send(arg_); }
        int forward_copy(std::span<uint8_t> arg, std::span<uint8_t> params) override {
            if (!params.empty()) {
                const auto address = reinterpret_cast<uint64_t>(params.data());
                std::memcpy(arg.data() + pointer_, &address, sizeof address);
            }
            return send(arg.data());
        }
        bool read(shim::Edit::Where where, std::span<uint8_t> out) override {
            std::memcpy(out.data(), where == shim::Edit::Where::kArg ? arg_ : params_, out.size());
            return true;
        }
        bool write(shim::Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
            std::memcpy((where == shim::Edit::Where::kArg ? arg_ : params_) + offset, bytes.data(), bytes.size());
            return true;
        }
        size_t pointer_offset() const override { return pointer_; }

     private:
        int send(void* arg) {
            const int error = kernel_.ioctl(file_, request_, arg);
            if (error == 0) return 0;
            errno = error;
            return -1;
        }

        TestProcess& kernel_;
        FileId file_;
        unsigned long request_;
        uint8_t* arg_;
        uint8_t* params_;
        size_t pointer_;
    };

    template <typename Args>
    uint32_t escape(shim::FileId file, unsigned number, Args& args) {
        return kernel_.escape(file, number, args) == 0 ? args.status : shim::kNvErrOperatingSystem;
    }
    uint32_t control(shim::FileId file, rm::Handle client, rm::Handle object, uint32_t command, void* params,
                     uint32_t size) {
        rm::ControlArgs args{client, object, command, 0, reinterpret_cast<rm::UserPtr>(params), size, 0};
        return escape(file, rm::escape::kControl, args);
    }

    ResourceManager& rm_;
    pid_t pid_;
    TestProcess kernel_;
    shim::Redirector redirector_;
    Program* renderer_ = nullptr;
    uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace vuda::sim
