// What the resource manager answers where no rule of rules.h is at stake: identity, addresses, layouts, injected
// failures.
#include <gtest/gtest.h>

#include "sim/rm/test_rigs.h"

namespace vuda::sim {
namespace {

TEST(SimRm, NamesItsGpus) {
    const auto rm = make_rm("580.159.04", {"h200", "rtx4090"});
    TestProcess process(*rm, 10);
    TestClient second(process, 0, 1);
    rm::GidInfoParams gid{};
    gid.flags = rm::kGidBinary;
    EXPECT_EQ(second.control(TestClient::kSubdevice, rm::ctrl::kGpuGetGidInfo, gid), rm::nv::kOk);
    EXPECT_EQ(gid.length, 16u);
    EXPECT_EQ(std::memcmp(gid.data, rm->gpu(1).identity().uuid.bytes.data(), 16), 0);
    EXPECT_NE(rm->gpu(0).identity().uuid, rm->gpu(1).identity().uuid);
    gid = {};
    EXPECT_EQ(second.control(TestClient::kSubdevice, rm::ctrl::kGpuGetGidInfo, gid), rm::nv::kOk);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(gid.data)), rm->gpu(1).identity().uuid.to_string());

    rm::CardInfo cards[32] = {};
    const FileId file = process.open(FileKind::kControl);
    EXPECT_EQ(process.escape(file, rm::escape::kCardInfo, cards), 0);
    EXPECT_EQ(cards[0].valid, 1);
    EXPECT_EQ(cards[1].valid, 1);
    EXPECT_EQ(cards[2].valid, 0);
    EXPECT_EQ(cards[1].minorNumber, 1u);
    EXPECT_EQ(cards[0].deviceId, 0x2335);

    rm::UuidFromGpuIdParams uuid{};
    uuid.gpuId = cards[0].gpuId;
    uuid.flags = rm::kGidBinary;
    EXPECT_EQ(second.control(second.client, rm::ctrl::kGpuGetUuidFromGpuId, uuid), rm::nv::kOk);
    EXPECT_EQ(std::memcmp(uuid.gpuUuid, rm->gpu(0).identity().uuid.bytes.data(), 16), 0);

    rm::GfxGpcTpcInfoParams graphics{};
    TestClient first(process);
    EXPECT_EQ(first.control(TestClient::kSubdevice, rm::ctrl::kGrGetGfxGpcAndTpcInfo, graphics), rm::nv::kOk);
    EXPECT_EQ(graphics.numGfxTpc, 2u) << "an H200 has two TPCs for graphics";
}

TEST(SimRm, ClassesBelongToChips) {
    const auto rm = make_rm("580.159.04", {"rtx4090"});
    TestProcess process(*rm, 10);
    TestClient a(process);
    (void)a.vaspace(0x10);
    (void)a.tsg(0x20, 0x10);
    (void)a.ctxshare(0x20, 0x21, 0x10, rm::kCtxShareSync);
    EXPECT_EQ(a.channel(0x20, 0x22, 0x21), rm::nv::kInvalidClass) << "Hopper's channel class on Ada";
    rm::ChannelParams params{};
    params.hContextShare = 0x21;
    EXPECT_EQ(a.alloc(0x20, 0x22, rm::cls::kGpfifoAmpere, &params), rm::nv::kOk);
    EXPECT_EQ(a.alloc(0x22, 0x23, rm::cls::kComputeAda), rm::nv::kOk);
    EXPECT_EQ(a.alloc(0x22, 0x24, rm::cls::kComputeHopper), rm::nv::kInvalidClass);
}

// Addresses of a recorded Vulkan start: reservations are 64 KiB apart from 0x4000000 up.
TEST(SimRm, GivesVulkanTheRecordedAddresses) {
    const auto rm = make_rm();
    TestProcess process(*rm, 10);
    TestClient a(process);
    ASSERT_EQ(a.vaspace(0x10), rm::nv::kOk);
    const struct {
        uint64_t bytes, address;
    } recorded[] = {{0x20000, 0x4000000}, {0x40000, 0x4020000}, {0x80000, 0x4060000},
                    {0x20000, 0x40e0000}, {0x1000, 0x4100000},  {0x4000, 0x4110000}};
    for (const auto& one : recorded) {
        rm::VidHeapArgs args{};
        args.hRoot = a.client;
        args.hObjectParent = TestClient::kDevice;
        args.function = rm::kVidHeapAllocSize;
        args.hVASpace = 0x10;
        args.allocSize.flags = 0xa0000;
        args.allocSize.size = one.bytes;
        args.allocSize.rangeBegin = 0x4000000;
        args.allocSize.rangeEnd = 0xdfffffffff;
        ASSERT_EQ(process.escape(a.control_file, rm::escape::kVidHeapControl, args), 0);
        EXPECT_EQ(args.status, rm::nv::kOk);
        EXPECT_EQ(args.allocSize.offset, one.address);
        EXPECT_EQ(args.allocSize.hMemory & 0xffff0000, 0xcaf00000u) << "the handle is RM's choice";
    }
}

TEST(SimRm, GpuFilesSpeakForTheControlFileTheyAreRegisteredWith) {
    const auto rm = make_rm();
    TestProcess process(*rm, 10);
    TestClient a(process);
    const FileId gpu = process.open(FileKind::kGpu, 0);
    rm::FreeArgs args{a.client, 0, 0x777, 0};
    (void)process.escape(gpu, rm::escape::kFree, args);
    EXPECT_EQ(args.status, rm::nv::kInvalidClient);
    rm::RegisterFdArgs reg{static_cast<int32_t>(a.control_file)};
    EXPECT_EQ(process.escape(gpu, rm::escape::kRegisterFd, reg), 0);
    (void)process.escape(gpu, rm::escape::kFree, args);
    EXPECT_EQ(args.status, rm::nv::kOk);
    rm::RegisterFdArgs wrong{static_cast<int32_t>(gpu)};
    EXPECT_EQ(process.escape(process.open(FileKind::kGpu, 0), rm::escape::kRegisterFd, wrong), EINVAL);
    EXPECT_EQ(process.open(FileKind::kGpu, 1), 0u) << "there is one GPU";
}

TEST(SimRm, MapsOnlyWhatMapMemoryNamed) {
    const auto rm = make_rm();
    TestProcess process(*rm, 10);
    TestClient a(process);
    ASSERT_EQ(a.memory(1, 0x3000), rm::nv::kOk);
    EXPECT_NE(rm->map(a.control_file, 4096).error, 0) << "no MAP_MEMORY before";
    const auto first = a.map_cpu(1, 0x3000);
    const auto second = a.map_cpu(1, 0x1000);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first, second) << "the same memory";
    EXPECT_EQ(a.map_cpu(1, 0x4000), nullptr) << "longer than the memory";
    EXPECT_EQ(a.map_cpu(2, 0x1000), nullptr) << "no such memory";
}

TEST(SimRm, AcceptsAnArgumentByReference) {
    const auto rm = make_rm();
    TestProcess process(*rm, 10);
    const FileId file = process.open(FileKind::kControl);
    rm::AllocArgs root{};
    root.hClass = rm::cls::kRootClient;
    rm::XferArgs xfer{rm::escape::kAlloc, sizeof root, reinterpret_cast<uint64_t>(&root)};
    EXPECT_EQ(process.escape(file, rm::escape::kXferCmd, xfer), 0);
    EXPECT_EQ(root.status, rm::nv::kOk);
    EXPECT_NE(root.hObjectNew, 0u);
}

// Sizes by branch, as in the table of rm-semantics (and rm/driver_table.cc).
TEST(SimRm, LayoutsFollowTheDriverVersion) {
    const struct {
        const char* version;
        uint32_t alloc, map_dma, unmap_dma, channel, vaspace, memory, schedule, map_external, uvm_free, unregister;
    } rows[] = {
        {"525.147.05", 40, 56, 40, 304, 48, 120, 2, 1200, 24, 28},
        {"535.54.03", 48, 56, 40, 304, 48, 120, 2, 1200, 24, 28},
        {"535.86.05", 48, 56, 40, 360, 48, 120, 2, 1200, 24, 28},
        {"550.40.07", 48, 56, 48, 360, 48, 128, 2, 1200, 24, 28},
        {"550.54.14", 48, 56, 48, 360, 48, 128, 2, 9264, 24, 28},
        {"565.57.01", 48, 56, 48, 360, 48, 128, 2, 9264, 24, 28},
        {"570.86.15", 48, 56, 48, 368, 48, 128, 2, 9264, 24, 28},
        {"575.64", 48, 56, 48, 368, 48, 128, 3, 9264, 24, 28},
        {"580.159.04", 48, 64, 48, 368, 56, 128, 3, 9264, 24, 28},
        {"595.45.04", 48, 64, 48, 368, 56, 128, 3, 9264, 16, 12},
    };
    for (const auto& row : rows) {
        const Layout layout = Layout::of(row.version);
        EXPECT_EQ(layout.version, row.version);
        EXPECT_EQ(layout.alloc_long, row.alloc) << row.version;
        EXPECT_EQ(layout.map_dma, row.map_dma) << row.version;
        EXPECT_EQ(layout.unmap_dma, row.unmap_dma) << row.version;
        EXPECT_EQ(layout.channel_params, row.channel) << row.version;
        EXPECT_EQ(layout.vaspace_params, row.vaspace) << row.version;
        EXPECT_EQ(layout.memory_params, row.memory) << row.version;
        EXPECT_EQ(layout.schedule_params, row.schedule) << row.version;
        EXPECT_EQ(layout.map_external, row.map_external) << row.version;
        EXPECT_EQ(layout.uvm_free, row.uvm_free) << row.version;
        EXPECT_EQ(layout.uvm_unregister_channel, row.unregister) << row.version;
    }
    EXPECT_EQ(Layout::of("rubbish").branch, 580);
    EXPECT_EQ(Layout::of("").branch, 580);
}

TEST(SimRm, OldLayoutsWork) {
    const auto rm = make_rm("570.86.15");
    TestProcess process(*rm, 10);
    TestClient a(process);
    ASSERT_EQ(a.vaspace(0x10), rm::nv::kOk);
    ASSERT_EQ(a.virtual_memory(0x11, 0x10), rm::nv::kOk);
    ASSERT_EQ(a.memory(0x12, 0x1000), rm::nv::kOk);
    rm::MapDmaArgs575 args{};
    args.hClient = a.client;
    args.hDma = 0x11;
    args.hMemory = 0x12;
    args.length = 0x1000;
    EXPECT_EQ(process.escape(a.control_file, rm::escape::kMapMemoryDma, args), 0);
    EXPECT_EQ(args.status, rm::nv::kOk);
    EXPECT_GE(args.dmaOffset, 0x100000u);
    rm::MapDmaArgs newer{};
    EXPECT_EQ(process.escape(a.control_file, rm::escape::kMapMemoryDma, newer), EINVAL);
    uint8_t two[2] = {1, 0};
    (void)a.tsg(0x20, 0x10);
    EXPECT_EQ(a.control(0x20, rm::ctrl::kTsgGpfifoSchedule, two, 2), rm::nv::kOk);
    uint8_t three[3] = {1, 0, 0};
    EXPECT_EQ(a.control(0x20, rm::ctrl::kTsgGpfifoSchedule, three, 3), rm::nv::kInvalidParamStruct);
}

TEST(SimRm, InjectsFailures) {
    const auto rm = make_rm();
    EXPECT_FALSE(rm->inject(""));
    EXPECT_FALSE(rm->inject("alloc"));
    EXPECT_FALSE(rm->inject("alloc:9067"));
    EXPECT_FALSE(rm->inject("alloc:9067=0x1a@"));
    EXPECT_FALSE(rm->inject("other:1=1"));
    EXPECT_TRUE(rm->inject("alloc:90f1=0x51@2"));
    TestProcess process(*rm, 10);
    TestClient a(process);
    EXPECT_EQ(a.vaspace(1), rm::nv::kOk);
    EXPECT_EQ(a.vaspace(2), rm::nv::kNoMemory);
    EXPECT_EQ(a.vaspace(3), rm::nv::kOk);
    EXPECT_TRUE(rm->inject("ctl:2080014a=0x40"));
    rm::GidInfoParams gid{};
    EXPECT_EQ(a.control(TestClient::kSubdevice, rm::ctrl::kGpuGetGidInfo, gid), rm::nv::kInvalidState);
    EXPECT_TRUE(rm->inject("clear"));
    EXPECT_EQ(a.control(TestClient::kSubdevice, rm::ctrl::kGpuGetGidInfo, gid), rm::nv::kOk);
}

TEST(SimRm, VaSpaceFindsRoom) {
    VaSpace vas;
    vas.mappings[0x10000] = {0x1000, 0, nullptr, {}};
    vas.reserved[0x20000] = 0x10000;
    EXPECT_EQ(vas.find_free(0x10000, 0xfffff, 0x1000, 0x10000), 0x30000u);
    EXPECT_EQ(vas.find_free(0x10000, 0xfffff, 0x1000, 0x1000), 0x11000u);
    EXPECT_EQ(vas.find_free(0x11000, 0x1ffff, 0xf000, 0x1000), 0x11000u);
    EXPECT_EQ(vas.find_free(0x11000, 0x1ffff, 0x10000, 0x1000), std::nullopt);
    EXPECT_EQ(vas.find_free(0x40000, 0x40fff, 0x1000, 0x1000), 0x40000u);
    EXPECT_EQ(vas.find_free(UINT64_MAX - 10, UINT64_MAX, 0x1000, 0x1000), std::nullopt);
    EXPECT_TRUE(vas.overlaps(0x10fff, 1));
    EXPECT_FALSE(vas.overlaps(0x11000, 1));
    EXPECT_TRUE(vas.overlaps_reserved(0x2ffff, 0x10));
}

}  // namespace
}  // namespace vuda::sim
