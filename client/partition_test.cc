// The session page, and what a session says about splits.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "client/fake_daemon.h"
#include "client/partition_client.h"
#include "client/session.h"
#include "client/test_support.h"
#include "shim/partition/testing_cuda.h"
#include "shim/partition/testing_layout_rm.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kAll = kFeatureShare | kFeatureExportRefresh | kFeatureSharedPage | kFeatureQuota | kFeatureSlo;
const Uuid kCard{{1, 2, 3}};

class PageHost : public SessionHost {
 public:
    Result<HandleSet> export_host(uint64_t) override { return Error{Code::kUnimplemented, "no TSG here", ""}; }
    void detach_command(const Error&) override {}
    void guard_fd(int, bool) override {}
    void register_failed(const Error&) override {}
    Status page_received(int fd, uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        Result<page::PageMapping> mapped = page::PageMapping::of_received(fd, bytes);
        ++pages_;
        changed_.notify_all();
        return mapped ? Status() : Status(mapped.error());
    }
    bool wait_for_pages(int count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 10s, [&] { return pages_ >= count; });
    }

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int pages_ = 0;
};

class PartitionSession : public testing::Test {
 protected:
    PartitionSession() {
        daemon_.script([](auto& script) { script.features = kAll; });
    }
    Session& session() {
        if (!session_) {
            session_ = std::make_unique<Session>(SessionOptions{dir_ / "handles.sock", "0.1.0", "580.159.04", "test"},
                                                 host_, reporter_);
        }
        return *session_;
    }
    bool answered(const std::string& text) {
        const Deadline end = deadline_in(10s);
        while (session().partition_answer().text != text) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::yield();
        }
        return true;
    }

    TempDir dir_;
    FakeDaemon daemon_{dir_ / "handles.sock"};
    PageHost host_;
    Reporter reporter_{LogLevel::kOff};
    std::unique_ptr<Session> session_;
};

TEST_F(PartitionSession, ThePageComesWithEachGreeting) {
    Result<UniqueFd> page = page::make_page_fd();
    ASSERT_TRUE(page);
    daemon_.script([&](auto& script) {
        script.page_bytes = page::kPageBytes;
        script.page_fd = page->get();
    });
    session().set_registration("game", kCard);
    ASSERT_TRUE(host_.wait_for_pages(1));
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.registers.size() == 1; }));
    daemon_.drop_sessions();
    EXPECT_TRUE(host_.wait_for_pages(2));
}

TEST_F(PartitionSession, APageThatIsAnnouncedAndMissingEndsNothing) {
    daemon_.script([](auto& script) { script.page_bytes = page::kPageBytes; });
    session().set_registration("game", kCard);
    EXPECT_TRUE(daemon_.wait_for([](const auto& r) { return r.registers.size() == 1; }));
}

TEST_F(PartitionSession, WishesGoOutOnceThereIsATsg) {
    session().set_mode(partition::Mode::kInterSm);
    session().set_quota({QuotaWish::Kind::kTpcs, 40});
    session().set_registration("game", kCard);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.modes.size() == 1 && r.quotas.size() == 1; }));
    const auto record = daemon_.record();
    EXPECT_EQ(record.registers.size(), 1u);
    EXPECT_EQ(record.modes[0].mode(), v1::MODE_INTER_SM);
    EXPECT_EQ(record.modes[0].name(), "");
    EXPECT_EQ(record.quotas[0].tpcs(), 40u);
    EXPECT_TRUE(answered("quota noted"));
}

TEST_F(PartitionSession, TheLastWordCountsAndIsRepeatedToTheNextVudad) {
    session().set_registration("game", kCard);
    session().set_quota({QuotaWish::Kind::kAutomatic, 0});
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.quotas.size() == 1 && r.quotas[0].automatic(); }));
    session().set_quota({QuotaWish::Kind::kNone, 0});
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.quotas.size() == 2 && r.quotas[1].none(); }));
    daemon_.drop_sessions();
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.quotas.size() == 3; }));
    EXPECT_TRUE(daemon_.record().quotas[2].none());
}

TEST_F(PartitionSession, TargetsGoOutOnceThereIsATsgAndToTheNextVudad) {
    session().set_targets({16.67, 0.01, 0, 0, 0, 0});
    session().set_targets({16.67, 0.02, 33.3, 0.05, 500, 2});
    session().set_registration("game", kCard);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return !r.targets.empty(); }));
    const v1::SetTargetsRequest sent = daemon_.record().targets.back();
    EXPECT_EQ(daemon_.record().targets.size(), 1u) << "the last word counts";
    EXPECT_EQ(sent.frame_ms(), 16.67);
    EXPECT_EQ(sent.frame_miss(), 0.02);
    EXPECT_EQ(sent.latency_ms(), 33.3);
    EXPECT_EQ(sent.latency_miss(), 0.05);
    EXPECT_EQ(sent.throughput(), 500);
    EXPECT_EQ(sent.weight(), 2);
    EXPECT_TRUE(answered("targets noted"));
    session().set_targets({});
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.targets.size() == 2; }));
    EXPECT_EQ(daemon_.record().targets[1].ByteSizeLong(), 0u);
    daemon_.drop_sessions();
    EXPECT_TRUE(daemon_.wait_for([](const auto& r) { return r.targets.size() == 3; }));
}

TEST_F(PartitionSession, AVudadWithoutTargetsIsNotAsked) {
    daemon_.script([](auto& script) { script.features = kAll & ~kFeatureSlo; });
    session().set_targets({16.67, 0.01, 0, 0, 0, 0});
    session().set_registration("game", kCard);
    EXPECT_TRUE(answered("this vudad knows no targets"));
    EXPECT_EQ(session().partition_answer().code, Code::kUnimplemented);
    EXPECT_TRUE(daemon_.record().targets.empty());
}

TEST_F(PartitionSession, ARefusalIsKept) {
    daemon_.script([](auto& script) {
        script.partition_error.emplace();
        script.partition_error->set_code(3);
        script.partition_error->set_text("67 TPCs are more than this GPU has");
    });
    session().set_registration("game", kCard);
    session().set_quota({QuotaWish::Kind::kTpcs, 67});
    ASSERT_TRUE(answered("67 TPCs are more than this GPU has"));
    EXPECT_EQ(session().partition_answer().code, Code::kInvalidArgument);
}

TEST_F(PartitionSession, AnOlderVudadIsNotAsked) {
    daemon_.script([](auto& script) { script.features = kFeatureShare; });
    session().set_partition_state({partition::Backend::kNone, {Code::kUnavailable, "x", ""}, {}});
    session().set_quota({QuotaWish::Kind::kTpcs, 8});
    session().set_registration("game", kCard);
    const Deadline end = deadline_in(10s);
    while (session().partition_answer().code != Code::kUnimplemented && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    EXPECT_EQ(session().partition_answer().code, Code::kUnimplemented);
    EXPECT_TRUE(daemon_.record().quotas.empty());
    EXPECT_TRUE(daemon_.record().partitions.empty());
    EXPECT_EQ(daemon_.record().bad_frames, 0u);
}

TEST_F(PartitionSession, TheReportIsRepeatedWithItsLayout) {
    partition::PartitionState state{
        partition::Backend::kQmdMask, {Code::kOk, "", ""}, partition::testing::card_layout().topology};
    session().set_partition_state(state);
    session().set_registration("game", kCard);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.partitions.size() == 1; }));
    const v1::PartitionReport report = daemon_.record().partitions[0];
    EXPECT_EQ(report.backend(), v1::BACKEND_QMD_MASK);
    EXPECT_FALSE(report.has_reason());
    ASSERT_EQ(report.topology().tpcs_size(), 66);
    EXPECT_TRUE(report.topology().tpcs(30).graphics());
    EXPECT_EQ(report.topology().tpcs(65).sms(1), 131u);
    EXPECT_EQ(report.topology().tpcs(0).gpc(), 1u);
    state.backend = partition::Backend::kNone;
    state.reason = {Code::kFailedPrecondition, "switched off", ""};
    session().set_partition_state(state);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.partitions.size() == 2; }));
    EXPECT_EQ(daemon_.record().partitions[1].reason().text(), "switched off");
    EXPECT_EQ(daemon_.record().partitions[1].over_limit(), v1::OVER_LIMIT_NATIVE);
    EXPECT_EQ(daemon_.record().partitions[1].native_reason(), "");
    daemon_.drop_sessions();
    EXPECT_TRUE(daemon_.wait_for([](const auto& r) { return r.partitions.size() == 3; }));
}

TEST_F(PartitionSession, WhatBecomesOfLargeKernelsIsReported) {
    partition::PartitionState state;
    state.backend = partition::Backend::kQmdMask;
    state.shared_limit = 49'152;
    state.over_limit = limits::OverLimit::kUnshare;
    state.native_launches = uint64_t{1} << 40;
    state.native_reason = "one\nline, however long it is: " + std::string(400, 'x');
    session().set_partition_state(state);
    session().set_registration("game", kCard);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.partitions.size() == 1; }));
    const v1::PartitionReport report = daemon_.record().partitions[0];
    EXPECT_EQ(report.shared_memory_limit(), 49'152u);
    EXPECT_EQ(report.over_limit(), v1::OVER_LIMIT_UNSHARE);
    EXPECT_EQ(report.native_launches(), uint64_t{1} << 40);
    EXPECT_EQ(report.native_reason().size(), 255u);
    EXPECT_EQ(report.native_reason().find('\n'), std::string::npos);
    partition::PartitionState other = state;
    EXPECT_TRUE(other == state);
    other.native_launches += 1;
    EXPECT_FALSE(other == state);
}

// ---- The parts together, with a CUDA of our own

class PartitionClientTest : public testing::Test {
 protected:
    PartitionClientTest() {
        rm_.gpu = cuda_.gpu;
        cuda_.primary = &context_;
        callbacks_.context = this;
        callbacks_.subdevice_control = [](void* self, uint32_t command, void* params, uint32_t size) {
            return static_cast<PartitionClientTest*>(self)->rm_(command, params, size);
        };
        client_ = std::make_unique<PartitionClient>(
            callbacks_,
            [this](const partition::PartitionState& state) {
                const std::lock_guard lock(mutex_);
                backend_ = state.backend;
                policies_.push_back(state.over_limit);
                changed_.notify_all();
            },
            [this]() -> Result<partition::CudaDriver> { return cuda_.driver(); },
            [this](uint32_t bytes, uint32_t) {
                const std::lock_guard lock(mutex_);
                refused_.push_back(bytes);
                changed_.notify_all();
            });
    }
    bool proved() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 30s, [&] { return backend_ == partition::Backend::kQmdMask; });
    }
    bool masked() {
        const auto qmd = cuda_.launch({{9, 1, 1}, {64, 1, 1}}, partition::QmdKind::kGrid, &context_);
        return partition::testing::FakeCuda::has_mask(qmd);
    }

    partition::testing::FakeCuda cuda_;
    partition::testing::FakeRm rm_;
    int context_ = 0;
    vuda_private_callbacks callbacks_{};
    std::mutex mutex_;
    std::condition_variable changed_;
    partition::Backend backend_ = partition::Backend::kUnspecified;
    std::vector<limits::OverLimit> policies_;  // of each report
    std::vector<uint32_t> refused_;            // bytes, as the program's side is told
    std::unique_ptr<PartitionClient> client_;
};

TEST_F(PartitionClientTest, RefusedKernelsAreToldOnceForEachContextThatShares) {
    Result<UniqueFd> fd = page::make_page_fd();
    client_->over_limit(limits::OverLimit::kUnshare);
    ASSERT_TRUE(client_->page_received(fd->get(), page::kPageBytes));
    client_->sharing_began();
    ASSERT_TRUE(proved());
    EXPECT_FALSE(client_->untold_refusal());
    const partition::CudaDriver cuda = cuda_.driver();
    const auto launch = [&](uint32_t shared) {
        cuda.ctx_push(&context_);
        const int result = cuda_.call(partition::testing::FakeCuda::kLaunchKernel, &context_, [&] {
            cuda_.launch({{9, 1, 1}, {64, 1, 1}}, partition::QmdKind::kGrid, &context_, nullptr, {}, 1, shared);
        });
        partition::CuContext popped = nullptr;
        cuda.ctx_pop(&popped);
        return result;
    };
    const auto told = [&](size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 30s, [&] { return refused_.size() >= count; });
    };
    EXPECT_EQ(launch(40'000), 0);
    EXPECT_EQ(launch(66'560), 701);
    ASSERT_TRUE(told(1));
    EXPECT_EQ(launch(70'000), 701);
    EXPECT_FALSE(client_->untold_refusal()) << "it is told";
    // Another one begins to share, of which nothing is refused: what was before is no news.
    client_->sharing_began();
    EXPECT_FALSE(client_->untold_refusal());
    EXPECT_EQ(launch(66'560), 701);
    ASSERT_TRUE(told(2));
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(refused_, (std::vector<uint32_t>{66'560, 66'560}));
}

TEST_F(PartitionClientTest, ThePolicyIsPartOfEachReport) {
    using limits::OverLimit;
    client_->over_limit(OverLimit::kReject);
    EXPECT_TRUE(policies_.empty()) << "before there is anything to report";
    Result<UniqueFd> fd = page::make_page_fd();
    ASSERT_TRUE(client_->page_received(fd->get(), page::kPageBytes));
    client_->sharing_began();
    ASSERT_TRUE(proved());
    {
        const std::lock_guard lock(mutex_);
        ASSERT_FALSE(policies_.empty());
        for (const OverLimit policy : policies_) EXPECT_EQ(policy, OverLimit::kReject);
        policies_.clear();
    }
    client_->over_limit(OverLimit::kReject);
    EXPECT_TRUE(policies_.empty()) << "no news";
    client_->over_limit(OverLimit::kUnshare);
    EXPECT_EQ(policies_, std::vector<OverLimit>{OverLimit::kUnshare});
    EXPECT_EQ(client_->view().state.over_limit, OverLimit::kUnshare);
    EXPECT_EQ(client_->view().state.backend, partition::Backend::kQmdMask);
}

TEST_F(PartitionClientTest, FromThePageIntoTheLaunch) {
    Result<UniqueFd> fd = page::make_page_fd();
    Result<page::PageMapping> own = page::PageMapping::of_own(fd->get());
    ASSERT_TRUE(own);
    client_->sharing_began();  // before the page came
    EXPECT_EQ(client_->page(), nullptr);
    ASSERT_TRUE(client_->page_received(fd->get(), page::kPageBytes));
    ASSERT_TRUE(proved());
    EXPECT_FALSE(masked());
    page::SplitWriter((*own)->daemon)
        .publish({3, page::SplitMode::kInterSm, 64, {uint64_t{1} << 6 | uint64_t{1} << 30}});
    EXPECT_TRUE(masked());
    const PartitionView view = client_->view();
    EXPECT_EQ(view.split.generation, 3u);
    EXPECT_EQ(view.split.applied_tpcs, 64u);
    EXPECT_EQ(view.launches, 2u);
    EXPECT_EQ(page::SampleReader(**own).applied_generation(), 3u);

    // Another vudad: nothing was asked of it yet.
    Result<UniqueFd> next = page::make_page_fd();
    ASSERT_TRUE(client_->page_received(next->get(), page::kPageBytes));
    EXPECT_FALSE(masked());
    EXPECT_FALSE(client_->page_received(next->get(), 5)) << "a page of another size leaves the last one in place";
    client_->sharing_ended();
    EXPECT_FALSE(masked());
}

TEST(Steps, BeginsAndEndsFindEachOther) {
    Steps steps;
    EXPECT_FALSE(steps.end(1, 10));
    steps.begin(1, 100);
    steps.begin(2, 150);
    EXPECT_EQ(steps.end(1, 300), 200u);
    EXPECT_EQ(steps.end(2, 300), 150u);
    EXPECT_FALSE(steps.end(2, 300)) << "once";
    steps.begin(3, 100);
    steps.begin(3 + 256, 200);
    EXPECT_FALSE(steps.end(3, 300)) << "too many are open";
    EXPECT_EQ(steps.end(3 + 256, 300), 100u);
}

}  // namespace
}  // namespace vuda::client
