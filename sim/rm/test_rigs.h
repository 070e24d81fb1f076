// For tests: a renderer and a compute program in a few lines each, with channels that run work.
#pragma once

#include <memory>
#include <vector>

#include "sim/pushbuffer/format.h"
#include "sim/rm/test_process.h"

namespace vuda::sim {

// Pushes work into a channel whose ring, USERD, push buffer and semaphore lie in one 64 KiB memory.
class TestQueue {
 public:
    static constexpr uint64_t kBytes = 0x10000;
    static constexpr uint64_t kRing = 0, kUserd = 0x1000, kSemaphore = 0x2000, kPush = 0x4000;

    TestQueue() = default;
    TestQueue(std::shared_ptr<SharedMemory> memory, uint64_t address, ResourceManager* rm, uint32_t token)
        : memory_(std::move(memory)), address_(address), rm_(rm), token_(token) {}

    TestQueue& object(uint32_t subchannel, uint32_t cls) { return method(subchannel, work::kSetObject, cls); }
    TestQueue& method(uint32_t subchannel, uint32_t method, uint32_t data) {
        words_.push_back(work::header(work::kOpIncrement, subchannel, method, 1));
        words_.push_back(data);
        return *this;
    }
    TestQueue& block(uint32_t subchannel, uint32_t method, const void* data, size_t bytes) {
        words_.push_back(work::header(work::kOpNonIncrement, subchannel, method, static_cast<uint32_t>(bytes / 4)));
        const size_t at = words_.size();
        words_.resize(at + bytes / 4);
        std::memcpy(words_.data() + at, data, bytes);
        return *this;
    }
    TestQueue& kernel(uint32_t flags = 0, uint32_t shared_memory = 1024, uint32_t ns = 1000) {
        work::Launch launch{};
        launch.blocks = 1;
        launch.block_ns = ns;
        launch.blocks_per_sm = 1;
        launch.shared_memory = shared_memory;
        launch.flags = flags;
        return block(1, work::kSimLaunch, &launch, sizeof launch);
    }
    TestQueue& frame(uint32_t ns) {
        struct {
            uint32_t draws;
            work::Draw draw;
        } frame{1, {ns / 10, ns - ns / 10, 0, 0, 0, 0}};
        return block(0, work::kSimFrame, &frame, sizeof frame);
    }
    TestQueue& control_buffer(uint64_t address, uint32_t bytes) {
        const work::ControlBuffer buffer{static_cast<uint32_t>(address), static_cast<uint32_t>(address >> 32), bytes};
        return block(0, work::kSimControlBuffer, &buffer, sizeof buffer);
    }
    // Submits what was pushed, with a release of the next semaphore value behind it.
    void submit(bool ring_doorbell = true) {
        if (memory_ == nullptr) return;  // the rig could not be set up
        ++value;
        words_.push_back(work::header(work::kOpIncrement, 0, work::kSemAddressLow, 5));
        words_.push_back(static_cast<uint32_t>(address_ + kSemaphore));
        words_.push_back(static_cast<uint32_t>((address_ + kSemaphore) >> 32));
        words_.push_back(value);
        words_.push_back(0);
        words_.push_back(work::kSemExecuteRelease | work::kSemExecuteTimestamp);
        memory_->write(kPush + at_, words_.data(), words_.size() * 4);
        const uint64_t entry = work::gpfifo_entry(address_ + kPush + at_, static_cast<uint32_t>(words_.size()));
        memory_->write(kRing + put_ * 8, &entry, sizeof entry);
        at_ = (at_ + words_.size() * 4 + 63) / 64 * 64 % 0x8000;
        put_ = (put_ + 1) % 64;
        memory_->write(kUserd + work::kGpPut, &put_, sizeof put_);
        words_.clear();
        if (ring_doorbell) rm_->doorbell(0, token_);
    }
    uint32_t released() const {
        uint32_t seen = 0;
        memory_->read(kSemaphore, &seen, sizeof seen);
        return seen;
    }
    uint64_t timestamp() const {
        uint64_t seen = 0;
        memory_->read(kSemaphore + 8, &seen, sizeof seen);
        return seen;
    }
    bool done() const { return released() == value; }

    uint32_t value = 0;

 private:
    std::shared_ptr<SharedMemory> memory_;
    uint64_t address_ = 0;
    ResourceManager* rm_ = nullptr;
    uint32_t token_ = 0;
    std::vector<uint32_t> words_;
    uint32_t put_ = 0;
    uint64_t at_ = 0;
};

inline uint32_t token_of(TestClient& client, rm::Handle channel) {
    rm::WorkSubmitTokenParams token{};
    (void)client.control(channel, rm::ctrl::kChannelGetWorkSubmitToken, token);
    return token.workSubmitToken;
}

inline bool notified(const std::shared_ptr<SharedMemory>& notifier, uint32_t* code = nullptr) {
    rm::Notification seen{};
    notifier->read(0, &seen, sizeof seen);
    if (code != nullptr) *code = seen.info32;
    return seen.status == rm::kNotificationError;
}

// A Vulkan-like program: RM-managed VA space, TSG with 3D on VEID 0, a control buffer that graphics state points at.
struct RendererRig {
    static constexpr rm::Handle kVas = 0x10, kVirtual = 0x11, kQueueMemory = 0x12, kControl = 0x13, kNotifier = 0x14,
                                kTsg = 0x20, kShare = 0x21, kChannel = 0x22, k3d = 0x23;
    static constexpr uint64_t kControlBytes = 0x3000;

    explicit RendererRig(TestProcess& process, uint32_t zcull = rm::kZcullModeNoCtxsw) : client(process) {
        (void)client.vaspace(kVas);
        (void)client.virtual_memory(kVirtual, kVas);
        (void)client.memory(kQueueMemory, TestQueue::kBytes);
        (void)client.memory(kControl, kControlBytes);
        (void)client.memory(kNotifier, 0x1000);
        uint64_t address = 0;
        (void)client.map_dma(kVirtual, kQueueMemory, TestQueue::kBytes, address);
        (void)client.map_dma(kVirtual, kControl, kControlBytes, control_address);
        notifier = client.map_cpu(kNotifier, 0x1000);
        (void)client.tsg(kTsg, kVas);
        (void)client.ctxshare(kTsg, kShare, kVas, rm::kCtxShareSync);
        rm::ChannelParams params{};
        params.hObjectError = kNotifier;
        params.gpFifoOffset = address + TestQueue::kRing;
        params.gpFifoEntries = 64;
        params.hContextShare = kShare;
        params.hUserdMemory[0] = kQueueMemory;
        params.userdOffset[0] = TestQueue::kUserd;
        (void)client.alloc(kTsg, kChannel, rm::cls::kGpfifoAmpere, &params);
        (void)client.alloc(kChannel, k3d, rm::cls::kThreeDHopper);
        rm::ZcullBindParams bind{client.client, kChannel, control_address, zcull, 0};
        (void)client.control(TestClient::kSubdevice, rm::ctrl::kGrCtxswZcullBind, bind);
        (void)client.schedule(kChannel, false);
        queue = TestQueue(client.map_cpu(kQueueMemory, TestQueue::kBytes), address, &process.rm(),
                          token_of(client, kChannel));
        queue.object(0, rm::cls::kThreeDHopper);
    }

    TestClient client;
    TestQueue queue;
    uint64_t control_address = 0;
    std::shared_ptr<SharedMemory> notifier;
};

// A CUDA-like program: UVM-owned VA space; its channel goes into its own TSG or into an imported one.
struct ComputeRig {
    static constexpr rm::Handle kVas = 0x10, kQueueMemory = 0x12, kNotifier = 0x14, kTsg = 0x20, kShare = 0x21,
                                kChannel = 0x22, kCompute = 0x23, kShared = 0x30, kMirror = 0x40;
    static constexpr uint64_t kAddress = 0x2'0060'0000, kWindow = 0x2'0400'0000, kWindowBytes = 0x52f000;

    explicit ComputeRig(TestProcess& process) : client(process, 2) {
        uvm = process.open(FileKind::kUvm);
        rm::UvmInitializeArgs initialize{};
        (void)process.uvm(uvm, rm::uvm::kInitialize, initialize);
        rm::UvmRegisterGpuArgs gpu{};
        copy_uuid(gpu.gpuUuid);
        (void)process.uvm(uvm, rm::uvm::kRegisterGpu, gpu);
        (void)client.vaspace(kVas, true, 0x1000);
        (void)register_vas();
        (void)client.memory(kQueueMemory, TestQueue::kBytes);
        (void)external(kQueueMemory, kAddress, TestQueue::kBytes);
        (void)client.memory(kNotifier, 0x1000);
        notifier = client.map_cpu(kNotifier, 0x1000);
    }

    void copy_uuid(uint8_t* out) { std::memcpy(out, client.process().rm().gpu(0).identity().uuid.bytes.data(), 16); }
    uint32_t register_vas(rm::Handle vas = kVas) {
        rm::UvmRegisterVaSpaceArgs args{};
        copy_uuid(args.gpuUuid);
        args.hClient = client.client;
        args.hVaSpace = vas;
        return client.process().uvm(uvm, rm::uvm::kRegisterGpuVaSpace, args);
    }
    uint32_t range(uint64_t address, uint64_t bytes) {
        rm::UvmCreateExternalRangeArgs args{address, bytes, 0, 0};
        return client.process().uvm(uvm, rm::uvm::kCreateExternalRange, args);
    }
    uint32_t map(rm::Handle memory, uint64_t address, uint64_t bytes, uint64_t offset = 0, rm::Handle owner = 0) {
        auto args = std::make_unique<rm::UvmMapExternalArgs>();
        std::memset(args.get(), 0, sizeof *args);
        args->base = address;
        args->length = bytes;
        args->offset = offset;
        copy_uuid(args->attributes[0].gpuUuid);
        args->attributes[0].gpuMappingType = 1;
        args->attributesCount = 1;
        args->hClient = owner != 0 ? owner : client.client;
        args->hMemory = memory;
        return client.process().uvm(uvm, rm::uvm::kMapExternalAllocation, *args);
    }
    uint32_t external(rm::Handle memory, uint64_t address, uint64_t bytes) {
        const uint32_t status = range(address, bytes);
        return status != 0 ? status : map(memory, address, bytes);
    }
    uint32_t register_channel(rm::Handle channel = kChannel, uint64_t base = kWindow) {
        rm::UvmRegisterChannelArgs args{};
        copy_uuid(args.gpuUuid);
        args.hClient = client.client;
        args.hChannel = channel;
        args.base = base;
        args.length = kWindowBytes;
        return client.process().uvm(uvm, rm::uvm::kRegisterChannel, args);
    }
    uint32_t unregister_channel(rm::Handle channel = kChannel) {
        rm::UvmUnregisterChannelArgs580 args{};
        copy_uuid(args.gpuUuid);
        args.hClient = client.client;
        args.hChannel = channel;
        return client.process().uvm(uvm, rm::uvm::kUnregisterChannel, args);
    }
    uint32_t make_channel(rm::Handle tsg, rm::Handle share, rm::Handle channel, uint32_t flags) {
        rm::ChannelParams params{};
        params.hObjectError = kNotifier;
        params.gpFifoOffset = kAddress + TestQueue::kRing;
        params.gpFifoEntries = 64;
        params.hContextShare = share;
        params.flags = flags;
        params.hUserdMemory[0] = kQueueMemory;
        params.userdOffset[0] = TestQueue::kUserd;
        return client.alloc(tsg, channel, rm::cls::kGpfifoHopper, &params);
    }
    // The context in `tsg`, scheduled channel by channel. 0 or the first status that was not.
    uint32_t start(rm::Handle tsg, uint32_t flags) {
        if (const uint32_t status = client.ctxshare(tsg, kShare, kVas, rm::kCtxShareAsync, &veid); status != 0)
            return status;
        if (const uint32_t status = make_channel(tsg, kShare, kChannel, flags); status != 0) return status;
        if (const uint32_t status = client.alloc(kChannel, kCompute, rm::cls::kComputeHopper); status != 0)
            return status;
        if (const uint32_t status = register_channel(); status != 0) return status;
        if (const uint32_t status = client.schedule(kChannel, false); status != 0) return status;
        queue = TestQueue(client.map_cpu(kQueueMemory, TestQueue::kBytes), kAddress, &client.process().rm(),
                          token_of(client, kChannel));
        queue.object(1, rm::cls::kComputeHopper);
        return 0;
    }
    uint32_t start_own() {
        const uint32_t status = client.tsg(kTsg, 0);
        return status != 0 ? status : start(kTsg, 0);
    }
    // CUDA's calls as CUDA makes them: a TSG of its own, scheduled as a whole, CILP asked for. What a shim makes of it
    // is its business.
    uint32_t start_as_cuda_does() {
        if (const uint32_t status = client.tsg(kTsg, 0); status != 0) return status;
        if (const uint32_t status = client.ctxshare(kTsg, kShare, kVas, rm::kCtxShareAsync, &veid); status != 0)
            return status;
        if (const uint32_t status = make_channel(kTsg, kShare, kChannel, 0); status != 0) return status;
        if (const uint32_t status = client.alloc(kChannel, kCompute, rm::cls::kComputeHopper); status != 0)
            return status;
        if (const uint32_t status = register_channel(); status != 0) return status;
        if (const uint32_t status = client.schedule(kTsg, true); status != 0) return status;
        rm::PreemptionModeParams mode{};
        mode.flags = rm::kPreemptionModeSetCilp;
        mode.hChannel = kTsg;
        mode.cilpPreemptMode = rm::kCilpCilp;
        if (const uint32_t status = client.control(TestClient::kSubdevice, rm::ctrl::kGrSetCtxswPreemptionMode, mode);
            status != 0)
            return status;
        queue = TestQueue(client.map_cpu(kQueueMemory, TestQueue::kBytes), kAddress, &client.process().rm(),
                          token_of(client, kChannel));
        queue.object(1, rm::cls::kComputeHopper);
        return 0;
    }
    // Joins a renderer of another process: exported TSG, and its control buffer mirrored unless `mirror` is false.
    uint32_t start_shared(RendererRig& renderer, bool mirror = true) {
        const FileId file = renderer.client.process().open(FileKind::kControl);
        if (const uint32_t status = renderer.client.export_to(RendererRig::kTsg, file); status != 0) return status;
        if (const uint32_t status = client.import_from(file, TestClient::kDevice, kShared); status != 0) return status;
        if (mirror) {
            const FileId buffer = renderer.client.process().open(FileKind::kControl);
            if (const uint32_t status = renderer.client.export_to(RendererRig::kControl, buffer); status != 0)
                return status;
            if (const uint32_t status = client.import_from(buffer, TestClient::kDevice, kMirror); status != 0)
                return status;
            if (const uint32_t status = external(kMirror, renderer.control_address, RendererRig::kControlBytes);
                status != 0)
                return status;
        }
        return start(kShared, rm::kChannelRunqueueOne);
    }

    TestClient client;
    FileId uvm = 0;
    TestQueue queue;
    uint32_t veid = 0;
    std::shared_ptr<SharedMemory> notifier;
};

// Lets the GPU work for that long (virtual nanoseconds).
inline void run_gpu(ResourceManager& rm, TimeNs ns = 100'000'000) { (void)rm.gpu(0).run_until(rm.gpu(0).now() + ns); }

}  // namespace vuda::sim
