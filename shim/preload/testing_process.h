// A program under the redirector, for unit tests: makes ioctls the way NVIDIA's user-mode drivers do, on memory of its
// own, and checks after each that nothing of the redirector's is left in it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "rm/abi.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/decode.h"
#include "shim/preload/testing_rm.h"

namespace vuda::shim::testing {

inline constexpr FileId kVkFile = 1;
inline constexpr FileId kCudaFile = 2;
inline constexpr FileId kUvmFile = 3;
inline constexpr uint64_t kFakePointer = 0x7000'0000'1000;

class TestProcess : public RedirectorAccess, public Attacher {
 public:
    explicit TestProcess(TestRm& resource_manager, Options options = {})
        : rm(resource_manager), redirector(rm::abi_580(), options) {}

    TestRm& rm;
    Redirector redirector;
    uint64_t now_ns = 1'000'000'000;
    bool unshared = false;          // what follows makes a context that is to share with nobody
    Offer offer;                    // what vudad answers
    std::vector<AttachWish> asked;  // what it was asked
    int released = 0;
    int waits = 0;
    std::function<bool()> on_wait;
    std::vector<Notice> notices;

    // Objects of the standard renderer and CUDA program.
    uint32_t vk = 0, vk_tsg = 0xcef80003, vk_space = 0xbeef0300, vk_device = 0xbeef0003;
    uint32_t cu = 0, cu_tsg = 0x5c000015, cu_space = 0x5c000009, cu_device = 0x5c000002, cu_share = 0x5c000016;
    Uuid gpu{{1, 2, 3, 4}};

    struct Memory : Forwarder {
        TestProcess* process = nullptr;
        FileId file = 0;
        FileRole role = FileRole::kControl;
        uint32_t request = 0;
        std::vector<uint8_t> arg;
        std::vector<uint8_t> params;
        bool writable = true;
        int forwards = 0;

        int kernel(std::span<uint8_t> a, std::span<uint8_t> p) {
            ++forwards;
            return process->kernel(file, role, request, a, p);
        }
        int forward() override { return kernel(arg, params); }
        int forward_copy(std::span<uint8_t> a, std::span<uint8_t> p) override {
            if (!p.empty()) {
                const uint64_t other = kFakePointer + 0x100000;
                std::memcpy(a.data() + pointer_offset(), &other, 8);
            }
            return kernel(a, p);
        }
        bool read(Edit::Where where, std::span<uint8_t> out) override {
            const auto& from = where == Edit::Where::kArg ? arg : params;
            if (out.size() > from.size()) return false;
            std::copy_n(from.begin(), out.size(), out.begin());
            return true;
        }
        bool write(Edit::Where where, size_t offset, std::span<const uint8_t> bytes) override {
            if (!writable) return false;
            auto& to = where == Edit::Where::kArg ? arg : params;
            if (offset + bytes.size() > to.size()) return false;
            std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
            return true;
        }
        size_t pointer_offset() const override { return 16; }
    };

    int kernel(FileId file, FileRole role, uint32_t request, std::span<uint8_t> arg, std::span<uint8_t> params) {
        std::vector<uint8_t> block(params.begin(), params.end());
        uint32_t status = 0;
        if (role == FileRole::kUvm) {
            if (request == rm::uvm::kRegisterChannel) {
                const auto args = load<rm::UvmRegisterChannelArgs>(arg);
                rm.uvm_windows[args.hChannel] = args.base;
            }
        } else {
            switch (rm::ioctl_number(request)) {
                case rm::escape::kAlloc: {
                    auto args = load<rm::AllocArgs>(arg);
                    status = rm.alloc(file, &args, &block);
                    std::memcpy(arg.data(), &args, sizeof args);
                    break;
                }
                case rm::escape::kControl: status = rm.control(file, load<rm::ControlArgs>(arg), &block); break;
                case rm::escape::kFree: {
                    const auto args = load<rm::FreeArgs>(arg);
                    status = rm.free_object(file, args.hRoot, args.hObjectOld);
                    break;
                }
                case rm::escape::kDupObject: {
                    const auto args = load<rm::DupArgs>(arg);
                    status =
                        rm.duplicate(file, args.hClient, args.hParent, args.hObject, args.hClientSrc, args.hObjectSrc);
                    break;
                }
                default: break;  // mappings: the program's own business
            }
        }
        std::copy(block.begin(), block.end(), params.begin());
        const size_t at = status_offset(role, request, rm::abi_580());
        if (at != 0) std::memcpy(arg.data() + at, &status, 4);
        return 0;
    }

    // Runs one ioctl and returns the NV_STATUS the program sees.
    uint32_t call(Memory& memory) {
        memory.process = this;
        now_ns += 1000;
        const std::vector<uint8_t> arg = memory.arg;
        const std::vector<uint8_t> params = memory.params;
        maps_control = false;
        last_result =
            run_call(*this, rm, *this, memory,
                     {memory.file, memory.role, memory.request, now_ns, arg, params, unshared, &maps_control});
        collect_notices();
        const size_t at = status_offset(memory.role, memory.request, rm::abi_580());
        return at == 0 ? 0 : load<uint32_t>(memory.arg, at);
    }
    int last_result = 0;
    bool maps_control = false;  // of the last call
    std::vector<uint8_t> last_params;
    rm::AllocArgs last_alloc{};

    uint32_t alloc(FileId file, uint32_t root, uint32_t parent, uint32_t* object, uint32_t cls,
                   std::vector<uint8_t> params = {}) {
        Memory m;
        m.file = file;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs)));
        rm::AllocArgs args{};
        args.hRoot = root;
        args.hObjectParent = parent;
        args.hObjectNew = *object;
        args.hClass = cls;
        args.pAllocParms = params.empty() ? 0 : kFakePointer;
        m.arg = bytes_of(args);
        m.params = std::move(params);
        const uint32_t status = call(m);
        last_alloc = load<rm::AllocArgs>(m.arg);
        last_params = m.params;
        *object = last_alloc.hObjectNew;
        // What the caller wrote is as the caller wrote it.
        EXPECT_EQ(last_alloc.hRoot, root);
        EXPECT_EQ(last_alloc.hObjectParent, parent);
        EXPECT_EQ(last_alloc.hClass, cls);
        EXPECT_EQ(last_alloc.pAllocParms, args.pAllocParms);
        return status;
    }

    uint32_t control(FileId file, uint32_t client, uint32_t object, uint32_t cmd, std::vector<uint8_t> params) {
        Memory m;
        m.file = file;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kControl, sizeof(rm::ControlArgs)));
        rm::ControlArgs args{};
        args.hClient = client;
        args.hObject = object;
        args.cmd = cmd;
        args.params = params.empty() ? 0 : kFakePointer;
        args.paramsSize = static_cast<uint32_t>(params.size());
        m.arg = bytes_of(args);
        m.params = std::move(params);
        const uint32_t status = call(m);
        const auto left = load<rm::ControlArgs>(m.arg);
        last_params = m.params;
        EXPECT_EQ(left.hObject, object);
        EXPECT_EQ(left.cmd, cmd);
        EXPECT_EQ(left.params, args.params);
        return status;
    }

    uint32_t free_object(FileId file, uint32_t client, uint32_t object) {
        Memory m;
        m.file = file;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kFree, sizeof(rm::FreeArgs)));
        rm::FreeArgs args{};
        args.hRoot = client;
        args.hObjectOld = object;
        m.arg = bytes_of(args);
        return call(m);
    }

    void map_dma(FileId file, uint32_t client, uint32_t device, uint32_t memory, uint64_t va, uint64_t length) {
        Memory m;
        m.file = file;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kMapMemoryDma, sizeof(rm::MapDmaArgs)));
        rm::MapDmaArgs args{};
        args.hClient = client;
        args.hDevice = device;
        args.hDma = 0xcaf00000 | memory;
        args.hMemory = memory;
        args.length = length;
        args.dmaOffset = va;
        m.arg = bytes_of(args);
        call(m);
        rm.objects[{client, memory}] = {rm::cls::kMemoryLocalUser, device, 0, {}, 0, false, 0, 0, 0, false, 0};
    }

    // A context DMA: `object` names what lies `offset` bytes into `memory`.
    void context_dma(FileId file, uint32_t client, uint32_t object, uint32_t memory, uint64_t offset) {
        Memory m;
        m.file = file;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAllocContextDma2, sizeof(rm::ContextDmaArgs)));
        rm::ContextDmaArgs args{};
        args.hObjectParent = client;
        args.hObjectNew = object;
        args.hClass = 2;
        args.hMemory = memory;
        args.offset = offset;
        args.limit = 0xfaf;
        m.arg = bytes_of(args);
        call(m);
        rm.objects[{client, object}] = {rm::cls::kMemoryLocalUser, client, 0, {}, 0, false, 0, 0, 0, false, 0};
    }

    uint32_t uvm_register_space(uint32_t client, uint32_t space) {
        Memory m;
        m.file = kUvmFile;
        m.role = FileRole::kUvm;
        m.request = rm::uvm::kRegisterGpuVaSpace;
        rm::UvmRegisterVaSpaceArgs args{};
        std::memcpy(args.gpuUuid, gpu.bytes.data(), 16);
        args.hClient = client;
        args.hVaSpace = space;
        m.arg = bytes_of(args);
        return call(m);
    }

    uint32_t uvm_register_channel(uint32_t client, uint32_t channel, uint64_t base) {
        Memory m;
        m.file = kUvmFile;
        m.role = FileRole::kUvm;
        m.request = rm::uvm::kRegisterChannel;
        rm::UvmRegisterChannelArgs args{};
        args.hClient = client;
        args.hChannel = channel;
        args.base = base;
        args.length = 0x52f000;
        m.arg = bytes_of(args);
        const uint32_t status = call(m);
        EXPECT_EQ(load<rm::UvmRegisterChannelArgs>(m.arg).base, base) << "the caller's window must come back as given";
        return status;
    }

    static std::vector<uint8_t> words(std::initializer_list<uint32_t> values, size_t size = 0) {
        std::vector<uint8_t> out(std::max(size, values.size() * 4));
        size_t at = 0;
        for (const uint32_t value : values) {
            std::memcpy(out.data() + at, &value, 4);
            at += 4;
        }
        return out;
    }
    static std::vector<uint8_t> channel_params(uint32_t flags, uint32_t ctxshare, uint32_t error = 0) {
        auto out = words({error, 0, 0x600000, 2, 0x400, flags, ctxshare, 0}, sizeof(rm::ChannelParams));
        out[200] = 0x5a;  // a byte nobody may touch
        return out;
    }
    static std::vector<uint8_t> device_params(uint32_t instance) { return words({instance}, sizeof(rm::DeviceParams)); }
    static std::vector<uint8_t> space_params(uint32_t flags) { return words({0, flags}, sizeof(rm::VaSpaceParams)); }
    static std::vector<uint8_t> group_params(uint32_t space, uint32_t engine = 1, uint32_t error = 0) {
        return words({error, 0, space, engine, 0});
    }
    template <typename T>
    static std::vector<uint8_t> bytes_of(const T& value) {
        std::vector<uint8_t> out(sizeof(T));
        std::memcpy(out.data(), &value, sizeof(T));
        return out;
    }

    // What vkCreateDevice does, in short. Returns with a 3D object in vk_tsg.
    void start_renderer(uint32_t device_instance = 0, bool legacy = false) {
        uint32_t object = 0;
        ASSERT_EQ(alloc(kVkFile, 0, 0, &vk, rm::cls::kRootClient), 0u);
        object = vk_device;
        ASSERT_EQ(alloc(kVkFile, vk, vk, &object, rm::cls::kDevice, device_params(device_instance)), 0u);
        object = 0xbeef0004;
        ASSERT_EQ(alloc(kVkFile, vk, vk_device, &object, rm::cls::kSubdevice), 0u);
        object = vk_space;
        ASSERT_EQ(alloc(kVkFile, vk, vk_device, &object, rm::cls::kVaSpace, space_params(2)), 0u);
        ASSERT_EQ(alloc(kVkFile, vk, vk_device, &vk_tsg, rm::cls::kChannelGroup, group_params(vk_space)), 0u);
        uint32_t share = 0;
        if (!legacy) {
            share = 0xcef000c0;
            ASSERT_EQ(alloc(kVkFile, vk, vk_tsg, &share, rm::cls::kContextShare, words({vk_space, 0, 0})), 0u);
        }
        object = 0xbeec0100;
        ASSERT_EQ(alloc(kVkFile, vk, vk_tsg, &object, rm::cls::kGpfifoAmpere, channel_params(0, share)), 0u);
        map_dma(kVkFile, vk, vk_device, 0x45, 0x51f0000, 0x3000);
        map_dma(kVkFile, vk, vk_device, 0x44, 0x5200000, 0x400000);
        map_dma(kVkFile, vk, vk_device, 0x46, 0x1'2022e000, 0x1000);  // above 4 GiB: not a control buffer
        object = 0xbeec9097;
        ASSERT_EQ(alloc(kVkFile, vk, 0xbeec0100, &object, rm::cls::kThreeDHopper, words({0, 0, 0, 0})), 0u);
    }

    void bind_zcull() {
        Memory m;
        m.file = kVkFile;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kControl, sizeof(rm::ControlArgs)));
        m.arg = bytes_of(rm::ControlArgs{vk, 0xbeef0004, rm::ctrl::kGrCtxswZcullBind, 0, kFakePointer, 24, 0});
        m.params = words({vk, 0xbeec0100, 0x5740000, 0, rm::kZcullModeSeparateBuffer, 0});
        EXPECT_EQ(call(m), 0u);
    }
    void collect_notices() {
        for (const Notice& notice : redirector.take_notices()) notices.push_back(notice);
    }

    // What cuInit and the first half of cuCtxCreate do: up to and including CUDA's TSG.
    void start_cuda(uint32_t device_instance = 0, uint32_t error = 0) {
        uint32_t object = 0;
        ASSERT_EQ(alloc(kCudaFile, 0, 0, &cu, rm::cls::kRootClient), 0u);
        object = cu_device;
        ASSERT_EQ(alloc(kCudaFile, cu, cu, &object, rm::cls::kDevice, device_params(device_instance)), 0u);
        object = cu_space;
        ASSERT_EQ(alloc(kCudaFile, cu, cu_device, &object, rm::cls::kVaSpace, space_params(0x48)), 0u);
        ASSERT_EQ(uvm_register_space(cu, cu_space), 0u);
        ASSERT_EQ(alloc(kCudaFile, cu, cu_device, &cu_tsg, rm::cls::kChannelGroup, group_params(0, 1, error)), 0u);
    }
    uint32_t cuda_ctxshare() {
        const uint32_t status =
            alloc(kCudaFile, cu, cu_tsg, &cu_share, rm::cls::kContextShare, words({cu_space, 1, 0}));
        if (status == 0) {
            EXPECT_EQ(TestRm::word(last_params, 0), cu_space);
            EXPECT_EQ(TestRm::word(last_params, 4), 1u);
        }
        return status;
    }
    uint32_t cuda_channel(int i, uint32_t share) {
        uint32_t object = cuda_channel_handle(i);
        const uint32_t flags = i % 2 == 0 ? 0u : 0x10u;
        const uint32_t status =
            alloc(kCudaFile, cu, cu_tsg, &object, rm::cls::kGpfifoHopper, channel_params(flags, share));
        if (status == 0) {
            EXPECT_EQ(TestRm::word(last_params, 20), flags | 0x20u) << "caller's flags and RM's, none of ours";
            EXPECT_EQ(TestRm::word(last_params, 24), share);
            EXPECT_EQ(TestRm::word(last_params, 132), 0x13u) << "what RM wrote must reach the caller";
            EXPECT_EQ(last_params[200], 0x5a);
        }
        return status;
    }
    static uint32_t cuda_channel_handle(int i) { return 0x5c00001cu + 6u * static_cast<uint32_t>(i); }
    uint32_t cuda_schedule(uint8_t enable = 1) {
        return control(kCudaFile, cu, cu_tsg, rm::ctrl::kTsgGpfifoSchedule, {enable, 0, 0});
    }
    void start_context() {
        start_cuda();
        ASSERT_EQ(cuda_ctxshare(), 0u);
        for (int i = 0; i < 8; ++i) ASSERT_EQ(cuda_channel(i, cu_share), 0u);
        for (int i = 0; i < 8; ++i) ASSERT_EQ(uvm_register_channel(cu, cuda_channel_handle(i), 0x2'0400'0000), 0u);
        ASSERT_EQ(cuda_schedule(), 0u);
    }

    // vudad's answer: another process's TSG and two buffers, on descriptors 100 and up.
    void offer_host() {
        TestRm::Object group;
        group.cls = rm::cls::kChannelGroup;
        group.group = std::make_shared<TestRm::Group>();
        group.group->veids = {0, 1};
        group.group->channels = 2;
        rm.exported[100] = {0, group};
        TestRm::Object memory;
        memory.cls = rm::cls::kMemoryLocalUser;
        rm.exported[101] = {0, memory};
        rm.exported[102] = {0, memory};
        offer.ok = true;
        offer.tsg_fd = 100;
        offer.channels_in_use = 2;
        offer.buffers = {{102, 0x5200000, 0x400000, 0}, {101, 0x51f0000, 0x3000, 0}};
    }
    std::shared_ptr<TestRm::Group> offered_group() { return rm.exported.at(100).second.group; }

    bool has_notice(Notice::Kind kind, Reason reason = Reason::kNone) const {
        for (const Notice& notice : notices) {
            if (notice.kind == kind && notice.refusal.reason == reason) return true;
        }
        return false;
    }

    // ---- RedirectorAccess, Attacher ----
    Plan before(const Call& c) override { return redirector.before(c); }
    Plan attached(const Plan& p, const Call& c, const Offer& o) override { return redirector.attached(p, c, o); }
    Plan refused(const Plan& p, const Call& c, size_t f, std::span<const ActionResult> r) override {
        return redirector.refused(p, c, f, r);
    }
    Plan after(const Plan& p, const Call& c, const Outcome& o, std::span<const ActionResult> r) override {
        return redirector.after(p, c, o, r);
    }
    void abandoned(const Plan& p) override { redirector.abandoned(p); }
    Plan wait(const Plan& p, const Call& c) override {
        ++waits;
        return on_wait && on_wait() ? before(c) : attached(p, c, Offer{});
    }
    Offer attach(const AttachWish& wish) override {
        asked.push_back(wish);
        return offer;
    }
    void release(Offer*) override { ++released; }
};

}  // namespace vuda::shim::testing
