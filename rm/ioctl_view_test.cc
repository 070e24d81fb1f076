#include "rm/ioctl_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "rm/status.h"

namespace vuda::rm {
namespace {

const DriverAbi& abi(const char* name) {
    for (const DriverAbi* a : all_abis()) {
        if (a->name == name) return *a;
    }
    ADD_FAILURE() << name;
    return abi_580();
}

template <typename T>
Bytes bytes_of(const T& value) {
    return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

template <typename T>
T as(const IoctlView& view) {
    const T* p = std::get_if<T>(&view);
    EXPECT_NE(p, nullptr) << "decoded as alternative " << view.index();
    return p ? *p : T{};
}

template <typename T>
IoctlView decode_rm(unsigned escape, const T& arg, const DriverAbi& abi = abi_580()) {
    return decode(Surface::kRm, rm_request(escape, sizeof arg), bytes_of(arg), abi);
}

template <typename T>
IoctlView decode_uvm(unsigned long request, const T& arg, const DriverAbi& abi = abi_580()) {
    return decode(Surface::kUvm, request, bytes_of(arg), abi);
}

// 32-bit words as the kernel got them, from a trace of driver 580.159.04 on an H200.
std::vector<uint8_t> words(std::initializer_list<uint32_t> list) {
    std::vector<uint8_t> out;
    for (const uint32_t w : list) {
        for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(w >> (8 * i)));
    }
    return out;
}

TEST(IoctlNumbers, AreWhatProgramsPass) {
    EXPECT_EQ(rm_request(escape::kAlloc, 48), 0xc030462bul);
    EXPECT_EQ(rm_request(escape::kControl, 32), 0xc020462aul);
    EXPECT_EQ(ioctl_number(0xc030462b), 0x2bu);
    EXPECT_EQ(ioctl_type(0xc030462b), 'F');
    EXPECT_EQ(ioctl_size(0xc030462b), 48u);
}

TEST(Decode, MapDmaOfARealTrace) {
    const auto arg = words({0xc1d0001d, 0xbeef0003, 0xcaf00003, 1, 0, 0, 0x20000, 0, 0, 0, 0, 0, 0x4000000, 0, 0, 0});
    const auto map = as<MapDma>(decode(Surface::kRm, rm_request(escape::kMapMemoryDma, 64), arg, abi_580()));
    EXPECT_EQ(map.client, 0xc1d0001du);
    EXPECT_EQ(map.dma, 0xcaf00003u);
    EXPECT_EQ(map.memory, 1u);
    EXPECT_EQ(map.length, 0x20000u);
    EXPECT_EQ(map.va, 0x4000000u);
    EXPECT_EQ(map.status, nv::kOk);
}

TEST(Decode, VidHeapOfARealTrace) {
    auto arg =
        words({0xc1d00019, 0xfade0001, 2, 0,     0, 0, 0, 0,      0, 0, 0xc1d00019, 0xcaf00000, 0, 0x8000, 0xa800000,
               6,          0,          0, 0x100, 0, 0, 0, 0x1000, 0, 0, 0,          0,          0, 0xfff,  0});
    arg.resize(184);
    const auto heap = as<VidHeapAlloc>(decode(Surface::kRm, rm_request(escape::kVidHeapControl, 184), arg, abi_580()));
    EXPECT_EQ(heap.root, 0xc1d00019u);
    EXPECT_EQ(heap.parent, 0xfade0001u);
    EXPECT_EQ(heap.object, 0xcaf00000u);
    EXPECT_EQ(heap.size, 0x1000u);
}

TEST(Decode, ChannelParamsOfARealTrace) {
    // The renderer's asynchronous compute channel: runqueue 1, thread 1, its own context share.
    auto block = words({0xbeec000c, 0, 0x56b0000, 0, 0x8000, 0x10000010, 0xcef000c1, 0, 3});
    block.resize(64);
    for (const uint32_t w : {0x7ee00u, 0u}) {
        for (int i = 0; i < 4; ++i) block.push_back(static_cast<uint8_t>(w >> (8 * i)));
    }
    block.resize(128);
    block.push_back(1);
    block.resize(368);
    const auto params = load<ChannelParams>(block);
    EXPECT_EQ(params.hObjectError, 0xbeec000cu);
    EXPECT_EQ(params.gpFifoOffset, 0x56b0000u);
    EXPECT_EQ(params.gpFifoEntries, 0x8000u);
    EXPECT_EQ(params.flags & kChannelRunqueueOne, kChannelRunqueueOne);
    EXPECT_EQ((params.flags & kChannelThreadMask) >> kChannelThreadShift, 1u);
    EXPECT_EQ(params.hContextShare, 0xcef000c1u);
    EXPECT_EQ(params.hVASpace, 0u);
    EXPECT_EQ(params.hUserdMemory[0], 3u);
    EXPECT_EQ(params.userdOffset[0], 0x7ee00u);
    EXPECT_EQ(params.engineType, kEngineGr0);
}

TEST(Decode, RegisterChannelOfARealTrace) {
    const auto arg = words({0xaaaaaaaa, 0xbbbbbbbb, 0xcccccccc, 0xdddddddd, 0x20, 0xc1d00020, 0x5c00001c, 0, 0x4000000,
                            2, 0x52f000, 0, 0, 0});
    const auto reg = as<UvmRegisterChannel>(decode(Surface::kUvm, uvm::kRegisterChannel, arg, abi_580()));
    EXPECT_EQ(reg.ctl_fd, 0x20);
    EXPECT_EQ(reg.client, 0xc1d00020u);
    EXPECT_EQ(reg.channel, 0x5c00001cu);
    EXPECT_EQ(reg.base, 0x2'0400'0000u);
    EXPECT_EQ(reg.length, 0x52f000u);
    EXPECT_EQ(reg.gpu.bytes[0], 0xaa);
    EXPECT_EQ(reg.gpu.bytes[15], 0xdd);
}

TEST(Decode, AllThreeFormsOfAlloc) {
    const AllocArgs now{1, 2, 3, cls::kChannelGroup, 0x1000, 0, 20, 0, nv::kInvalidObjectParent, 0};
    Alloc a = as<Alloc>(decode_rm(escape::kAlloc, now));
    EXPECT_EQ(a.root, 1u);
    EXPECT_EQ(a.parent, 2u);
    EXPECT_EQ(a.object, 3u);
    EXPECT_EQ(a.cls, cls::kChannelGroup);
    EXPECT_EQ(a.params, 0x1000u);
    EXPECT_EQ(a.params_size, 20u);
    EXPECT_EQ(a.status, nv::kInvalidObjectParent);

    const AllocArgsShort brief{1, 2, 3, cls::kChannelGroup, 0x1000, 20, nv::kNoMemory};
    a = as<Alloc>(decode_rm(escape::kAlloc, brief));
    EXPECT_EQ(a.params_size, 20u);
    EXPECT_EQ(a.status, nv::kNoMemory);

    const AllocArgs525 old{1, 2, 3, cls::kChannelGroup, 0x1000, 0, 0xffff, nv::kInvalidClass};
    a = as<Alloc>(decode_rm(escape::kAlloc, old, abi("525")));
    EXPECT_EQ(a.params_size, 0u);
    EXPECT_EQ(a.status, nv::kInvalidClass);
    as<Other>(decode_rm(escape::kAlloc, old));  // not this driver's size
    as<Other>(decode_rm(escape::kAlloc, now, abi("525")));
}

TEST(Decode, DmaMappingsInEveryBranch) {
    for (const DriverAbi* a : all_abis()) {
        SCOPED_TRACE(a->name);
        if (a->map_dma_size == sizeof(MapDmaArgs)) {
            const MapDmaArgs map{1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0x123456789a, 0x55, 0};
            const auto v = as<MapDma>(decode_rm(escape::kMapMemoryDma, map, *a));
            EXPECT_EQ(v.va, 0x123456789au);
            EXPECT_EQ(v.status, 0x55u);
            as<Other>(decode_rm(escape::kMapMemoryDma, MapDmaArgs575{}, *a));
        } else {
            const MapDmaArgs575 map{1, 2, 3, 4, 5, 6, 7, 0, 0x123456789a, 0x55, 0};
            const auto v = as<MapDma>(decode_rm(escape::kMapMemoryDma, map, *a));
            EXPECT_EQ(v.va, 0x123456789au);
            EXPECT_EQ(v.status, 0x55u);
            EXPECT_EQ(v.flags, 7u);
            as<Other>(decode_rm(escape::kMapMemoryDma, MapDmaArgs{}, *a));
        }
        if (a->unmap_dma_size == sizeof(UnmapDmaArgs)) {
            const UnmapDmaArgs unmap{1, 2, 3, 4, 5, 0, 0x7000, 0x2000, 0x55, 0};
            const auto v = as<UnmapDma>(decode_rm(escape::kUnmapMemoryDma, unmap, *a));
            EXPECT_EQ(v.va, 0x7000u);
            EXPECT_EQ(v.size, 0x2000u);
            EXPECT_EQ(v.status, 0x55u);
        } else {
            const UnmapDmaArgs535 unmap{1, 2, 3, 4, 5, 0, 0x7000, 0x55, 0};
            const auto v = as<UnmapDma>(decode_rm(escape::kUnmapMemoryDma, unmap, *a));
            EXPECT_EQ(v.va, 0x7000u);
            EXPECT_EQ(v.size, 0u);
            EXPECT_EQ(v.status, 0x55u);
        }
    }
}

TEST(Decode, UvmInEveryBranch) {
    for (const DriverAbi* a : all_abis()) {
        SCOPED_TRACE(a->name);
        if (a->uvm_unregister_channel_size == sizeof(UvmUnregisterChannelArgs)) {
            const auto v = as<UvmUnregisterChannel>(
                decode_uvm(uvm::kUnregisterChannel, UvmUnregisterChannelArgs{0xc1, 0x5c, 0x40}, *a));
            EXPECT_EQ(v.client, 0xc1u);
            EXPECT_EQ(v.channel, 0x5cu);
            EXPECT_EQ(v.status, 0x40u);
            EXPECT_EQ(as<UvmFree>(decode_uvm(uvm::kFree, UvmFreeArgs{0x1000, 0x68, 0}, *a)).status, 0x68u);
        } else {
            const auto v = as<UvmUnregisterChannel>(
                decode_uvm(uvm::kUnregisterChannel, UvmUnregisterChannelArgs580{{9}, 0xc1, 0x5c, 0x40}, *a));
            EXPECT_EQ(v.client, 0xc1u);
            EXPECT_EQ(v.channel, 0x5cu);
            EXPECT_EQ(v.status, 0x40u);
            const auto f = as<UvmFree>(decode_uvm(uvm::kFree, UvmFreeArgs580{0x1000, 0x2000, 0x68, 0}, *a));
            EXPECT_EQ(f.length, 0x2000u);
            EXPECT_EQ(f.status, 0x68u);
        }
        UvmMapExternal m;
        if (a->uvm_map_external_max_gpus == 256) {
            UvmMapExternalArgs map{};
            map.base = 0x5000;
            map.attributes[0].gpuMappingType = 1;
            map.attributesCount = 1;
            map.rmCtrlFd = 33;
            map.hClient = 0xc1;
            map.hMemory = 0x77;
            map.rmStatus = 0x1e;
            m = as<UvmMapExternal>(decode_uvm(uvm::kMapExternalAllocation, map, *a));
        } else {
            UvmMapExternalArgs55040 map{};
            map.base = 0x5000;
            map.attributes[0].gpuMappingType = 1;
            map.attributesCount = 1;
            map.rmCtrlFd = 33;
            map.hClient = 0xc1;
            map.hMemory = 0x77;
            map.rmStatus = 0x1e;
            m = as<UvmMapExternal>(decode_uvm(uvm::kMapExternalAllocation, map, *a));
        }
        EXPECT_EQ(m.base, 0x5000u);
        EXPECT_EQ(m.first.gpuMappingType, 1u);
        EXPECT_EQ(m.attributes_count, 1u);
        EXPECT_EQ(m.ctl_fd, 33);
        EXPECT_EQ(m.client, 0xc1u);
        EXPECT_EQ(m.memory, 0x77u);
        EXPECT_EQ(m.status, 0x1eu);
    }
}

TEST(Decode, TheRest) {
    const auto control =
        as<Control>(decode_rm(escape::kControl, ControlArgs{1, 2, ctrl::kTsgPreempt, 0, 0x99, 8, 0x40}));
    EXPECT_EQ(control.cmd, ctrl::kTsgPreempt);
    EXPECT_EQ(control.params_size, 8u);
    EXPECT_EQ(control.status, 0x40u);
    const auto dup = as<Dup>(decode_rm(escape::kDupObject, DupArgs{1, 2, 3, 4, 5, 6, 0x33}));
    EXPECT_EQ(dup.source_client, 4u);
    EXPECT_EQ(dup.source_object, 5u);
    EXPECT_EQ(dup.status, 0x33u);
    EXPECT_EQ(as<Free>(decode_rm(escape::kFree, FreeArgs{1, 2, 3, 4})).object, 3u);
    EXPECT_EQ(as<Share>(decode_rm(escape::kShare, ShareArgs{1, 2, 3, 4, 5, 6, 0, 7})).type, 5u);
    const auto map = as<MapMemory>(decode_rm(escape::kMapMemory, MapMemoryArgs{1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 0}));
    EXPECT_EQ(map.fd, 9);
    EXPECT_EQ(map.status, 7u);
    EXPECT_EQ(as<UnmapMemory>(decode_rm(escape::kUnmapMemory, UnmapMemoryArgs{1, 2, 3, 0, 4, 5, 6})).status, 5u);
    EXPECT_EQ(
        as<AllocMemory>(decode_rm(escape::kAllocMemory, AllocMemoryArgs{1, 2, 3, 0x3e, 0, 0, 0, 0, 9, 0, 0, 0})).status,
        9u);
    EXPECT_EQ(as<RegisterFd>(decode_rm(escape::kRegisterFd, RegisterFdArgs{12})).ctl_fd, 12);
    CheckVersionArgs version{};
    std::memset(version.versionString, 'x', sizeof version.versionString);  // no terminator
    EXPECT_EQ(std::strlen(as<CheckVersion>(decode_rm(escape::kCheckVersionStr, version)).version), 63u);
    const auto dma =
        as<ContextDma>(decode_rm(escape::kAllocContextDma2, ContextDmaArgs{1, 0, 3, 2, 0, 0, 8, 0, 0x50, 0xfaf, 7, 0}));
    EXPECT_EQ(dma.client, 1u);
    EXPECT_EQ(dma.object, 3u);
    EXPECT_EQ(dma.memory, 8u);
    EXPECT_EQ(dma.offset, 0x50u);
    EXPECT_EQ(dma.limit, 0xfafu);
    EXPECT_EQ(dma.status, 7u);
    VidHeapArgs heap{};
    heap.function = kVidHeapFree;
    heap.allocSize.hMemory = 8;
    EXPECT_EQ(as<VidHeapFree>(decode_rm(escape::kVidHeapControl, heap)).object, 8u);
    heap.function = 5;  // INFO
    as<Other>(decode_rm(escape::kVidHeapControl, heap));

    UvmRegisterVaSpaceArgs vas{{1}, 3, 4, 5, 6};
    EXPECT_EQ(as<UvmRegisterVaSpace>(decode_uvm(uvm::kRegisterGpuVaSpace, vas)).va_space, 5u);
    EXPECT_EQ(as<UvmUnregisterVaSpace>(decode_uvm(uvm::kUnregisterGpuVaSpace, UvmUnregisterGpuArgs{{1}, 7})).status,
              7u);
    EXPECT_EQ(as<UvmRegisterGpu>(decode_uvm(uvm::kRegisterGpu, UvmRegisterGpuArgs{{1}, 0, {}, 0, 1, 2, 3, 4})).client,
              2u);
    EXPECT_EQ(as<UvmInitialize>(decode_uvm(uvm::kInitialize, UvmInitializeArgs{2, 3, 0})).status, 3u);
    EXPECT_EQ(as<UvmCreateExternalRange>(decode_uvm(uvm::kCreateExternalRange, UvmCreateExternalRangeArgs{1, 2, 3, 0}))
                  .length,
              2u);
    EXPECT_EQ(as<UvmUnmapExternal>(decode_uvm(uvm::kUnmapExternal, UvmUnmapExternalArgs{1, 2, {5}, 3, 0})).status, 3u);
}

TEST(Decode, WrongSizeShortSpanAndForeignTypesAreOther) {
    const std::vector<uint8_t> zeros(kMaxArgument + 16);
    for (unsigned escape = 0; escape < 256; ++escape) {
        for (const size_t size : {0u, 1u, 4u, 16u, 27u, 28u, 32u, 40u, 48u, 56u, 64u, 72u, 184u, 16383u}) {
            const unsigned long request = rm_request(escape, size);
            const size_t want = argument_size(Surface::kRm, request, abi_580());
            ASSERT_TRUE(want == 0 || want == size);
            if (want == 0) as<Other>(decode(Surface::kRm, request, zeros, abi_580()));
            if (want > 0) as<Other>(decode(Surface::kRm, request, Bytes(zeros).first(want - 1), abi_580()));
        }
        // Terminal ioctls on the wrong file, say.
        as<Other>(decode(Surface::kRm, (3ul << 30) | (48ul << 16) | ('T' << 8) | escape, zeros, abi_580()));
    }
    for (const unsigned long request : {0ul, 1ul, 29ul, 32ul, 76ul, 0x30000002ul, ~0ul}) {
        EXPECT_EQ(argument_size(Surface::kUvm, request, abi_580()), 0u);
        as<Other>(decode(Surface::kUvm, request, zeros, abi_580()));
    }
}

TEST(Decode, StatusIsWhereTheKernelWritesIt) {
    // Put a mark at status_offset; the view must show it. Holds for each request, in each branch.
    std::vector<unsigned long> rm_requests;
    for (unsigned escape = 0; escape < 256; ++escape) {
        for (size_t size = 0; size < 256; ++size) rm_requests.push_back(rm_request(escape, size));
    }
    int checked = 0;
    const auto check = [&](Surface surface, unsigned long request, const DriverAbi& a) {
        const size_t size = argument_size(surface, request, a);
        const size_t at = status_offset(surface, request, a);
        if (size == 0 || at == kNoStatus) return;
        ASSERT_LE(at + 4, size);
        std::vector<uint8_t> arg(size);
        arg[8] = surface == Surface::kRm && ioctl_number(request) == escape::kVidHeapControl ? kVidHeapAllocSize : 0;
        arg[at] = 0x5a;
        const IoctlView view = decode(surface, request, arg, a);
        std::visit(
            [&](const auto& v) {
                if constexpr (requires { v.status; }) {
                    EXPECT_EQ(v.status, 0x5au) << std::hex << request;
                    ++checked;
                }
            },
            view);
    };
    for (const DriverAbi* a : all_abis()) {
        for (const unsigned long request : rm_requests) check(Surface::kRm, request, *a);
        for (unsigned long request = 0; request < 100; ++request) check(Surface::kUvm, request, *a);
        check(Surface::kUvm, uvm::kInitialize, *a);
    }
    EXPECT_EQ(checked, static_cast<int>(all_abis().size()) * 23);
}

TEST(Decode, NothingFitsPastTheLimits) {
    for (const DriverAbi* a : all_abis()) {
        for (unsigned long request = 0; request < 2048; ++request) {
            EXPECT_LE(argument_size(Surface::kUvm, request, *a), kMaxArgument);
        }
        for (uint32_t c = 0; c <= 0xffff; ++c) ASSERT_LE(alloc_params_size(c, *a), kMaxParams);
    }
    static_assert(sizeof(FifoDisableChannelsParams) <= kMaxParams && sizeof(UuidFromGpuIdParams) <= kMaxParams);
}

TEST(ParamBlock, TheClassDecidesSinceDriversPassSizeZero) {
    const auto block = [](uint32_t cls, uint32_t stated, UserPtr at, const DriverAbi& a) {
        return param_block(Alloc{1, 2, 3, cls, at, stated, 0}, a);
    };
    EXPECT_EQ(block(cls::kGpfifoHopper, 0, 0x1000, abi("570")).size, 368u);
    EXPECT_EQ(block(cls::kGpfifoAmpere, 0, 0x1000, abi("550")).size, 360u);
    EXPECT_EQ(block(cls::kGpfifoBlackwellB, 0, 0x1000, abi("525")).size, 304u);
    EXPECT_EQ(block(cls::kChannelGroup, 0, 0x1000, abi_580()).size, 20u);
    EXPECT_EQ(block(cls::kContextShare, 0, 0x1000, abi_580()).address, 0x1000u);
    EXPECT_EQ(block(cls::kVaSpace, 0, 0x1000, abi("575")).size, 48u);
    EXPECT_EQ(block(cls::kVaSpace, 0, 0x1000, abi_580()).size, 56u);
    EXPECT_EQ(block(cls::kMemorySystem, 0, 0x1000, abi("535")).size, 120u);
    EXPECT_EQ(block(cls::kChannelGroup, 20, 0x1000, abi_580()).size, 20u);
    EXPECT_EQ(block(cls::kChannelGroup, 24, 0x1000, abi_580()).size, 0u);  // not our layout
    EXPECT_EQ(block(cls::kChannelGroup, 0, 0, abi_580()).size, 0u);        // no block
    EXPECT_EQ(block(cls::kComputeHopper, 0, 0x1000, abi_580()).size, 0u);
    EXPECT_EQ(param_block(Free{}, abi_580()).size, 0u);
}

TEST(ParamBlock, ControlsMustStateTheDriversSize) {
    const auto block = [](uint32_t cmd, uint32_t stated, const DriverAbi& a) {
        return param_block(Control{1, 2, cmd, 0x2000, stated, 0}, a).size;
    };
    EXPECT_EQ(block(ctrl::kTsgGpfifoSchedule, 3, abi_580()), 3u);
    EXPECT_EQ(block(ctrl::kTsgGpfifoSchedule, 2, abi_580()), 0u);
    EXPECT_EQ(block(ctrl::kTsgGpfifoSchedule, 2, abi("570")), 2u);
    EXPECT_EQ(block(ctrl::kGrCtxswPreemptionBind, 112, abi_580()), 112u);
    EXPECT_EQ(block(ctrl::kGrCtxswPreemptionBind, 104, abi("550")), 104u);
    EXPECT_EQ(block(ctrl::kGrSetCtxswPreemptionMode, 32, abi_580()), 32u);
    EXPECT_EQ(block(ctrl::kGrCtxswZcullBind, 24, abi_580()), 24u);
    EXPECT_EQ(block(ctrl::kGrCtxswSetupBind, 16, abi_580()), 16u);
    EXPECT_EQ(block(ctrl::kGrCtxswSetupBind, 16, abi("535")), 0u);
    EXPECT_EQ(block(0x12345678, 16, abi_580()), 0u);
}

TEST(ParamBlock, PreemptionBindReadsTheModesBehindEightOrNineBuffers) {
    PreemptionBindParams nine{1, 2, 3, 0, {10, 11, 12, 13, 14, 15, 16, 17, 18}, 1, 2, {}};
    PreemptionBindParams550 eight{1, 2, 3, 0, {10, 11, 12, 13, 14, 15, 16, 17}, 1, 2, {}};
    for (const auto& params :
         {load_preemption_bind(bytes_of(nine), abi_580()), load_preemption_bind(bytes_of(eight), abi("550"))}) {
        EXPECT_EQ(params.hChannel, 3u);
        EXPECT_EQ(params.vMemPtrs[7], 17u);
        EXPECT_EQ(params.gfxpPreemptMode, 1u);
        EXPECT_EQ(params.cilpPreemptMode, 2u);
    }
}

TEST(Load, ShortBlocksReadAsZeroAtTheirEnd) {
    const std::vector<uint8_t> ones(304, 0xff);
    const auto params = load<ChannelParams>(ones);
    EXPECT_EQ(params.subProcessId, 0xffffffffu);
    EXPECT_EQ(params.encryptIv[0], 0u);
    EXPECT_EQ(load<ChannelParams>(Bytes{}).flags, 0u);
}

TEST(Classes, FamiliesCoverEveryGenerationFromTuringOn) {
    for (const uint32_t c : {0xc36fu, 0xc46fu, 0xc56fu, 0xc86fu, 0xc96fu, 0xca6fu}) EXPECT_TRUE(cls::is_gpfifo(c));
    for (const uint32_t c : {0xc597u, 0xc697u, 0xc797u, 0xc997u, 0xcb97u, 0xcd97u, 0xce97u}) EXPECT_TRUE(cls::is_3d(c));
    for (const uint32_t c : {0xc5c0u, 0xc6c0u, 0xc7c0u, 0xc9c0u, 0xcbc0u, 0xcdc0u, 0xcec0u})
        EXPECT_TRUE(cls::is_compute(c));
    for (const uint32_t c : {0xa06cu, 0x9067u, 0x90f1u, 0x3eu, 0x40u, 0x70u, 0x80u, 0x2080u, 0xa140u, 0xc661u, 0x9096u,
                             0x97u, 0x6fu, 0xc0u, 0x906fu, 0x5cb97u, 0x1c86fu}) {
        EXPECT_FALSE(cls::is_gpfifo(c) || cls::is_3d(c) || cls::is_compute(c) || cls::is_copy(c)) << std::hex << c;
    }
}

TEST(Status, NamesAndTexts) {
    EXPECT_EQ(status_name(nv::kOk), "OK");
    EXPECT_EQ(status_text(0x36), "ERR_INVALID_OBJECT_PARENT (0x36)");
    EXPECT_EQ(status_text(0x4242), "status 0x4242");
    EXPECT_TRUE(status_name(0x4242).empty());
    EXPECT_FALSE(status_hint(nv::kInsufficientPermissions).empty());
    EXPECT_TRUE(status_hint(nv::kOk).empty());
}

TEST(Names, CoverWhatIsDecoded) {
    for (unsigned escape = 0; escape < 256; ++escape) {
        for (size_t size = 0; size < 256; ++size) {
            const unsigned long request = rm_request(escape, size);
            if (argument_size(Surface::kRm, request, abi_580())) {
                EXPECT_FALSE(request_name(Surface::kRm, request).empty()) << escape;
            }
        }
    }
    for (unsigned long request = 0; request < 100; ++request) {
        if (argument_size(Surface::kUvm, request, abi_580())) {
            EXPECT_FALSE(request_name(Surface::kUvm, request).empty()) << request;
        }
    }
    for (uint32_t c = 0; c <= 0xffff; ++c) {
        const bool family = cls::is_gpfifo(c);  // named only for the generations that exist
        if (alloc_params_size(c, abi_580()) && !family) {
            EXPECT_FALSE(class_name(c).empty()) << std::hex << c;
        }
    }
    EXPECT_EQ(class_name(cls::kChannelGroup), "KEPLER_CHANNEL_GROUP_A");
    EXPECT_EQ(control_name(ctrl::kTsgGpfifoSchedule), "TSG_GPFIFO_SCHEDULE");
}

TEST(Decode, RandomBytesNeverHurt) {
    std::mt19937_64 random(3);
    std::vector<uint8_t> arg(kMaxArgument);
    for (int i = 0; i < 200000; ++i) {
        const Surface surface = random() % 2 ? Surface::kRm : Surface::kUvm;
        const DriverAbi& a = *all_abis()[random() % all_abis().size()];
        static constexpr size_t kSizes[] = {16, 24, 28, 32, 40, 48, 56, 64, 72, 184};
        const unsigned long request = surface == Surface::kRm
                                          ? rm_request(0x20 + random() % 0xc0, kSizes[random() % std::size(kSizes)])
                                          : random() % 80;
        const size_t size = argument_size(surface, request, a);
        if (size == 0) continue;
        const size_t given = random() % 8 == 0 ? random() % (size + 1) : size;
        for (size_t k = 0; k < given; k += 8) {
            const uint64_t word = random();
            std::memcpy(arg.data() + k, &word, std::min<size_t>(8, given - k));
        }
        const IoctlView view = decode(surface, request, Bytes(arg).first(given), a);
        EXPECT_EQ(given < size, std::holds_alternative<Other>(view) && given < size);
        EXPECT_LE(param_block(view, a).size, kMaxParams);
    }
}

}  // namespace
}  // namespace vuda::rm
