// The set-up calls of NVIDIA's Vulkan and CUDA drivers in miniature, as real ioctls on descriptors, with every field
// checked that the caller gets back. A failed check ends the process: these run in programs of their own and in
// threads.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "rm/abi.h"

namespace vuda::shim::testing {

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::printf("%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            std::fflush(stdout);                                                          \
            std::_Exit(1);                                                                \
        }                                                                                 \
    } while (false)

// How the calls are made: libc's functions, unless a test says otherwise.
inline std::function<int(int, unsigned long, void*)> gpu_ioctl = [](int fd, unsigned long request, void* arg) {
    return ::ioctl(fd, request, arg);
};
inline std::function<int(const char*)> gpu_open = [](const char* path) { return ::open(path, O_RDWR | O_CLOEXEC); };

struct Gpu {
    int vk = -1, cu = -1, uvm = -1;
    uint32_t vk_client = 0, cu_client = 0;
};

inline uint32_t alloc(int fd, uint32_t root, uint32_t parent, uint32_t* object, uint32_t cls, void* params = nullptr) {
    rm::AllocArgs args{};
    args.hRoot = root;
    args.hObjectParent = parent;
    args.hObjectNew = *object;
    args.hClass = cls;
    args.pAllocParms = reinterpret_cast<uintptr_t>(params);
    errno = 77;
    CHECK(gpu_ioctl(fd, rm::rm_request(rm::escape::kAlloc, sizeof args), &args) == 0);
    CHECK(errno == 77);
    CHECK(args.hRoot == root && args.hObjectParent == parent && args.hClass == cls);
    CHECK(args.pAllocParms == reinterpret_cast<uintptr_t>(params));
    *object = args.hObjectNew;
    return args.status;
}

inline uint32_t control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void* params, uint32_t size) {
    rm::ControlArgs args{};
    args.hClient = client;
    args.hObject = object;
    args.cmd = cmd;
    args.params = reinterpret_cast<uintptr_t>(params);
    args.paramsSize = size;
    CHECK(gpu_ioctl(fd, rm::rm_request(rm::escape::kControl, sizeof args), &args) == 0);
    CHECK(args.hObject == object);
    return args.status;
}

inline uint32_t free_object(int fd, uint32_t client, uint32_t object) {
    rm::FreeArgs args{};
    args.hRoot = client;
    args.hObjectOld = object;
    CHECK(gpu_ioctl(fd, rm::rm_request(rm::escape::kFree, sizeof args), &args) == 0);
    return args.status;
}

inline constexpr uint32_t kVkTsg = 0xcef80003;
inline constexpr uint32_t kCuTsg = 0x5c000015;
inline constexpr uint32_t kCuShare = 0x5c000016;
inline constexpr uint32_t kCuSpace = 0x5c000009;
inline constexpr uint32_t kCuDevice = 0x5c000002;

inline void start_renderer(Gpu* gpu) {
    gpu->vk = gpu_open("/dev/nvidiactl");
    CHECK(gpu->vk >= 0);
    uint32_t object = 0;
    CHECK(alloc(gpu->vk, 0, 0, &gpu->vk_client, rm::cls::kRootClient) == 0);
    const uint32_t c = gpu->vk_client;
    rm::DeviceParams device{};
    object = 0xbeef0003;
    CHECK(alloc(gpu->vk, c, c, &object, rm::cls::kDevice, &device) == 0);
    object = 0xbeef0004;
    CHECK(alloc(gpu->vk, c, 0xbeef0003, &object, rm::cls::kSubdevice) == 0);
    rm::VaSpaceParams space{};
    object = 0xbeef0300;
    CHECK(alloc(gpu->vk, c, 0xbeef0003, &object, rm::cls::kVaSpace, &space) == 0);
    rm::ChannelGroupParams group{};
    group.hVASpace = 0xbeef0300;
    group.engineType = rm::kEngineGr0;
    object = kVkTsg;
    CHECK(alloc(gpu->vk, c, 0xbeef0003, &object, rm::cls::kChannelGroup, &group) == 0);
    rm::ContextShareParams share{0xbeef0300, 0, 0};
    object = 0xcef000c0;
    CHECK(alloc(gpu->vk, c, kVkTsg, &object, rm::cls::kContextShare, &share) == 0);
    rm::ChannelParams channel{};
    channel.hContextShare = 0xcef000c0;
    object = 0xbeec0100;
    CHECK(alloc(gpu->vk, c, kVkTsg, &object, rm::cls::kGpfifoAmpere, &channel) == 0);
    for (uint32_t i = 0; i < 2; ++i) {
        rm::MapDmaArgs map{};
        map.hClient = c;
        map.hDevice = 0xbeef0003;
        map.hDma = 0xcaf00000 + i;
        map.hMemory = 0x45 + i;
        map.length = 0x3000;
        map.dmaOffset = 0x51f0000 + i * 0x10000;
        CHECK(gpu_ioctl(gpu->vk, rm::rm_request(rm::escape::kMapMemoryDma, sizeof map), &map) == 0);
    }
    rm::ZcullBindParams zcull{c, 0xbeec0100, 0x5740000, rm::kZcullModeSeparateBuffer, 0};
    CHECK(control(gpu->vk, c, 0xbeef0004, rm::ctrl::kGrCtxswZcullBind, &zcull, sizeof zcull) == 0);
    CHECK(zcull.zcullMode == rm::kZcullModeSeparateBuffer);
    object = 0xbeec9097;
    CHECK(alloc(gpu->vk, c, 0xbeec0100, &object, rm::cls::kThreeDHopper) == 0);
}

inline void start_cuda_client(Gpu* gpu) {
    gpu->cu = gpu_open("/dev/nvidiactl");
    gpu->uvm = gpu_open("/dev/nvidia-uvm");
    CHECK(gpu->cu >= 0 && gpu->uvm >= 0);
    CHECK(alloc(gpu->cu, 0, 0, &gpu->cu_client, rm::cls::kRootClient) == 0);
    const uint32_t c = gpu->cu_client;
    uint32_t object = kCuDevice;
    rm::DeviceParams device{};
    CHECK(alloc(gpu->cu, c, c, &object, rm::cls::kDevice, &device) == 0);
    rm::VaSpaceParams space{};
    space.flags = 0x48;
    object = kCuSpace;
    CHECK(alloc(gpu->cu, c, kCuDevice, &object, rm::cls::kVaSpace, &space) == 0);
    rm::UvmRegisterVaSpaceArgs registration{};
    registration.hClient = c;
    registration.hVaSpace = kCuSpace;
    CHECK(gpu_ioctl(gpu->uvm, rm::uvm::kRegisterGpuVaSpace, &registration) == 0);
}

// One CUDA context: its TSG, context share, 8 channels, schedule. `shift` keeps the handles of several apart.
inline void make_context(const Gpu& gpu, uint32_t shift = 0) {
    const uint32_t c = gpu.cu_client;
    rm::ChannelGroupParams group{};
    group.engineType = rm::kEngineGr0;
    uint32_t object = kCuTsg + shift;
    CHECK(alloc(gpu.cu, c, kCuDevice, &object, rm::cls::kChannelGroup, &group) == 0);
    rm::ContextShareParams share{kCuSpace, rm::kCtxShareAsync, 0};
    object = kCuShare + shift;
    CHECK(alloc(gpu.cu, c, kCuTsg + shift, &object, rm::cls::kContextShare, &share) == 0);
    CHECK(share.hVASpace == kCuSpace && share.flags == rm::kCtxShareAsync);
    for (uint32_t i = 0; i < 8; ++i) {
        rm::ChannelParams channel{};
        channel.flags = i % 2 * 0x10;
        channel.hContextShare = kCuShare + shift;
        object = 0x5c00001c + shift + i * 6;
        CHECK(alloc(gpu.cu, c, kCuTsg + shift, &object, rm::cls::kGpfifoHopper, &channel) == 0);
        CHECK(channel.flags == (i % 2 * 0x10 | 0x20));
        CHECK(channel.hContextShare == kCuShare + shift && channel.cid == 0x13);
    }
    uint8_t schedule[3] = {1, 0, 0};
    CHECK(control(gpu.cu, c, kCuTsg + shift, rm::ctrl::kTsgGpfifoSchedule, schedule, 3) == 0);
}

}  // namespace vuda::shim::testing
