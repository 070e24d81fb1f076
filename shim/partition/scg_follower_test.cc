#include "shim/partition/scg_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "proto/page/page_memory.h"
#include "proto/page/split_wait.h"

namespace vuda::partition {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

class ScgFollowerTest : public ::testing::Test {
 protected:
    ScgFollowerTest() {
        fd_ = *page::make_page_fd();
        daemon_ = *page::PageMapping::of_own(fd_.get());
        process_ = *page::PageMapping::of_received(fd_.get(), page::kPageBytes);
        writer_.emplace(daemon_->daemon);
    }

    void publish(page::SplitMode mode, uint32_t tpcs) {
        page::Split split;
        split.generation = ++generation_;
        split.mode = mode;
        split.applied_tpcs = tpcs;
        writer_->publish(split);
        page::wake_split_waiters(daemon_->daemon);
    }
    ScgFollower::Host host() {
        return {[this](const std::vector<Method>& methods) -> Status {
                    const std::lock_guard lock(mutex_);
                    sent_.push_back(methods);
                    changed_.notify_all();
                    if (refuse_) return Error{Code::kDataLoss, "the channel died: Xid 11", ""};
                    return {};
                },
                [this](const Error& error) {
                    const std::lock_guard lock(mutex_);
                    failed_ = error;
                    changed_.notify_all();
                }};
    }
    bool wait_sent(size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 10s, [&] { return sent_.size() >= count; });
    }
    bool wait_applied() {
        const auto end = std::chrono::steady_clock::now() + 10s;
        while (process_->process.applied.load() != generation_) {
            if (std::chrono::steady_clock::now() > end) return false;
            ::usleep(1000);
        }
        return true;
    }

    UniqueFd fd_;
    page::PageMapping daemon_;
    page::PageMapping process_;
    std::optional<page::SplitWriter> writer_;
    uint64_t generation_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::vector<Method>> sent_;
    std::optional<Error> failed_;
    bool refuse_ = false;
};

TEST_F(ScgFollowerTest, SendsEachSplitAndSaysThatItIsInForce) {
    ScgFollower follower(*process_, 0xc9c0, 2, host());
    ASSERT_TRUE(follower.start().ok());
    publish(page::SplitMode::kInterSm, 22);
    ASSERT_TRUE(wait_sent(1));
    EXPECT_TRUE(wait_applied());
    publish(page::SplitMode::kInterSm, 33);
    ASSERT_TRUE(wait_sent(2));
    publish(page::SplitMode::kIntraSm, 64);
    ASSERT_TRUE(wait_sent(3));
    EXPECT_TRUE(wait_applied());
    EXPECT_THAT(sent_[0], ElementsAre(Method{kSetSmScgControl, 0}, Method{kSetScgControl, 44u << 12 | 44}));
    EXPECT_THAT(sent_[1], ElementsAre(Method{kSetSmScgControl, 0}, Method{kSetScgControl, 66u << 12 | 66}));
    EXPECT_THAT(sent_[2], ElementsAre(Method{kSetSmScgControl, 1}, Method{kSetScgControl, 511}));
}

TEST_F(ScgFollowerTest, TouchesNothingBeforeSomebodyAsksForALimit) {
    ScgFollower follower(*process_, 0xc9c0, 2, host());
    ASSERT_TRUE(follower.start().ok());
    publish(page::SplitMode::kIntraSm, 64);
    EXPECT_TRUE(wait_applied());
    publish(page::SplitMode::kUnspecified, 0);
    EXPECT_TRUE(wait_applied());
    EXPECT_TRUE(sent_.empty());
}

TEST_F(ScgFollowerTest, StopsForGoodWhenTheGpuRefuses) {
    refuse_ = true;
    {
        ScgFollower follower(*process_, 0xc9c0, 2, host());
        ASSERT_TRUE(follower.start().ok());
        publish(page::SplitMode::kInterSm, 22);
        std::unique_lock lock(mutex_);
        ASSERT_TRUE(changed_.wait_for(lock, 10s, [&] { return failed_.has_value(); }));
        lock.unlock();
        publish(page::SplitMode::kInterSm, 33);
    }
    EXPECT_EQ(sent_.size(), 1u);
    EXPECT_EQ(process_->process.applied.load(), 0u);
}

}  // namespace
}  // namespace vuda::partition
