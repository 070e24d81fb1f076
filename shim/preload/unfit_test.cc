// CUDA contexts that cannot share wherever the renderer is: MIG, vGPU, confidential computing, and what a process's
// surroundings say. They run as without VUDA, nobody is asked for a TSG, and the reason is reported.
#include <gtest/gtest.h>

#include "shim/preload/testing_process.h"

namespace vuda::shim {
namespace {

using namespace vuda::shim::testing;

class UnfitTest : public ::testing::Test {
 protected:
    void wish(bool across, bool require = false) {
        Wishes wishes;
        wishes.attach = across;
        wishes.share_in_process = !across;
        wishes.require = require;
        wishes.unfit = unfit_;
        p_.redirector.set_wishes(wishes);
        p_.start_renderer();
        p_.offer_host();
    }
    uint32_t ask(uint32_t object, uint32_t command, size_t size) {
        return p_.control(kCudaFile, p_.cu, object, command, std::vector<uint8_t>(size));
    }
    uint32_t use_partition(uint32_t* handle) {
        *handle = 0x5c000011;
        return p_.alloc(kCudaFile, p_.cu, p_.cu_device, handle, rm::cls::kSmcPartition,
                        TestProcess::words({1, 0, 0, 0}));
    }
    void finish_context() {
        ASSERT_EQ(p_.cuda_ctxshare(), 0u);
        for (int i = 0; i < 8; ++i) ASSERT_EQ(p_.cuda_channel(i, p_.cu_share), 0u);
        ASSERT_EQ(p_.cuda_schedule(), 0u);
    }
    void expect_native(Reason reason) {
        EXPECT_EQ(rm_.find(p_.cu, p_.cu_share)->parent, p_.cu_tsg);
        EXPECT_EQ(rm_.find(p_.cu, p_.cu_tsg)->group->channels, 8u);
        EXPECT_TRUE(rm_.ranges.empty());
        EXPECT_TRUE(p_.asked.empty()) << "vudad was asked for a TSG in vain";
        EXPECT_TRUE(p_.has_notice(Notice::Kind::kUnshared, reason));
        Refusal refusal;
        refusal.reason = reason;
        EXPECT_NE(std::string(describe(refusal).text), "");
    }
    void expect_shared() {
        EXPECT_NE(rm_.find(p_.cu, p_.cu_share)->parent, p_.cu_tsg);
        EXPECT_FALSE(p_.has_notice(Notice::Kind::kUnshared));
    }

    TestRm rm_;
    TestProcess p_{rm_};
    Refusal unfit_;
};

TEST_F(UnfitTest, ConfidentialComputing) {
    for (const bool across : {false, true}) {
        for (const size_t size : {size_t{5}, size_t{6}}) {  // before 550, since
            TestRm rm;
            TestProcess p{rm};
            rm.confidential = true;
            Wishes wishes;
            wishes.attach = across;
            wishes.share_in_process = !across;
            p.redirector.set_wishes(wishes);
            p.start_renderer();
            p.start_cuda();
            ASSERT_EQ(p.control(kCudaFile, p.cu, p.cu_device, rm::ctrl::kConfComputeGetCapabilities,
                                std::vector<uint8_t>(size)),
                      0u);
            EXPECT_EQ(p.last_params[3], 2u) << "the program's own answer";
            ASSERT_EQ(p.cuda_ctxshare(), 0u);
            EXPECT_EQ(rm.find(p.cu, p.cu_share)->parent, p.cu_tsg);
            EXPECT_TRUE(p.has_notice(Notice::Kind::kUnshared, Reason::kConfidential));
            EXPECT_TRUE(p.asked.empty());
        }
    }
}

TEST_F(UnfitTest, AGpuThatCouldBeConfidentialAndIsNotMayShare) {
    wish(true);
    p_.start_cuda();
    ASSERT_EQ(ask(p_.cu_device, rm::ctrl::kConfComputeGetCapabilities, 6), 0u);
    ASSERT_EQ(ask(p_.cu_device, rm::ctrl::kGpuGetVirtualizationMode, 8), 0u);
    finish_context();
    expect_shared();
}

TEST_F(UnfitTest, AnAnswerThatFailedSaysNothing) {
    rm_.confidential = true;
    rm_.fail = [](const std::string& what) -> std::optional<uint32_t> {
        return what.starts_with("control cb33") ? std::optional(rm::nv::kInvalidObject) : std::nullopt;
    };
    wish(true);
    p_.start_cuda();
    EXPECT_EQ(ask(p_.cu_device, rm::ctrl::kConfComputeGetCapabilities, 6), rm::nv::kInvalidObject);
    finish_context();
    expect_shared();
}

TEST_F(UnfitTest, VirtualGpu) {
    for (const size_t size : {size_t{4}, size_t{8}}) {  // before 570, since
        TestRm rm;
        TestProcess p{rm};
        rm.virtualization_mode = rm::ctrl::kVirtualizationModeVgx;
        Wishes wishes;
        wishes.attach = true;
        p.redirector.set_wishes(wishes);
        p.start_cuda();
        ASSERT_EQ(
            p.control(kCudaFile, p.cu, p.cu_device, rm::ctrl::kGpuGetVirtualizationMode, std::vector<uint8_t>(size)),
            0u);
        ASSERT_EQ(p.cuda_ctxshare(), 0u);
        EXPECT_TRUE(p.has_notice(Notice::Kind::kUnshared, Reason::kVirtualGpu));
        EXPECT_TRUE(p.asked.empty());
    }
}

TEST_F(UnfitTest, AVirtualGpuIsOneDeviceAndNoOther) {
    rm_.virtualization_mode = rm::ctrl::kVirtualizationModeVgx;
    wish(true);
    p_.start_cuda();
    uint32_t other = 0x5c000050;
    ASSERT_EQ(p_.alloc(kCudaFile, p_.cu, p_.cu, &other, rm::cls::kDevice, TestProcess::device_params(1)), 0u);
    ASSERT_EQ(ask(other, rm::ctrl::kGpuGetVirtualizationMode, 8), 0u);
    finish_context();
    expect_shared();
}

TEST_F(UnfitTest, MigInstance) {
    wish(true);
    p_.start_cuda();
    uint32_t partition = 0;
    ASSERT_EQ(use_partition(&partition), 0u);
    finish_context();
    expect_native(Reason::kMig);
}

TEST_F(UnfitTest, AMigInstanceThatWasGivenBackIsNone) {
    wish(true);
    p_.start_cuda();
    uint32_t partition = 0;
    ASSERT_EQ(use_partition(&partition), 0u);
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, partition), 0u);
    finish_context();
    expect_shared();
}

TEST_F(UnfitTest, Surroundings) {
    for (const Reason reason : {Reason::kDebugger, Reason::kCoreDumps, Reason::kMps}) {
        TestRm rm;
        TestProcess p{rm};
        Wishes wishes;
        wishes.attach = true;
        wishes.unfit = {reason, 0, 4242, 0};
        p.redirector.set_wishes(wishes);
        p.start_context();
        EXPECT_EQ(rm.find(p.cu, p.cu_share)->parent, p.cu_tsg);
        EXPECT_TRUE(p.has_notice(Notice::Kind::kUnshared, reason));
        EXPECT_TRUE(p.asked.empty());
    }
}

TEST_F(UnfitTest, ItIsAnErrorWhereSharingIsRequired) {
    unfit_ = {Reason::kMps, 0, 0, 0};
    wish(true, true);
    p_.start_cuda();
    EXPECT_NE(p_.cuda_ctxshare(), 0u);
    EXPECT_EQ(rm_.find(p_.cu, p_.cu_share), nullptr);
}

TEST_F(UnfitTest, TheRenderersOwnGroupsAreNoBusinessOfIt) {
    unfit_ = {Reason::kMps, 0, 0, 0};
    wish(false);
    EXPECT_TRUE(p_.notices.empty() || !p_.has_notice(Notice::Kind::kUnshared, Reason::kMps));
}

TEST_F(UnfitTest, NothingIsRememberedOfObjectsThatAreGone) {
    rm_.virtualization_mode = rm::ctrl::kVirtualizationModeVgx;
    Wishes wishes;
    wishes.attach = true;
    p_.redirector.set_wishes(wishes);
    p_.start_cuda();
    uint32_t partition = 0;
    ASSERT_EQ(use_partition(&partition), 0u);
    ASSERT_EQ(ask(p_.cu_device, rm::ctrl::kGpuGetVirtualizationMode, 8), 0u);
    finish_context();
    ASSERT_EQ(p_.free_object(kCudaFile, p_.cu, p_.cu), 0u);
    EXPECT_EQ(p_.redirector.tracked(), 0u);
}

}  // namespace
}  // namespace vuda::shim
