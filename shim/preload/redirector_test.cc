#include "shim/preload/redirector.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "shim/preload/testing_process.h"

namespace vuda::shim {
namespace {

using testing::kCudaFile;
using testing::kUvmFile;
using testing::kVkFile;
using testing::TestProcess;
using testing::TestRm;

constexpr uint32_t kOurFlags = rm::kChannelRunqueueOne | rm::kChannelDelayScheduling;

Wishes in_process() {
    Wishes wishes;
    wishes.share_in_process = true;
    return wishes;
}
Wishes across() {
    Wishes wishes;
    wishes.attach = true;
    return wishes;
}

class RedirectorTest : public ::testing::Test {
 protected:
    // Another context of the same process, with one channel.
    void second_context(uint32_t& tsg, uint32_t& channel) {
        ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &tsg, rm::cls::kChannelGroup, TestProcess::group_params(0)),
                  0u);
        uint32_t share = 0x5c000116;
        ASSERT_EQ(
            p_.alloc(kCudaFile, p_.cu, tsg, &share, rm::cls::kContextShare, TestProcess::words({p_.cu_space, 1, 0})),
            0u);
        ASSERT_EQ(
            p_.alloc(kCudaFile, p_.cu, tsg, &channel, rm::cls::kGpfifoHopper, TestProcess::channel_params(0, share)),
            0u);
    }

    void second_context_runs(uint32_t& tsg, uint32_t& channel) {
        second_context(tsg, channel);
        ASSERT_EQ(p_.control(kCudaFile, p_.cu, tsg, rm::ctrl::kTsgGpfifoSchedule, {1, 0, 0}), 0u);
    }

    TestRm rm_;
    TestProcess p_{rm_};

    std::shared_ptr<TestRm::Group> vk_group() { return rm_.find(p_.vk, p_.vk_tsg)->group; }
    std::shared_ptr<TestRm::Group> cu_group() { return rm_.find(p_.cu, p_.cu_tsg)->group; }
    size_t logged(const std::string& what) const { return static_cast<size_t>(std::ranges::count(rm_.log, what)); }
    void fail_on(const std::string& prefix, uint32_t status, int times = 1 << 30) {
        rm_.fail = [prefix, status, times](const std::string& what) mutable -> std::optional<uint32_t> {
            if (!what.starts_with(prefix) || times-- <= 0) return std::nullopt;
            return status;
        };
    }
    // Nothing of the shim's in CUDA's client or UVM file.
    void expect_native() {
        for (const auto& [key, object] : rm_.objects) {
            EXPECT_FALSE(key.first == p_.cu && (key.second >> 16) == 0x5ada)
                << std::hex << key.second << " was left behind";
        }
        EXPECT_TRUE(rm_.ranges.empty());
        for (int i = 0; i < 8; ++i) {
            const TestRm::Object* channel = rm_.find(p_.cu, TestProcess::cuda_channel_handle(i));
            if (channel == nullptr) continue;
            EXPECT_EQ(channel->parent, p_.cu_tsg);
            EXPECT_EQ(channel->flags, i % 2 == 0 ? 0u : 0x10u);
        }
    }
};

TEST_F(RedirectorTest, TouchesNothingWhenNothingIsAsked) {
    p_.start_renderer();
    p_.start_context();
    expect_native();
    EXPECT_TRUE(cu_group()->scheduled_as_group);
    EXPECT_EQ(cu_group()->channels, 8u);
    EXPECT_TRUE(p_.notices.empty());
}

TEST_F(RedirectorTest, MovesEveryChannelOfTheProcessIntoItsOwnRenderer) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();

    EXPECT_EQ(vk_group()->channels, 9u);
    EXPECT_EQ(cu_group()->channels, 0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 63}));
    EXPECT_FALSE(vk_group()->scheduled_as_group) << "a group-level schedule would look at other programs' channels too";
    EXPECT_FALSE(cu_group()->scheduled_as_group);
    for (int i = 0; i < 8; ++i) {
        const TestRm::Object* channel = rm_.find(p_.cu, TestProcess::cuda_channel_handle(i));
        ASSERT_NE(channel, nullptr);
        EXPECT_EQ(channel->flags, kOurFlags);
        EXPECT_EQ(channel->ctxshare, p_.cu_share);
        EXPECT_TRUE(channel->scheduled);
    }
    // The control buffers below 4 GiB, at the renderer's addresses, straight from the renderer's client.
    ASSERT_EQ(rm_.ranges.size(), 2u);
    const TestRm::Range& range = rm_.ranges.at({kUvmFile, 0x51f0000});
    EXPECT_TRUE(range.mapped);
    EXPECT_EQ(range.length, 0x3000u);
    EXPECT_EQ(range.client, p_.vk);
    EXPECT_EQ(range.memory, 0x45u);

    ASSERT_TRUE(p_.has_notice(Notice::Kind::kAttachDone));
    const auto done = std::ranges::find(p_.notices, Notice::Kind::kAttachDone, &Notice::kind);
    EXPECT_FALSE(done->turn);
    EXPECT_EQ(done->moved, 8u);
    EXPECT_EQ(done->veid, 63u);
    EXPECT_EQ(done->buffers, 2u);
}

TEST_F(RedirectorTest, MovesChannelsIntoAnotherProcesssRenderer) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    EXPECT_EQ(p_.redirector.sharing_subdevice().client, 0u) << "nothing shares yet";
    p_.start_context();
    // Where questions about the GPU go: the subdevice of the context that shares.
    uint32_t subdevice = 0x5c000003;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &subdevice, rm::cls::kSubdevice), 0u);
    EXPECT_EQ(p_.redirector.sharing_subdevice().client, p_.cu);
    EXPECT_EQ(p_.redirector.sharing_subdevice().file, kCudaFile);
    EXPECT_EQ(p_.redirector.sharing_subdevice().object, subdevice);

    ASSERT_EQ(p_.asked.size(), 1u);
    EXPECT_EQ(p_.asked[0].gpu, p_.gpu);
    EXPECT_EQ(p_.asked[0].channels, 8u);
    EXPECT_EQ(p_.released, 1) << "the offer's descriptors must not leak";
    EXPECT_EQ(p_.offered_group()->channels, 10u);
    EXPECT_EQ(rm_.ranges.size(), 2u);
    // Imported memory handles are dropped again once UVM holds the memory.
    size_t own = 0;
    for (const auto& [key, object] : rm_.objects) own += key.first == p_.cu && (key.second >> 16) == 0x5ada;
    EXPECT_EQ(own, 1u);
    const auto done = std::ranges::find(p_.notices, Notice::Kind::kAttachDone, &Notice::kind);
    ASSERT_NE(done, p_.notices.end());
    EXPECT_TRUE(done->turn);
    EXPECT_FALSE(done->refusal);
}

TEST_F(RedirectorTest, BuffersAreMappedBeforeTheContextShareExists) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    rm_.log.clear();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    ASSERT_GE(rm_.log.size(), 4u);
    EXPECT_EQ(rm_.log.front(), "import fd 100");
    EXPECT_TRUE(rm_.log.back().starts_with("alloc 9067 under 5ada"));
    EXPECT_EQ(logged("map 51f0000"), 1u);
}

TEST_F(RedirectorTest, ErrorNotifierOfTheGroupIsFilledIn) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda(0, 0x5c00001b);
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    ASSERT_EQ(p_.cuda_channel(0, p_.cu_share), 0u);
    EXPECT_EQ(rm_.find(p_.cu, TestProcess::cuda_channel_handle(0))->error, 0x5c00001bu);
    EXPECT_EQ(TestRm::word(p_.last_params, 0), 0u) << "not shown to the caller";

    uint32_t own = 0x5c000099;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_tsg, &own, rm::cls::kGpfifoHopper,
                       TestProcess::channel_params(0, p_.cu_share, 0x5c000077)),
              0u);
    EXPECT_EQ(rm_.find(p_.cu, own)->error, 0x5c000077u);
}

TEST_F(RedirectorTest, SyncAndSpecifiedContextSharesBecomeAsync) {
    for (const uint32_t flags : {rm::kCtxShareSync, rm::kCtxShareSpecified}) {
        TestRm rm;
        TestProcess p{rm};
        p.redirector.set_wishes(in_process());
        p.start_renderer();
        p.start_cuda();
        ASSERT_EQ(p.alloc(kCudaFile, p.cu, p.cu_tsg, &p.cu_share, rm::cls::kContextShare,
                          TestProcess::words({p.cu_space, flags, 0})),
                  0u);
        EXPECT_EQ(TestRm::word(p.last_params, 4), flags);
        EXPECT_EQ(TestRm::word(p.last_params, 8), 63u);
    }
}

TEST_F(RedirectorTest, LeavesCopyEngineGroupsAlone) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_context();
    uint32_t group = 0x5c00003e;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &group, rm::cls::kChannelGroup,
                       TestProcess::group_params(p_.cu_space, rm::kEngineCopy0 + 2)),
              0u);
    uint32_t channel = 0x5c000140;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, group, &channel, rm::cls::kGpfifoHopper, TestProcess::channel_params(0, 0)),
              0u);
    EXPECT_EQ(rm_.find(p_.cu, channel)->parent, group);
    ASSERT_EQ(p_.control(kCudaFile, p_.cu, group, rm::ctrl::kTsgGpfifoSchedule, {1, 0, 0}), 0u);
    EXPECT_TRUE(rm_.find(p_.cu, group)->group->scheduled_as_group);
}

TEST_F(RedirectorTest, GroupControlsDoNotReachTheRenderer) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    rm_.log.clear();
    for (const uint32_t cmd : {rm::ctrl::kTsgSetTimeslice, rm::ctrl::kTsgPreempt}) {
        EXPECT_EQ(p_.control(kCudaFile, p_.cu, p_.cu_tsg, cmd, std::vector<uint8_t>(8)), 0u);
    }
    EXPECT_EQ(p_.control(kCudaFile, p_.cu, p_.cu_tsg, rm::ctrl::kTsgSetInterleaveLevel, std::vector<uint8_t>(4)), 0u);
    EXPECT_EQ(p_.control(kCudaFile, p_.cu, p_.cu_tsg, rm::ctrl::kTsgMakeRealtime, std::vector<uint8_t>(4)), 0u);
    EXPECT_TRUE(rm_.log.empty());

    // Disabling stops CUDA's channels one by one, never the group.
    EXPECT_EQ(p_.cuda_schedule(0), 0u);
    EXPECT_EQ(rm_.log.size(), 8u);
    EXPECT_FALSE(vk_group()->scheduled_as_group);
    EXPECT_FALSE(rm_.find(p_.cu, TestProcess::cuda_channel_handle(3))->scheduled);

    EXPECT_EQ(p_.control(kCudaFile, p_.cu, p_.cu_tsg, rm::ctrl::kTsgBind, TestProcess::words({1})), 0u);
    EXPECT_EQ(rm_.find(p_.cu, TestProcess::cuda_channel_handle(7))->bound, 1u);

    rm_.log.clear();
    EXPECT_EQ(p_.control(kCudaFile, p_.cu, p_.cu_tsg, rm::ctrl::kTsgGetInfo, TestProcess::words({0})), 0u);
    EXPECT_EQ(TestRm::word(p_.last_params, 0), 0x77u);
    ASSERT_EQ(rm_.log.size(), 1u);
    EXPECT_TRUE(rm_.log[0].starts_with("control a06c0106 on 5ada"));
}

TEST_F(RedirectorTest, PreemptionModeOfMovedChannelsIsAnsweredNotForwarded) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    rm_.log.clear();
    const uint32_t subdevice = 0x5c000003;
    for (const uint32_t target : {p_.cu_tsg, TestProcess::cuda_channel_handle(2)}) {
        EXPECT_EQ(p_.control(kCudaFile, p_.cu, subdevice, rm::ctrl::kGrSetCtxswPreemptionMode,
                             TestProcess::words({1, target, 0, rm::kCilpCilp, 0, 0, 0, 0})),
                  0u);
        EXPECT_EQ(p_.control(kCudaFile, p_.cu, subdevice, rm::ctrl::kGrCtxswPreemptionBind,
                             TestProcess::words({1, p_.cu, target}, sizeof(rm::PreemptionBindParams))),
                  0u);
        EXPECT_EQ(p_.control(kCudaFile, p_.cu, subdevice, rm::ctrl::kGrCtxswSetupBind,
                             TestProcess::words({p_.cu, target}, sizeof(rm::SetupBindParams))),
                  0u);
    }
    EXPECT_TRUE(rm_.log.empty());
    // The renderer's own mode is its own affair.
    p_.control(kVkFile, p_.vk, 0xbeef0004, rm::ctrl::kGrSetCtxswPreemptionMode,
               TestProcess::words({1, p_.vk_tsg, 0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(rm_.log.size(), 1u);
}

TEST_F(RedirectorTest, ZcullSavingIsTurnedOffOnlyWhereSharingIsAsked) {
    for (const bool asked : {false, true}) {
        TestRm rm;
        TestProcess p{rm};
        Wishes wishes;
        wishes.share_renderer = asked;
        p.redirector.set_wishes(wishes);
        p.start_renderer();
        std::vector<uint8_t> seen;
        const auto params = TestProcess::words({p.vk, 0xbeec0100, 0x5740000, 0, rm::kZcullModeSeparateBuffer, 0});
        TestProcess::Memory m;
        m.file = kVkFile;
        m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kControl, sizeof(rm::ControlArgs)));
        rm::ControlArgs args{p.vk, 0xbeef0004, rm::ctrl::kGrCtxswZcullBind, 0, testing::kFakePointer, 24, 0};
        m.arg = TestProcess::bytes_of(args);
        m.params = params;
        const Plan plan = p.redirector.before({kVkFile, FileRole::kControl, m.request, 1, m.arg, m.params});
        EXPECT_EQ(plan.edits.size(), asked ? 1u : 0u);
        EXPECT_EQ(p.call(m), 0u);
        EXPECT_EQ(m.params, params) << "the caller's block is as it was";
    }
}

// A renderer that asks to share only after its device exists: its zcull buffer would be read through CUDA's address
// space.
TEST_F(RedirectorTest, DeviceOlderThanTheWishIsNeitherRegisteredNorJoined) {
    p_.start_renderer();
    p_.bind_zcull();
    Wishes wishes = in_process();
    wishes.share_renderer = true;
    p_.redirector.set_wishes(wishes);
    p_.collect_notices();
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kHostEarlier));
    EXPECT_EQ(std::ranges::count(p_.notices, Notice::Kind::kHost, &Notice::kind), 0);
    EXPECT_EQ(p_.redirector.host().unfit, Reason::kHostEarlier);
    p_.start_context();
    expect_native();
    // The next device is set up for it.
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, p_.vk), 0u);
    p_.vk = 0;
    p_.vk_tsg = 0xcef80003;
    p_.start_renderer();
    p_.bind_zcull();
    p_.collect_notices();
    EXPECT_EQ(std::ranges::count(p_.notices, Notice::Kind::kHost, &Notice::kind), 1);
    EXPECT_EQ(p_.redirector.host().unfit, Reason::kNone);
}

TEST_F(RedirectorTest, FreeingTheContextTakesEverythingBack) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_context();
    rm_.log.clear();
    p_.notices.clear();
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    expect_native();
    EXPECT_EQ(p_.offered_group()->channels, 2u);
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1}));
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kDetached));
    // Channels first, then the context share, the shared group, the ranges that nothing reads any more; CUDA's own
    // last.
    ASSERT_EQ(rm_.log.size(), 8u + 1 + 1 + 1 + 2);
    EXPECT_EQ(rm_.log[8], "free 5c000016");
    EXPECT_TRUE(rm_.log[9].starts_with("free 5ada"));
    EXPECT_EQ(rm_.log[10], "unrange 51f0000");
    EXPECT_EQ(rm_.log[12], "free 5c000015");
}

// Programs computed in VEIDs 63, 62 and 60 and are gone.
TEST_F(RedirectorTest, SubcontextsThatAreNobodysAreTaken) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offer.stale_veids = uint64_t{0b1101} << 60 | 1;
    p_.start_context();
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1, 60, 62, 63}));
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share)->veid, 63u) << "one of them is CUDA's own";
    const auto done = std::ranges::find(p_.notices, Notice::Kind::kAttachDone, &Notice::kind);
    ASSERT_NE(done, p_.notices.end());
    EXPECT_EQ(done->veid, 63u);
    EXPECT_EQ(done->veids, uint64_t{0b1101} << 60);
    EXPECT_EQ(done->moved, 8u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    expect_native();
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1}));
}

// A vudad that was restarted knows only that they may be.
TEST_F(RedirectorTest, SubcontextsOfWhichNothingIsKnownAreTakenIfNobodyHasThem) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offer.unknown_veids = uint64_t{0b1111} << 60;
    p_.offered_group()->veids.insert(62);  // somebody computes there
    p_.start_context();
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1, 59, 60, 61, 62, 63}));
    const auto done = std::ranges::find(p_.notices, Notice::Kind::kAttachDone, &Notice::kind);
    ASSERT_NE(done, p_.notices.end());
    EXPECT_EQ(done->veid, 59u);
    EXPECT_EQ(done->veids, uint64_t{0b10111} << 59);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    expect_native();
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1, 62}));
}

TEST_F(RedirectorTest, WhoCannotTakeTheSubcontextsDoesNotShare) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offer.stale_veids = uint64_t{0b11} << 62;
    p_.offered_group()->veids.insert(62);  // its program did not end
    p_.start_context();
    expect_native();
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1, 62}));
    const auto done = std::ranges::find(p_.notices, Notice::Kind::kAttachDone, &Notice::kind);
    ASSERT_NE(done, p_.notices.end());
    EXPECT_EQ(done->refusal.reason, Reason::kVeidTaken);
}

// Two contexts of the renderer's own process go, the next one comes alone.
TEST_F(RedirectorTest, SubcontextsOfEarlierContextsAreTakenInOneProcess) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    uint32_t tsg = 0x5c000115;
    uint32_t channel = 0x5c00011c;
    second_context_runs(tsg, channel);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 62, 63}));
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, tsg), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0}));
    second_context(tsg, channel);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 62, 63}));
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, tsg), 0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0}));
}

// Other processes computed in the renderer's TSG, and one is still there.
TEST_F(RedirectorTest, SubcontextsOfOtherProcessesInOneProcess) {
    constexpr uint64_t k59 = uint64_t{1} << 59, k61 = uint64_t{1} << 61, k63 = uint64_t{1} << 63;
    using Pair = std::pair<uint64_t, uint64_t>;
    p_.redirector.others_subcontexts(k63, k61);
    EXPECT_EQ(p_.redirector.own_subcontexts(), Pair(0, 0)) << "there is no renderer";
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    vk_group()->veids.insert(63);
    p_.redirector.others_subcontexts(k63, k61 | k59);
    EXPECT_EQ(p_.redirector.own_subcontexts(), Pair(0, k61 | k59));
    p_.start_context();
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 59, 61, 63}));
    EXPECT_EQ(p_.redirector.own_subcontexts(), Pair(k61 | k59, 0));
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 63}));
    EXPECT_EQ(p_.redirector.own_subcontexts(), Pair(0, k61 | k59));
    vk_group()->veids.erase(63);
    p_.redirector.others_subcontexts(0, k63 | k61 | k59);
    EXPECT_EQ(p_.redirector.own_subcontexts(), Pair(0, k63 | k61 | k59));
}

// vudad hears what the others keep: what the one had is for the next.
TEST_F(RedirectorTest, OneOfTwoContextsThatAttachedLeaves) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_context();
    uint32_t tsg = 0x5c000115;
    uint32_t channel = 0x5c00011c;
    second_context_runs(tsg, channel);
    p_.notices.clear();
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, tsg), 0u);
    auto gone = std::ranges::find(p_.notices, Notice::Kind::kDetached, &Notice::kind);
    ASSERT_NE(gone, p_.notices.end());
    EXPECT_TRUE(gone->attach);
    EXPECT_EQ(gone->moved, 8u);
    EXPECT_EQ(gone->veids, uint64_t{1} << 63);
    p_.notices.clear();
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    gone = std::ranges::find(p_.notices, Notice::Kind::kDetached, &Notice::kind);
    ASSERT_NE(gone, p_.notices.end());
    EXPECT_EQ(gone->moved, 0u);
    EXPECT_EQ(gone->veids, 0u);
}

TEST_F(RedirectorTest, FreeingDeviceOrClientTakesEverythingBack) {
    for (const bool client : {false, true}) {
        TestRm rm;
        TestProcess p{rm};
        p.redirector.set_wishes(in_process());
        p.start_renderer();
        p.start_context();
        ASSERT_EQ(p.free_object(kCudaFile, p.cu, client ? p.cu : p.cu_device), 0u);
        EXPECT_EQ(rm.find(p.vk, p.vk_tsg)->group->channels, 1u);
        EXPECT_TRUE(rm.ranges.empty());
        EXPECT_TRUE(p.has_notice(Notice::Kind::kDetached));
    }
}

TEST_F(RedirectorTest, ContextFreedChannelByChannelAsCudaDoes) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    const size_t renderer_only = p_.redirector.tracked();
    p_.start_context();
    for (int i = 0; i < 8; ++i) ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, TestProcess::cuda_channel_handle(i)), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_share), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu), 0u);
    EXPECT_EQ(p_.redirector.tracked(), renderer_only);
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, p_.vk), 0u);
    EXPECT_EQ(p_.redirector.tracked(), 0u);
    EXPECT_TRUE(rm_.objects.empty());
}

TEST_F(RedirectorTest, ClosingTheFileForgetsItsClients) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    const std::vector<Action> cleanup = p_.redirector.file_closed(kCudaFile);
    EXPECT_EQ(cleanup.size(), 2u) << "the ranges live in the uvm file, which is still open";
    p_.redirector.file_closed(kVkFile);
    EXPECT_EQ(p_.redirector.tracked(), 0u);
    EXPECT_EQ(p_.redirector.host().client, 0u);
}

TEST_F(RedirectorTest, ClosingTheUvmFileFirstLeavesNoCleanup) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    EXPECT_TRUE(p_.redirector.file_closed(kUvmFile).empty());
    EXPECT_TRUE(p_.redirector.file_closed(kCudaFile).empty());
}

// ---- everything that can be refused ----

struct Refused {
    const char* step;
    Reason reason;
};
class RefusalTest : public RedirectorTest, public ::testing::WithParamInterface<Refused> {};

TEST_P(RefusalTest, ProgramRunsNativelyAndNothingIsLeft) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    fail_on(GetParam().step, rm::nv::kInsufficientResources, 1);
    p_.start_cuda();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u) << "CUDA must not notice";
    rm_.fail = nullptr;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(p_.cuda_channel(i, p_.cu_share), 0u);
    ASSERT_EQ(p_.cuda_schedule(), 0u);
    expect_native();
    EXPECT_TRUE(cu_group()->scheduled_as_group);
    EXPECT_EQ(p_.offered_group()->channels, 2u);
    EXPECT_EQ(p_.offered_group()->veids, (std::set<uint32_t>{0, 1}));
    EXPECT_EQ(p_.released, 1);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kAttachDone, GetParam().reason))
        << "vudad must learn that the turn is over";
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(EachStep, RefusalTest,
                         ::testing::Values(Refused{"import fd 100", Reason::kImportRefused},
                                           Refused{"import fd 101", Reason::kBufferRefused},
                                           Refused{"range 5200000", Reason::kBufferOverlap},
                                           Refused{"map 5200000", Reason::kBufferRefused},
                                           Refused{"free 5ada", Reason::kBufferRefused},
                                           Refused{"alloc 9067 under 5ada", Reason::kCtxshareRefused}),
                         [](const auto& info) {
                             std::string name = info.param.step;
                             std::ranges::replace(name, ' ', '_');
                             return name;
                         });

TEST_F(RedirectorTest, FirstChannelRefusedPutsTheContextShareBack) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offered_group()->capacity = 2;  // full
    p_.start_cuda();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    const uint32_t veid = TestRm::word(p_.last_params, 8);
    for (int i = 0; i < 8; ++i) ASSERT_EQ(p_.cuda_channel(i, p_.cu_share), 0u);
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share)->parent, p_.cu_tsg);
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share)->veid, veid) << "the subcontext id that CUDA was told";
    EXPECT_EQ(cu_group()->channels, 8u);
    expect_native();
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kAttachDone, Reason::kChannelRefused));
    ASSERT_EQ(p_.cuda_schedule(), 0u);
    EXPECT_TRUE(cu_group()->scheduled_as_group);
}

TEST_F(RedirectorTest, LaterChannelRefusedIsTheCallersError) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offered_group()->capacity = 5;
    p_.start_cuda();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(p_.cuda_channel(i, p_.cu_share), 0u);
    EXPECT_EQ(p_.cuda_channel(3, p_.cu_share), rm::nv::kInvalidState);
}

TEST_F(RedirectorTest, FullGroupIsNotEvenTried) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.offer.channels_in_use = 121;
    p_.start_context();
    expect_native();
    EXPECT_EQ(logged("import fd 100"), 0u);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kTsgFull));
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kAttachDone, Reason::kTsgFull));
}

TEST_F(RedirectorTest, NoAnswerFromVudadMeansNative) {
    p_.redirector.set_wishes(across());
    p_.start_context();
    expect_native();
    EXPECT_TRUE(cu_group()->scheduled_as_group);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kAttachFailed));
    EXPECT_FALSE(p_.has_notice(Notice::Kind::kAttachDone, Reason::kAttachFailed)) << "no turn was given, none ends";
}

TEST_F(RedirectorTest, RequireTurnsARefusalIntoAnError) {
    Wishes wishes = across();
    wishes.require = true;
    p_.redirector.set_wishes(wishes);
    p_.start_cuda();
    EXPECT_EQ(p_.cuda_ctxshare(), rm::nv::kInvalidState);
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share), nullptr);
}

TEST_F(RedirectorTest, InProcessNeedsARenderer) {
    p_.redirector.set_wishes(in_process());
    p_.start_context();
    expect_native();
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kNoHost));
}

TEST_F(RedirectorTest, OtherGpuIsRefusedInProcess) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer(1);
    p_.start_context();
    expect_native();
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kOtherGpu));
}

TEST_F(RedirectorTest, UnregisteredAddressSpaceIsRefused) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_cuda();
    p_.redirector.file_closed(kUvmFile);
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share)->parent, p_.cu_tsg);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kNotRegistered));
}

TEST_F(RedirectorTest, StoppedByVudadAppliesToTheNextContext) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.redirector.stop_sharing({Reason::kStopped, 0, 0, 0});
    p_.start_context();
    expect_native();
    EXPECT_TRUE(p_.asked.empty());
}

TEST_F(RedirectorTest, BuffersGoThroughAnExportWhenTheDirectWayIsDenied) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    fail_on("map ", rm::nv::kInsufficientPermissions, 1);
    p_.start_context();
    EXPECT_EQ(logged("transfer 45"), 1u);
    EXPECT_EQ(vk_group()->channels, 9u);
    ASSERT_EQ(rm_.ranges.size(), 2u);
    EXPECT_EQ(rm_.ranges.begin()->second.client, p_.cu);
}

TEST_F(RedirectorTest, SecondContextInTheAddressSpaceReusesTheBuffers) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    uint32_t tsg = 0x5c000115;
    uint32_t channel = 0x5c00011c;
    second_context(tsg, channel);
    EXPECT_EQ(vk_group()->channels, 10u);
    EXPECT_EQ(logged("range 51f0000"), 1u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    EXPECT_EQ(rm_.ranges.size(), 2u) << "the other context still needs them";
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, tsg), 0u);
    EXPECT_TRUE(rm_.ranges.empty());
}

TEST_F(RedirectorTest, AContextThatIsToShareWithNobodyKeepsItsChannels) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    EXPECT_EQ(vk_group()->channels, 9u);
    rm_.log.clear();
    p_.notices.clear();
    p_.unshared = true;
    uint32_t tsg = 0x5c000115;
    uint32_t channel = 0x5c00011c;
    second_context(tsg, channel);
    // Whoever schedules it later need not be the thread that made it.
    p_.unshared = false;
    ASSERT_EQ(p_.control(kCudaFile, p_.cu, tsg, rm::ctrl::kTsgGpfifoSchedule, {1, 0, 0}), 0u);
    EXPECT_EQ(rm_.find(p_.cu, channel)->parent, tsg);
    EXPECT_TRUE(rm_.find(p_.cu, tsg)->group->scheduled_as_group);
    EXPECT_EQ(vk_group()->channels, 9u);
    EXPECT_TRUE(p_.notices.empty());
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, tsg), 0u);
    EXPECT_EQ(vk_group()->channels, 9u) << "the other context goes on";
}

TEST_F(RedirectorTest, SecondMergeInOneAddressSpaceWaitsForTheFirst) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    // The first thread is at vudad: its plan is open.
    TestProcess::Memory m;
    m.file = kCudaFile;
    m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs)));
    rm::AllocArgs args{};
    args.hRoot = p_.cu;
    args.hObjectParent = p_.cu_tsg;
    args.hObjectNew = p_.cu_share;
    args.hClass = rm::cls::kContextShare;
    args.pAllocParms = testing::kFakePointer;
    m.arg = TestProcess::bytes_of(args);
    m.params = TestProcess::words({p_.cu_space, 1, 0});
    const Call first{kCudaFile, FileRole::kControl, m.request, 1, m.arg, m.params};
    const Plan open = p_.redirector.before(first);
    ASSERT_EQ(open.disposition, Plan::Disposition::kAttach);

    uint32_t tsg = 0x5c000115;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &tsg, rm::cls::kChannelGroup, TestProcess::group_params(0)), 0u);
    p_.on_wait = [&] {
        p_.redirector.attached(open, first, Offer{});  // the first one is turned down
        return true;
    };
    uint32_t share = 0x5c000116;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, tsg, &share, rm::cls::kContextShare, TestProcess::words({p_.cu_space, 1, 0})),
              0u);
    EXPECT_EQ(p_.waits, 1);
    EXPECT_NE(rm_.find(p_.cu, share)->parent, tsg);
}

TEST_F(RedirectorTest, WaitingTooLongMeansNative) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    const auto request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs)));
    rm::AllocArgs args{};
    args.hRoot = p_.cu;
    args.hObjectParent = p_.cu_tsg;
    args.hClass = rm::cls::kContextShare;
    args.pAllocParms = testing::kFakePointer;
    const auto arg = TestProcess::bytes_of(args);
    const auto params = TestProcess::words({p_.cu_space, 1, 0});
    ASSERT_EQ(p_.redirector.before({kCudaFile, FileRole::kControl, request, 1, arg, params}).disposition,
              Plan::Disposition::kAttach);
    uint32_t tsg = 0x5c000115;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &tsg, rm::cls::kChannelGroup, TestProcess::group_params(0)), 0u);
    uint32_t share = 0x5c000116;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, tsg, &share, rm::cls::kContextShare, TestProcess::words({p_.cu_space, 1, 0})),
              0u);
    EXPECT_EQ(rm_.find(p_.cu, share)->parent, tsg);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kBusy));
}

// ---- reserve(n) ----

TEST_F(RedirectorTest, PartialReservationMovesAllWhereSubcontextsCannotBeStarted) {
    Wishes wishes = in_process();
    wishes.reserve = 2;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer();
    p_.start_context();
    EXPECT_EQ(vk_group()->channels, 9u);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kNote, Reason::kPartialUnsupported));
}

TEST_F(RedirectorTest, ReservationOfAllThatCudaMakesNeedsNoRemark) {
    Wishes wishes = in_process();
    wishes.reserve = 8;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer();
    p_.start_context();
    EXPECT_EQ(vk_group()->channels, 9u);
    EXPECT_FALSE(p_.has_notice(Notice::Kind::kNote, Reason::kPartialUnsupported));
}

TEST_F(RedirectorTest, AttachAsksForAsManyChannelsAsCudaWillMake) {
    for (const uint32_t made : {1u, 8u, 32u}) {
        Wishes wishes;
        wishes.attach = true;
        wishes.reserve = 2;
        wishes.cuda_channels = made;
        TestProcess p{rm_};
        p.redirector.set_wishes(wishes);
        p.start_context();
        ASSERT_EQ(p.asked.size(), 1u);
        EXPECT_EQ(p.asked[0].channels, made) << "none can stay behind, whatever was reserved";
    }
}

TEST_F(RedirectorTest, PartialReservationMovesTheFirstChannelsOnly) {
    Options options;
    options.bootstrap = true;
    TestProcess p{rm_, options};
    Wishes wishes = in_process();
    wishes.reserve = 2;
    p.redirector.set_wishes(wishes);
    p.start_renderer();
    p.start_context();
    const auto shared = rm_.find(p.vk, p.vk_tsg)->group;
    EXPECT_EQ(shared->channels, 3u);
    EXPECT_EQ(rm_.find(p.cu, p.cu_tsg)->group->channels, 6u);
    EXPECT_EQ(rm_.find(p.cu, p.cu_share)->parent, p.cu_tsg) << "CUDA's own context share stays";
    EXPECT_TRUE(rm_.find(p.cu, p.cu_tsg)->group->scheduled_as_group);
    EXPECT_FALSE(shared->scheduled_as_group);
    for (int i = 0; i < 8; ++i) {
        const TestRm::Object* channel = rm_.find(p.cu, TestProcess::cuda_channel_handle(i));
        EXPECT_EQ(channel->scheduled, i < 2);
        EXPECT_EQ(channel->ctxshare == p.cu_share, i >= 2);
        EXPECT_EQ(rm_.uvm_windows.at(TestProcess::cuda_channel_handle(i)), i < 2 ? 0x3'8000'0000u : 0x2'0400'0000u);
    }
    EXPECT_EQ(logged("bootstrap"), 1u);
    // CUDA's own group is real here: its controls go through, the moved channels' preemption mode does not.
    rm_.log.clear();
    EXPECT_EQ(p.control(kCudaFile, p.cu, p.cu_tsg, rm::ctrl::kTsgSetTimeslice, std::vector<uint8_t>(8)), 0u);
    EXPECT_EQ(rm_.log.size(), 1u);
    ASSERT_EQ(p.free_object(kCudaFile, p.cu, p.cu_tsg), 0u);
    EXPECT_EQ(shared->channels, 1u);
    EXPECT_TRUE(rm_.ranges.empty());
}

TEST_F(RedirectorTest, PartialReservationStopsAtAFullGroup) {
    Options options;
    options.bootstrap = true;
    TestProcess p{rm_, options};
    Wishes wishes = across();
    wishes.reserve = 4;
    p.redirector.set_wishes(wishes);
    p.offer_host();
    p.offered_group()->capacity = 4;
    p.start_context();
    EXPECT_EQ(p.offered_group()->channels, 4u);
    EXPECT_EQ(rm_.find(p.cu, p.cu_tsg)->group->channels, 6u);
}

TEST_F(RedirectorTest, ReserveZeroSharesNothing) {
    Wishes wishes = in_process();
    wishes.reserve = 0;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer();
    p_.start_context();
    expect_native();
}

// ---- legacy mode ----

TEST_F(RedirectorTest, LegacyRendererGetsContextShares) {
    Wishes wishes;
    wishes.share_renderer = true;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer(0, true);
    EXPECT_FALSE(vk_group()->legacy);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0}));
    uint32_t compute = 0xbeec0104;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, p_.vk_tsg, &compute, rm::cls::kGpfifoAmpere,
                       TestProcess::channel_params(0x10000010, 0)),
              0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 1}));
    uint32_t again = 0xbeec0105;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, p_.vk_tsg, &again, rm::cls::kGpfifoAmpere, TestProcess::channel_params(0, 0)),
              0u);
    EXPECT_EQ(vk_group()->veids.size(), 2u);
    EXPECT_EQ(p_.redirector.host().unfit, Reason::kNone);
}

TEST_F(RedirectorTest, LegacyRendererIsLeftAloneWhenNothingIsAsked) {
    p_.start_renderer(0, true);
    EXPECT_TRUE(vk_group()->legacy);
}

TEST_F(RedirectorTest, LegacyRendererThatCannotBeHelpedIsNotShared) {
    p_.redirector.set_wishes(in_process());
    fail_on("alloc 9067", rm::nv::kInvalidState);
    p_.start_renderer(0, true);
    EXPECT_TRUE(vk_group()->legacy);
    rm_.fail = nullptr;
    p_.start_context();
    expect_native();
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, Reason::kHostLegacy));
}

TEST_F(RedirectorTest, LegacyCudaContextGetsAContextShareInTheSharedGroup) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    uint32_t object = 0;
    ASSERT_EQ(p_.alloc(kCudaFile, 0, 0, &p_.cu, rm::cls::kRootClient), 0u);
    object = p_.cu_device;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu, &object, rm::cls::kDevice, TestProcess::device_params(0)), 0u);
    object = p_.cu_space;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &object, rm::cls::kVaSpace, TestProcess::space_params(0x48)),
              0u);
    ASSERT_EQ(p_.uvm_register_space(p_.cu, p_.cu_space), 0u);
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_device, &p_.cu_tsg, rm::cls::kChannelGroup,
                       TestProcess::group_params(p_.cu_space)),
              0u);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(p_.cuda_channel(i, 0), 0u);
    EXPECT_EQ(vk_group()->channels, 4u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0, 63}));
    EXPECT_FALSE(cu_group()->legacy);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    EXPECT_EQ(vk_group()->veids, (std::set<uint32_t>{0}));
}

// ---- the renderer's side ----

TEST_F(RedirectorTest, HostIsTheNewestGroupWithA3dObject) {
    Wishes wishes;
    wishes.share_renderer = true;
    p_.redirector.set_wishes(wishes);
    EXPECT_EQ(p_.redirector.host().client, 0u);
    p_.start_renderer();
    Host host = p_.redirector.host();
    EXPECT_EQ(host.client, p_.vk);
    EXPECT_EQ(host.tsg, p_.vk_tsg);
    EXPECT_EQ(host.channels, 1u);
    EXPECT_EQ(host.settled_at_ns, p_.now_ns + 250'000'000);
    ASSERT_EQ(host.buffers.size(), 2u);
    EXPECT_EQ(host.buffers[0].va, 0x51f0000u);
    const auto notice = std::ranges::find(p_.notices, Notice::Kind::kHost, &Notice::kind);
    ASSERT_NE(notice, p_.notices.end());
    EXPECT_EQ(notice->client, p_.vk);
    EXPECT_EQ(notice->file, kVkFile);
    EXPECT_EQ(notice->subdevice, 0xbeef0004u);

    p_.redirector.device_created();
    EXPECT_EQ(p_.redirector.host().settled_at_ns, 0u);

    uint32_t newer = 0xcef80009;
    ASSERT_EQ(
        p_.alloc(kVkFile, p_.vk, p_.vk_device, &newer, rm::cls::kChannelGroup, TestProcess::group_params(p_.vk_space)),
        0u);
    EXPECT_EQ(p_.redirector.host().tsg, p_.vk_tsg) << "no 3D object yet";
    EXPECT_NE(p_.redirector.host().settled_at_ns, 0u) << "something is being set up";
    uint32_t share = 0xcef00100;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, newer, &share, rm::cls::kContextShare, TestProcess::words({p_.vk_space, 0, 0})),
              0u);
    uint32_t channel = 0xbeeb0100;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, newer, &channel, rm::cls::kGpfifoAmpere, TestProcess::channel_params(0, share)),
              0u);
    uint32_t object = 0xbeeb9097;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, channel, &object, rm::cls::kThreeDHopper, TestProcess::words({0, 0, 0, 0})), 0u);
    EXPECT_EQ(p_.redirector.host().tsg, newer);
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, newer), 0u);
    EXPECT_EQ(p_.redirector.host().tsg, p_.vk_tsg);
}

TEST_F(RedirectorTest, NotifiersOfSharedChannelsAreKnown) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda(0, 0x5c00001b);
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    EXPECT_TRUE(p_.redirector.notifiers().empty());
    ASSERT_EQ(p_.cuda_channel(0, p_.cu_share), 0u);
    uint32_t own = 0x5c000099;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_tsg, &own, rm::cls::kGpfifoHopper,
                       TestProcess::channel_params(0, p_.cu_share, 0x5c000077)),
              0u);
    std::vector<Notifier> found = p_.redirector.notifiers();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].memory, 0x5c00001bu) << "its group's";
    EXPECT_EQ(found[1].memory, 0x5c000077u) << "its own";
    for (const Notifier& notifier : found) {
        EXPECT_EQ(notifier.file, kCudaFile);
        EXPECT_EQ(notifier.client, p_.cu);
        EXPECT_EQ(notifier.device, p_.cu_device);
        EXPECT_EQ(notifier.offset, 0u);
        EXPECT_FALSE(notifier.host);
    }
    EXPECT_EQ(p_.redirector.notifiers(), found);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, own), 0u);
    EXPECT_EQ(p_.redirector.notifiers().size(), 1u);
}

TEST_F(RedirectorTest, NotifiersOfTheRendererAreThoseOfItsContextDma) {
    Wishes wishes;
    wishes.share_renderer = true;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer();
    EXPECT_TRUE(p_.redirector.notifiers().empty()) << "its channel has none";
    const size_t before = p_.redirector.tracked();
    p_.context_dma(kVkFile, p_.vk, 0xbeec000c, 0x51, 0x50);
    for (uint32_t channel : {0xbeec0104u, 0xbeec0105u}) {
        uint32_t share = 0xcef000c0;
        for (const auto& [key, object] : rm_.objects) {
            if (key.first == p_.vk && object.cls == rm::cls::kContextShare && object.parent == p_.vk_tsg)
                share = key.second;
        }
        ASSERT_EQ(p_.alloc(kVkFile, p_.vk, p_.vk_tsg, &channel, rm::cls::kGpfifoAmpere,
                           TestProcess::channel_params(0, share, 0xbeec000c)),
                  0u);
    }
    const std::vector<Notifier> found = p_.redirector.notifiers();
    ASSERT_EQ(found.size(), 1u) << "two channels share one";
    EXPECT_EQ(found[0].memory, 0x51u);
    EXPECT_EQ(found[0].offset, 0x50u);
    EXPECT_TRUE(found[0].host);
    EXPECT_EQ(found[0].tsg, p_.redirector.host().order);
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, 0xbeec0104), 0u);
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, 0xbeec0105), 0u);
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, 0xbeec000c), 0u);
    EXPECT_EQ(p_.redirector.tracked(), before);
}

TEST_F(RedirectorTest, ARendererThatMakesAnotherGroupAfterAFaultIsRegisteredAgain) {
    Wishes wishes;
    wishes.share_renderer = true;
    p_.redirector.set_wishes(wishes);
    p_.start_renderer();
    const auto told = [&] { return std::ranges::count(p_.notices, Notice::Kind::kHost, &Notice::kind); };
    EXPECT_EQ(told(), 1);
    p_.redirector.host_died(p_.redirector.host().order);
    EXPECT_EQ(told(), 1) << "the dead one is not";
    uint32_t newer = 0xcef80009;
    ASSERT_EQ(
        p_.alloc(kVkFile, p_.vk, p_.vk_device, &newer, rm::cls::kChannelGroup, TestProcess::group_params(p_.vk_space)),
        0u);
    uint32_t share = 0xcef00100;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, newer, &share, rm::cls::kContextShare, TestProcess::words({p_.vk_space, 0, 0})),
              0u);
    uint32_t channel = 0xbeeb0100;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, newer, &channel, rm::cls::kGpfifoAmpere, TestProcess::channel_params(0, share)),
              0u);
    EXPECT_EQ(told(), 1);
    uint32_t object = 0xbeeb9097;
    ASSERT_EQ(p_.alloc(kVkFile, p_.vk, channel, &object, rm::cls::kThreeDHopper, TestProcess::words({0, 0, 0, 0})), 0u);
    EXPECT_EQ(told(), 2);
}

TEST_F(RedirectorTest, FreedMemoryIsNoControlBufferAnyMore) {
    p_.start_renderer();
    ASSERT_EQ(p_.free_object(kVkFile, p_.vk, 0x45), 0u);
    ASSERT_EQ(p_.redirector.host().buffers.size(), 1u);
    EXPECT_EQ(p_.redirector.host().buffers[0].memory, 0x44u);
}

TEST_F(RedirectorTest, DuplicatedAddressSpaceIsStillExternal) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_cuda();
    TestProcess::Memory m;
    m.file = kCudaFile;
    m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kDupObject, sizeof(rm::DupArgs)));
    m.arg = TestProcess::bytes_of(rm::DupArgs{p_.cu, p_.cu_device, 0x5c000200, p_.cu, p_.cu_space, 0, 0});
    ASSERT_EQ(p_.call(m), 0u);
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu_tsg, &p_.cu_share, rm::cls::kContextShare,
                       TestProcess::words({0x5c000200, 1, 0})),
              0u);
    EXPECT_NE(rm_.find(p_.cu, p_.cu_share)->parent, p_.cu_tsg);
}

// ---- malformed calls ----

TEST_F(RedirectorTest, ShortArgumentsAndMissingParametersPassThrough) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    const auto request = static_cast<uint32_t>(rm::rm_request(rm::escape::kAlloc, sizeof(rm::AllocArgs)));
    rm::AllocArgs args{};
    args.hRoot = p_.cu;
    args.hObjectParent = p_.cu_tsg;
    args.hClass = rm::cls::kContextShare;
    args.pAllocParms = testing::kFakePointer;
    auto arg = TestProcess::bytes_of(args);
    EXPECT_TRUE(p_.redirector.before({kCudaFile, FileRole::kControl, request, 1, arg, {}}).passes_through());
    arg.resize(20);
    EXPECT_TRUE(p_.redirector.before({kCudaFile, FileRole::kControl, request, 1, arg, {}}).passes_through());
    EXPECT_TRUE(p_.redirector.before({kCudaFile, FileRole::kOther, request, 1, arg, {}}).passes_through());
}

TEST_F(RedirectorTest, UnwritableStatusIsEfault) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    p_.start_context();
    TestProcess::Memory m;
    m.file = kCudaFile;
    m.writable = false;
    m.request = static_cast<uint32_t>(rm::rm_request(rm::escape::kControl, sizeof(rm::ControlArgs)));
    m.arg =
        TestProcess::bytes_of(rm::ControlArgs{p_.cu, p_.cu_tsg, rm::ctrl::kTsgPreempt, 0, testing::kFakePointer, 8, 0});
    m.params.resize(8);
    p_.call(m);
    EXPECT_EQ(p_.last_result, -1);
    EXPECT_EQ(errno, EFAULT);
}

TEST_F(RedirectorTest, AFailedScheduleIsReportedAndEndsTheTurn) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    ASSERT_EQ(p_.cuda_channel(0, p_.cu_share), 0u);
    fail_on("control a06f0103", rm::nv::kInvalidState);
    EXPECT_EQ(p_.cuda_schedule(), rm::nv::kInvalidState);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kAttachDone, Reason::kChannelRefused));
}

TEST_F(RedirectorTest, ContextFreedBeforeItRanEndsTheTurn) {
    p_.redirector.set_wishes(across());
    p_.offer_host();
    p_.start_cuda();
    ASSERT_EQ(p_.cuda_ctxshare(), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
    EXPECT_TRUE(p_.has_notice(Notice::Kind::kAttachDone, Reason::kContextGone));
    expect_native();
}

TEST_F(RedirectorTest, AttachAndDetachAHundredTimesLeavesNothing) {
    p_.redirector.set_wishes(in_process());
    p_.start_renderer();
    const size_t before = p_.redirector.tracked();
    for (int round = 0; round < 100; ++round) {
        p_.cu_tsg = 0x5c000015;
        p_.cu_share = 0x5c000016;
        p_.cu = 0;
        p_.start_context();
        ASSERT_EQ(vk_group()->channels, 9u) << round;
        ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu_tsg), 0u);
        ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu), 0u);
    }
    EXPECT_EQ(p_.redirector.tracked(), before);
    EXPECT_TRUE(rm_.ranges.empty());
    EXPECT_EQ(vk_group()->channels, 1u);
}

TEST(Reasons, EveryReasonHasWords) {
    for (int i = 1; i <= static_cast<int>(Reason::kStopped); ++i) {
        const Words words = describe({static_cast<Reason>(i), 0x51, 7, 9});
        EXPECT_NE(words.code, 0) << i;
        EXPECT_NE(words.text[0], '\0') << i;
    }
}

TEST(UndoAll, LeavesOutWhatTheSequenceFreedItself) {
    const std::vector<Action> done = {ImportObject{1, 2, 3, 4, 5}, ImportObject{1, 2, 3, 9, 6},
                                      UvmCreateRange{3, 0x1000, 0x1000}, FreeObject{1, 2, 9}};
    const std::vector<Action> undo = undo_all(done);
    ASSERT_EQ(undo.size(), 2u);
    EXPECT_TRUE(std::holds_alternative<UvmFreeRange>(undo[0]));
    EXPECT_EQ(std::get<FreeObject>(undo[1]).object, 4u);
}

}  // namespace
}  // namespace vuda::shim
