#include "shim/preload/host_channel.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "rm/abi.h"
#include "shim/preload/next.h"

namespace vuda::shim {
namespace {

// Apart from the redirector's own handles (Options::first_handle). Each channel takes a few; a renderer makes a TSG now
// and then.
constexpr uint32_t kFirstHandle = 0x5adb0000;
constexpr uint32_t kHandlesEach = 16;

// Methods that change the split wait for the frame in progress.
constexpr auto kLimit = std::chrono::milliseconds(1000);

constexpr size_t kCards = 32;

partition::ShadowOs past_our_hooks() {
    return {[](const char* path) { return next::open(path, O_RDWR | O_CLOEXEC, 0); },
            [](int fd, unsigned long request, void* arg) { return next::ioctl(fd, request, arg); }};
}

Error no_renderer() { return {Code::kFailedPrecondition, "this process has no renderer TSG", ""}; }

}  // namespace

Result<HostChannel::Classes> HostChannel::classes(const Host& host) {
    uint32_t list[201] = {};  // NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS: count, classes
    const uint32_t status =
        calls_.control(host.file, host.client, host.device, rm::ctrl::kGpuGetClasslistV2, list, sizeof list);
    if (status != kNvOk) {
        char text[80];
        std::snprintf(text, sizeof text, "the driver does not tell the GPU's classes: NV_STATUS 0x%x", status);
        return Error{Code::kInternal, text, ""};
    }
    Classes found;
    for (const uint32_t cls : std::span(list).subspan(1, std::min<size_t>(list[0], 200))) {
        if (rm::cls::is_gpfifo(cls)) found.gpfifo = std::max(found.gpfifo, cls);
        if (rm::cls::is_compute(cls)) found.compute = std::max(found.compute, cls);
        if (rm::cls::is_3d(cls)) found.three_d = std::max(found.three_d, cls);
        if ((cls & 0xff) == 0x61 && cls >= 0xc361) found.usermode = std::max(found.usermode, cls);
    }
    return found;
}

uint32_t HostChannel::compute_class(const Host& host) {
    if (host.client == 0) return 0;
    const Result<Classes> found = classes(host);
    return found ? found->compute : 0;
}

// The file whose minor number belongs to the GPU that RM knows as host.device_instance.
Result<std::string> HostChannel::gpu_path(const Host& host) {
    rm::CardInfo cards[kCards] = {};
    const int fd = files_.descriptor(host.file);
    if (fd < 0 || next::ioctl(fd, rm::rm_request(rm::escape::kCardInfo, sizeof cards), cards) != 0)
        return Error{Code::kInternal, "the driver does not list its GPUs", ""};
    for (const rm::CardInfo& card : cards) {
        if (card.valid == 0) continue;
        rm::GpuIdInfoV2Params info{};
        info.gpuId = card.gpuId;
        if (calls_.control(host.file, host.client, host.client, rm::ctrl::kGpuGetIdInfoV2, &info, sizeof info) != kNvOk)
            continue;
        if (info.deviceInstance == host.device_instance) return "/dev/nvidia" + std::to_string(card.minorNumber);
    }
    return Error{Code::kNotFound, "the renderer's GPU is not among those that the driver lists", ""};
}

Result<partition::ShadowPlace> HostChannel::place(const Host& host, uint32_t object_class) {
    Result<std::string> path = gpu_path(host);
    if (!path) return path.error();
    path_ = *std::move(path);
    partition::ShadowPlace place;
    place.control_fd = files_.descriptor(host.file);
    place.gpu_path = path_.c_str();
    place.client = host.client;
    place.device = host.device;
    place.subdevice = host.subdevice;
    place.va_space = host.va_space;
    place.tsg = host.tsg;
    place.ctxshare = host.ctxshare;
    place.first_handle = kFirstHandle + kHandlesEach * (handles_++ % 0x1000);
    place.gpfifo_class = classes_.gpfifo;
    place.compute_class = object_class;
    place.usermode_class = classes_.usermode;
    // Measured on GH100, where other subcontexts need runqueue 1.
    place.channel_flags = 0;
    return place;
}

Status HostChannel::open(const Host& host) {
    if (channel_ && client_ != host.client) channel_->forget_objects();
    channel_.reset();
    order_ = host.order;
    client_ = host.client;
    Result<Classes> found = classes(host);
    if (!found) return found.error();
    classes_ = *found;
    if (!partition::has_scg(classes_.compute)) {
        return Error{Code::kUnimplemented, "this GPU's compute class has no SCG control methods", ""};
    }
    const Result<partition::ShadowPlace> place = this->place(host, classes_.compute);
    if (!place) return place.error();
    Result<partition::ShadowChannel> made = partition::ShadowChannel::make(past_our_hooks(), abi_, *place);
    if (!made) return made.error();
    channel_.emplace(*std::move(made));
    return {};
}

Result<std::chrono::nanoseconds> HostChannel::run(const Host& host, std::span<const partition::Method> methods) {
    const std::lock_guard lock(mutex_);
    if (host.client == 0) return no_renderer();
    if (!channel_ || order_ != host.order) {
        if (Status opened = open(host); !opened) return opened.error();
    }
    const std::vector<partition::Method> list(methods.begin(), methods.end());
    return channel_->submit(
        partition::push_buffer(classes_.compute, list, channel_->semaphore(), channel_->next_payload()), kLimit);
}

Status HostChannel::set_l1(const Host& host, uint32_t value) {
    const std::lock_guard lock(mutex_);
    if (host.client == 0) return no_renderer();
    const Result<Classes> found = classes(host);
    if (!found) return found.error();
    classes_ = *found;
    const uint32_t three_d = classes_.three_d;
    if (!partition::has_l1_configuration(three_d))
        return Error{Code::kUnimplemented, "this GPU's 3D class is not known to have SET_L1_CONFIGURATION", ""};
    const Result<partition::ShadowPlace> place = this->place(host, three_d);
    if (!place) return place.error();
    Result<partition::ShadowChannel> made = partition::ShadowChannel::make(past_our_hooks(), abi_, *place);
    if (!made) return made.error();
    const auto sent = made->submit(partition::push_buffer(three_d, {{partition::kSetL1Configuration, value}},
                                                          made->semaphore(), made->next_payload()),
                                   kLimit);
    return sent ? Status{} : Status(sent.error());
}

}  // namespace vuda::shim
