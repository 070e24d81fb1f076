// The loop that takes a call through the redirector, with redirectors that are wrong or slow: the program's call is
// made all the same, once.
#include "shim/preload/call_runner.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

namespace vuda::shim {
namespace {

class Runner : public testing::Test, public RedirectorAccess, public Executor, public Attacher, public Forwarder {
 protected:
    static Plan plan(Plan::Disposition disposition) {
        Plan made;
        made.disposition = disposition;
        return made;
    }
    int run() {
        Call call;
        call.arg = arg_;
        return run_call(*this, *this, *this, *this, call);
    }

    Plan before(const Call&) override { return first_; }
    Plan attached(const Plan&, const Call&, const Offer&) override { return plan(Plan::Disposition::kAttach); }
    Plan refused(const Plan& plan, const Call&, size_t, std::span<const ActionResult>) override { return plan; }
    Plan after(const Plan&, const Call&, const Outcome&, std::span<const ActionResult>) override { return after_; }
    void abandoned(const Plan&) override { ++abandoned_; }
    Plan wait(const Plan&, const Call&) override { return plan(Plan::Disposition::kForward); }
    ActionResult run(const Action&) override {
        ++actions_;
        return {.status = action_status_};
    }
    Offer attach(const AttachWish&) override { return {}; }
    void release(Offer*) override {}
    int forward() override {
        ++forwards_;
        errno = EAGAIN;
        return answer_;
    }
    int forward_copy(std::span<uint8_t>, std::span<uint8_t>) override {
        ++copies_;
        return 0;
    }
    bool read(Edit::Where, std::span<uint8_t>) override { return true; }
    bool write(Edit::Where, size_t, std::span<const uint8_t>) override { return true; }
    size_t pointer_offset() const override { return 0; }

    std::vector<uint8_t> arg_ = std::vector<uint8_t>(16);
    Plan first_;
    Plan after_ = plan(Plan::Disposition::kDone);
    int answer_ = 0;
    uint32_t action_status_ = 0;
    int forwards_ = 0, copies_ = 0, abandoned_ = 0, actions_ = 0;
};

TEST_F(Runner, OnePlanOneCall) {
    errno = 7;
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(errno, 7) << "a call that succeeds leaves it alone";
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 0);
    answer_ = -1;
    EXPECT_EQ(run(), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Runner, WhatWaitedIsMade) {
    first_ = plan(Plan::Disposition::kWait);
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 0);
}

TEST_F(Runner, APlanWithoutEndIsGivenUpAndTheCallIsMade) {
    first_ = plan(Plan::Disposition::kAttach);
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 1);
}

TEST_F(Runner, AnActionThatIsRefusedForEver) {
    first_.before.emplace_back(FreeObject{});
    first_.on_failure = Plan::OnFailure::kUndo;
    action_status_ = 1;
    answer_ = -1;
    EXPECT_EQ(run(), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 1);
}

TEST_F(Runner, ACopyThatIsSentAgainForEver) {
    first_.edits.push_back({Edit::Where::kArg, 0, 4, 1, 0});
    after_ = first_;
    EXPECT_EQ(run(), 0);
    EXPECT_GT(copies_, 1);
    EXPECT_EQ(forwards_, 1) << "nothing of the copies is in the program's memory";
    EXPECT_EQ(abandoned_, 1);
}

TEST_F(Runner, AnEditOutsideOfItsBlock) {
    first_.edits.push_back({Edit::Where::kArg, 14, 4, 1, 0});
    first_.before.emplace_back(DupObject{});
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(copies_, 0);
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 1);
    EXPECT_EQ(actions_, 2) << "what was done is undone";
}

TEST_F(Runner, AnAnswerWithoutAPlaceForIt) {
    first_ = plan(Plan::Disposition::kAnswer);
    first_.status_offset = 14;
    first_.before.emplace_back(DupObject{});
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(forwards_, 1);
    EXPECT_EQ(abandoned_, 1);
    EXPECT_EQ(actions_, 2);
    first_.status_offset = 4;
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(forwards_, 1) << "it is answered";
}

TEST_F(Runner, NothingToDoForACallThatWasNotMade) {
    first_ = plan(Plan::Disposition::kDone);
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(forwards_, 1);
}

}  // namespace
}  // namespace vuda::shim
