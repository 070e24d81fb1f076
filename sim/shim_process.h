// For tests: a process whose ioctls go through the production redirector (shim/preload) before they reach the
// simulator. No vudad and no preload: what the hook does with descriptors, threads and files is left out.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rm/driver_table.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/decode.h"
#include "sim/rm/test_process.h"

namespace vuda::sim {

class ShimProcess : public TestProcess, private shim::RedirectorAccess, private shim::Attacher, private shim::Executor {
 public:
    ShimProcess(ResourceManager& rm, pid_t pid, uid_t uid, const shim::Wishes& wishes)
        : TestProcess(rm, pid, uid), redirector_(rm::abi_580()) {
        redirector_.set_wishes(wishes);
    }
    ~ShimProcess() override {
        for (const FileId file : files()) close(file);
        leftovers_ += redirector_.tracked();
    }

    // Objects that redirectors still tracked after their processes had closed everything; a test expects 0.
    static size_t take_leftovers() { return std::exchange(leftovers_, 0); }

    shim::Redirector& redirector() { return redirector_; }
    // "" while each handle that the program was told it has (or no longer has) agrees with the resource manager; else
    // what did not.
    const std::string& disagreement() const { return disagreement_; }
    void clear_disagreement() { disagreement_.clear(); }
    // What vudad would answer to an attach: a TSG and buffers exported by another process.
    void offer(shim::Offer offered) { offer_ = std::move(offered); }
    uint32_t moved() const { return moved_; }
    uint32_t mirrored() const { return mirrored_; }

    int ioctl(FileId file, unsigned long number, void* argument) override {
        const File* opened = rm().file(file);
        if (opened == nullptr) return EBADF;
        const shim::FileRole role = role_of(*opened);
        const auto request = static_cast<uint32_t>(number);
        const size_t size = shim::arg_size(role, request, rm::abi_580());
        if (size == 0) return kernel(file, number, argument);
        const auto* bytes = static_cast<const uint8_t*>(argument);
        const std::vector<uint8_t> arg(bytes, bytes + size);
        const shim::ParamsRef ref = shim::params_of(role, request, arg, rm::abi_580());
        std::vector<uint8_t> params;
        if (ref.size != 0)
            params.assign(reinterpret_cast<const uint8_t*>(ref.pointer),
                          reinterpret_cast<const uint8_t*>(ref.pointer) + ref.size);
        Memory memory(*this, file, number, argument, ref);
        now_ns_ += 1'000'000;
        const int result = shim::run_call(*this, *this, *this, memory,
                                          {static_cast<shim::FileId>(file), role, request, now_ns_, arg, params});
        const int error = result == 0 ? 0 : errno;
        for (const shim::Notice& notice : redirector_.take_notices()) {
            if (notice.kind != shim::Notice::Kind::kAttachDone || notice.moved == 0) continue;
            moved_ += notice.moved;
            mirrored_ = notice.buffers;
        }
        if (error == 0) compare(rm::ioctl_number(number), argument);
        return error;
    }

    void close(FileId file) override {
        if (rm().file(file) == nullptr) return;
        // The kernel frees first, then the hook learns of it and cleans up behind.
        TestProcess::close(file);
        for (const shim::Action& action : redirector_.file_closed(static_cast<shim::FileId>(file))) (void)run(action);
    }

 private:
    static shim::FileRole role_of(const File& file) {
        return file.kind == FileKind::kControl ? shim::FileRole::kControl
               : file.kind == FileKind::kGpu   ? shim::FileRole::kGpu
                                               : shim::FileRole::kUvm;
    }

    // The program's memory.
    class Memory : public shim::Forwarder {
     public:
        Memory(ShimProcess& process, FileId file, unsigned long number, void* argument, const shim::ParamsRef& ref)
            : process_(process), file_(file), number_(number), argument_(static_cast<uint8_t*>(argument)), ref_(ref) {}

        int forward() override { return finish(process_.kernel(file_, number_, argument_)); }
        int forward_copy(std::span<uint8_t> arg, std::span<uint8_t> params) override {
            if (!params.empty()) {
                const auto address = reinterpret_cast<uint64_t>(params.data());
                std::memcpy(arg.data() + pointer_offset(), &address, sizeof address);
            }
            return finish(process_.kernel(file_, number_, arg.data()));
        }
        bool read(shim::Edit::Where where, std::span<uint8_t> out) override {
            std::memcpy(out.data(), place(where), out.size());
            return true;
        }
        bool write(shim::Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
            std::memcpy(place(where) + offset, bytes.data(), bytes.size());
            return true;
        }
        size_t pointer_offset() const override { return ref_.pointer_offset; }

     private:
        uint8_t* place(shim::Edit::Where where) {
            return where == shim::Edit::Where::kArg ? argument_ : reinterpret_cast<uint8_t*>(ref_.pointer);
        }
        static int finish(int error) {
            if (error != 0) errno = error;
            return error == 0 ? 0 : -1;
        }

        ShimProcess& process_;
        FileId file_;
        unsigned long number_;
        uint8_t* argument_;
        shim::ParamsRef ref_;
    };

    shim::Plan before(const shim::Call& call) override { return redirector_.before(call); }
    shim::Plan attached(const shim::Plan& plan, const shim::Call& call, const shim::Offer& offered) override {
        return redirector_.attached(plan, call, offered);
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
    shim::Plan wait(const shim::Plan& plan, const shim::Call& call) override { return attached(plan, call, {}); }
    shim::Offer attach(const shim::AttachWish&) override { return offer_; }
    void release(shim::Offer*) override {}

    template <typename T>
    uint32_t call(shim::FileId file, unsigned escape, T& args) {
        return kernel(file, rm::rm_request(escape, sizeof args), &args) == 0 ? args.status
                                                                             : shim::kNvErrOperatingSystem;
    }
    template <typename T>
    uint32_t call_uvm(shim::FileId file, unsigned long number, T& args) {
        return kernel(file, number, &args) == 0 ? args.rmStatus : shim::kNvErrOperatingSystem;
    }
    uint32_t control(shim::FileId file, uint32_t client, uint32_t object, uint32_t command, void* params,
                     uint32_t size) {
        rm::ControlArgs args{client, object, command, 0, reinterpret_cast<uint64_t>(params), size, 0};
        return call(file, rm::escape::kControl, args);
    }

    // The redirector's actions, as shim/preload/rm_calls.cc makes them.
    shim::ActionResult run(const shim::Action& action) override {
        shim::ActionResult result;
        if (const auto* dup = std::get_if<shim::DupObject>(&action)) {
            rm::DupArgs args{dup->client, dup->parent, dup->object, dup->source_client, dup->source_object, 0, 0};
            result.status = call(dup->file, rm::escape::kDupObject, args);
        } else if (const auto* import = std::get_if<shim::ImportObject>(&action)) {
            rm::ImportObjectParams params{import->fd, rm::kObjectTypeRm, import->device, import->device,
                                          import->object};
            result.status = control(import->file, import->client, import->client, rm::ctrl::kImportObjectFromFd,
                                    &params, sizeof params);
        } else if (const auto* transfer = std::get_if<shim::TransferObject>(&action)) {
            const FileId fresh = open(FileKind::kControl);
            rm::ExportObjectParams params{rm::kObjectTypeRm,       transfer->source_device,     transfer->source_device,
                                          transfer->source_object, static_cast<int32_t>(fresh), 0};
            result.status = control(transfer->source_file, transfer->source_client, transfer->source_client,
                                    rm::ctrl::kExportObjectToFd, &params, sizeof params);
            if (result.status == 0)
                result = run(shim::ImportObject{transfer->file, transfer->client, transfer->device, transfer->object,
                                                static_cast<int>(fresh)});
            TestProcess::close(fresh);
        } else if (const auto* share = std::get_if<shim::AllocCtxshare>(&action)) {
            rm::ContextShareParams params{share->va_space, share->flags, share->veid};
            rm::AllocArgs args{};
            args.hRoot = share->client;
            args.hObjectParent = share->tsg;
            args.hObjectNew = share->object;
            args.hClass = rm::cls::kContextShare;
            args.pAllocParms = reinterpret_cast<uint64_t>(&params);
            result.status = call(share->file, rm::escape::kAlloc, args);
            result.veid = params.subctxId;
        } else if (const auto* range = std::get_if<shim::UvmCreateRange>(&action)) {
            rm::UvmCreateExternalRangeArgs args{range->va, range->length, 0, 0};
            result.status = call_uvm(range->uvm, rm::uvm::kCreateExternalRange, args);
        } else if (const auto* map = std::get_if<shim::UvmMapRange>(&action)) {
            auto args = std::make_unique<rm::UvmMapExternalArgs>();
            std::memset(args.get(), 0, sizeof *args);
            args->base = map->va;
            args->length = map->length;
            args->offset = map->offset;
            std::memcpy(args->attributes[0].gpuUuid, map->gpu.bytes.data(), 16);
            args->attributes[0].gpuMappingType = 1;
            args->attributesCount = 1;
            args->hClient = map->client;
            args->hMemory = map->memory;
            result.status = call_uvm(map->uvm, rm::uvm::kMapExternalAllocation, *args);
        } else if (const auto* unrange = std::get_if<shim::UvmFreeRange>(&action)) {
            rm::UvmFreeArgs580 args{unrange->va, unrange->length, 0, 0};
            result.status = call_uvm(unrange->uvm, rm::uvm::kFree, args);
        } else if (const auto* free = std::get_if<shim::FreeObject>(&action)) {
            rm::FreeArgs args{free->client, 0, free->object, 0};
            result.status = call(free->file, rm::escape::kFree, args);
        } else if (const auto* one = std::get_if<shim::ChannelControl>(&action)) {
            auto params = one->params;
            result.status =
                control(one->file, one->client, one->channel, one->command, params.data(), one->params_size);
        } else {
            result.status = rm::nv::kNotSupported;
        }
        return result;
    }

    bool exists(Handle client, Handle object, uint32_t cls) {
        const auto objects = rm().objects_of(client);
        return std::any_of(objects.begin(), objects.end(),
                           [&](const auto& one) { return one.first == object && (cls == 0 || one.second == cls); });
    }
    void disagree(const char* what, Handle client, Handle object) {
        if (!disagreement_.empty()) return;
        char text[128];
        std::snprintf(text, sizeof text, "%s: client 0x%x, object 0x%x", what, client, object);
        disagreement_ = text;
    }
    void compare(unsigned escape, const void* argument) {
        if (escape == rm::escape::kAlloc) {
            const auto& args = *static_cast<const rm::AllocArgs*>(argument);
            const Handle client = args.hClass == rm::cls::kRootClient ? args.hObjectNew : args.hRoot;
            if (args.status == 0 && !exists(client, args.hObjectNew, args.hClass))
                disagree("allocated, but not there", client, args.hObjectNew);
        } else if (escape == rm::escape::kFree) {
            const auto& args = *static_cast<const rm::FreeArgs*>(argument);
            if (args.status == 0 && exists(args.hRoot, args.hObjectOld, 0))
                disagree("freed, but still there", args.hRoot, args.hObjectOld);
        } else if (escape == rm::escape::kDupObject) {
            const auto& args = *static_cast<const rm::DupArgs*>(argument);
            if (args.status == 0 && !exists(args.hClient, args.hObject, 0))
                disagree("duplicated, but not there", args.hClient, args.hObject);
        }
    }

    static inline size_t leftovers_ = 0;

    shim::Redirector redirector_;
    shim::Offer offer_;
    uint64_t now_ns_ = 1;
    uint32_t moved_ = 0;
    uint32_t mirrored_ = 0;
    std::string disagreement_;
};

}  // namespace vuda::sim
