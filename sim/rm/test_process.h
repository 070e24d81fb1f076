// For tests: a process that talks to a ResourceManager directly, with its own memory as the caller's memory.
#pragma once

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rm/abi.h"
#include "sim/rm/resource_manager.h"

namespace vuda::sim {

inline std::unique_ptr<ResourceManager> make_rm(const char* version = "580.159.04",
                                                std::vector<std::string> presets = {"h200"}) {
    ResourceManager::Config config;
    config.layout = Layout::of(version);
    config.presets = std::move(presets);
    auto made = ResourceManager::make(std::move(config));
    return made ? std::move(*made) : nullptr;
}

class TestProcess {
 public:
    TestProcess(ResourceManager& rm, pid_t pid, uid_t uid = 1000) : rm_(rm), caller_{pid, uid, "test"} {}
    TestProcess(const TestProcess&) = delete;
    TestProcess& operator=(const TestProcess&) = delete;
    virtual ~TestProcess() {
        for (const FileId file : files_) rm_.close(file);
    }

    ResourceManager& rm() { return rm_; }

    // A descriptor of a test is the file's id.
    FileId open(FileKind kind, int minor = 0) {
        const FileId file = rm_.open(kind, minor, caller_);
        if (file != 0) files_.push_back(file);
        return file;
    }
    virtual void close(FileId file) { rm_.close(file); }

    // ioctl(2) as the program calls it: errno or 0.
    virtual int ioctl(FileId file, unsigned long number, void* argument) { return kernel(file, number, argument); }

    // What reaches the driver. Asks and answers as a server and its client do.
    int kernel(FileId file, unsigned long number, void* argument) {
        Request request;
        request.file = file;
        request.number = number;
        request.address = reinterpret_cast<uint64_t>(argument);
        const File* opened = rm_.file(file);
        if (opened == nullptr) return EBADF;
        for (int i = 0; i < 8; i++) {
            const Need need = next_need(request, opened->kind, rm_.layout());
            if (need.kind == Need::Kind::kError) return need.error;
            if (need.kind == Need::Kind::kRead) {
                request.supply(need.address, {reinterpret_cast<const uint8_t*>(need.address), need.length});
            } else if (need.kind == Need::Kind::kFile) {
                request.files.emplace_back(
                    need.fd, rm_.file(static_cast<FileId>(need.fd)) != nullptr ? static_cast<FileId>(need.fd) : 0);
            } else {
                const Outcome outcome = rm_.ioctl(caller_, request);
                for (const Blob& blob : request.blobs)
                    std::memcpy(reinterpret_cast<void*>(blob.address), blob.bytes.data(), blob.bytes.size());
                if (!request.argument.empty()) std::memcpy(argument, request.argument.data(), request.argument.size());
                return outcome.error;
            }
        }
        return ELOOP;
    }

    template <typename T>
    int escape(FileId file, unsigned number, T& args) {
        return ioctl(file, rm::rm_request(number, sizeof args), &args);
    }

    // Status of a UVM call whose struct has rmStatus; an errno comes back as 0x10000 + errno.
    template <typename T>
    uint32_t uvm(FileId file, unsigned long number, T& args) {
        const int error = ioctl(file, number, &args);
        return error != 0 ? 0x10000u + static_cast<uint32_t>(error) : args.rmStatus;
    }

 protected:
    const std::vector<FileId>& files() const { return files_; }

 private:
    ResourceManager& rm_;
    Caller caller_;
    std::vector<FileId> files_;
};

// A client with a device and a subdevice. Calls return RM statuses.
class TestClient {
 public:
    static constexpr rm::Handle kDevice = 0xd0, kSubdevice = 0xd1;

    explicit TestClient(TestProcess& process, uint32_t va_mode = 0, uint32_t gpu = 0) : process_(process) {
        control_file = process.open(FileKind::kControl);
        rm::AllocArgs root{};
        root.hClass = rm::cls::kRootClient;
        (void)process.escape(control_file, rm::escape::kAlloc, root);
        client = root.hObjectNew;
        rm::DeviceParams device{};
        device.deviceId = gpu;
        device.vaMode = va_mode;
        (void)alloc(client, kDevice, rm::cls::kDevice, &device);
        rm::SubdeviceParams subdevice{};
        (void)alloc(kDevice, kSubdevice, rm::cls::kSubdevice, &subdevice);
    }

    uint32_t alloc(rm::Handle parent, rm::Handle handle, uint32_t cls, void* params = nullptr) {
        rm::AllocArgs args{};
        args.hRoot = client;
        args.hObjectParent = parent;
        args.hObjectNew = handle;
        args.hClass = cls;
        args.pAllocParms = reinterpret_cast<rm::UserPtr>(params);
        const int error = process_.escape(control_file, rm::escape::kAlloc, args);
        last = args.hObjectNew;
        return error != 0 ? 0x10000u + static_cast<uint32_t>(error) : args.status;
    }
    uint32_t control(rm::Handle object, uint32_t command, void* params = nullptr, uint32_t size = 0) {
        rm::ControlArgs args{client, object, command, 0, reinterpret_cast<rm::UserPtr>(params), size, 0};
        const int error = process_.escape(control_file, rm::escape::kControl, args);
        return error != 0 ? 0x10000u + static_cast<uint32_t>(error) : args.status;
    }
    template <typename T>
    uint32_t control(rm::Handle object, uint32_t command, T& params) {
        return control(object, command, &params, sizeof params);
    }
    uint32_t free(rm::Handle object) {
        rm::FreeArgs args{client, 0, object, 0};
        (void)process_.escape(control_file, rm::escape::kFree, args);
        return args.status;
    }
    uint32_t dup(rm::Handle parent, rm::Handle handle, rm::Handle source_client, rm::Handle source) {
        rm::DupArgs args{client, parent, handle, source_client, source, 0, 0};
        (void)process_.escape(control_file, rm::escape::kDupObject, args);
        return args.status;
    }
    uint32_t share(rm::Handle object, uint16_t type) {
        rm::ShareArgs args{};
        args.hClient = client;
        args.hObject = object;
        args.type = type;
        (void)process_.escape(control_file, rm::escape::kShare, args);
        return args.status;
    }
    uint32_t export_to(rm::Handle object, FileId file) {
        rm::ExportObjectParams params{rm::kObjectTypeRm, kDevice, kDevice, object, static_cast<int32_t>(file), 0};
        return control(client, rm::ctrl::kExportObjectToFd, params);
    }
    uint32_t import_from(FileId file, rm::Handle parent, rm::Handle handle) {
        rm::ImportObjectParams params{static_cast<int32_t>(file), rm::kObjectTypeRm, kDevice, parent, handle};
        return control(client, rm::ctrl::kImportObjectFromFd, params);
    }

    uint32_t vaspace(rm::Handle handle, bool external = false, uint64_t base = 0x100000) {
        rm::VaSpaceParams params{};
        params.flags = external ? rm::kVaSpaceExternallyOwned : 0;
        params.vaBase = base;
        return alloc(kDevice, handle, rm::cls::kVaSpace, &params);
    }
    uint32_t memory(rm::Handle handle, uint64_t bytes) {
        rm::MemoryParams params{};
        params.size = bytes;
        return alloc(kDevice, handle, rm::cls::kMemorySystem, &params);
    }
    uint32_t tsg(rm::Handle handle, rm::Handle vas, uint32_t engine = rm::kEngineGr0, rm::Handle parent = kDevice) {
        rm::ChannelGroupParams params{};
        params.hVASpace = vas;
        params.engineType = engine;
        return alloc(parent, handle, rm::cls::kChannelGroup, &params);
    }
    // The VEID comes back in `veid`.
    uint32_t ctxshare(rm::Handle tsg, rm::Handle handle, rm::Handle vas, uint32_t flags, uint32_t* veid = nullptr) {
        rm::ContextShareParams params{vas, flags, veid != nullptr ? *veid : 0};
        const uint32_t status = alloc(tsg, handle, rm::cls::kContextShare, &params);
        if (veid != nullptr) *veid = params.subctxId;
        return status;
    }
    uint32_t channel(rm::Handle parent, rm::Handle handle, rm::Handle share, uint32_t flags = 0, rm::Handle vas = 0,
                     uint32_t engine = 0, rm::Handle notifier = 0) {
        params_ = {};
        params_.hContextShare = share;
        params_.hVASpace = vas;
        params_.flags = flags;
        params_.engineType = engine;
        params_.hObjectError = notifier;
        params_.gpFifoEntries = 64;
        return alloc(parent, handle, rm::cls::kGpfifoHopper, &params_);
    }
    const rm::ChannelParams& channel_params() const { return params_; }
    uint32_t schedule(rm::Handle object, bool is_tsg, bool enable = true) {
        rm::GpfifoScheduleParams params{static_cast<uint8_t>(enable), 0, 0};
        return control(object, is_tsg ? rm::ctrl::kTsgGpfifoSchedule : rm::ctrl::kChannelGpfifoSchedule, params);
    }
    // Whole-VAS virtual memory object and a mapping in it; `address` in (fixed) and out.
    uint32_t map_dma(rm::Handle dma, rm::Handle memory, uint64_t length, uint64_t& address, uint32_t flags = 0) {
        rm::MapDmaArgs args{};
        args.hClient = client;
        args.hDevice = kDevice;
        args.hDma = dma;
        args.hMemory = memory;
        args.length = length;
        args.flags = flags;
        args.dmaOffset = address;
        const int error = process_.escape(control_file, rm::escape::kMapMemoryDma, args);
        address = args.dmaOffset;
        return error != 0 ? 0x10000u + static_cast<uint32_t>(error) : args.status;
    }
    uint32_t unmap_dma(rm::Handle dma, uint64_t address) {
        rm::UnmapDmaArgs args{};
        args.hClient = client;
        args.hDevice = kDevice;
        args.hDma = dma;
        args.dmaOffset = address;
        (void)process_.escape(control_file, rm::escape::kUnmapMemoryDma, args);
        return args.status;
    }
    uint32_t virtual_memory(rm::Handle handle, rm::Handle vas) {
        rm::MemoryVirtualParams params{0, 0, vas, 0};
        return alloc(kDevice, handle, rm::cls::kMemoryVirtual, &params);
    }
    // What the CPU sees of a memory object, through a fresh file as a driver does it.
    std::shared_ptr<SharedMemory> map_cpu(rm::Handle memory, uint64_t length) {
        const FileId fresh = process_.open(FileKind::kControl);
        rm::MapMemoryArgs args{};
        args.hClient = client;
        args.hDevice = kDevice;
        args.hMemory = memory;
        args.length = length;
        args.fd = static_cast<int32_t>(fresh);
        if (process_.escape(control_file, rm::escape::kMapMemory, args) != 0 || args.status != 0) return nullptr;
        return process_.rm().map(fresh, length).memory;
    }

    TestProcess& process() { return process_; }

    FileId control_file = 0;
    rm::Handle client = 0;
    rm::Handle last = 0;  // handle of the last allocation

 private:
    TestProcess& process_;
    rm::ChannelParams params_{};
};

}  // namespace vuda::sim
