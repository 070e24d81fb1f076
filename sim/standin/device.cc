#include "sim/standin/device.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sim/pushbuffer/format.h"

namespace vuda::sim::standin {

namespace {

constexpr uint32_t kVidHeapVirtual = 0xa0000;  // VIRTUAL | USE_BEGIN_END
constexpr uint32_t kVidHeapPhysical = 0x400d;  // as Vulkan asks
constexpr uint32_t kAttrSystem = 0x42000000;   // location PCI
constexpr uint32_t kAttrVideo = 0x00800000;
constexpr uint64_t kLastVa = 0xdf'ffff'ffff;

template <typename T>
int call(int fd, unsigned escape, T& args) {
    return ioctl(fd, rm::rm_request(escape, sizeof args), &args);
}

std::string read_driver_version() {
    char text[256] = {};
    UniqueFd file(open("/proc/driver/nvidia/version", O_RDONLY | O_CLOEXEC));
    if (!file.valid() || read(file.get(), text, sizeof text - 1) <= 0) return {};
    // "NVRM version: NVIDIA UNIX ... x86_64  580.159.04  Release Build": the first word that starts with a digit and
    // has a dot.
    for (char* word = std::strtok(text, " \n"); word != nullptr; word = std::strtok(nullptr, " \n")) {
        if (word[0] >= '0' && word[0] <= '9' && std::strchr(word, '.') != nullptr) return word;
    }
    return {};
}

}  // namespace

Mapping::~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

Error rm_error(const std::string& what, uint32_t status) {
    char text[32];
    std::snprintf(text, sizeof text, ": status 0x%x", status);
    return Error{Code::kInternal, what + text, {}};
}

Status Device::fail(const std::string& what, uint32_t status) {
    last_status_ = status;
    return rm_error(what, status);
}

Result<Device> Device::open(int gpu, uint32_t va_mode, rm::Handle device, rm::Handle subdevice) {
    Device made;
    made.gpu_ = gpu;
    made.device_ = device;
    made.subdevice_ = subdevice;
    made.control_ = std::make_shared<SharedFd>();
    made.control_->fd.reset(::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    if (!made.control_->fd.valid())
        return errno_error(errno, "cannot open /dev/nvidiactl", "is vuda-simd running and VUDA_SIM_SOCKET set?");
    const int fd = made.control_->fd.get();

    rm::CheckVersionArgs version{};
    const std::string own = read_driver_version();
    std::memcpy(version.versionString, own.data(), std::min(own.size(), sizeof version.versionString - 1));
    if (call(fd, rm::escape::kCheckVersionStr, version) != 0 || version.reply != 1)
        return Error{Code::kFailedPrecondition, "driver version is not " + own, {}};
    rm::SysParamsArgs params{0x40000000};
    if (call(fd, rm::escape::kSysParams, params) != 0) return errno_error(errno, "NV_ESC_SYS_PARAMS");
    rm::CardInfo cards[32] = {};
    if (call(fd, rm::escape::kCardInfo, cards) != 0) return errno_error(errno, "NV_ESC_CARD_INFO");
    if (gpu < 0 || gpu >= 32 || cards[gpu].valid == 0)
        return Error{Code::kNotFound, "there is no GPU " + std::to_string(gpu), {}};

    char path[32];
    std::snprintf(path, sizeof path, "/dev/nvidia%d", gpu);
    made.gpu_file_ = std::make_shared<SharedFd>();
    made.gpu_file_->fd.reset(::open(path, O_RDWR | O_CLOEXEC));
    if (!made.gpu_file_->fd.valid()) return errno_error(errno, std::string("cannot open ") + path);
    rm::RegisterFdArgs registered{fd};
    if (call(made.gpu_file_->fd.get(), rm::escape::kRegisterFd, registered) != 0)
        return errno_error(errno, "NV_ESC_REGISTER_FD");
    if (Status started = made.start(gpu, va_mode); !started) return started.error();
    return made;
}

Result<Device> Device::second_client(rm::Handle device, rm::Handle subdevice) const {
    Device made;
    made.gpu_ = gpu_;
    made.control_ = control_;
    made.gpu_file_ = gpu_file_;
    made.device_ = device;
    made.subdevice_ = subdevice;
    if (Status started = made.start(gpu_, 0); !started) return started.error();
    return made;
}

Status Device::start(int gpu, uint32_t va_mode) {
    rm::AllocArgs root{};
    root.hClass = rm::cls::kRootClient;
    if (call(control_->fd.get(), rm::escape::kAlloc, root) != 0) return errno_error(errno, "alloc of a client");
    if (root.status != rm::nv::kOk) return fail("alloc of a client", root.status);
    client_ = root.hObjectNew;

    uint32_t probed[96] = {};
    if (Status s = control(client_, rm::ctrl::kGpuGetProbedIds, probed, sizeof probed); !s) return s;
    rm::GpuIdInfoV2Params info{};
    info.gpuId = probed[gpu];
    if (Status s = control(client_, rm::ctrl::kGpuGetIdInfoV2, &info, sizeof info); !s) return s;
    uint32_t attach[33] = {probed[gpu], 0xffffffff};
    if (Status s = control(client_, rm::ctrl::kGpuAttachIds, attach, sizeof attach); !s) return s;

    rm::DeviceParams device{};
    device.deviceId = info.deviceInstance;
    device.hClientShare = client_;
    device.vaMode = va_mode;
    if (Status s = alloc(client_, device_, rm::cls::kDevice, &device); !s) return s;
    rm::SubdeviceParams subdevice{};
    if (Status s = alloc(device_, subdevice_, rm::cls::kSubdevice, &subdevice); !s) return s;
    rm::GidInfoParams gid{};
    gid.flags = rm::kGidBinary;
    if (Status s = control(subdevice_, rm::ctrl::kGpuGetGidInfo, &gid, sizeof gid); !s) return s;
    std::memcpy(uuid_, gid.data, sizeof uuid_);
    return read_classes();
}

Status Device::read_classes() {
    uint32_t list[201] = {};
    if (Status s = control(device_, rm::ctrl::kGpuGetClasslistV2, list, sizeof list); !s) return s;
    for (uint32_t i = 0; i < std::min(list[0], 200u); i++) {
        const uint32_t cls = list[1 + i];
        if (rm::cls::is_gpfifo(cls)) gpfifo_ = std::max(gpfifo_, cls);
        if (rm::cls::is_compute(cls)) compute_ = std::max(compute_, cls);
        if (rm::cls::is_copy(cls)) copy_ = std::max(copy_, cls);
        if (rm::cls::is_3d(cls)) graphics_ = std::max(graphics_, cls);
        if ((cls & 0xff) == 0x61 && cls > 0xc000) usermode_cls_ = std::max(usermode_cls_, cls);
    }
    if (gpfifo_ == 0 || compute_ == 0 || copy_ == 0 || graphics_ == 0 || usermode_cls_ == 0)
        return Error{Code::kUnimplemented, "the GPU's class list lacks an engine", {}};
    return {};
}

Status Device::alloc(rm::Handle parent, rm::Handle object, uint32_t cls, void* params) {
    rm::AllocArgs args{};
    args.hRoot = client_;
    args.hObjectParent = parent;
    args.hObjectNew = object;
    args.hClass = cls;
    args.pAllocParms = reinterpret_cast<rm::UserPtr>(params);
    char what[48];
    std::snprintf(what, sizeof what, "alloc class %x", cls);
    if (call(control_->fd.get(), rm::escape::kAlloc, args) != 0) return errno_error(errno, what);
    return args.status == rm::nv::kOk ? Status{} : fail(what, args.status);
}

Status Device::control(rm::Handle object, uint32_t command, void* params, uint32_t size) {
    rm::ControlArgs args{};
    args.hClient = client_;
    args.hObject = object;
    args.cmd = command;
    args.params = reinterpret_cast<rm::UserPtr>(params);
    args.paramsSize = size;
    char what[48];
    std::snprintf(what, sizeof what, "control %x", command);
    if (call(control_->fd.get(), rm::escape::kControl, args) != 0) return errno_error(errno, what);
    return args.status == rm::nv::kOk ? Status{} : fail(what, args.status);
}

Status Device::free(rm::Handle object) {
    rm::FreeArgs args{client_, 0, object, 0};
    if (call(control_->fd.get(), rm::escape::kFree, args) != 0) return errno_error(errno, "free");
    return args.status == rm::nv::kOk ? Status{} : fail("free", args.status);
}

Status Device::dup(rm::Handle parent, rm::Handle object, rm::Handle source_client, rm::Handle source) {
    rm::DupArgs args{client_, parent, object, source_client, source, 0, 0};
    if (call(control_->fd.get(), rm::escape::kDupObject, args) != 0) return errno_error(errno, "dup");
    return args.status == rm::nv::kOk ? Status{} : fail("dup", args.status);
}

Status Device::heap_memory(rm::Handle object, uint64_t bytes, bool video) {
    rm::VidHeapArgs args{};
    args.hRoot = client_;
    args.hObjectParent = device_;
    args.function = rm::kVidHeapAllocSize;
    args.allocSize.owner = 0x474c0000;
    args.allocSize.hMemory = object;
    args.allocSize.flags = kVidHeapPhysical;
    args.allocSize.attr = video ? kAttrVideo : kAttrSystem;
    args.allocSize.size = bytes;
    args.allocSize.rangeEnd = UINT64_MAX;
    if (call(control_->fd.get(), rm::escape::kVidHeapControl, args) != 0) return errno_error(errno, "heap allocation");
    return args.status == rm::nv::kOk ? Status{} : fail("heap allocation", args.status);
}

Status Device::memory(rm::Handle object, uint64_t bytes, bool video) {
    rm::MemoryParams params{};
    params.owner = client_;
    params.flags = video ? 0x1c101 : 0xc001;
    params.attr = video ? 0x18000000 : 0x3a000000;
    params.size = bytes;
    params.alignment = video ? 0x200000 : 0;
    return alloc(device_, object, video ? rm::cls::kMemoryLocalUser : rm::cls::kMemorySystem, &params);
}

Status Device::map_gpu(rm::Handle vas, rm::Handle object, uint64_t address, uint64_t bytes, rm::Handle* reserved) {
    rm::VidHeapArgs range{};
    range.hRoot = client_;
    range.hObjectParent = device_;
    range.function = rm::kVidHeapAllocSize;
    range.hVASpace = vas;
    range.allocSize.owner = client_;
    range.allocSize.flags = kVidHeapVirtual;
    range.allocSize.attr = 0x4a800000;
    range.allocSize.size = bytes;
    range.allocSize.rangeBegin = address;
    range.allocSize.rangeEnd = kLastVa;
    if (call(control_->fd.get(), rm::escape::kVidHeapControl, range) != 0)
        return errno_error(errno, "address reservation");
    if (range.status != rm::nv::kOk) return fail("address reservation", range.status);
    if (range.allocSize.offset != address)
        return Error{Code::kInternal, "the resource manager chose another address than expected", {}};
    rm::MapDmaArgs map{};
    map.hClient = client_;
    map.hDevice = device_;
    map.hDma = range.allocSize.hMemory;
    map.hMemory = object;
    map.length = bytes;
    if (call(control_->fd.get(), rm::escape::kMapMemoryDma, map) != 0) return errno_error(errno, "mapping");
    if (map.status != rm::nv::kOk) return fail("mapping", map.status);
    if (reserved != nullptr) *reserved = range.allocSize.hMemory;
    return {};
}

Status Device::unmap_gpu(rm::Handle reserved, uint64_t address) {
    rm::UnmapDmaArgs unmap{};
    unmap.hClient = client_;
    unmap.hDevice = device_;
    unmap.hDma = reserved;
    unmap.dmaOffset = address;
    if (call(control_->fd.get(), rm::escape::kUnmapMemoryDma, unmap) != 0) return errno_error(errno, "unmapping");
    if (unmap.status != rm::nv::kOk) return fail("unmapping", unmap.status);
    return free(reserved);
}

Result<Mapping> Device::map_cpu(rm::Handle object, uint64_t bytes, rm::Handle parent, bool device_file) {
    char path[32];
    std::snprintf(path, sizeof path, "/dev/nvidia%d", gpu_);
    UniqueFd fresh(::open(device_file ? path : "/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    if (!fresh.valid()) return errno_error(errno, "cannot open a file to map");
    rm::MapMemoryArgs args{};
    args.hClient = client_;
    args.hDevice = parent;
    args.hMemory = object;
    args.length = bytes;
    args.fd = fresh.get();
    if (call(control_->fd.get(), rm::escape::kMapMemory, args) != 0) return errno_error(errno, "map memory");
    if (args.status != rm::nv::kOk) return fail("map memory", args.status).error();
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fresh.get(), 0);
    if (data == MAP_FAILED) return errno_error(errno, "mmap");
    return Mapping(data, bytes);
}

Status Device::context_dma(rm::Handle object, rm::Handle memory, uint64_t offset, uint64_t limit) {
    struct Args {  // NVOS39
        rm::Handle client, subdevice, object;
        uint32_t cls, flags, selector;
        rm::Handle memory;
        uint32_t pad0;
        uint64_t offset, limit;
        uint32_t status, pad1;
    };
    Args args{client_, 0, object, 2, 0x20100002, 0, memory, 0, offset, limit, 0, 0};
    if (call(control_->fd.get(), rm::escape::kAllocContextDma2, args) != 0) return errno_error(errno, "context DMA");
    return args.status == rm::nv::kOk ? Status{} : fail("context DMA", args.status);
}

Status Device::map_usermode(rm::Handle object, uint32_t cls) {
    rm::UsermodeHopperParams params{1, 0};
    if (Status s = alloc(subdevice_, object, cls, cls == rm::cls::kUsermodeHopper ? &params : nullptr); !s) return s;
    char path[32];
    std::snprintf(path, sizeof path, "/dev/nvidia%d", gpu_);
    doorbell_file_ = std::make_shared<SharedFd>();
    doorbell_file_->fd.reset(::open(path, O_RDWR | O_CLOEXEC));
    if (!doorbell_file_->fd.valid()) return errno_error(errno, std::string("cannot open ") + path);
    rm::MapMemoryArgs args{};
    args.hClient = client_;
    args.hDevice = subdevice_;
    args.hMemory = object;
    args.length = work::kUsermodeBytes;
    args.fd = doorbell_file_->fd.get();
    if (call(control_->fd.get(), rm::escape::kMapMemory, args) != 0) return errno_error(errno, "map the doorbell");
    if (args.status != rm::nv::kOk) return fail("map the doorbell", args.status);
    void* data = mmap(nullptr, work::kUsermodeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, doorbell_file_->fd.get(), 0);
    if (data == MAP_FAILED) return errno_error(errno, "mmap of the doorbell");
    doorbell_ = std::make_shared<Mapping>(data, work::kUsermodeBytes);
    return {};
}

void Device::ring(uint32_t token) const {
    __atomic_store_n(reinterpret_cast<uint32_t*>(doorbell_->data() + work::kDoorbell), token, __ATOMIC_RELEASE);
    // Only the simulator needs this: see sim/pushbuffer/format.h.
    (void)!send(doorbell_file_->fd.get(), &token, sizeof token, MSG_NOSIGNAL);
}

int Device::highest_fd() const {
    return std::max(
        {control_->fd.get(), gpu_file_->fd.get(), doorbell_file_ == nullptr ? -1 : doorbell_file_->fd.get()});
}

uint64_t Device::gpu_time() const {
    const auto* page = reinterpret_cast<const uint32_t*>(doorbell_->data());
    for (;;) {
        const uint32_t high = __atomic_load_n(page + work::kTimeHigh / 4, __ATOMIC_ACQUIRE);
        const uint32_t low = __atomic_load_n(page + work::kTimeLow / 4, __ATOMIC_ACQUIRE);
        if (high == __atomic_load_n(page + work::kTimeHigh / 4, __ATOMIC_ACQUIRE)) return (uint64_t{high} << 32) | low;
    }
}

}  // namespace vuda::sim::standin
