#include "shim/partition/partitioner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "shim/partition/testing_cuda.h"
#include "shim/partition/testing_layout_rm.h"

namespace vuda::partition {
namespace {

using testing::FakeCuda;

constexpr LaunchShape kHundredBlocks{{100, 1, 1}, {256, 1, 1}};

class PartitionerTest : public ::testing::Test, public PartitionHost {
 protected:
    PartitionerTest() { rm_.gpu = fake_.gpu; }

    // Its thread calls this object.
    void TearDown() override { partitioner_.reset(); }

    void start(bool enabled = true) {
        partitioner_ = std::make_unique<Partitioner>(*this, *page_, enabled);
        partitioner_->sharing();
    }

    uint32_t subdevice_control(uint32_t command, void* params, uint32_t size) override {
        return rm_(command, params, size);
    }
    Result<CudaDriver> cuda() override {
        if (no_cuda_) return Error{Code::kFailedPrecondition, "this process does not use CUDA", ""};
        return fake_.driver();
    }
    void managed_memory_refused() override {
        const std::lock_guard lock(mutex_);
        managed_refused_ = true;
        changed_.notify_all();
    }
    void unshared_contexts(bool on) override { fake_.unshared = on; }
    void launch_refused(uint32_t bytes, uint32_t limit) override {
        const std::lock_guard lock(mutex_);
        refused_ = {bytes, limit};
        changed_.notify_all();
    }
    void partition_state(const PartitionState& state) override {
        const std::lock_guard lock(mutex_);
        states_.push_back(state);
        changed_.notify_all();
    }

    // The next report.
    PartitionState next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return !states_.empty(); })) {
            ADD_FAILURE() << "no report";
            return {};
        }
        PartitionState state = std::move(states_.front());
        states_.pop_front();
        return state;
    }

    // A launch of the program, with its context current.
    bool masked(CuContext context) {
        CuContext popped;
        const CudaDriver cuda = fake_.driver();
        cuda.ctx_push(context);
        const bool has = FakeCuda::has_mask(fake_.launch(kHundredBlocks, QmdKind::kGrid, context));
        cuda.ctx_pop(&popped);
        return has;
    }

    FakeCuda fake_;
    testing::FakeRm rm_;
    bool no_cuda_ = false;
    int a_context_ = 0, another_context_ = 0;
    std::unique_ptr<page::Page> page_ = std::make_unique<page::Page>();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<PartitionState> states_;
    std::pair<uint32_t, uint32_t> refused_;
    bool managed_refused_ = false;
    std::unique_ptr<Partitioner> partitioner_;
};

TEST_F(PartitionerTest, ThePrimaryContextIsProvedBeforeItsFirstKernel) {
    fake_.primary = &a_context_;
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    const PartitionState waiting = next();
    EXPECT_EQ(waiting.backend, Backend::kNone);
    EXPECT_EQ(waiting.topology.tpcs.size(), 66u) << "the layout is known at once";
    EXPECT_EQ(next().backend, Backend::kQmdMask);
    EXPECT_TRUE(masked(&a_context_));
}

TEST_F(PartitionerTest, AContextThatTheProgramMadeIsProvedAtItsFirstKernel) {
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    EXPECT_EQ(next().backend, Backend::kNone);
    EXPECT_FALSE(masked(&a_context_)) << "not proved yet";
    EXPECT_EQ(next().backend, Backend::kQmdMask);
    EXPECT_TRUE(masked(&a_context_));
}

TEST_F(PartitionerTest, OnlyAsManyContextsAsVudadAdmitted) {
    fake_.primary = &a_context_;
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    next();
    EXPECT_EQ(next().backend, Backend::kQmdMask);
    EXPECT_FALSE(masked(&another_context_));
    EXPECT_TRUE(masked(&a_context_));
}

TEST_F(PartitionerTest, WhatIsGoneIsForgotten) {
    fake_.primary = &a_context_;
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    next();
    next();
    partitioner_->detached();
    EXPECT_FALSE(masked(&a_context_)) << "the address may be another context's by now";
}

TEST_F(PartitionerTest, AContextOfAnotherGpuIsLeftAlone) {
    rm_.gpu.bytes.fill(9);
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    next();
    EXPECT_FALSE(masked(&a_context_));
    EXPECT_FALSE(masked(&a_context_));
    partitioner_.reset();
    EXPECT_TRUE(states_.empty());
}

TEST_F(PartitionerTest, ReasonsAreReported) {
    rm_.order_status = rm::nv::kInsufficientPermissions;
    start();
    const PartitionState refused = next();
    EXPECT_EQ(refused.backend, Backend::kNone);
    EXPECT_TRUE(refused.topology.empty());
    EXPECT_NE(refused.reason.text, "");
}

TEST_F(PartitionerTest, WithoutCudaTheLayoutIsReportedAllTheSame) {
    no_cuda_ = true;
    start();
    const PartitionState state = next();
    EXPECT_EQ(state.backend, Backend::kNone);
    EXPECT_EQ(state.topology.tpcs.size(), 66u);
    EXPECT_NE(state.reason.text.find("CUDA"), std::string::npos);
}

TEST_F(PartitionerTest, SwitchedOff) {
    start(false);
    EXPECT_NE(next().reason.text.find("VUDA_PARTITION"), std::string::npos);
    EXPECT_FALSE(fake_.enabled);
}

TEST_F(PartitionerTest, AFailedProofIsTheEndOfIt) {
    fake_.primary = &a_context_;
    fake_.quirks.ignores_mask = true;
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    next();
    const PartitionState failed = next();
    EXPECT_EQ(failed.backend, Backend::kNone);
    EXPECT_NE(failed.reason.text.find("masked"), std::string::npos);
    fake_.quirks.ignores_mask = false;
    EXPECT_FALSE(masked(&a_context_));
}

TEST_F(PartitionerTest, ASurpriseLaterIsReported) {
    fake_.primary = &a_context_;
    page::SplitWriter(page_->daemon).publish({1, page::SplitMode::kInterSm, 65, {uint64_t{1} << 6}});
    start();
    next();
    EXPECT_EQ(next().backend, Backend::kQmdMask);
    fake_.quirks.descriptor_version = 0x41;
    EXPECT_FALSE(masked(&a_context_));
    const PartitionState off = next();
    EXPECT_EQ(off.backend, Backend::kNone);
    EXPECT_NE(off.reason.text.find("version"), std::string::npos);
}

TEST_F(PartitionerTest, ItEndsInTheMiddleOfAnything) {
    start();
    partitioner_.reset();
    partitioner_ = std::make_unique<Partitioner>(*this, *page_, true);
    partitioner_.reset();
}

TEST_F(PartitionerTest, TheFirstRefusedKernelIsTold) {
    fake_.primary = &a_context_;
    start();
    PartitionState state = next();
    while (state.backend != Backend::kQmdMask) state = next();
    EXPECT_EQ(state.shared_limit, 49'152u) << "compute capability 9.0";
    const CudaDriver cuda = fake_.driver();
    cuda.ctx_push(&a_context_);
    for (const uint32_t shared : {66'560u, 232'448u}) {
        EXPECT_EQ(
            fake_.call(FakeCuda::kLaunchKernel, &a_context_,
                       [&] { fake_.launch(kHundredBlocks, QmdKind::kGrid, &a_context_, nullptr, {}, 1, shared); }),
            limits::kLaunchOutOfResources);
    }
    CuContext popped;
    cuda.ctx_pop(&popped);
    {
        std::unique_lock lock(mutex_);
        ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return refused_.first != 0; }));
    }
    const Refusals all = partitioner_->refusals();
    EXPECT_EQ(all.count, 2u);
    EXPECT_EQ(all.bytes, 66'560u);
    EXPECT_EQ(all.limit, 49'152u);
    partitioner_.reset();
    EXPECT_EQ(refused_, (std::pair<uint32_t, uint32_t>{66'560, 49'152}));
}

TEST_F(PartitionerTest, RefusedManagedMemoryIsTold) {
    fake_.primary = &a_context_;
    start();
    while (next().backend != Backend::kQmdMask) {
    }
    CuDevicePtr memory = 0;
    EXPECT_EQ(fake_.allocate_managed(&a_context_, &memory), limits::kNotSupported);
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return managed_refused_; }));
}

TEST_F(PartitionerTest, TheProcessChoosesWhatBecomesOfKernelsThatDoNotFit) {
    fake_.primary = &a_context_;
    start();
    PartitionState state = next();
    while (state.backend != Backend::kQmdMask) state = next();
    EXPECT_EQ(state.native_launches, 0u);
    const CudaDriver cuda = fake_.driver();
    cuda.ctx_push(&a_context_);
    std::array<uint32_t, 3> out{};
    auto memory = reinterpret_cast<CuDevicePtr>(out.data());
    void* parameters[] = {&memory};
    int kernel = 0;
    const CuLaunchConfig config{{4, 1, 1}, {32, 1, 1}, 100'000, nullptr, nullptr, 0};
    const auto launch = [&] { return fake_.launch_native(config, &kernel, parameters); };
    EXPECT_EQ(launch(), 0) << "natively, where nothing was said";
    while (state.native_launches == 0) state = next();
    EXPECT_EQ(state.native_reason, "");
    EXPECT_EQ(state.backend, Backend::kQmdMask);
    partitioner_->over_limit(limits::OverLimit::kReject);
    // It takes effect on the partitioner's thread.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (launch() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(launch(), limits::kLaunchOutOfResources);
    partitioner_->over_limit(limits::OverLimit::kNative);
    while (launch() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(launch(), 0);
    CuContext popped;
    cuda.ctx_pop(&popped);
}

}  // namespace
}  // namespace vuda::partition
