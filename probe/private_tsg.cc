#include "probe/private_tsg.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "rm/abi.h"
#include "rm/driver_version.h"

namespace vuda::probe {
namespace {

// Any numbers do in a client of our own.
enum Handle : uint32_t { kDevice = 0xcafe0001, kSubdevice, kVaSpace, kTsg, kCtxshare, kShadow = 0xcafe0100 };

constexpr uint32_t kSysParams = 0x40000000;  // memory block size, as NVIDIA's drivers pass it
constexpr size_t kCards = 32;

template <typename T>
Status call(int fd, unsigned escape, T& args, const char* what) {
    return ::ioctl(fd, rm::rm_request(escape, sizeof args), &args) == 0 ? Status{} : Status(errno_error(errno, what));
}

Error refused(const char* what, uint32_t number, uint32_t status) {
    char text[96];
    std::snprintf(text, sizeof text, "%s (%x): NV_STATUS 0x%x", what, number, status);
    return Error{Code::kInternal, text, ""};
}

}  // namespace

Result<PrivateTsg> PrivateTsg::make(int gpu) {
    PrivateTsg made;
    if (Status s = made.open_files(gpu); !s) return s.error();
    if (Status s = made.set_up(); !s) return s.error();
    return made;
}

partition::ShadowOs PrivateTsg::os() {
    return {[](const char* path) { return ::open(path, O_RDWR | O_CLOEXEC); },
            [](int fd, unsigned long request, void* arg) { return ::ioctl(fd, request, arg); }};
}

partition::ShadowPlace PrivateTsg::place() const {
    partition::ShadowPlace place;
    place.control_fd = control_.get();
    place.gpu_path = gpu_path_.c_str();
    place.client = client_;
    place.device = kDevice;
    place.subdevice = kSubdevice;
    place.va_space = kVaSpace;
    place.tsg = kTsg;
    place.ctxshare = kCtxshare;
    place.first_handle = kShadow;
    place.gpfifo_class = classes_.gpfifo;
    place.compute_class = classes_.compute;
    place.usermode_class = classes_.usermode;
    return place;
}

Status PrivateTsg::open_files(int gpu) {
    std::ifstream version_file(rm::kDriverVersionFile);
    const std::string text{std::istreambuf_iterator<char>(version_file), std::istreambuf_iterator<char>()};
    const Result<rm::DriverVersion> version = rm::parse_proc_driver_version(text);
    if (!version)
        return Error{Code::kUnavailable, "no NVIDIA driver is loaded",
                     "install it, or simulate: vudactl run -- vuda-probe"};
    driver_ = version->to_string();
    const rm::DriverSupport support = rm::find_driver(*version);
    if (support.abi == nullptr) {
        return Error{Code::kFailedPrecondition,
                     "driver " + driver_ + " is " + std::string(rm::verdict_name(support.verdict)) + ": " +
                         std::string(support.note),
                     "vudactl driver list names the releases whose layouts are known"};
    }
    abi_ = support.abi;

    control_.reset(::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
    if (!control_) return errno_error(errno, "cannot open /dev/nvidiactl");
    rm::CheckVersionArgs check{};
    std::memcpy(check.versionString, driver_.data(), std::min(driver_.size(), sizeof check.versionString - 1));
    if (Status s = call(control_.get(), rm::escape::kCheckVersionStr, check, "version check"); !s) return s;
    rm::SysParamsArgs params{kSysParams};
    if (Status s = call(control_.get(), rm::escape::kSysParams, params, "system parameters"); !s) return s;
    rm::CardInfo cards[kCards] = {};
    if (Status s = call(control_.get(), rm::escape::kCardInfo, cards, "list of GPUs"); !s) return s;
    const auto card = std::ranges::find_if(
        cards, [gpu](const rm::CardInfo& c) { return c.valid != 0 && c.minorNumber == static_cast<uint32_t>(gpu); });
    if (card == std::end(cards))
        return Error{Code::kNotFound, "there is no GPU " + std::to_string(gpu), "ls /dev/nvidia*"};
    gpu_id_ = card->gpuId;
    gpu_path_ = "/dev/nvidia" + std::to_string(gpu);
    gpu_file_.reset(::open(gpu_path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!gpu_file_) return errno_error(errno, "cannot open " + gpu_path_);
    rm::RegisterFdArgs registered{control_.get()};
    return call(gpu_file_.get(), rm::escape::kRegisterFd, registered, "registering the GPU's file");
}

Status PrivateTsg::set_up() {
    rm::AllocArgs root{};
    root.hClass = rm::cls::kRootClient;
    if (Status s = call(control_.get(), rm::escape::kAlloc, root, "a client"); !s) return s;
    if (root.status != rm::nv::kOk) return refused("a client", root.hClass, root.status);
    client_ = root.hObjectNew;

    rm::GpuIdInfoV2Params info{};
    info.gpuId = gpu_id_;
    if (Status s = control(client_, rm::ctrl::kGpuGetIdInfoV2, &info, sizeof info, "GPU info"); !s) return s;
    uint32_t attach[33] = {gpu_id_, 0xffffffff};
    if (Status s = control(client_, rm::ctrl::kGpuAttachIds, attach, sizeof attach, "attaching the GPU"); !s) return s;
    rm::DeviceParams device{};
    device.deviceId = info.deviceInstance;
    device.hClientShare = client_;
    if (Status s = alloc(client_, kDevice, rm::cls::kDevice, &device, "the device"); !s) return s;
    rm::SubdeviceParams subdevice{};
    if (Status s = alloc(kDevice, kSubdevice, rm::cls::kSubdevice, &subdevice, "the subdevice"); !s) return s;
    if (Status s = read_classes(); !s) return s;
    rm::VaSpaceParams space{};
    if (Status s = alloc(kDevice, kVaSpace, rm::cls::kVaSpace, &space, "an address space"); !s) return s;
    rm::ChannelGroupParams tsg{};
    tsg.hVASpace = kVaSpace;
    tsg.engineType = rm::kEngineGr0;
    if (Status s = alloc(kDevice, kTsg, rm::cls::kChannelGroup, &tsg, "a timeslice group"); !s) return s;
    rm::ContextShareParams share{kVaSpace, rm::kCtxShareSync, 0};
    return alloc(kTsg, kCtxshare, rm::cls::kContextShare, &share, "a context share");
}

Status PrivateTsg::read_classes() {
    uint32_t list[201] = {};  // NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS: count, classes
    if (Status s = control(kDevice, rm::ctrl::kGpuGetClasslistV2, list, sizeof list, "the list of classes"); !s)
        return s;
    for (const uint32_t cls : std::span(list).subspan(1, std::min<size_t>(list[0], 200))) {
        if (rm::cls::is_gpfifo(cls)) classes_.gpfifo = std::max(classes_.gpfifo, cls);
        if (rm::cls::is_compute(cls)) classes_.compute = std::max(classes_.compute, cls);
        if ((cls & 0xff) == 0x61 && cls >= 0xc361) classes_.usermode = std::max(classes_.usermode, cls);
    }
    if (classes_.gpfifo != 0 && classes_.compute != 0 && classes_.usermode != 0) return {};
    return Error{Code::kUnimplemented, "the GPU offers no channel, compute or doorbell class that is known here", ""};
}

Status PrivateTsg::alloc(uint32_t parent, uint32_t object, uint32_t cls, void* params, const char* what) {
    rm::AllocArgs args{};
    args.hRoot = client_;
    args.hObjectParent = parent;
    args.hObjectNew = object;
    args.hClass = cls;
    args.pAllocParms = reinterpret_cast<uintptr_t>(params);
    if (Status s = call(control_.get(), rm::escape::kAlloc, args, what); !s) return s;
    return args.status == rm::nv::kOk ? Status{} : Status(refused(what, cls, args.status));
}

uint32_t PrivateTsg::raw_control(uint32_t object, uint32_t command, void* params, uint32_t size) const {
    rm::ControlArgs args{};
    args.hClient = client_;
    args.hObject = object;
    args.cmd = command;
    args.params = reinterpret_cast<uintptr_t>(params);
    args.paramsSize = size;
    if (::ioctl(control_.get(), rm::rm_request(rm::escape::kControl, sizeof args), &args) != 0)
        return rm::nv::kOperatingSystem;
    return args.status;
}

Status PrivateTsg::control(uint32_t object, uint32_t command, void* params, uint32_t size, const char* what) const {
    const uint32_t status = raw_control(object, command, params, size);
    return status == rm::nv::kOk ? Status{} : Status(refused(what, command, status));
}

uint32_t PrivateTsg::subdevice_control(uint32_t command, void* params, uint32_t size) const {
    return raw_control(kSubdevice, command, params, size);
}

}  // namespace vuda::probe
