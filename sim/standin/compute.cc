#include "sim/standin/compute.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rm/va_layout.h"

namespace vuda::sim::standin {

namespace {

constexpr rm::Handle kDevice = 0x5c000002, kSubdevice = 0x5c000003, kUsermode = 0x5c000005, kVas = 0x5c000009,
                     kTsg = 0x5c000015, kShare = 0x5c000016, kRings = 0x5c000017, kPushes = 0x5c000019;
constexpr uint32_t kMultipleVaSpaces = 2;
// From free_place() on.
constexpr uint64_t kRingsAt = 0x600000, kRingsBytes = 0x200000;
constexpr uint64_t kPushesAt = 0x800000, kPushesBytes = 0x3800000;
constexpr uint64_t kWindowAt = 0x4000000, kWindowBytes = 0x52f000;
constexpr uint64_t kPlaceBytes = 0x100200000;
constexpr uint32_t kRingEntries = 0x400;
constexpr uint64_t kChannelStride = 0x3000;  // of rings in their memory, USERD behind each
constexpr uint64_t kUserdInStride = 0x2000;
constexpr uint64_t kPushStride = 0x80000;
constexpr uint64_t kSemaphoreInStride = 0x7f000;
constexpr uint32_t kCopyEngines[] = {0xb, 0xc, 0xd};
constexpr uint32_t kTimesliceUs = 0x800;

// CUDA's memory of its own has the same addresses on the GPU and in the process, where they must be free.
uint64_t free_place() {
    static const uint64_t place = [] {
        for (uint32_t slot = 0; slot < rm::kVaSlots; ++slot) {
            const uint64_t at = rm::kUsualVaBase + slot * rm::kVaStride;
            void* const mine = mmap(reinterpret_cast<void*>(at), kPlaceBytes, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
            if (mine != MAP_FAILED) return at;
        }
        return rm::kUsualVaBase;  // AddressSanitizer's own memory is in all of them
    }();
    return place;
}

}  // namespace

Result<std::unique_ptr<Compute>> Compute::make(const ComputeOptions& options) {
    std::unique_ptr<Compute> made(new Compute);
    if (Status status = made->set_up(options); !status) return status.error();
    return made;
}

Status Compute::uvm_call(unsigned long number, void* argument, const char* what, const uint32_t& status) {
    if (ioctl(uvm_.get(), number, argument) != 0) return errno_error(errno, what);
    if (status != rm::nv::kOk) return rm_error(what, status);
    return {};
}

Status Compute::start_uvm() {
    uvm_.reset(open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC));
    uvm_mm_.reset(open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC));
    if (!uvm_.valid() || !uvm_mm_.valid()) return errno_error(errno, "cannot open /dev/nvidia-uvm");
    rm::UvmInitializeArgs initialize{};
    if (Status s = uvm_call(rm::uvm::kInitialize, &initialize, "UVM_INITIALIZE", initialize.rmStatus); !s) return s;
    rm::UvmMmInitializeArgs mm{uvm_.get(), 0};
    if (ioctl(uvm_mm_.get(), rm::uvm::kMmInitialize, &mm) != 0) return errno_error(errno, "UVM_MM_INITIALIZE");
    rm::UvmPageableMemAccessArgs pageable{};
    return uvm_call(rm::uvm::kPageableMemAccess, &pageable, "UVM_PAGEABLE_MEM_ACCESS", pageable.rmStatus);
}

Status Compute::external(rm::Handle handle, uint64_t bytes, bool video, uint64_t address) {
    if (Status s = device_->memory(handle, bytes, video); !s) return s;
    rm::UvmCreateExternalRangeArgs range{address, bytes, 0, 0};
    if (Status s = uvm_call(rm::uvm::kCreateExternalRange, &range, "UVM_CREATE_EXTERNAL_RANGE", range.rmStatus); !s)
        return s;
    auto map = std::make_unique<rm::UvmMapExternalArgs>();
    std::memset(map.get(), 0, sizeof *map);
    map->base = address;
    map->length = bytes;
    std::memcpy(map->attributes[0].gpuUuid, device_->uuid(), 16);
    map->attributes[0].gpuMappingType = 1;
    map->attributesCount = 1;
    map->rmCtrlFd = device_->control_file();
    map->hClient = device_->client();
    map->hMemory = handle;
    return uvm_call(rm::uvm::kMapExternalAllocation, map.get(), "UVM_MAP_EXTERNAL_ALLOCATION", map->rmStatus);
}

Status Compute::register_channel(rm::Handle channel, uint64_t base, uint64_t length) {
    rm::UvmRegisterChannelArgs args{};
    std::memcpy(args.gpuUuid, device_->uuid(), 16);
    args.rmCtrlFd = device_->control_file();
    args.hClient = device_->client();
    args.hChannel = channel;
    args.base = base;
    args.length = length;
    return uvm_call(rm::uvm::kRegisterChannel, &args, "UVM_REGISTER_CHANNEL", args.rmStatus);
}

Status Compute::make_channel(rm::Handle tsg, rm::Handle share, uint32_t index, uint32_t flags, bool copy_only) {
    // Four handles a channel, in the order of the trace: notifier, channel, compute object, copy object.
    const rm::Handle notifier = next_++;
    const rm::Handle channel = next_++;
    if (Status s = device_->memory(notifier, 0x1000, false); !s) return s;
    auto mapped = device_->map_cpu(notifier, 0x1000, kDevice, false);
    if (!mapped) return mapped.error();
    const uint8_t* notifier_data = mapped->data();
    mappings_.push_back(std::move(*mapped));
    rm::ChannelParams params{};
    params.hObjectError = notifier;
    params.hObjectBuffer = kRings;
    params.gpFifoOffset = free_place() + kRingsAt + index * kChannelStride;
    params.gpFifoEntries = kRingEntries;
    params.flags = flags;
    params.hContextShare = share;
    params.hUserdMemory[0] = kRings;
    params.userdOffset[0] = index * kChannelStride + kUserdInStride;
    if (Status s = device_->alloc(tsg, channel, device_->gpfifo_class(), &params); !s) return s;
    struct {
        uint32_t count, pad;
        rm::UserPtr handles, list;
    } list{};
    uint32_t number = channel;
    uint32_t found = 0;
    list.count = 1;
    list.handles = reinterpret_cast<rm::UserPtr>(&number);
    list.list = reinterpret_cast<rm::UserPtr>(&found);
    if (Status s = device_->control(kDevice, 0x80170d, &list, sizeof list); !s) return s;
    const auto object = [&](uint32_t cls) -> Status {
        const rm::Handle handle = next_++;
        if (Status s = device_->alloc(channel, handle, cls); !s) return s;
        uint32_t query[4] = {handle, 0, 0, 0};
        return device_->control(channel, 0x906f0101, query, sizeof query);
    };
    if (!copy_only) {
        if (Status s = object(device_->compute_class()); !s) return s;
    }
    if (Status s = object(device_->copy_class()); !s) return s;
    rm::WorkSubmitTokenParams token{};
    if (Status s = device_->control(channel, rm::ctrl::kChannelGetWorkSubmitToken, &token, sizeof token); !s) return s;
    if (copy_only) return {};
    struct {
        rm::Handle channel;
        uint32_t pad;
        uint64_t total;
    } buffers{channel, 0, 0};
    if (Status s = device_->control(kSubdevice, rm::ctrl::kGrGetCtxBufferSize, &buffers, sizeof buffers); !s) return s;
    Queue::Memory memory;
    memory.ring = rings_ + index * kChannelStride;
    memory.ring_entries = kRingEntries;
    memory.userd = rings_ + index * kChannelStride + kUserdInStride;
    memory.push = pushes_ + index * kPushStride;
    memory.push_address = free_place() + kPushesAt + index * kPushStride;
    memory.push_bytes = kSemaphoreInStride;
    memory.semaphore = memory.push + kSemaphoreInStride;
    memory.semaphore_address = memory.push_address + kSemaphoreInStride;
    memory.notifier = notifier_data;
    queues_.push_back(std::make_unique<Queue>(*device_, token.workSubmitToken, memory));
    return {};
}

Status Compute::count_sms() {
    struct {
        rm::GrRouteInfo route;
        uint32_t mask, pad;
    } gpcs{};
    if (Status s = device_->control(kSubdevice, 0x2080122a, &gpcs, sizeof gpcs); !s) return s;
    for (uint32_t gpc = 0; gpc < 32; gpc++) {
        if (((gpcs.mask >> gpc) & 1) == 0) continue;
        struct {
            rm::GrRouteInfo route;
            uint32_t gpc, mask;
        } tpcs{{}, gpc, 0};
        if (Status s = device_->control(kSubdevice, 0x2080122b, &tpcs, sizeof tpcs); !s) return s;
        sms_ += 2 * static_cast<uint32_t>(__builtin_popcount(tpcs.mask));
    }
    return {};
}

Status Compute::set_up(const ComputeOptions& options) {
    auto opened = Device::open(options.common.gpu, kMultipleVaSpaces, kDevice, kSubdevice);
    if (!opened) return opened.error();
    device_ = std::make_unique<Device>(std::move(*opened));
    if (Status s = start_uvm(); !s) return s;
    if (Status s = count_sms(); !s) return s;
    if (Status s = device_->map_usermode(kUsermode, device_->usermode_class()); !s) return s;
    rm::VaSpaceParams vas{};
    vas.flags = rm::kVaSpaceExternallyOwned | rm::kVaSpacePageFaulting;
    vas.vaBase = 0x1000;
    if (Status s = device_->alloc(kDevice, kVas, rm::cls::kVaSpace, &vas); !s) return s;
    rm::UvmRegisterGpuArgs gpu{};
    std::memcpy(gpu.gpuUuid, device_->uuid(), 16);
    gpu.rmCtrlFd = -1;
    if (Status s = uvm_call(rm::uvm::kRegisterGpu, &gpu, "UVM_REGISTER_GPU", gpu.rmStatus); !s) return s;
    rm::UvmRangeGroupArgs group{};
    if (Status s = uvm_call(rm::uvm::kCreateRangeGroup, &group, "UVM_CREATE_RANGE_GROUP", group.rmStatus); !s) return s;
    rm::UvmRegisterVaSpaceArgs space{};
    std::memcpy(space.gpuUuid, device_->uuid(), 16);
    space.rmCtrlFd = device_->control_file();
    space.hClient = device_->client();
    space.hVaSpace = kVas;
    if (Status s = uvm_call(rm::uvm::kRegisterGpuVaSpace, &space, "UVM_REGISTER_GPU_VASPACE", space.rmStatus); !s)
        return s;

    // A few of CUDA's own allocations, at CUDA's addresses.
    if (Status s = external(0x5c00000e, 0x600000, true, free_place()); !s) return s;
    if (Status s = external(0x5c000011, 0x200000, true, 0x10000000000); !s) return s;
    if (Status s = external(0x5c000012, 0x200000, true, 0x10002000000); !s) return s;
    if (Status s = external(0x5c000013, 0x200000, true, 0x7f36ba000000); !s) return s;

    rm::ChannelGroupParams tsg{};
    tsg.engineType = rm::kEngineGr0;
    if (Status s = device_->alloc(kDevice, kTsg, rm::cls::kChannelGroup, &tsg); !s) return s;
    rm::ContextShareParams share{kVas, rm::kCtxShareAsync, 0};
    if (Status s = device_->alloc(kTsg, kShare, rm::cls::kContextShare, &share); !s) return s;
    veid_ = share.subctxId;
    if (Status s = external(kRings, kRingsBytes, true, free_place() + kRingsAt); !s) return s;
    if (Status s = external(kPushes, kPushesBytes, false, free_place() + kPushesAt); !s) return s;
    auto rings = device_->map_cpu(kRings, kRingsBytes, kSubdevice, true);
    if (!rings) return rings.error();
    rings_ = rings->data();
    mappings_.push_back(std::move(*rings));
    auto pushes = device_->map_cpu(kPushes, kPushesBytes, kDevice, false);
    if (!pushes) return pushes.error();
    pushes_ = pushes->data();
    mappings_.push_back(std::move(*pushes));

    next_ = 0x5c00001b;
    uint32_t index = 0;
    std::vector<rm::Handle> channels;
    for (; index < kChannels; index++) {
        channels.push_back(next_ + 1);
        if (Status s = make_channel(kTsg, kShare, index, (index & 1) != 0 ? rm::kChannelRunqueueOne : 0, false); !s)
            return s;
    }
    for (const rm::Handle channel : channels) {
        if (Status s = register_channel(channel, free_place() + kWindowAt, kWindowBytes); !s) return s;
    }
    rm::GpfifoScheduleParams schedule{1, 0, 0};
    if (Status s = device_->control(kTsg, rm::ctrl::kTsgGpfifoSchedule, &schedule, sizeof schedule); !s) return s;

    for (const uint32_t engine : kCopyEngines) {
        rm::ChannelGroupParams copy{};
        copy.hVASpace = kVas;
        copy.engineType = engine;
        const rm::Handle copy_tsg = next_++;
        if (Status s = device_->alloc(kDevice, copy_tsg, rm::cls::kChannelGroup, &copy); !s) return s;
        channels.clear();
        for (int i = 0; i < 4; i++, index++) {
            channels.push_back(next_ + 1);
            if (Status s = make_channel(copy_tsg, 0, index, 0, true); !s) return s;
        }
        for (const rm::Handle channel : channels) {
            if (Status s = register_channel(channel, 0, 0); !s) return s;
        }
        rm::GpfifoScheduleParams on{1, 0, 0};
        if (Status s = device_->control(copy_tsg, rm::ctrl::kTsgGpfifoSchedule, &on, sizeof on); !s) return s;
    }

    rm::PreemptionModeParams preemption{};
    preemption.flags = rm::kPreemptionModeSetCilp;
    preemption.hChannel = kTsg;
    preemption.cilpPreemptMode = rm::kCilpCilp;
    if (Status s = device_->control(kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, &preemption, sizeof preemption);
        !s)
        return s;
    rm::TsgTimesliceParams timeslice{kTimesliceUs};
    return device_->control(kTsg, rm::ctrl::kTsgSetTimeslice, &timeslice, sizeof timeslice);
}

}  // namespace vuda::sim::standin
