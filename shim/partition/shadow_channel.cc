#include "shim/partition/shadow_channel.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "rm/abi.h"

namespace vuda::partition {
namespace {

// One buffer in system memory holds all that the GPU reads and writes.
constexpr uint64_t kMemoryBytes = 0x10000;
constexpr uint32_t kGpfifoEntries = 0x400;
constexpr uint32_t kUserdAt = 0x2000;
constexpr uint32_t kPushAt = 0x4000;
constexpr size_t kPushWords = (kMemoryBytes - kPushAt) / 4;
constexpr uint64_t kNotifierBytes = 0x1000;

constexpr uint32_t kGpPut = 0x8c;  // in USERD
constexpr uint64_t kUsermodeBytes = 0x10000;
constexpr uint32_t kDoorbell = 0x90;  // in the usermode page

// NVOS32_ALLOC_FLAGS, NVOS32_ATTR as NVIDIA's own drivers pass them for such buffers (tests/data/traces).
constexpr uint32_t kSystemFlags = 0xc001;
constexpr uint32_t kSystemAttr = 0x3a000000;
constexpr uint32_t kVirtualFlags = 0xa0000;
constexpr uint32_t kVirtualAttr = 0x4a800000;
constexpr uint64_t kAddressLimit = 0xdf'ffff'ffff;  // GPFIFO entries hold 40 bits
constexpr uint32_t kMapFlagsCached = 0xc0000;       // NVOS33_FLAGS: coherent system memory

enum Object : uint32_t { kMemory, kNotifier, kRange, kChannel, kCompute, kUsermode };

uint64_t gpfifo_entry(uint64_t address, size_t words) { return address | static_cast<uint64_t>(words) << 42; }

void store(uint8_t* at, uint32_t value) { __atomic_store_n(reinterpret_cast<uint32_t*>(at), value, __ATOMIC_RELEASE); }

}  // namespace

ShadowChannel::ShadowChannel(ShadowChannel&& other) noexcept
    : os_(other.os_),
      abi_(other.abi_),
      place_(other.place_),
      made_(std::exchange(other.made_, {})),
      doorbell_file_(std::move(other.doorbell_file_)),
      memory_(std::exchange(other.memory_, nullptr)),
      notifier_(std::exchange(other.notifier_, nullptr)),
      doorbell_(std::exchange(other.doorbell_, nullptr)),
      address_(other.address_),
      token_(other.token_),
      put_(other.put_),
      payload_(other.payload_),
      dead_(other.dead_) {}

ShadowChannel::~ShadowChannel() {
    if (doorbell_ != nullptr) ::munmap(doorbell_, kUsermodeBytes);
    if (notifier_ != nullptr) ::munmap(notifier_, kNotifierBytes);
    if (memory_ != nullptr) ::munmap(memory_, kMemoryBytes);
    for (auto object = made_.rbegin(); object != made_.rend(); ++object) {
        rm::FreeArgs args{};
        args.hRoot = place_.client;
        args.hObjectOld = *object;
        os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kFree, sizeof args), &args);
    }
}

Result<ShadowChannel> ShadowChannel::make(const ShadowOs& os, const rm::DriverAbi& abi, const ShadowPlace& place) {
    ShadowChannel made(os, abi, place);
    if (Status status = made.set_up(); !status) return status.error();
    return made;
}

Status ShadowChannel::alloc(uint32_t parent, uint32_t object, uint32_t cls, void* params, const char* what) {
    rm::AllocArgs args{};
    args.hRoot = place_.client;
    args.hObjectParent = parent;
    args.hObjectNew = object;
    args.hClass = cls;
    args.pAllocParms = reinterpret_cast<uintptr_t>(params);
    if (os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kAlloc, sizeof args), &args) != 0)
        return errno_error(errno, what);
    if (args.status == rm::nv::kOk) {
        made_.push_back(object);
        return {};
    }
    char text[96];
    std::snprintf(text, sizeof text, "%s (class %04x): NV_STATUS 0x%x", what, cls, args.status);
    return Error{Code::kInternal, text, ""};
}

Status ShadowChannel::control(uint32_t object, uint32_t command, void* params, uint32_t size, const char* what) {
    rm::ControlArgs args{};
    args.hClient = place_.client;
    args.hObject = object;
    args.cmd = command;
    args.params = reinterpret_cast<uintptr_t>(params);
    args.paramsSize = size;
    if (os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kControl, sizeof args), &args) != 0)
        return errno_error(errno, what);
    if (args.status == rm::nv::kOk) return {};
    char text[96];
    std::snprintf(text, sizeof text, "%s (control %08x): NV_STATUS 0x%x", what, command, args.status);
    return Error{Code::kInternal, text, ""};
}

Result<void*> ShadowChannel::map_cpu(uint32_t parent, uint32_t memory, const char* path, uint64_t bytes,
                                     const char* what, UniqueFd* keep) {
    UniqueFd file(os_.open(path));
    if (!file) return errno_error(errno, std::string("cannot open ") + path);
    rm::MapMemoryArgs args{};
    args.hClient = place_.client;
    args.hDevice = parent;
    args.hMemory = memory;
    args.length = bytes;
    args.flags = keep == nullptr ? kMapFlagsCached : 0;
    args.fd = file.get();
    if (os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kMapMemory, sizeof args), &args) != 0)
        return errno_error(errno, what);
    if (args.status != rm::nv::kOk) {
        char text[96];
        std::snprintf(text, sizeof text, "%s (mapping): NV_STATUS 0x%x", what, args.status);
        return Error{Code::kInternal, text, ""};
    }
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED) return errno_error(errno, what);
    if (keep != nullptr) *keep = std::move(file);
    return data;
}

Status ShadowChannel::map_gpu() {
    rm::VidHeapArgs range{};
    range.hRoot = place_.client;
    range.hObjectParent = place_.device;
    range.function = rm::kVidHeapAllocSize;
    range.hVASpace = place_.va_space;
    range.allocSize.owner = place_.client;
    range.allocSize.flags = kVirtualFlags;
    range.allocSize.attr = kVirtualAttr;
    range.allocSize.size = kMemoryBytes;
    range.allocSize.rangeBegin = kMemoryBytes;
    range.allocSize.rangeEnd = kAddressLimit;
    if (os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kVidHeapControl, sizeof range), &range) != 0)
        return errno_error(errno, "an address range");
    char text[96];
    if (range.status != rm::nv::kOk) {
        std::snprintf(text, sizeof text, "an address range: NV_STATUS 0x%x", range.status);
        return Error{Code::kInternal, text, ""};
    }
    made_.push_back(range.allocSize.hMemory);

    // Both layouts of NVOS46 agree up to `flags`; the table says where the rest is.
    alignas(8) uint8_t block[sizeof(rm::MapDmaArgs)] = {};
    rm::MapDmaArgs map{};
    map.hClient = place_.client;
    map.hDevice = place_.device;
    map.hDma = range.allocSize.hMemory;
    map.hMemory = place_.first_handle + kMemory;
    map.length = kMemoryBytes;
    std::memcpy(block, &map, offsetof(rm::MapDmaArgs, flags));
    if (os_.ioctl(place_.control_fd, rm::rm_request(rm::escape::kMapMemoryDma, abi_->map_dma_size), block) != 0)
        return errno_error(errno, "a GPU mapping");
    uint32_t status = 0;
    std::memcpy(&status, block + abi_->map_dma_status, sizeof status);
    if (status != rm::nv::kOk) {
        std::snprintf(text, sizeof text, "a GPU mapping: NV_STATUS 0x%x", status);
        return Error{Code::kInternal, text, ""};
    }
    std::memcpy(&address_, block + abi_->map_dma_va, sizeof address_);
    return {};
}

Status ShadowChannel::set_up() {
    const uint32_t h = place_.first_handle;
    rm::MemoryParams memory{};
    memory.owner = place_.client;
    memory.flags = kSystemFlags;
    memory.attr = kSystemAttr;
    memory.size = kMemoryBytes;
    if (Status s = alloc(place_.device, h + kMemory, rm::cls::kMemorySystem, &memory, "memory"); !s) return s;
    Result<void*> mapped = map_cpu(place_.device, h + kMemory, "/dev/nvidiactl", kMemoryBytes, "memory", nullptr);
    if (!mapped) return mapped.error();
    memory_ = static_cast<uint8_t*>(*mapped);
    std::memset(memory_, 0, kMemoryBytes);
    if (Status s = map_gpu(); !s) return s;

    rm::MemoryParams notifier{};
    notifier.owner = place_.client;
    notifier.type = 0xd;  // NVOS32_TYPE_NOTIFIER
    notifier.flags = kSystemFlags;
    notifier.attr = kSystemAttr;
    notifier.size = kNotifierBytes;
    if (Status s = alloc(place_.device, h + kNotifier, rm::cls::kMemorySystem, &notifier, "an error notifier"); !s)
        return s;
    mapped = map_cpu(place_.device, h + kNotifier, "/dev/nvidiactl", kNotifierBytes, "an error notifier", nullptr);
    if (!mapped) return mapped.error();
    notifier_ = static_cast<uint8_t*>(*mapped);
    std::memset(notifier_, 0, kNotifierBytes);

    rm::ChannelParams channel{};
    channel.hObjectError = h + kNotifier;
    channel.gpFifoOffset = address_;
    channel.gpFifoEntries = kGpfifoEntries;
    channel.flags = place_.channel_flags;
    channel.hContextShare = place_.ctxshare;
    channel.hUserdMemory[0] = h + kMemory;
    channel.userdOffset[0] = kUserdAt;
    channel.engineType = rm::kEngineGr0;
    if (Status s = alloc(place_.tsg, h + kChannel, place_.gpfifo_class, &channel, "a channel"); !s) return s;
    if (Status s = alloc(h + kChannel, h + kCompute, place_.compute_class, nullptr, "a compute object"); !s) return s;
    rm::ChannelBindParams bind{rm::kEngineGr0};
    if (Status s = control(h + kChannel, rm::ctrl::kChannelBind, &bind, sizeof bind, "bind"); !s) return s;
    rm::GpfifoScheduleParams schedule{};
    schedule.bEnable = 1;
    if (Status s =
            control(h + kChannel, rm::ctrl::kChannelGpfifoSchedule, &schedule, abi_->gpfifo_schedule_size, "schedule");
        !s)
        return s;
    if (Status s =
            control(h + kChannel, rm::ctrl::kChannelGetWorkSubmitToken, &token_, sizeof token_, "work submit token");
        !s)
        return s;

    rm::UsermodeHopperParams usermode{1, 0};
    void* params = place_.usermode_class >= rm::cls::kUsermodeHopper ? &usermode : nullptr;
    if (Status s = alloc(place_.subdevice, h + kUsermode, place_.usermode_class, params, "the doorbell page"); !s)
        return s;
    mapped =
        map_cpu(place_.subdevice, h + kUsermode, place_.gpu_path, kUsermodeBytes, "the doorbell page", &doorbell_file_);
    if (!mapped) return mapped.error();
    doorbell_ = static_cast<uint8_t*>(*mapped);
    return {};
}

uint32_t ShadowChannel::word(uint32_t offset) const {
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(memory_ + offset), __ATOMIC_ACQUIRE);
}

// 0: nothing was reported.
uint32_t ShadowChannel::notifier_code() const {
    const auto* status = reinterpret_cast<const uint16_t*>(notifier_ + offsetof(rm::Notification, status));
    if (__atomic_load_n(status, __ATOMIC_ACQUIRE) == 0) return 0;
    uint32_t code = 0;
    std::memcpy(&code, notifier_ + offsetof(rm::Notification, info32), sizeof code);
    return code;
}

Result<std::chrono::nanoseconds> ShadowChannel::submit(const std::vector<uint32_t>& words,
                                                       std::chrono::milliseconds limit) {
    using Clock = std::chrono::steady_clock;
    if (dead_) return Error{Code::kFailedPrecondition, "the shadow channel is dead", ""};
    if (words.empty() || words.size() > kPushWords) {
        return Error{Code::kInvalidArgument, std::to_string(words.size()) + " words do not fit into the push buffer",
                     ""};
    }
    const uint32_t expected = ++payload_;
    std::memcpy(memory_ + kPushAt, words.data(), words.size() * 4);
    const uint64_t entry = gpfifo_entry(address_ + kPushAt, words.size());
    std::memcpy(memory_ + size_t{put_} * 8, &entry, sizeof entry);
    put_ = (put_ + 1) % kGpfifoEntries;
    // The GPU fetches when it sees the doorbell: everything before has to be in memory by then.
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    store(memory_ + kUserdAt + kGpPut, put_);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    (void)word(kUserdAt + kGpPut);
    const auto start = Clock::now();
    store(doorbell_ + kDoorbell, token_);
    // The simulated GPU sees the store within a millisecond, and this at once; on hardware the file is no socket and
    // nothing happens.
    (void)!::send(doorbell_file_.get(), &token_, sizeof token_, MSG_NOSIGNAL | MSG_DONTWAIT);

    for (;;) {
        if (word(kSemaphoreAt) == expected) return Clock::now() - start;
        const auto spent = Clock::now() - start;
        if (const uint32_t code = notifier_code(); code != 0) {
            dead_ = true;
            return Error{Code::kDataLoss, "the channel died: Xid " + std::to_string(code),
                         "use a fresh virtual machine or reboot"};
        }
        if (spent > limit) {
            dead_ = true;
            return Error{Code::kDeadlineExceeded,
                         "the GPU did not run the methods within " + std::to_string(limit.count()) + " ms", ""};
        }
        // A release takes about 100 us; past that the wait is for another program's turn on the GPU.
        if (spent > std::chrono::milliseconds(1)) {
            const timespec nap{0, 100'000};
            ::nanosleep(&nap, nullptr);
        }
    }
}

}  // namespace vuda::partition
