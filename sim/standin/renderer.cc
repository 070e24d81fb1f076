#include "sim/standin/renderer.h"

#include <chrono>
#include <cstring>

namespace vuda::sim::standin {

namespace {

struct Range {
    uint64_t address;
    uint64_t bytes;
};

// Every mapping below 4 GiB that NVIDIA's driver 580.159.04 had made when a Vulkan device was ready.
constexpr Range kRanges[] = {
    {0x4000000, 0x20000},  {0x4020000, 0x40000}, {0x4060000, 0x80000},  {0x40e0000, 0x20000},  {0x4100000, 0x40000},
    {0x4140000, 0x20000},  {0x4160000, 0x40000}, {0x41a0000, 0x1000},   {0x41b0000, 0x4000},   {0x41c0000, 0x2000},
    {0x41d0000, 0x1000},   {0x41e0000, 0x13000}, {0x4200000, 0x80000},  {0x4280000, 0x30000},  {0x42b0000, 0x100000},
    {0x43b0000, 0x80000},  {0x4430000, 0x4000},  {0x4440000, 0x10000},  {0x4450000, 0x14000},  {0x4470000, 0x14000},
    {0x4490000, 0xb000},   {0x44a0000, 0x10000}, {0x44b0000, 0x1000},   {0x44c0000, 0x1000},   {0x44d0000, 0x20000},
    {0x44f0000, 0x1000},   {0x4500000, 0x1000},  {0x4510000, 0x3000},   {0x4520000, 0x20000},  {0x4540000, 0x40000},
    {0x4580000, 0x20000},  {0x45a0000, 0x40000}, {0x45e0000, 0x20000},  {0x4600000, 0x600000}, {0x4c00000, 0x40000},
    {0x4c40000, 0x1000},   {0x4c50000, 0x2000},  {0x4c60000, 0x1000},   {0x4c70000, 0x13000},  {0x4c90000, 0x30000},
    {0x4cc0000, 0x100000}, {0x4dc0000, 0x80000}, {0x4e40000, 0x4000},   {0x4e50000, 0x10000},  {0x4e60000, 0x40000},
    {0x4ea0000, 0x4000},   {0x4eb0000, 0x80000}, {0x4f30000, 0x80000},  {0x4fb0000, 0x20000},  {0x4fd0000, 0x40000},
    {0x5010000, 0x1000},   {0x5020000, 0x2000},  {0x5030000, 0x1000},   {0x5040000, 0x13000},  {0x5060000, 0x100000},
    {0x5160000, 0x10000},  {0x5170000, 0x80000}, {0x51f0000, 0x3000},   {0x5200000, 0x400000}, {0x5600000, 0x1000},
    {0x5610000, 0x10000},  {0x5620000, 0x10000}, {0x5630000, 0x20000},  {0x5650000, 0x40000},  {0x5690000, 0x20000},
    {0x56b0000, 0x40000},  {0x56f0000, 0x1000},  {0x5700000, 0x2000},   {0x5710000, 0x1000},   {0x5720000, 0x13000},
    {0x5740000, 0x30000},  {0x5770000, 0x80000}, {0x57f0000, 0x4000},   {0x5800000, 0x600000}, {0x5e00000, 0x100000},
    {0x5f00000, 0x10000},  {0x5f10000, 0x40000}, {0x5f50000, 0x400000}, {0x6350000, 0x1000},   {0x6360000, 0x1000},
    {0x6370000, 0x80000},  {0x63f0000, 0x10000}, {0x6400000, 0x870000}, {0x6c70000, 0x80000}};

constexpr rm::Handle kFirstDevice = 0xfade0001, kFirstSubdevice = 0xfade0002, kFirstVas = 0xfade0003;
constexpr rm::Handle kDevice = 0xbeef0003, kSubdevice = 0xbeef0004, kVas = 0xbeef0300, kUsermode = 0xbeefc360;
constexpr rm::Handle kFirstMemory = 1;
constexpr rm::Handle kFirstTurningMemory = 0x1000;
constexpr uint64_t kTurningAddress = 0x7000000;  // above all of kRanges
constexpr rm::Handle kFirstSpareMemory = 0x10000;
constexpr uint64_t spare_address(uint32_t index) { return 0x10000000 + uint64_t{index} * 0x10000; }
constexpr uint32_t kCopyEngine2 = 0xb, kCopyEngine3 = 0xc;  // the engines of the copy channels in the trace
constexpr uint32_t kRingEntries = 0x8000;
constexpr uint64_t kUserdMemory = 0x4060000;  // its buffer holds the USERD of every channel, from the end down
constexpr uint32_t kUserdBufferBytes = 0x80000;

// One of the three groups: handles and addresses of the trace.
struct Group {
    rm::Handle tsg, share, channel, async_share, async_channel, notifier, copy1, copy2;
    uint64_t ring, copy_ring1, copy_ring2, async_ring;
    uint64_t notifier_memory;
    uint64_t zcull;
    uint64_t push;
    uint32_t userd, copy_userd1, copy_userd2, async_userd;
};

constexpr Group kGroups[] = {
    {0xcef80000, 0xcef00000, 0xbeef0100, 0, 0, 0xbeef000c, 0xbeef0101, 0xbeef0102, 0x4020000, 0x4100000, 0x4160000, 0,
     0x41a0000, 0x4280000, 0x4000000, 0x7fe00, 0x7fc00, 0x7fa00, 0},
    {0xcef80002, 0xcef00080, 0xbeee0100, 0, 0, 0xbeee000c, 0xbeee0101, 0xbeee0102, 0x4540000, 0x45a0000, 0x4c00000, 0,
     0x4c40000, 0x4c90000, 0x4520000, 0x7f800, 0x7f600, 0x7f400, 0},
    {0xcef80003, 0xcef000c0, 0xbeec0100, 0xcef000c1, 0xbeec0104, 0xbeec000c, 0, 0, 0x5650000, 0, 0, 0x56b0000,
     0x56f0000, 0x5740000, 0x5630000, 0x7f000, 0, 0, 0x7ee00},
};
constexpr rm::Handle kSpareTsg = 0xcef80001;  // made beside the first and left empty
constexpr uint64_t kSemaphores = 0x5710000;
constexpr uint64_t kNotifierOffset = 0x50;  // of the context DMA in its memory

constexpr uint32_t kThreadOne = 1u << rm::kChannelThreadShift;

}  // namespace

rm::Handle Renderer::tsg() const { return kGroups[2].tsg; }

rm::Handle Renderer::memory_at(uint64_t address) const {
    for (const Buffer& buffer : buffers_) {
        if (buffer.address == address) return buffer.memory;
    }
    return 0;
}

Result<std::unique_ptr<Renderer>> Renderer::make(const RendererOptions& options) {
    std::unique_ptr<Renderer> made(new Renderer);
    if (Status status = made->set_up(options); !status) return status.error();
    return made;
}

Status Renderer::make_buffers() {
    rm::Handle next = kFirstMemory;
    for (const Range& range : kRanges) {
        const bool video = range.address == kUserdMemory;
        if (Status s = device_->heap_memory(next, range.bytes, video); !s) return s;
        if (Status s = device_->map_gpu(kVas, next, range.address, range.bytes); !s) return s;
        buffers_.push_back({range.address, range.bytes, next});
        next++;
    }
    return {};
}

void Renderer::point_at(uint64_t address, uint32_t bytes) {
    const work::ControlBuffer buffer{static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32), bytes};
    queue_->block(0, work::kSimControlBuffer, &buffer, sizeof buffer);
}

Status Renderer::map_another() {
    const auto address = [](uint32_t slot) { return kTurningAddress + uint64_t{slot} * 0x10000; };
    const uint32_t slot = turned_ % kTurning;
    Turning& one = turning_[slot];
    if (one.memory != 0) {
        if (Status s = device_->unmap_gpu(one.reserved, address(slot)); !s) return s;
        if (Status s = device_->free(one.memory); !s) return s;
    }
    one.memory = kFirstTurningMemory + slot;
    if (Status s = device_->heap_memory(one.memory, kControlBufferBytes, false); !s) return s;
    if (Status s = device_->map_gpu(kVas, one.memory, address(slot), kControlBufferBytes, &one.reserved); !s) return s;
    point_at(address(slot), kControlBufferBytes);
    const uint32_t next = ++turned_ % kTurning;
    if (turning_[next].memory != 0) point_at(address(next), 0);
    return {};
}

Status Renderer::make_spare(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        Turning& one = spare_.emplace_back();
        one.memory = kFirstSpareMemory + i;
        if (Status s = device_->heap_memory(one.memory, kControlBufferBytes, false); !s) return s;
        if (Status s = device_->map_gpu(kVas, one.memory, spare_address(i), kControlBufferBytes, &one.reserved); !s)
            return s;
    }
    return {};
}

Result<Renderer::Times> Renderer::map_after_spare() {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    };
    Times times;
    auto start = Clock::now();
    for (uint32_t i = 0; i < spare_.size(); ++i) {
        if (Status s = device_->unmap_gpu(spare_[i].reserved, spare_address(i)); !s) return s.error();
        if (Status s = device_->free(spare_[i].memory); !s) return s.error();
    }
    times.drop_ms = since(start);
    const uint64_t address = spare_address(static_cast<uint32_t>(spare_.size() - 1));
    if (Status s = device_->heap_memory(kFirstSpareMemory, kControlBufferBytes, false); !s) return s.error();
    rm::Handle reserved = 0;
    start = Clock::now();
    if (Status s = device_->map_gpu(kVas, kFirstSpareMemory, address, kControlBufferBytes, &reserved); !s)
        return s.error();
    times.map_ms = since(start);
    point_at(address, kControlBufferBytes);
    return times;
}

Status Renderer::make_group(int index, bool legacy) {
    const Group& group = kGroups[index];
    Device& device = *device_;
    if (Status s = device.context_dma(group.notifier, memory_at(group.notifier_memory), kNotifierOffset, 0xfaf); !s)
        return s;
    rm::ChannelGroupParams tsg{};
    tsg.hVASpace = kVas;
    tsg.engineType = rm::kEngineGr0;
    if (Status s = device.alloc(kDevice, group.tsg, rm::cls::kChannelGroup, &tsg); !s) return s;
    if (index == 0) {
        if (Status s = device.alloc(kDevice, kSpareTsg, rm::cls::kChannelGroup, &tsg); !s) return s;
    }
    const auto start = [&](rm::Handle handle, rm::Handle parent, uint64_t ring, uint32_t engine, rm::Handle share,
                           rm::Handle vas, uint32_t flags, uint32_t userd) -> Status {
        rm::ChannelParams channel{};
        channel.hObjectError = group.notifier;
        channel.gpFifoOffset = ring;
        channel.gpFifoEntries = kRingEntries;
        channel.flags = flags;
        channel.hContextShare = share;
        channel.hVASpace = vas;
        channel.hUserdMemory[0] = memory_at(kUserdMemory);
        channel.userdOffset[0] = userd;
        channel.engineType = engine;
        if (Status s = device.alloc(parent, handle, rm::cls::kGpfifoAmpere, &channel); !s) return s;
        rm::ChannelBindParams bind{engine};
        if (Status s = device.control(handle, rm::ctrl::kChannelBind, &bind, sizeof bind); !s) return s;
        rm::GpfifoScheduleParams schedule{1, 0, 0};
        if (Status s = device.control(handle, rm::ctrl::kChannelGpfifoSchedule, &schedule, sizeof schedule); !s)
            return s;
        rm::WorkSubmitTokenParams token{};
        return device.control(handle, rm::ctrl::kChannelGetWorkSubmitToken, &token, sizeof token);
    };
    rm::ContextShareParams share{kVas, rm::kCtxShareSync, 0};
    if (!legacy) {
        if (Status s = device.alloc(group.tsg, group.share, rm::cls::kContextShare, &share); !s) return s;
    }
    if (Status s =
            start(group.channel, group.tsg, group.ring, rm::kEngineGr0, legacy ? 0 : group.share, 0, 0, group.userd);
        !s)
        return s;
    if (group.copy1 != 0) {
        if (Status s = start(group.copy1, kDevice, group.copy_ring1, kCopyEngine2, 0, kVas, 0, group.copy_userd1); !s)
            return s;
        if (Status s = start(group.copy2, kDevice, group.copy_ring2, kCopyEngine3, 0, kVas, 0, group.copy_userd2); !s)
            return s;
    }
    if (group.async_channel != 0) {
        rm::ContextShareParams async{kVas, rm::kCtxShareSpecified, 1};
        if (!legacy) {
            if (Status s = device.alloc(group.tsg, group.async_share, rm::cls::kContextShare, &async); !s) return s;
        }
        if (Status s =
                start(group.async_channel, group.tsg, group.async_ring, rm::kEngineGr0, legacy ? 0 : group.async_share,
                      0, kThreadOne | rm::kChannelRunqueueOne, group.async_userd);
            !s)
            return s;
    }
    // Objects: the low half of the handle says what it is, as in the trace.
    const rm::Handle base = group.channel & 0xffff0000;
    if (Status s = device.alloc(group.channel, base | 0x502d, 0x902d); !s) return s;
    if (Status s = device.alloc(group.channel, base | 0xa0b5, device.copy_class()); !s) return s;
    if (group.copy1 != 0) {
        if (Status s = device.alloc(group.copy1, base | 0x8500, device.copy_class()); !s) return s;
        if (Status s = device.alloc(group.copy2, base | 0x8501, device.copy_class()); !s) return s;
    }
    if (Status s = device.alloc(group.channel, base | 0x3901, rm::cls::kI2m); !s) return s;
    if (Status s = device.alloc(group.channel, base | 0x9097, device.graphics_class()); !s) return s;
    if (group.async_channel != 0) {
        if (Status s = device.alloc(group.async_channel, base | 0x90c1, device.compute_class()); !s) return s;
        if (Status s = device.alloc(group.async_channel, base | 0xa2b5, device.copy_class()); !s) return s;
    }
    rm::ZcullBindParams zcull{};
    zcull.hClient = device.client();
    zcull.hChannel = group.channel;
    zcull.vMemPtr = group.zcull;
    zcull.zcullMode = rm::kZcullModeSeparateBuffer;
    if (Status s = device.control(kSubdevice, rm::ctrl::kGrCtxswZcullBind, &zcull, sizeof zcull); !s) return s;
    rm::PreemptionModeParams preemption{};
    preemption.flags = rm::kPreemptionModeSetCilp;
    preemption.hChannel = group.tsg;
    preemption.cilpPreemptMode = rm::kCilpCta;
    if (Status s = device.control(kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, &preemption, sizeof preemption); !s)
        return s;
    if (index == 0) return {};
    return device.alloc(group.channel, base | 0x90c0, device.compute_class());
}

Status Renderer::set_up(const RendererOptions& options) {
    auto first = Device::open(options.common.gpu, 0, kFirstDevice, kFirstSubdevice);
    if (!first) return first.error();
    first_ = std::make_unique<Device>(std::move(*first));
    rm::VaSpaceParams vas{};
    vas.flags = 2;
    vas.vaBase = 0x100000;
    if (Status s = first_->alloc(kFirstDevice, kFirstVas, rm::cls::kVaSpace, &vas); !s) return s;
    auto second = Device::open(options.common.gpu, 0, kDevice, kSubdevice);
    if (!second) return second.error();
    device_ = std::make_unique<Device>(std::move(*second));
    if (Status s = device_->map_usermode(kUsermode, device_->usermode_class()); !s) return s;
    if (Status s = device_->dup(kDevice, kVas, first_->client(), kFirstVas); !s) return s;
    if (Status s = make_buffers(); !s) return s;
    if (Status s = make_spare(options.spare); !s) return s;
    for (int i = 0; i < 3; i++) {
        if (Status s = make_group(i, options.legacy); !s) return s;
    }

    const Group& group = kGroups[2];
    const auto map = [&](uint64_t address, uint64_t bytes, uint8_t*& out) -> Status {
        auto mapping = device_->map_cpu(memory_at(address), bytes, kSubdevice, address == kUserdMemory);
        if (!mapping) return mapping.error();
        out = mapping->data();
        mappings_.push_back(std::move(*mapping));
        return {};
    };
    Queue::Memory memory;
    uint8_t* userd = nullptr;
    uint8_t* notifier = nullptr;
    memory.ring_entries = kRingEntries;
    memory.push_address = group.push;
    memory.push_bytes = 0x20000;
    memory.semaphore_address = kSemaphores;
    if (Status s = map(group.ring, 0x40000, memory.ring); !s) return s;
    if (Status s = map(kUserdMemory, kUserdBufferBytes, userd); !s) return s;
    if (Status s = map(group.push, 0x20000, memory.push); !s) return s;
    if (Status s = map(kSemaphores, 0x1000, memory.semaphore); !s) return s;
    if (Status s = map(group.notifier_memory, 0x1000, notifier); !s) return s;
    memory.userd = userd + group.userd;
    memory.notifier = notifier + kNotifierOffset;
    rm::WorkSubmitTokenParams token{};
    if (Status s = device_->control(group.channel, rm::ctrl::kChannelGetWorkSubmitToken, &token, sizeof token); !s)
        return s;
    queue_ = std::make_unique<Queue>(*device_, token.workSubmitToken, memory);
    queue_->set_object(0, device_->graphics_class());
    if (!options.no_control_buffers) {
        point_at(kControlBuffer, kControlBufferBytes);
    }
    return {};
}

}  // namespace vuda::sim::standin
