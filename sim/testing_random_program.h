// For tests: a program that makes random ioctls, right ones in the order of the drivers and wrong ones in any order.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/model/random.h"
#include "sim/testing_books.h"
#include "sim/testing_redirected_program.h"

namespace vuda::sim {

// Makes ioctls in the order that drivers do, and in every other order.
class RandomProgram {
 public:
    RandomProgram(ResourceManager& manager, pid_t pid, Random& random)
        : rm_(manager), program_(manager, pid), random_(random) {}

    Program& program() { return program_; }

    void step() {
        // NOLINTNEXTLINE(bugprone-branch-clone)
        switch (last_step_ = random_.below(34)) {
            case 0: return open_file();
            case 1: return chance(6) ? close_file() : void();
            case 2: return make_client();
            case 3: return make_device();
            case 4: return make_va_space();
            case 5: return start_uvm();
            case 6: return make_tsg();
            case 7:
            case 8: return make_ctxshare();
            case 9:
            case 10:
            case 11: return make_channel();
            case 12:
            case 13: return make_engine_object();
            case 14: return make_memory();
            case 15: return map_dma();
            case 16: return unmap_dma();
            case 17: return chance(3) ? free_something() : void();
            case 18: return duplicate();
            case 19:
            case 20: return control_something();
            case 21: return register_channel();
            case 22: return chance(4) ? unregister_va_space() : void();
            case 23: return chance(5) ? set_wishes() : void();
            case 24: return nonsense();
            case 25: return chance(2) ? make_renderer() : void();
            case 26:
            case 27: return make_cuda_context();
            case 28: return inject_failure();
            case 29: return program_.pass_time(random_.below(1'000'000'000));
            case 30: return program_.redirector().device_created();
            case 31: return import_export();
            default: return make_channel();
        }
    }

    uint64_t last_step() const { return last_step_; }

    void set_wishes() {
        shim::Wishes wishes;
        wishes.share_renderer = chance(2);
        wishes.share_in_process = chance(2);
        wishes.attach = chance(2);
        wishes.require = chance(5);
        if (chance(4)) wishes.reserve = static_cast<uint32_t>(random_.below(10));
        program_.redirector().set_wishes(wishes);
    }

    void close_all() {
        while (!files_.empty()) close_file();
    }

    // Objects that the program named by duplicating or importing: the redirector follows those of VA spaces only.
    bool is_copy(rm::Handle client, rm::Handle object) const { return copies_.contains({client, object}); }
    void forget_copies_not_in(const std::map<rm::Handle, std::unique_ptr<Client>>& clients) {
        std::erase_if(copies_, [&](const auto& name) {
            const auto client = clients.find(name.first);
            return client == clients.end() || !client->second->objects.contains(name.second);
        });
    }

 private:
    // --- choosing ---
    bool chance(uint64_t one_in) { return random_.below(one_in) == 0; }
    rm::Handle any_handle() {
        if (chance(10)) return 0;
        if (chance(40)) return kShimHandles + static_cast<rm::Handle>(random_.below(4));
        return 0x100 + static_cast<rm::Handle>(random_.below(60));
    }
    // A handle for a new object: free more often than not.
    rm::Handle new_handle(const Client* client) {
        for (int i = 0; i < 4; ++i) {
            const rm::Handle handle = any_handle();
            // Not the shim's own range: programs' drivers do not use it (Options::first_handle).
            if (!of_shim(handle) && (client == nullptr || !client->objects.contains(handle) || chance(20)))
                return handle;
        }
        return 0;
    }
    FileId file(FileKind kind) {
        std::vector<FileId> fitting;
        for (const FileId id : files_) {
            if (rm_.file(id)->kind == kind) fitting.push_back(id);
        }
        return fitting.empty() ? 0 : fitting[random_.below(fitting.size())];
    }
    Client* client() {
        std::vector<Client*> own;
        for (const auto& [handle, one] : clients_of(rm_)) {
            if (one->pid == program_.pid() || chance(30)) own.push_back(one.get());
        }
        return own.empty() ? nullptr : own[random_.below(own.size())];
    }
    // A handle of that class in the client, now and then any other.
    rm::Handle object(const Client* client, uint32_t cls) {
        if (client == nullptr || chance(15)) return any_handle();
        std::vector<rm::Handle> fitting;
        for (const auto& [handle, one] : client->objects) {
            const bool fits = one.cls == cls || (cls == rm::cls::kGpfifoHopper && rm::cls::is_gpfifo(one.cls));
            if (fits && !of_shim(handle)) fitting.push_back(handle);
        }
        return fitting.empty() ? any_handle() : fitting[random_.below(fitting.size())];
    }
    // The client's file, if this process has it: a descriptor of another process is out of reach.
    FileId file_for(const Client* client) {
        const bool own = client != nullptr && std::ranges::find(files_, client->file) != files_.end();
        return !own || chance(40) ? file(FileKind::kControl) : client->file;
    }

    // --- calls ---
    uint32_t alloc(const Client* client, rm::Handle parent, rm::Handle handle, uint32_t cls, void* params = nullptr) {
        if (of_shim(parent)) return shim::kNvErrOperatingSystem;  // no driver knows those
        rm::AllocArgs args{};
        args.hRoot = client == nullptr ? any_handle() : client->handle;
        args.hObjectParent = parent;
        args.hObjectNew = handle;
        args.hClass = cls;
        args.pAllocParms = chance(60) ? 0 : reinterpret_cast<rm::UserPtr>(params);
        const int error = program_.ioctl(file_for(client), rm::rm_request(rm::escape::kAlloc, sizeof args), &args);
        made_ = args.hObjectNew;
        return error == 0 ? args.status : shim::kNvErrOperatingSystem;
    }
    uint32_t control(const Client* client, rm::Handle object, uint32_t command, void* params, uint32_t size) {
        rm::ControlArgs args{client == nullptr ? any_handle() : client->handle,
                             object,
                             command,
                             0,
                             reinterpret_cast<rm::UserPtr>(params),
                             size,
                             0};
        const int error = program_.ioctl(file_for(client), rm::rm_request(rm::escape::kControl, sizeof args), &args);
        return error == 0 ? args.status : shim::kNvErrOperatingSystem;
    }
    template <typename Args>
    uint32_t uvm(FileId file, unsigned long request, Args& args) {
        const int error = program_.ioctl(file, request, &args);
        return error == 0 ? args.rmStatus : shim::kNvErrOperatingSystem;
    }
    void copy_uuid(uint8_t* out) { std::memcpy(out, rm_.gpu(0).identity().uuid.bytes.data(), 16); }

    void open_file() {
        if (files_.size() >= 8) return;
        const FileKind kinds[] = {FileKind::kControl, FileKind::kControl, FileKind::kUvm, FileKind::kGpu};
        const FileId opened = program_.open(kinds[random_.below(std::size(kinds))]);
        if (opened != 0) files_.push_back(opened);
    }
    void close_file() {
        if (files_.empty()) return;
        const size_t victim = random_.below(files_.size());
        const FileId id = files_[victim];
        files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(victim));
        program_.close(id);
    }
    void make_client() { (void)alloc(nullptr, 0, 0, rm::cls::kRootClient); }
    void make_device() {
        Client* owner = client();
        rm::DeviceParams device{};
        device.deviceId = chance(20) ? 7 : 0;
        const rm::Handle parent = owner == nullptr || chance(20) ? any_handle() : owner->handle;
        if (alloc(owner, parent, new_handle(owner), rm::cls::kDevice, &device) != 0) return;
        rm::SubdeviceParams subdevice{};
        (void)alloc(owner, made_, new_handle(owner), rm::cls::kSubdevice, &subdevice);
    }
    void make_va_space() {
        Client* owner = client();
        rm::VaSpaceParams params{};
        params.flags = chance(2) ? rm::kVaSpaceExternallyOwned : 0;
        params.vaBase = 0x100000;
        (void)alloc(owner, object(owner, rm::cls::kDevice), new_handle(owner), rm::cls::kVaSpace, &params);
    }
    void start_uvm() {
        FileId space = file(FileKind::kUvm);
        rm::UvmInitializeArgs initialize{};
        if (!chance(6)) (void)uvm(space, rm::uvm::kInitialize, initialize);
        rm::UvmRegisterGpuArgs gpu{};
        copy_uuid(gpu.gpuUuid);
        if (!chance(6)) (void)uvm(space, rm::uvm::kRegisterGpu, gpu);
        Client* owner = client();
        rm::UvmRegisterVaSpaceArgs args{};
        copy_uuid(args.gpuUuid);
        args.hClient = owner == nullptr ? 0 : owner->handle;
        args.hVaSpace = object(owner, rm::cls::kVaSpace);
        (void)uvm(space, rm::uvm::kRegisterGpuVaSpace, args);
    }
    void unregister_va_space() {
        rm::UvmUnregisterGpuArgs args{};
        copy_uuid(args.gpuUuid);
        (void)uvm(file(FileKind::kUvm), rm::uvm::kUnregisterGpuVaSpace, args);
    }
    void make_tsg() {
        Client* owner = client();
        rm::ChannelGroupParams params{};
        params.hVASpace = chance(2) ? 0 : object(owner, rm::cls::kVaSpace);
        params.engineType = chance(6) ? static_cast<uint32_t>(random_.below(80)) : rm::kEngineGr0;
        (void)alloc(owner, object(owner, rm::cls::kDevice), new_handle(owner), rm::cls::kChannelGroup, &params);
    }
    void make_ctxshare() {
        Client* owner = client();
        rm::ContextShareParams params{};
        params.hVASpace = object(owner, rm::cls::kVaSpace);
        params.flags = static_cast<uint32_t>(random_.below(chance(10) ? 6 : 4));
        params.subctxId = static_cast<uint32_t>(random_.below(chance(10) ? 200 : 64));
        (void)alloc(owner, object(owner, rm::cls::kChannelGroup), new_handle(owner), rm::cls::kContextShare, &params);
    }
    void make_channel() {
        Client* owner = client();
        rm::ChannelParams params{};
        params.hContextShare = chance(3) ? 0 : object(owner, rm::cls::kContextShare);
        params.hVASpace = chance(10) ? object(owner, rm::cls::kVaSpace) : 0;
        params.hObjectError = chance(5) ? object(owner, rm::cls::kMemorySystem) : 0;
        params.flags = chance(2) ? rm::kChannelRunqueueOne : 0;
        if (chance(8)) params.flags |= static_cast<uint32_t>(random_.next());
        params.gpFifoEntries = 64;
        const uint32_t group = chance(12) ? rm::cls::kDevice : rm::cls::kChannelGroup;
        // The share's own TSG fits best, and is what drivers use.
        rm::Handle parent = object(owner, group);
        if (owner != nullptr && !chance(4)) {
            const auto& shares = books_of(program_.redirector()).clients;
            const auto books = shares.find(owner->handle);
            if (books != shares.end()) {
                const auto share = books->second.ctxshares.find(params.hContextShare);
                if (share != books->second.ctxshares.end()) parent = share->second.tsg;
            }
        }
        (void)alloc(owner, parent, new_handle(owner), chance(3) ? rm::cls::kGpfifoAmpere : rm::cls::kGpfifoHopper,
                    &params);
    }
    void make_engine_object() {
        Client* owner = client();
        const uint32_t classes[] = {rm::cls::kThreeDHopper, rm::cls::kComputeHopper, rm::cls::kCopyHopper, 0xdead};
        (void)alloc(owner, object(owner, rm::cls::kGpfifoHopper), new_handle(owner),
                    classes[random_.below(std::size(classes))]);
    }
    void make_memory() {
        Client* owner = client();
        const rm::Handle device = object(owner, rm::cls::kDevice);
        rm::MemoryParams params{};
        params.size = 0x1000 * (1 + random_.below(16));
        (void)alloc(owner, device, new_handle(owner), rm::cls::kMemorySystem, &params);
        if (chance(3)) {
            rm::MemoryVirtualParams whole{0, 0, object(owner, rm::cls::kVaSpace), 0};
            (void)alloc(owner, device, new_handle(owner), rm::cls::kMemoryVirtual, &whole);
        }
    }
    void map_dma() {
        Client* owner = client();
        rm::MapDmaArgs args{};
        args.hClient = owner == nullptr ? 0 : owner->handle;
        args.hMemory = object(owner, rm::cls::kMemorySystem);
        args.hDma = object(owner, rm::cls::kMemoryVirtual);
        // Both under the device that the call names, as drivers do it: RM does not check, and unlike these programs
        // they have one.
        args.hDevice = parent_of(owner, args.hMemory);
        if (args.hDevice != parent_of(owner, args.hDma)) return;
        args.length = 0x1000 * (1 + random_.below(4));
        (void)program_.ioctl(file_for(owner), rm::rm_request(rm::escape::kMapMemoryDma, sizeof args), &args);
    }
    void unmap_dma() {
        Client* owner = client();
        if (owner == nullptr) return;
        const auto& books = books_of(program_.redirector()).clients;
        const auto known = books.find(owner->handle);
        rm::UnmapDmaArgs args{};
        args.hClient = owner->handle;
        args.dmaOffset = 0x100000 * random_.below(4);
        if (known != books.end() && !known->second.mappings.empty()) {
            auto mapping = known->second.mappings.begin();
            std::advance(mapping, static_cast<std::ptrdiff_t>(random_.below(known->second.mappings.size())));
            args.hDma = mapping->second.dma;
            args.hDevice = mapping->second.device;
            args.hMemory = mapping->second.memory;
            args.dmaOffset = mapping->first;
        }
        (void)program_.ioctl(file_for(owner), rm::rm_request(rm::escape::kUnmapMemoryDma, sizeof args), &args);
    }
    void free_something() {
        Client* owner = client();
        rm::FreeArgs args{};
        args.hRoot = owner == nullptr ? any_handle() : owner->handle;
        args.hObjectOld = any_handle();
        if (owner != nullptr && !chance(8)) {
            auto one = owner->objects.begin();
            std::advance(one, static_cast<std::ptrdiff_t>(random_.below(owner->objects.size())));
            // The client itself and its devices take everything along: rarely.
            const bool big = one->first == owner->handle || one->second.cls == rm::cls::kDevice;
            if (of_shim(one->first) || (big && !chance(10))) return;
            args.hObjectOld = one->first;
        }
        if (of_shim(args.hObjectOld)) return;
        (void)program_.ioctl(file_for(owner), rm::rm_request(rm::escape::kFree, sizeof args), &args);
    }
    void duplicate() {
        Client* owner = client();
        Client* source = client();
        if (owner == nullptr || source == nullptr) return;
        const uint32_t classes[] = {rm::cls::kVaSpace, rm::cls::kChannelGroup, rm::cls::kMemorySystem,
                                    rm::cls::kContextShare, rm::cls::kGpfifoHopper};
        const uint32_t cls = classes[random_.below(std::size(classes))];
        rm::DupArgs args{owner->handle,
                         object(owner, rm::cls::kDevice),
                         new_handle(owner),
                         source->handle,
                         object(source, cls),
                         0,
                         0};
        if (of_shim(args.hObjectSrc) || of_shim(args.hParent)) return;
        const int error = program_.ioctl(file_for(owner), rm::rm_request(rm::escape::kDupObject, sizeof args), &args);
        if (error == 0 && args.status == 0) copies_.insert({owner->handle, args.hObject});
    }
    void import_export() {
        Client* owner = client();
        const FileId carrier = program_.open(FileKind::kControl);
        files_.push_back(carrier);
        rm::ExportObjectParams out{};
        out.type = rm::kObjectTypeRm;
        out.hDevice = out.hParent = object(owner, rm::cls::kDevice);
        out.hObject = object(owner, chance(2) ? rm::cls::kChannelGroup : rm::cls::kMemorySystem);
        out.fd = static_cast<int32_t>(carrier);
        (void)control(owner, owner == nullptr ? 0 : owner->handle, rm::ctrl::kExportObjectToFd, &out, sizeof out);
        Client* target = client();
        rm::ImportObjectParams in{};
        in.fd = static_cast<int32_t>(chance(5) ? file(FileKind::kControl) : carrier);
        in.type = rm::kObjectTypeRm;
        in.hDevice = in.hParent = object(target, rm::cls::kDevice);
        in.hObject = new_handle(target);
        if (of_shim(in.hParent)) return;
        const uint32_t status =
            control(target, target == nullptr ? 0 : target->handle, rm::ctrl::kImportObjectFromFd, &in, sizeof in);
        if (status == 0 && target != nullptr) copies_.insert({target->handle, in.hObject});
    }
    void control_something() {
        Client* owner = client();
        const rm::Handle channel = object(owner, rm::cls::kGpfifoHopper);
        const rm::Handle tsg = object(owner, rm::cls::kChannelGroup);
        const rm::Handle subdevice = object(owner, rm::cls::kSubdevice);
        rm::GpfifoScheduleParams schedule{static_cast<uint8_t>(chance(4) ? 0 : 1), 0, 0};
        switch (random_.below(8)) {
            case 0: (void)control(owner, tsg, rm::ctrl::kTsgGpfifoSchedule, &schedule, sizeof schedule); break;
            case 1: (void)control(owner, channel, rm::ctrl::kChannelGpfifoSchedule, &schedule, sizeof schedule); break;
            case 2: {
                rm::ZcullBindParams zcull{owner == nullptr ? 0 : owner->handle, channel, 0x100000,
                                          static_cast<uint32_t>(random_.below(4)), 0};
                (void)control(owner, subdevice, rm::ctrl::kGrCtxswZcullBind, &zcull, sizeof zcull);
                break;
            }
            case 3: {
                rm::PreemptionModeParams mode{};
                mode.hChannel = chance(2) ? tsg : channel;
                mode.flags = static_cast<uint32_t>(random_.below(4));
                mode.cilpPreemptMode = static_cast<uint32_t>(random_.below(3));
                (void)control(owner, subdevice, rm::ctrl::kGrSetCtxswPreemptionMode, &mode, sizeof mode);
                break;
            }
            case 4: {
                uint32_t engine = rm::kEngineGr0;
                (void)control(owner, tsg, rm::ctrl::kTsgBind, &engine, sizeof engine);
                break;
            }
            case 5: {
                uint64_t timeslice = 1000;
                (void)control(owner, tsg, rm::ctrl::kTsgSetTimeslice, &timeslice, sizeof timeslice);
                break;
            }
            case 6: {
                uint64_t preempt = 1;
                (void)control(owner, tsg, rm::ctrl::kTsgPreempt, &preempt, sizeof preempt);
                break;
            }
            default: {
                uint8_t block[64] = {};
                const auto length = static_cast<uint32_t>(random_.below(sizeof block));
                (void)control(owner, any_handle(), static_cast<uint32_t>(random_.next()), block, length);
                break;
            }
        }
    }
    void register_channel() {
        Client* owner = client();
        rm::UvmRegisterChannelArgs args{};
        copy_uuid(args.gpuUuid);
        args.hClient = owner == nullptr ? 0 : owner->handle;
        args.hChannel = object(owner, rm::cls::kGpfifoHopper);
        args.base = 0x2'0400'0000;
        args.length = 0x52f000;
        (void)uvm(file(FileKind::kUvm), rm::uvm::kRegisterChannel, args);
        if (!chance(6)) return;
        rm::UvmUnregisterChannelArgs580 gone{};
        copy_uuid(gone.gpuUuid);
        gone.hClient = args.hClient;
        gone.hChannel = args.hChannel;
        (void)uvm(file(FileKind::kUvm), rm::uvm::kUnregisterChannel, gone);
    }
    void inject_failure() {
        if (chance(3)) {
            (void)rm_.inject("clear");
            return;
        }
        const char* const what[] = {"alloc:9067=51@", "alloc:c86f=31@", "esc:34=33@",
                                    "ctl:3d06=3b@",   "alloc:a06c=51@", "ctl:a06f0103=40@"};
        (void)rm_.inject(what[random_.below(std::size(what))] + std::to_string(1 + random_.below(3)));
    }
    // Any escape with any size and any bytes.  Pointers stay null: an address of this test's own would be read.
    void nonsense() {
        std::vector<uint8_t> bytes(1 + random_.below(80));
        for (uint8_t& byte : bytes) byte = chance(2) ? 0 : static_cast<uint8_t>(random_.next());
        const unsigned escapes[] = {rm::escape::kFree,
                                    rm::escape::kDupObject,
                                    rm::escape::kShare,
                                    rm::escape::kUnmapMemory,
                                    rm::escape::kUnmapMemoryDma,
                                    rm::escape::kMapMemoryDma,
                                    rm::escape::kCardInfo,
                                    rm::escape::kSysParams,
                                    rm::escape::kStatusCode,
                                    rm::escape::kIdleChannels,
                                    0x01,
                                    0xff};
        const unsigned escape = escapes[random_.below(std::size(escapes))];
        bytes.resize(std::max<size_t>(
            bytes.size(), shim::arg_size(shim::FileRole::kControl,
                                         static_cast<uint32_t>(rm::rm_request(escape, bytes.size())), rm::abi_580())));
        const FileKind kinds[] = {FileKind::kControl, FileKind::kGpu, FileKind::kUvm};
        (void)program_.ioctl(file(kinds[random_.below(3)]), rm::rm_request(escape, bytes.size()), bytes.data());
    }

    // What vkCreateDevice does, on a client of its own, each step with a small chance of going wrong.
    void make_renderer() {
        if (file(FileKind::kControl) == 0) return;
        make_client();
        Client* owner = client_named(made_);
        if (owner == nullptr) return;
        rm::DeviceParams device{};
        if (alloc(owner, owner->handle, 0x100, rm::cls::kDevice, &device) != 0) return;
        rm::SubdeviceParams subdevice{};
        (void)alloc(owner, 0x100, 0x101, rm::cls::kSubdevice, &subdevice);
        rm::VaSpaceParams space{};
        space.vaBase = 0x100000;
        (void)alloc(owner, 0x100, 0x102, rm::cls::kVaSpace, &space);
        rm::MemoryVirtualParams whole{0, 0, 0x102, 0};
        (void)alloc(owner, 0x100, 0x103, rm::cls::kMemoryVirtual, &whole);
        for (rm::Handle memory = 0x104; memory < 0x107; ++memory) {
            rm::MemoryParams params{};
            params.size = 0x3000;
            (void)alloc(owner, 0x100, memory, rm::cls::kMemorySystem, &params);
            rm::MapDmaArgs map{};
            map.hClient = owner->handle;
            map.hDevice = 0x100;
            map.hDma = 0x103;
            map.hMemory = memory;
            map.length = 0x3000;
            (void)program_.ioctl(file_for(owner), rm::rm_request(rm::escape::kMapMemoryDma, sizeof map), &map);
        }
        rm::ChannelGroupParams group{};
        group.hVASpace = 0x102;
        group.engineType = rm::kEngineGr0;
        (void)alloc(owner, 0x100, 0x110, rm::cls::kChannelGroup, &group);
        const bool legacy = chance(6);
        rm::ContextShareParams share{0x102, rm::kCtxShareSync, 0};
        if (!legacy) (void)alloc(owner, 0x110, 0x111, rm::cls::kContextShare, &share);
        rm::ChannelParams channel{};
        channel.hContextShare = legacy ? 0 : 0x111;
        channel.gpFifoEntries = 64;
        (void)alloc(owner, 0x110, 0x112, rm::cls::kGpfifoAmpere, &channel);
        (void)alloc(owner, 0x112, 0x113, rm::cls::kThreeDHopper);
    }
    // What cuCtxCreate does.
    void make_cuda_context() {
        const FileId space_file = file(FileKind::kUvm);
        if (file(FileKind::kControl) == 0 || space_file == 0) return;
        make_client();
        Client* owner = client_named(made_);
        if (owner == nullptr) return;
        rm::UvmInitializeArgs initialize{};
        (void)uvm(space_file, rm::uvm::kInitialize, initialize);
        rm::UvmRegisterGpuArgs gpu{};
        copy_uuid(gpu.gpuUuid);
        (void)uvm(space_file, rm::uvm::kRegisterGpu, gpu);
        rm::DeviceParams device{};
        if (alloc(owner, owner->handle, 0x100, rm::cls::kDevice, &device) != 0) return;
        rm::VaSpaceParams space{};
        space.flags = rm::kVaSpaceExternallyOwned;
        (void)alloc(owner, 0x100, 0x102, rm::cls::kVaSpace, &space);
        rm::UvmRegisterVaSpaceArgs args{};
        copy_uuid(args.gpuUuid);
        args.hClient = owner->handle;
        args.hVaSpace = 0x102;
        (void)uvm(space_file, rm::uvm::kRegisterGpuVaSpace, args);
        rm::ChannelGroupParams group{};
        group.engineType = rm::kEngineGr0;
        (void)alloc(owner, 0x100, 0x110, rm::cls::kChannelGroup, &group);
        rm::ContextShareParams share{0x102, rm::kCtxShareAsync, 0};
        (void)alloc(owner, 0x110, 0x111, rm::cls::kContextShare, &share);
        const auto channels = static_cast<rm::Handle>(1 + random_.below(8));
        for (rm::Handle i = 0; i < channels; ++i) {
            rm::ChannelParams channel{};
            channel.hContextShare = 0x111;
            channel.gpFifoEntries = 64;
            channel.flags = i % 2 == 0 ? 0 : rm::kChannelRunqueueOne;
            (void)alloc(owner, 0x110, 0x112 + i, rm::cls::kGpfifoHopper, &channel);
            (void)alloc(owner, 0x112 + i, 0x120 + i, rm::cls::kComputeHopper);
            rm::UvmRegisterChannelArgs window{};
            copy_uuid(window.gpuUuid);
            window.hClient = owner->handle;
            window.hChannel = 0x112 + i;
            window.base = 0x2'0400'0000;
            window.length = 0x52f000;
            (void)uvm(space_file, rm::uvm::kRegisterChannel, window);
        }
        rm::GpfifoScheduleParams schedule{1, 0, 0};
        (void)control(owner, 0x110, rm::ctrl::kTsgGpfifoSchedule, &schedule, sizeof schedule);
    }

    Client* client_named(rm::Handle handle) {
        const auto found = clients_of(rm_).find(handle);
        return found == clients_of(rm_).end() || found->second->pid != program_.pid() ? nullptr : found->second.get();
    }
    static rm::Handle parent_of(const Client* client, rm::Handle handle) {
        if (client == nullptr) return 0;
        const auto found = client->objects.find(handle);
        return found == client->objects.end() ? 0 : found->second.parent;
    }

    ResourceManager& rm_;
    Program program_;
    Random& random_;
    std::vector<FileId> files_;
    std::set<std::pair<rm::Handle, rm::Handle>> copies_;
    rm::Handle made_ = 0;
    uint64_t last_step_ = 0;
};

}  // namespace vuda::sim
