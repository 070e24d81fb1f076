// What a session does when a TSG of its process dies.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <sstream>

#include "client/fake_daemon.h"
#include "client/session.h"
#include "client/test_support.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const Uuid kFaultGpu{{1, 2, 3}};

// Its notifiers: the next look finds what was written.
class Notifiers : public SessionHost {
 public:
    Result<HandleSet> export_host(uint64_t) override { return Error{Code::kUnimplemented, "not here", ""}; }
    void detach_command(const Error&) override {}
    void guard_fd(int, bool) override {}
    void register_failed(const Error&) override {}
    Faults look_for_faults() override {
        ++looks_;
        if (const Session* session = session_; session != nullptr)
            ++(session->snapshot().state == SharingState::kSharing ? looks_sharing_ : looks_unshared_);
        Faults found;
        found.own_xid = own_.exchange(0);
        found.own = found.own_xid != 0;
        found.shared_xid = shared_.exchange(0);
        found.shared = found.shared_xid != 0;
        found.replays = stuck_.exchange(0);
        found.stuck = found.replays != 0;
        found.stuck_over = stuck_over_.exchange(false);
        return found;
    }
    std::atomic<uint32_t> own_{0};
    std::atomic<uint32_t> shared_{0};
    std::atomic<uint32_t> stuck_{0};  // replays a second
    std::atomic<bool> stuck_over_{false};
    std::atomic<int> looks_{0};
    std::atomic<const Session*> session_{nullptr};  // set: what it did at a look
    std::atomic<int> looks_sharing_{0};
    std::atomic<int> looks_unshared_{0};
};

class SessionFaults : public testing::Test {
 protected:
    SessionFaults()
        : log_(::open((dir_ / "log").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600)),
          reporter_(LogLevel::kError, log_.get()),
          daemon_(dir_ / "handles.sock"),
          session_(SessionOptions{dir_ / "handles.sock", "0.1.0", "580.159.04", "test"}, host_, reporter_) {
        daemon_.script([](auto& script) { script.features = kFeatureShare | kFeatureFaults | kFeatureStuck; });
    }

    bool wait_state(SharingState state) {
        const auto until = std::chrono::steady_clock::now() + 10s;
        while (session_.snapshot().state != state && std::chrono::steady_clock::now() < until) ::usleep(1000);
        return session_.snapshot().state == state;
    }
    void own() {
        session_.set_registration("game", kFaultGpu);
        ASSERT_TRUE(wait_state(SharingState::kRegistered));
    }
    void begin_to_share() { ASSERT_TRUE(session_.attach("game", kFaultGpu, 8, 10s).ok()); }
    void share() {
        begin_to_share();
        end_of_attach();
        ASSERT_TRUE(wait_state(SharingState::kSharing));
    }
    void end_of_attach() {
        AttachOutcome outcome;
        outcome.state = SharingState::kSharing;
        outcome.channels_moved = 8;
        session_.attach_done(outcome);
    }
    static bool wait_looks(const std::atomic<int>& looks) {
        const auto until = std::chrono::steady_clock::now() + 10s;
        while (looks == 0 && std::chrono::steady_clock::now() < until) ::usleep(1000);
        return looks > 0;
    }
    bool wait_faults(size_t count) {
        return daemon_.wait_for([count](const auto& record) { return record.faults.size() >= count; });
    }
    void notice(bool look, const std::string& text = "the TSG 'game' died: Xid 13; taken for the cause: /bin/other") {
        v1::ServerMessage message;
        message.mutable_fault_notice()->set_name("game");
        message.mutable_fault_notice()->set_text(text);
        message.mutable_fault_notice()->set_look(look);
        daemon_.send(message);
    }
    std::string said() const {
        std::ostringstream text;
        text << std::ifstream(dir_ / "log").rdbuf();
        return text.str();
    }

    TempDir dir_;
    UniqueFd log_;
    Reporter reporter_;
    Notifiers host_;
    FakeDaemon daemon_;
    Session session_;
};

TEST_F(SessionFaults, AnOwnerSaysItOnceAndDoesNotRegisterTheDead) {
    own();
    host_.own_ = 31;
    ASSERT_TRUE(wait_faults(1));
    EXPECT_EQ(daemon_.record().faults[0].name(), "game");
    EXPECT_EQ(daemon_.record().faults[0].xid(), 31u);
    EXPECT_EQ(daemon_.record().faults[0].kind(), v1::FAULT_KIND_CHANNEL);
    EXPECT_TRUE(wait_state(SharingState::kFaulted));
    session_.device_lost();
    EXPECT_EQ(said(),
              "vuda: the TSG 'game' died: Xid 31 (MMU fault); what this program had in it is lost (docs/faults.md)\n");
    // Not the next vudad either: it is told what is so.
    const size_t reports = daemon_.record().reports.size();
    daemon_.drop_sessions();
    ASSERT_TRUE(daemon_.wait_for([&](const auto& record) { return record.reports.size() > reports; }));
    EXPECT_EQ(daemon_.record().reports.back().state(), v1::SHARING_STATE_FAULTED);
    EXPECT_EQ(daemon_.record().registers.size(), 1u);
    EXPECT_EQ(daemon_.record().unregisters.size(), 0u) << "the name is its own";
    EXPECT_EQ(daemon_.record().faults.size(), 1u);
    // A TSG that works is another matter.
    session_.set_registration("game", kFaultGpu);
    ASSERT_TRUE(daemon_.wait_for([](const auto& record) { return record.registers.size() == 2; }));
    EXPECT_TRUE(wait_state(SharingState::kRegistered));
    host_.own_ = 13;
    EXPECT_TRUE(wait_faults(2));
}

TEST_F(SessionFaults, ALostDeviceIsReportedAtOnce) {
    own();
    session_.device_lost();
    ASSERT_TRUE(wait_faults(1));
    EXPECT_EQ(daemon_.record().faults[0].kind(), v1::FAULT_KIND_DEVICE_LOST);
    EXPECT_THAT(said(), HasSubstr("the TSG 'game' died: the device was lost"));
}

TEST_F(SessionFaults, ALostDeviceHasTheNumberThatTheNotifierHas) {
    own();
    host_.own_ = 13;
    session_.device_lost();
    ASSERT_TRUE(wait_faults(1));
    EXPECT_EQ(daemon_.record().faults[0].xid(), 13u);
}

TEST_F(SessionFaults, ALostDeviceOfAProcessThatSharesNothingIsItsOwnAffair) {
    session_.connect_ahead("game");
    ASSERT_TRUE(daemon_.wait_for([](const auto& record) { return record.sessions == 1; }));
    session_.device_lost();
    EXPECT_EQ(daemon_.record().faults.size(), 0u);
    EXPECT_EQ(said(), "");
}

TEST_F(SessionFaults, OneThatSharesSaysItOnceAndMayAttachAgain) {
    share();
    host_.shared_ = 13;
    ASSERT_TRUE(wait_faults(1));
    EXPECT_TRUE(wait_state(SharingState::kFaulted));
    EXPECT_EQ(session_.snapshot().channels, 0u);
    notice(false);
    // Before the next attach is granted, as on any one connection.
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (session_.snapshot().reason.text.find("/bin/other") == std::string::npos &&
           std::chrono::steady_clock::now() < until)
        ::usleep(1000);
    EXPECT_THAT(session_.snapshot().reason.text, HasSubstr("/bin/other"));
    share();
    EXPECT_EQ(session_.snapshot().channels, 8u);
    host_.shared_ = 31;
    ASSERT_TRUE(wait_faults(2));
    EXPECT_EQ(daemon_.record().faults[1].xid(), 31u);
}

TEST_F(SessionFaults, WhoEndsLooksOnceMore) {
    share();
    host_.shared_ = 13;
    session_.ending();
    EXPECT_TRUE(wait_faults(1));
}

TEST_F(SessionFaults, WhatVudadSaysIsBelievedAndSaidOnce) {
    share();
    notice(false);
    notice(false);
    ASSERT_TRUE(wait_state(SharingState::kFaulted));
    EXPECT_EQ(session_.snapshot().channels, 0u);
    EXPECT_THAT(session_.snapshot().reason.text, HasSubstr("taken for the cause: /bin/other"));
    // Its own notifiers say the same a moment later.
    host_.shared_ = 13;
    session_.ending();
    const std::string text = said();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(SessionFaults, AnOwnerThatIsAskedToLookLooksAtOnce) {
    own();
    notice(true);
    const int before = host_.looks_;
    host_.own_ = 69;
    notice(true);
    ASSERT_TRUE(wait_faults(1));
    EXPECT_GT(host_.looks_.load(), before);
    EXPECT_EQ(daemon_.record().faults[0].xid(), 69u);
}

TEST_F(SessionFaults, AFaultWhileChannelsAreBeingMoved) {
    begin_to_share();
    host_.shared_ = 13;
    ASSERT_TRUE(wait_faults(1));
    EXPECT_EQ(daemon_.record().faults[0].name(), "game");
    end_of_attach();
    EXPECT_EQ(session_.snapshot().state, SharingState::kFaulted);
    EXPECT_EQ(session_.snapshot().channels, 0u);
}

TEST_F(SessionFaults, OneThatIsStuckSaysItInALineAndToVudadAndSharesOn) {
    share();
    host_.stuck_ = 45'000;
    ASSERT_TRUE(wait_faults(1));
    EXPECT_EQ(daemon_.record().faults[0].kind(), v1::FAULT_KIND_STUCK);
    EXPECT_EQ(daemon_.record().faults[0].name(), "game");
    EXPECT_EQ(daemon_.record().faults[0].text(), "45000 a second");
    EXPECT_FALSE(daemon_.record().faults[0].over());
    EXPECT_EQ(session_.snapshot().state, SharingState::kSharing);
    EXPECT_EQ(session_.snapshot().channels, 8u);
    host_.stuck_over_ = true;
    ASSERT_TRUE(wait_faults(2));
    EXPECT_EQ(daemon_.record().faults[1].kind(), v1::FAULT_KIND_STUCK);
    EXPECT_TRUE(daemon_.record().faults[1].over());
    const std::string line =
        "vuda: a kernel of this program seems to wait for ever: the GPU repeats page faults 45000 times a second, as "
        "after a bad access; the renderer of 'game' goes on until this program ends (docs/faults.md)\n";
    EXPECT_EQ(said(), line);
    // Another time, another line.
    host_.stuck_ = 45'000;
    ASSERT_TRUE(wait_faults(3));
    EXPECT_EQ(said(), line + line);
    // The TSG may die after all.
    host_.shared_ = 31;
    ASSERT_TRUE(wait_faults(4));
    EXPECT_EQ(daemon_.record().faults[3].xid(), 31u);
    host_.stuck_over_ = true;
    session_.ending();
    EXPECT_EQ(daemon_.record().faults.size(), 4u) << "what died is not over";
}

TEST_F(SessionFaults, TheNextVudadHearsThatItIsStuck) {
    share();
    host_.stuck_ = 45'000;
    ASSERT_TRUE(wait_faults(1));
    daemon_.drop_sessions();
    ASSERT_TRUE(wait_faults(2));
    EXPECT_EQ(daemon_.record().faults[1].kind(), v1::FAULT_KIND_STUCK);
    EXPECT_EQ(daemon_.record().reports.back().state(), v1::SHARING_STATE_SHARING) << "that it shares comes first";
    const std::string text = said();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(SessionFaults, AnOlderVudadIsNotToldThatSomebodyIsStuck) {
    daemon_.script([](auto& script) { script.features = kFeatureShare | kFeatureFaults; });
    share();
    host_.stuck_ = 45'000;
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (said().empty() && std::chrono::steady_clock::now() < until) ::usleep(1000);
    EXPECT_THAT(said(), HasSubstr("45000 times a second"));
    session_.ending();
    EXPECT_EQ(daemon_.record().faults.size(), 0u);
}

// What is watched while something is shared is let go of then: the preload sees it at this look.
TEST_F(SessionFaults, OneMoreLookWhenNothingIsSharedAnyLonger) {
    host_.session_ = &session_;
    share();
    ASSERT_TRUE(wait_looks(host_.looks_sharing_));
    session_.detached({Code::kOk, "", ""});
    EXPECT_TRUE(wait_looks(host_.looks_unshared_));
    ::usleep(150'000);
    EXPECT_LE(host_.looks_unshared_.load(), 2) << "one, and one that was due when it ended";
}

TEST_F(SessionFaults, AnOldVudadHearsOfTheStateOnly) {
    daemon_.script([](auto& script) { script.features = kFeatureShare; });
    own();
    host_.own_ = 31;
    ASSERT_TRUE(daemon_.wait_for([](const auto& record) {
        return !record.reports.empty() && record.reports.back().state() == v1::SHARING_STATE_FAULTED;
    }));
    EXPECT_EQ(daemon_.record().faults.size(), 0u);
}

TEST_F(SessionFaults, NobodyLooksWhereNothingIsShared) {
    session_.connect_ahead("game");
    ASSERT_TRUE(daemon_.wait_for([](const auto& record) { return record.sessions == 1; }));
    ::usleep(200'000);
    EXPECT_EQ(host_.looks_.load(), 0);
    session_.ending();
    EXPECT_EQ(host_.looks_.load(), 0);
}

}  // namespace
}  // namespace vuda::client
