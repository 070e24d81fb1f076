#include "client/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "client/fake_daemon.h"
#include "client/test_support.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Far above what an attempt takes and far below a test's time limit: an attach that ends before it did not wait for it.
constexpr auto kLong = 30s;
// Waited for in full where silence is the point.
constexpr auto kShort = 150ms;

const Uuid kGpu{{1, 2, 3}};

class FakeHost : public SessionHost {
 public:
    Result<HandleSet> export_host(uint64_t held) override {
        const std::lock_guard lock(mutex_);
        ++exports_;
        if (export_error_) return *export_error_;
        HandleSet set;
        set.channels_in_use = 4;
        set.generation = generation_;
        if (held != 0 && held == generation_) return set;
        for (size_t i = 0; i < export_count_; ++i) {
            HandleInfo info;
            info.kind = i == 0 && !export_without_tsg_ ? HandleKind::kTsg : HandleKind::kControlBuffer;
            if (i > 0) info.va = info.length = 0x10000 * i;
            set.items.push_back({info, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))});
        }
        return set;
    }
    void detach_command(const Error& reason) override { note(detach_commands_, reason); }
    void register_failed(const Error& error) override { note(register_failures_, error); }
    void guard_fd(int fd, bool guarded) override {
        const std::lock_guard lock(mutex_);
        if (guarded) {
            guarded_.insert(fd);
        } else {
            guarded_.erase(fd);
        }
    }

    void others_subcontexts(const Subcontexts& others) override {
        const std::lock_guard lock(mutex_);
        others_ = others;
        changed_.notify_all();
    }

    template <typename Read>
    auto with(Read read) {
        const std::lock_guard lock(mutex_);
        return read(*this);
    }
    bool wait_for(const std::function<bool(const FakeHost&)>& condition) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 10s, [&] { return condition(*this); });
    }

    std::optional<Subcontexts> others_;
    size_t exports_ = 0;
    size_t export_count_ = 3;
    uint64_t generation_ = 0;
    bool export_without_tsg_ = false;
    std::optional<Error> export_error_;
    std::vector<Error> detach_commands_;
    std::vector<Error> register_failures_;
    std::set<int> guarded_;

 private:
    void note(std::vector<Error>& list, const Error& error) {
        const std::lock_guard lock(mutex_);
        list.push_back(error);
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
};

v1::Error error_of(uint32_t code, const std::string& text) {
    v1::Error error;
    error.set_code(code);
    error.set_text(text);
    return error;
}

class SessionTest : public testing::Test {
 protected:
    SessionTest()
        : log_(::open((dir_ / "log").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600)),
          reporter_(LogLevel::kError, log_.get()),
          session_(std::make_unique<Session>(SessionOptions{socket(), "0.1.0", "580.159.04", "test", "/opt/test"},
                                             host_, reporter_)) {}

    std::string socket() const { return dir_ / "handles.sock"; }
    FakeDaemon& daemon() {
        if (!daemon_) daemon_ = std::make_unique<FakeDaemon>(socket());
        return *daemon_;
    }
    std::vector<std::string> log_lines() const {
        std::vector<std::string> lines;
        std::ifstream in(dir_ / "log");
        for (std::string line; std::getline(in, line);) lines.push_back(line);
        return lines;
    }
    Result<HandleSet> attach(std::chrono::milliseconds timeout = kLong) {
        return session_->attach("game", kGpu, 2, timeout);
    }
    void finish_attach() { session_->attach_done({SharingState::kSharing, 2, 1, 2, 100, {Code::kOk, "", ""}}); }
    bool wait_for_state(SharingState state) {
        const Deadline end = deadline_in(10s);
        while (session_->snapshot().state != state) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::yield();
        }
        return true;
    }

    TempDir dir_;
    UniqueFd log_;
    FakeHost host_;
    Reporter reporter_;
    std::unique_ptr<FakeDaemon> daemon_;
    std::unique_ptr<Session> session_;
};

// ---- Registration
// ---------------------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, WhoAsksForNothingNeverConnects) {
    daemon();
    session_.reset();
    EXPECT_EQ(daemon().record().hellos.size(), 0u);
    EXPECT_TRUE(host_.guarded_.empty());
    EXPECT_TRUE(log_lines().empty());
}

TEST_F(SessionTest, RegistersWithItsIdentity) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 1; }));
    const auto record = daemon().record();
    EXPECT_EQ(record.hellos[0].program(), "test");
    EXPECT_EQ(record.hellos[0].driver_version(), "580.159.04");
    EXPECT_EQ(record.hellos[0].executable(), "/opt/test");
    EXPECT_EQ(record.hellos[0].features(), kFeatureShare | kFeatureExportRefresh | kFeatureSharedPage | kFeatureQuota |
                                               kFeatureSlo | kFeatureHeartbeat | kFeatureFaults | kFeatureLiveMirror |
                                               kFeatureUnshare | kFeatureSubcontexts | kFeatureStuck);
    EXPECT_EQ(record.registers[0].name(), "game");
    EXPECT_EQ(record.registers[0].gpu_uuid().size(), 16u);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    EXPECT_EQ(session_->snapshot().name, "game");
    EXPECT_EQ(host_.with([](auto& h) { return h.guarded_.size(); }), 3u);  // connection and both ends of the pipe
    session_.reset();
    EXPECT_TRUE(host_.guarded_.empty());
}

TEST_F(SessionTest, ANewNameReplacesTheOldOne) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    session_->set_registration("other", kGpu);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 2 && r.unregisters.size() == 1; }));
    EXPECT_EQ(daemon().record().unregisters[0], "game");
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    session_->clear_registration();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.unregisters.size() == 2; }));
    EXPECT_EQ(session_->snapshot().state, SharingState::kIdle);
}

TEST_F(SessionTest, TheListOfWhoMayAttachGoesWithTheNameAndToEachNextDaemon) {
    const AllowList first{{1000}, {44}}, second{{}, {45, 46}};
    daemon();
    session_->set_allowed(first);  // nothing to open yet
    session_->set_registration("game", kGpu, first);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    session_->set_allowed(first);
    session_->set_allowed(second);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 2; }));
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 3; }));
    const auto record = daemon().record();
    EXPECT_THAT(record.registers[0].allow_uids(), testing::ElementsAre(1000u));
    EXPECT_THAT(record.registers[0].allow_gids(), testing::ElementsAre(44u));
    for (const size_t later : {1u, 2u}) {
        EXPECT_EQ(record.registers[later].name(), "game");
        EXPECT_EQ(record.registers[later].allow_uids_size(), 0);
        EXPECT_THAT(record.registers[later].allow_gids(), testing::ElementsAre(45u, 46u));
    }
    EXPECT_EQ(record.unregisters.size(), 0u) << "the name is never free in between";
}

TEST_F(SessionTest, RefusedRegistrationIsSaidOnceAndNotRepeatedOnTheSameLink) {
    daemon().script([](auto& s) { s.register_error = error_of(6, "the name 'game' is taken by pid 7 (renderer)"); });
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.register_failures_.size() == 1; }));
    EXPECT_EQ(host_.with([](auto& h) { return h.register_failures_[0].code; }), Code::kAlreadyExists);
    EXPECT_EQ(session_->snapshot().state, SharingState::kUnshared);
    // A new link asks again; the same answer is not said again.
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 2 && r.reports.size() >= 2; }));
    EXPECT_EQ(host_.with([](auto& h) { return h.register_failures_.size(); }), 1u);
    ASSERT_EQ(log_lines().size(), 1u);
    EXPECT_THAT(log_lines()[0],
                HasSubstr("vuda: cannot register 'game': the name 'game' is taken by pid 7 (renderer)"));
    EXPECT_THAT(log_lines()[0], HasSubstr("this program runs without sharing"));
    // Free at last.
    daemon().script([](auto& s) { s.register_error.reset(); });
    daemon().drop_sessions();
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    EXPECT_EQ(session_->snapshot().reason.code, Code::kOk);
}

TEST_F(SessionTest, InvalidNameNeverReachesTheWire) {
    daemon();
    session_->set_registration("\xff\xfe", kGpu);
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.register_failures_.size() == 1; }));
    EXPECT_EQ(host_.with([](auto& h) { return h.register_failures_[0].code; }), Code::kInvalidArgument);
    const auto refused = session_->attach("no spaces", kGpu, 1, kLong);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_EQ(daemon().record().registers.size(), 0u);
    EXPECT_EQ(daemon().record().attaches.size(), 0u);
}

// Where CUDA's addresses are to lie is known before anything else of an attach.
TEST_F(SessionTest, HearsItsPlaceAndKeepsItOverARestart) {
    EXPECT_FALSE(session_->va_slot(kLong).has_value()) << "nothing was said of an attach";
    daemon().script([](auto& s) { s.va_slot = 3; });
    session_->connect_ahead("game");
    EXPECT_EQ(session_->va_slot(kLong), 3u);
    EXPECT_EQ(daemon().record().hellos[0].attach_name(), "game");
    EXPECT_EQ(daemon().record().hellos[0].va_slot(), 0u);
    const auto set = session_->attach("game", kGpu, 8, kLong, {}, 0x8'0000'0000);
    ASSERT_TRUE(set.ok()) << set.error().to_string();
    EXPECT_EQ(daemon().record().attaches[0].va_base(), 0x8'0000'0000u);
    AttachOutcome outcome;
    outcome.state = SharingState::kSharing;
    outcome.channels_moved = 8;
    outcome.veid = 61;
    outcome.veids = uint64_t{5} << 61;
    session_->attach_done(outcome);
    daemon_.reset();
    daemon();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return !r.reports.empty(); }));
    EXPECT_EQ(daemon().record().hellos[0].va_slot(), 4u);
    EXPECT_EQ(daemon().record().reports[0].va_base(), 0x8'0000'0000u);
    EXPECT_EQ(daemon().record().reports[0].veids(), uint64_t{5} << 61);
    EXPECT_EQ(session_->va_slot(kLong), 3u) << "they lie where they lie";
}

TEST_F(SessionTest, WithoutADaemonThereIsNoPlace) {
    session_->connect_ahead("game");
    EXPECT_FALSE(session_->va_slot(std::chrono::minutes(5)).has_value()) << "and no waiting for it";
}

TEST_F(SessionTest, ComesBackAfterARestart) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    daemon_.reset();
    ASSERT_TRUE(wait_for_state(SharingState::kWaiting));
    EXPECT_EQ(session_->snapshot().name, "game");
    daemon();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 1; }));
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    // Not a failure to act on, and nothing that the user has to know.
    EXPECT_TRUE(log_lines().empty());
    EXPECT_TRUE(host_.with([](auto& h) { return h.register_failures_.empty(); }));
}

TEST_F(SessionTest, RegistersWhenTheDaemonComesLater) {
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.register_failures_.size() == 1; }));
    ASSERT_EQ(log_lines().size(), 1u);
    EXPECT_THAT(log_lines()[0],
                HasSubstr("vudad is not reachable: " + socket() + ": No such file or directory; start it"));
    daemon();
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    EXPECT_EQ(log_lines().size(), 1u);
}

// ---- Attach
// ---------------------------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AttachBringsTheHandles) {
    for (const uint32_t handles : {1u, 3u, 64u, 65u, 130u}) {
        daemon().script([&](auto& s) { s.handles = handles; });
        const auto set = attach();
        ASSERT_TRUE(set.ok()) << set.error().to_string();
        ASSERT_EQ(set->items.size(), handles);
        EXPECT_EQ(set->channels_in_use, 5u);
        struct stat status;
        ASSERT_EQ(fstat(set->items[0].fd.get(), &status), 0);
        EXPECT_EQ(status.st_rdev, [] {
            struct stat zero;
            stat("/dev/zero", &zero);
            return zero.st_rdev;
        }());
        for (size_t i = 0; i < set->items.size(); ++i) {
            EXPECT_EQ(set->items[i].info.kind, i == 0 ? HandleKind::kTsg : HandleKind::kControlBuffer);
            EXPECT_TRUE(fcntl(set->items[i].fd.get(), F_GETFD) & FD_CLOEXEC);
        }
        finish_attach();
        ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.dones.size() == r.attaches.size(); }));
        EXPECT_EQ(session_->snapshot().state, SharingState::kSharing);
        session_->detached({Code::kOk, "", ""});
    }
    const auto record = daemon().record();
    EXPECT_EQ(record.hellos.size(), 1u);
    EXPECT_EQ(record.attaches[0].channels(), 2u);
    EXPECT_GT(record.attaches[0].deadline_ms(), 0u);
    EXPECT_EQ(record.dones[0].channels_moved(), 2u);
    EXPECT_EQ(record.dones[0].state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(session_->snapshot().state, SharingState::kIdle);
}

TEST_F(SessionTest, HundredAttachesLeaveNothingBehind) {
    daemon().script([](auto& s) { s.handles = 70; });
    ASSERT_TRUE(attach().ok());
    finish_attach();
    session_->detached({Code::kOk, "", ""});
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.notices == 1; }));
    const size_t before = open_fds();
    for (int i = 0; i < 100; ++i) {
        const auto set = attach();
        ASSERT_TRUE(set.ok()) << i << ": " << set.error().to_string();
        finish_attach();
        session_->detached({Code::kOk, "", ""});
    }
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.notices == 101; }));
    daemon().send({});  // one more round of the daemon: connections that ended are closed now
    ASSERT_TRUE(daemon().wait_for([&](const auto&) { return open_fds() <= before; }));
    EXPECT_EQ(daemon().record().hellos.size(), 1u);
}

TEST_F(SessionTest, ThreadsTakeTurns) {
    daemon();
    constexpr int kThreads = 4;
    std::atomic<int> inside{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 5; ++round) {
                const auto set = attach();
                ASSERT_TRUE(set.ok()) << set.error().to_string();
                EXPECT_EQ(inside.fetch_add(1), 0);
                std::this_thread::yield();
                inside.fetch_sub(1);
                finish_attach();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(session_->snapshot().channels, 2u * 5 * kThreads);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.dones.size() == 5 * kThreads; }));
}

TEST_F(SessionTest, ATurnThatNobodyEndsIsWaitedForOnlyUntilTheDeadline) {
    daemon();
    ASSERT_TRUE(attach().ok());  // never done
    const auto second = attach(kShort);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kDeadlineExceeded);
    finish_attach();
    EXPECT_TRUE(attach().ok());
}

TEST_F(SessionTest, AttachFailsAtOnceWithoutADaemon) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) {
        const auto set = attach();
        ASSERT_FALSE(set.ok());
        EXPECT_EQ(set.error().code, Code::kNotFound);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
    EXPECT_TRUE(log_lines().empty()) << "the caller has the error";
    EXPECT_EQ(session_->snapshot().state, SharingState::kUnshared);
    EXPECT_THAT(session_->snapshot().reason.to_string(),
                HasSubstr("vudad is not reachable: " + socket() + ": No such file"));
    EXPECT_THAT(session_->snapshot().reason.to_string(), HasSubstr("; start it"));
}

TEST_F(SessionTest, WhatStandsInTheSocketsPlace) {
    UniqueFd(::open(socket().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_THAT(attach().error().text, HasSubstr("is not a socket"));
    ASSERT_EQ(::unlink(socket().c_str()), 0);

    const FakeDaemon elsewhere(dir_ / "elsewhere");
    ASSERT_EQ(::symlink((dir_ / "elsewhere").c_str(), socket().c_str()), 0);
    EXPECT_THAT(attach().error().text, HasSubstr("is a symbolic link"));
    ASSERT_EQ(::unlink(socket().c_str()), 0);

    daemon();
    const std::string kept = dir_ / "kept";
    ASSERT_EQ(::link(socket().c_str(), kept.c_str()), 0);
    daemon_.reset();
    ASSERT_EQ(::rename(kept.c_str(), socket().c_str()), 0);
    EXPECT_EQ(attach().error().code, Code::kUnavailable) << "stale socket";
}

TEST_F(SessionTest, RefusedAttach) {
    daemon().script([](auto& s) { s.attach_error = error_of(5, "no TSG is registered as 'game'"); });
    for (int i = 0; i < 2; ++i) {
        const auto set = attach();
        ASSERT_FALSE(set.ok());
        EXPECT_EQ(set.error().code, Code::kNotFound);
    }
    EXPECT_EQ(daemon().record().hellos.size(), 1u) << "a refusal keeps the link";
    daemon().script([](auto& s) { s.attach_error.reset(); });
    EXPECT_TRUE(attach().ok());
}

struct BadTransfer {
    const char* name;
    std::function<void(FakeDaemon::Script&)> change;
    Code code;
};

// Every way in which handles can come wrong: an error, no fd left, the turn given back.
TEST_F(SessionTest, BadTransfers) {
    const std::vector<BadTransfer> cases{
        {"fewer fds", [](auto& s) { s.extra_fds = -1; }, Code::kDataLoss},
        {"more fds", [](auto& s) { s.extra_fds = 1; }, Code::kDataLoss},
        {"more handles", [](auto& s) { s.change_bundle = [](auto& b) { *b.add_handles() = b.handles(1); }; },
         Code::kDataLoss},
        {"fewer handles", [](auto& s) { s.change_bundle = [](auto& b) { b.mutable_handles()->RemoveLast(); }; },
         Code::kDataLoss},
        {"two TSGs", [](auto& s) { s.change_bundle = [](auto& b) { *b.mutable_handles(1) = b.handles(0); }; },
         Code::kDataLoss},
        {"TSG last", [](auto& s) { s.change_bundle = [](auto& b) { b.mutable_handles()->SwapElements(0, 2); }; },
         Code::kDataLoss},
        {"unknown kind",
         [](auto& s) {
             s.change_bundle = [](auto& b) { b.mutable_handles(2)->set_kind(static_cast<v1::HandleKind>(9)); };
         },
         Code::kDataLoss},
        {"other token", [](auto& s) { s.change_bundle = [](auto& b) { b.set_token("fedcba9876543210"); }; },
         Code::kDataLoss},
        {"error frame", [](auto& s) { s.pull_error = error_of(7, "not your token"); }, Code::kPermissionDenied},
        {"garbage", [](auto& s) { s.pull_raw = "GET / HTTP/1.1\r\n\r\n"; }, Code::kDataLoss},
        {"half a frame", [](auto& s) { s.pull_raw = std::string("\x20\0\0\0half", 8); }, Code::kDataLoss},
        {"oversized", [](auto& s) { s.pull_raw = std::string("\1\0\1\0xxxx", 8); }, Code::kDataLoss},
    };
    ASSERT_FALSE(session_->attach("game", kGpu, 2, kLong).ok());  // thread and pipe exist from here on
    daemon().script([](auto& s) { s.attach_error = error_of(5, "warm up"); });
    ASSERT_FALSE(attach().ok());
    const size_t before = open_fds();
    size_t done = 0;
    for (const BadTransfer& bad : cases) {
        SCOPED_TRACE(bad.name);
        daemon().script([&](auto& s) {
            s = {};
            bad.change(s);
        });
        {
            const auto set = attach();
            ASSERT_FALSE(set.ok());
            EXPECT_EQ(set.error().code, bad.code) << set.error().to_string();
        }
        ++done;
        ASSERT_TRUE(daemon().wait_for([&](const auto& r) { return r.dones.size() == done; }));
        EXPECT_EQ(daemon().record().dones.back().state(), v1::SHARING_STATE_UNSHARED);
        daemon().send({});
        EXPECT_TRUE(daemon().wait_for([&](const auto&) { return open_fds() <= before; }));
    }
    daemon().script([](auto& s) { s = {}; });
    EXPECT_TRUE(attach().ok()) << "none of that has hurt the session";
}

TEST_F(SessionTest, SilenceEndsAtTheDeadline) {
    for (const int which : {0, 1, 2}) {
        SCOPED_TRACE(which);
        daemon().script([&](auto& s) {
            s = {};
            if (which == 0) s.greet = false;
            if (which == 1) s.answer_attach = false;
            if (which == 2) s.answer_pull = false;
        });
        const auto start = std::chrono::steady_clock::now();
        const auto set = attach(kShort);
        ASSERT_FALSE(set.ok());
        EXPECT_EQ(set.error().code, Code::kDeadlineExceeded);
        EXPECT_GE(std::chrono::steady_clock::now() - start, kShort);
        session_ = std::make_unique<Session>(SessionOptions{socket(), "0.1.0", "", "test"}, host_, reporter_);
    }
}

TEST_F(SessionTest, GivingUpTellsTheDaemon) {
    daemon().script([](auto& s) { s.answer_attach = false; });
    EXPECT_EQ(attach(kShort).error().code, Code::kDeadlineExceeded);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.dones.size() == 1; }));
    EXPECT_EQ(daemon().record().dones[0].state(), v1::SHARING_STATE_UNSHARED);
}

TEST_F(SessionTest, DaemonDiesDuringAttach) {
    daemon().script([](auto& s) { s.close_on_attach = true; });
    const auto set = attach();
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.error().code, Code::kUnavailable);
    daemon().script([](auto& s) { s.close_on_attach = false; });
    EXPECT_TRUE(attach().ok());
}

TEST_F(SessionTest, DaemonDiesWhileShared) {
    daemon();
    ASSERT_TRUE(attach().ok());
    finish_attach();
    daemon_.reset();
    daemon();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.reports.size() == 1; }));
    EXPECT_EQ(daemon().record().reports[0].state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(session_->snapshot().state, SharingState::kSharing);
    EXPECT_EQ(session_->snapshot().channels, 2u);
    EXPECT_TRUE(log_lines().empty());
    // What the new daemon cannot know.
    const v1::StateReport report = daemon().record().reports[0];
    EXPECT_EQ(report.name(), "game");
    EXPECT_EQ(report.channels_moved(), 2u);
    EXPECT_EQ(report.veid(), 1u);
    EXPECT_EQ(report.control_buffers(), 2u);
}

// vudad dies between the grant and the end of the attach. The next one knows of no turn, and would take AttachDone for
// a mistake; the channels are in the TSG all the same.
TEST_F(SessionTest, GrantThatOutlivesItsDaemonIsReported) {
    daemon();
    session_->set_registration("mine", kGpu);
    ASSERT_TRUE(attach().ok());
    daemon_.reset();
    daemon();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 1; }));  // so it was greeted
    finish_attach();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.reports.size() == 1; }));
    const auto record = daemon().record();
    EXPECT_TRUE(record.dones.empty());
    EXPECT_EQ(record.reports[0].state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(record.reports[0].name(), "game");
    EXPECT_EQ(record.reports[0].channels_moved(), 2u);
    // An attach on the new link ends as ever.
    ASSERT_TRUE(attach().ok());
    finish_attach();
    EXPECT_TRUE(daemon().wait_for([](const auto& r) { return r.dones.size() == 1; }));
}

TEST_F(SessionTest, ATsgWhoseOwnerIsGoneHasNoName) {
    daemon();
    ASSERT_TRUE(attach().ok());
    finish_attach();
    v1::ServerMessage gone;
    *gone.mutable_detach_command()->mutable_reason() = error_of(14, "the owner went away");
    daemon().send(gone);
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.detach_commands_.size() == 1; }));
    daemon_.reset();
    daemon();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.reports.size() == 1; }));
    EXPECT_EQ(daemon().record().reports[0].state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(daemon().record().reports[0].name(), "");
    EXPECT_EQ(daemon().record().reports[0].channels_moved(), 0u);
}

// ---- A daemon that is not one
// ---------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AnswersThatAreNoGreeting) {
    v1::Frame wrong;
    wrong.mutable_server()->set_id(1);
    wrong.mutable_server()->mutable_register_reply();
    std::string wrong_bytes;
    ASSERT_TRUE(append_frame(wrong_bytes, wrong.SerializeAsString()).ok());
    const std::vector<std::pair<std::string, Code>> cases{
        {"HTTP/1.1 400 Bad Request\r\n\r\n", Code::kDataLoss},
        {std::string("\0\0\0\0", 4), Code::kDataLoss},
        {std::string("\4\0\0\0\xff\xff\xff\xff", 8), Code::kDataLoss},
        {wrong_bytes, Code::kDataLoss},
    };
    for (const auto& [raw, code] : cases) {
        daemon().script([&raw = raw](auto& s) { s.hello_raw = raw; });
        const auto set = attach();
        ASSERT_FALSE(set.ok());
        EXPECT_EQ(set.error().code, code) << set.error().to_string();
    }
    daemon().script([](auto& s) { s.hello_raw.clear(); });
    EXPECT_TRUE(attach().ok());
}

// Those of the renderer's own process go to each vudad that takes the name; those of others come back.
TEST_F(SessionTest, SubcontextsOfTheOwnersTsg) {
    daemon().script([](auto& script) { script.features = kFeatureShare | kFeatureSubcontexts; });
    session_->own_subcontexts(8, 4);
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.subcontexts.size() == 1; }));
    session_->own_subcontexts(0, 12);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.subcontexts.size() == 2; }));
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.subcontexts.size() == 3; }));
    const auto said = daemon().record().subcontexts;
    EXPECT_EQ(said[0].name(), "game");
    EXPECT_EQ(said[0].taken(), 8u);
    EXPECT_EQ(said[0].stale(), 4u);
    EXPECT_EQ(said[1].taken(), 0u);
    EXPECT_EQ(said[2].stale(), 12u);
    v1::ServerMessage message;
    message.mutable_subcontexts()->set_name("game");
    message.mutable_subcontexts()->set_taken(2);
    message.mutable_subcontexts()->set_stale(16);
    daemon().send(message);
    ASSERT_TRUE(host_.wait_for([](const auto& host) { return host.others_.has_value(); }));
    EXPECT_EQ(host_.others_->taken, 2u);
    EXPECT_EQ(host_.others_->stale, 16u);
}

TEST_F(SessionTest, OneContextOfSeveralLeaves) {
    daemon().script([](auto& script) { script.features = kFeatureShare | kFeatureSubcontexts; });
    ASSERT_TRUE(attach().ok());
    finish_attach();
    session_->context_left(2, 1);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.subcontexts.size() == 1; }));
    const v1::Subcontexts left = daemon().record().subcontexts[0];
    EXPECT_EQ(left.name(), "game");
    EXPECT_EQ(left.taken(), 2u);
    EXPECT_EQ(left.channels(), 1u);
    // What the next vudad hears.
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.reports.size() == 1; }));
    EXPECT_EQ(daemon().record().reports[0].channels_moved(), 1u);
    EXPECT_EQ(daemon().record().reports[0].veids(), 2u);
}

TEST_F(SessionTest, ADaemonThatDoesNotShare) {
    daemon().script([](auto& s) { s.features = 0; });
    EXPECT_EQ(attach().error().code, Code::kUnimplemented);
    daemon().script([](auto& s) { s.hello_error = error_of(9, "another PID namespace"); });
    EXPECT_THAT(attach().error().text, HasSubstr("another PID namespace"));
}

TEST_F(SessionTest, GarbageLaterEndsTheLinkAndIsSaidOnce) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    const size_t fds = open_fds();
    for (size_t round = 1; round <= 3; ++round) {
        // With an fd that nobody asked for: it must not stay open.
        daemon().send_raw(std::string("\xff\xff\xff\xff", 4), log_.get());
        ASSERT_TRUE(
            daemon().wait_for([&](const auto& r) { return r.registers.size() == round + 1 && r.sessions == 1; }));
        ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    }
    EXPECT_EQ(open_fds(), fds);
}

TEST_F(SessionTest, UnknownMessagesAreIgnored) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    daemon().send({});
    v1::ServerMessage stray;
    stray.set_id(4711);
    stray.mutable_register_reply();
    daemon().send(stray);
    ASSERT_TRUE(attach().ok());
    EXPECT_EQ(daemon().record().hellos.size(), 1u);
}

// ---- Export
// ---------------------------------------------------------------------------------------------------------------------------

v1::ServerMessage export_request(const std::string& token = "exporttoken01234") {
    v1::ServerMessage message;
    message.mutable_export_request()->set_token(token);
    message.mutable_export_request()->set_deadline_ms(5000);
    return message;
}

TEST_F(SessionTest, ExportsOnRequestAndKeepsNothing) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    const size_t before = open_fds();
    for (const size_t count : {size_t{1}, size_t{64}, size_t{130}}) {
        host_.with([&](auto& h) { return h.export_count_ = count; });
        daemon().send(export_request());
        ASSERT_TRUE(daemon().wait_for([&](const auto& r) { return r.push_complete && r.pushed.size() == count; }));
        const auto record = daemon().record();
        EXPECT_EQ(record.pushed_fds, count);
        EXPECT_EQ(record.push_frames, (count + 63) / 64);
        EXPECT_EQ(record.pushed_channels, 4u);
        EXPECT_EQ(record.pushed[0].kind(), v1::HANDLE_KIND_TSG);
    }
    ASSERT_TRUE(daemon().wait_for([&](const auto&) { return open_fds() <= before + 1; }));
    daemon().send({});
    EXPECT_TRUE(daemon().wait_for([&](const auto&) { return open_fds() <= before; }));
}

TEST_F(SessionTest, SetThatVudadHoldsIsNotSentAgain) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    host_.with([](auto& h) { return h.generation_ = 4; });
    daemon().send(export_request());
    ASSERT_TRUE(daemon().wait_for([&](const auto& r) { return r.push_complete; }));
    EXPECT_EQ(daemon().record().pushed_generation, 4u);
    const size_t frames = daemon().record().push_frames;
    v1::ServerMessage again = export_request("exporttoken56789");
    again.mutable_export_request()->set_held(4);
    daemon().send(again);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.current.size() == 1; }));
    EXPECT_EQ(daemon().record().current[0], "exporttoken56789");
    EXPECT_EQ(daemon().record().push_frames, frames);
    host_.with([](auto& h) { return h.generation_ = 5; });
    daemon().send(again);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.push_complete && r.pushed_generation == 5; }));
    EXPECT_EQ(daemon().record().current.size(), 1u);
}

TEST_F(SessionTest, ExportThatFailsIsRefused) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    host_.with([](auto& h) {
        return h.export_error_ = Error{Code::kFailedPrecondition, "the Vulkan device is gone", ""};
    });
    daemon().send(export_request());
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.refusals.size() == 1; }));
    EXPECT_EQ(daemon().record().refusals[0].token(), "exporttoken01234");
    EXPECT_EQ(daemon().record().refusals[0].error().text(), "the Vulkan device is gone");
    host_.with([](auto& h) {
        h.export_error_.reset();
        return h.export_without_tsg_ = true;
    });
    daemon().send(export_request());
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.refusals.size() == 2; }));
    EXPECT_EQ(daemon().record().push_frames, 0u);
}

// ---- Commands and bad luck
// ------------------------------------------------------------------------------------------------------------

v1::ServerMessage detach_command(uint32_t code) {
    v1::ServerMessage message;
    *message.mutable_detach_command()->mutable_reason() = error_of(code, "because");
    return message;
}

TEST_F(SessionTest, DetachCommandForgetsTheRegistration) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    daemon().send(detach_command(14));
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.detach_commands_.size() == 1; }));
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 2; }))
        << "UNAVAILABLE: the wish stays";
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));

    daemon().send(detach_command(1));
    ASSERT_TRUE(host_.wait_for([](const auto& h) { return h.detach_commands_.size() == 2; }));
    EXPECT_EQ(session_->snapshot().state, SharingState::kUnshared);
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.reports.size() >= 1; }));
    EXPECT_EQ(daemon().record().registers.size(), 2u);
    EXPECT_EQ(daemon().record().unregisters.size(), 0u);
}

// How long it waits is Backoff's business (backoff_test.cc); that each loss asks it, is the session's.
TEST_F(SessionTest, ComesBackAtAMomentOfItsOwn) {
    const auto asked = std::make_shared<std::atomic<int>>(0);
    SessionOptions options{socket(), "0.1.0", "580.159.04", "test"};
    options.random = [asked] {
        ++*asked;
        return 0u;
    };
    daemon();
    session_ = std::make_unique<Session>(options, host_, reporter_);
    session_->set_registration("game", kGpu);
    for (size_t lives = 1; lives <= 3; ++lives) {
        ASSERT_TRUE(daemon().wait_for([lives](const auto& r) { return r.registers.size() == lives; }));
        ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
        EXPECT_EQ(*asked, static_cast<int>(lives) - 1);
        daemon().drop_sessions();
    }
    session_.reset();
}

TEST_F(SessionTest, AnswersThatItIsThere) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    v1::ServerMessage ping;
    ping.mutable_ping();
    for (size_t i = 1; i <= 3; ++i) {
        daemon().send(ping);
        ASSERT_TRUE(daemon().wait_for([i](const auto& r) { return r.pongs == i; }));
    }
    EXPECT_EQ(daemon().record().bad_frames, 0u);
}

TEST_F(SessionTest, ReportsWhyItDoesNotShare) {
    session_->set_state(SharingState::kUnshared, {Code::kFailedPrecondition, "driver 999.99 is unknown", ""});
    EXPECT_EQ(session_->snapshot().state, SharingState::kUnshared);
    daemon();
    session_->set_state(SharingState::kUnshared, {Code::kFailedPrecondition, "driver 999.99 is unknown", ""});
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return !r.reports.empty(); }));
    EXPECT_EQ(daemon().record().reports[0].reason().text(), "driver 999.99 is unknown");
    const auto faulted = [](const auto& r) { return r.reports.back().state() == v1::SHARING_STATE_FAULTED; };
    session_->set_state(SharingState::kFaulted, {Code::kAborted, "Xid 31", ""});
    ASSERT_TRUE(daemon().wait_for(faulted));
    const size_t said = daemon().record().reports.size();
    daemon().drop_sessions();
    ASSERT_TRUE(daemon().wait_for([&](const auto& r) { return r.reports.size() > said && faulted(r); }))
        << "not said again";
}

TEST_F(SessionTest, TheProgramClosesOurDescriptors) {
    daemon();
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(wait_for_state(SharingState::kRegistered));
    const std::set<int> ours = host_.with([](auto& h) { return h.guarded_; });
    ASSERT_EQ(ours.size(), 3u);
    // Past every hook, and the numbers belong to the program's own files at the same instant.
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    std::vector<UniqueFd> theirs;
    for (const int fd : ours) theirs.emplace_back(static_cast<int>(::syscall(SYS_dup3, null.get(), fd, O_CLOEXEC)));

    const auto set = attach();
    ASSERT_TRUE(set.ok()) << set.error().to_string();
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.registers.size() == 2; }));
    session_.reset();
    struct stat null_device;
    ASSERT_EQ(stat("/dev/null", &null_device), 0);
    for (const UniqueFd& fd : theirs) {
        struct stat status;
        ASSERT_EQ(fstat(fd.get(), &status), 0) << "closed behind the program's back";
        EXPECT_EQ(status.st_rdev, null_device.st_rdev);
    }
}

TEST_F(SessionTest, EndsWhileItWaits) {
    session_->set_registration("game", kGpu);  // in back-off for good
    session_.reset();
    session_ = std::make_unique<Session>(SessionOptions{socket(), "0.1.0", "", "test"}, host_, reporter_);
    daemon().script([](auto& s) { s.greet = false; });
    session_->set_registration("game", kGpu);
    ASSERT_TRUE(daemon().wait_for([](const auto& r) { return r.hellos.size() == 1; }));
    session_.reset();
}

}  // namespace
}  // namespace vuda::client
