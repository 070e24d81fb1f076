// The session's part in following a renderer's control buffers, on both sides.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "client/fake_daemon.h"
#include "client/session.h"
#include "client/test_support.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;

const Uuid kMirrorGpu{{1, 2, 3}};
constexpr uint64_t kMirrorFeatures = kFeatureShare | kFeatureExportRefresh | kFeatureLiveMirror;

class MirrorHost : public SessionHost {
 public:
    Result<HandleSet> export_host(uint64_t held) override {
        HandleSet set;
        set.generation = 1;
        if (held == 1) return set;
        set.items.push_back({HandleInfo{}, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))});
        return set;
    }
    void detach_command(const Error&) override {}
    void guard_fd(int, bool) override {}
    void register_failed(const Error&) override {}

    bool follows_from(uint64_t held) override {
        const std::lock_guard lock(mutex_);
        return held == generation_;
    }
    Result<MirrorChange> mirror_delta(bool idle) override {
        const std::lock_guard lock(mutex_);
        if (error_) return *error_;
        MirrorChange change;
        if (idle && to_do_ == 0 && rest_ > 0) {
            change.from = generation_;
            change.to = ++generation_;
            for (int i = 0; i < 16 && rest_ > 0; ++i, --rest_) change.removed.push_back({0x100000 * rest_, 0x1000, 1});
        }
        change.rest = rest_ > 0;
        if (idle || to_do_ == 0) return change;
        change.from = generation_;
        change.to = ++generation_;
        for (; to_do_ > 0 && change.added.size() < 64; --to_do_) {
            change.added.push_back({HandleInfo{HandleKind::kControlBuffer, ++next_ * 0x1000, 0x1000, 0, next_},
                                    UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))});
        }
        change.removed.push_back({0x5000, 0x1000, 3});
        change.more = to_do_ > 0;
        return change;
    }
    Status mirror_update(const MirrorChange& change) override {
        const std::lock_guard lock(mutex_);
        for (const ExportedHandle& one : change.added) valid_ += ::fcntl(one.fd.get(), F_GETFD) != -1 ? 1 : 0;
        updates_.push_back({change.from, change.to, change.removed, {}, false});
        if (error_) return *error_;
        return {};
    }
    template <typename Change>
    auto with(Change change) {
        const std::lock_guard lock(mutex_);
        return change(*this);
    }

    size_t to_do_ = 0;
    uint64_t rest_ = 0;
    uint64_t generation_ = 1;
    uint64_t next_ = 0;
    int valid_ = 0;
    std::optional<Error> error_;
    std::vector<MirrorChange> updates_;

 private:
    std::mutex mutex_;
};

class SessionMirrorTest : public testing::Test {
 protected:
    SessionMirrorTest()
        : log_(::open((dir_ / "log").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600)),
          reporter_(LogLevel::kError, log_.get()),
          daemon_(dir_ / "handles.sock"),
          session_(SessionOptions{dir_ / "handles.sock", "0.1.0", "580.159.04", "test", "/opt/test"}, host_,
                   reporter_) {
        daemon_.script([](auto& s) { s.features = kMirrorFeatures; });
    }

    // A registered owner that somebody shares with, or will.
    void own(uint32_t live_ms = 10'000) {
        session_.set_registration("game", kMirrorGpu);
        ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.registers.size() == 1; }));
        const size_t pushes = daemon_.record().pushes;
        v1::ServerMessage request;
        request.mutable_export_request()->set_token("fedcba9876543210");
        request.mutable_export_request()->set_live_ms(live_ms);
        daemon_.send(request);
        ASSERT_TRUE(daemon_.wait_for([&](const auto& r) { return r.pushes > pushes; }));
    }
    // One mapping call of the renderer that made `count` buffers; how long it took.
    std::chrono::milliseconds map(size_t count) {
        host_.with([&](MirrorHost& host) { host.to_do_ += count; });
        const auto begin = std::chrono::steady_clock::now();
        session_.control_buffers_changed();
        return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    }
    void answer(uint32_t late = 0) {
        v1::ServerMessage message;
        message.set_id(daemon_.record().last_mirror);
        message.mutable_mirror_update_reply()->set_mirrored(1);
        message.mutable_mirror_update_reply()->set_late(late);
        daemon_.send(message);
    }

    TempDir dir_;
    UniqueFd log_;
    MirrorHost host_;
    Reporter reporter_;
    FakeDaemon daemon_;
    Session session_;
};

TEST_F(SessionMirrorTest, AMappingCallReturnsWhenVudadSaysThatAllHaveIt) {
    own();
    EXPECT_LT(map(3), 9s);
    FakeDaemon::Record record = daemon_.record();
    ASSERT_EQ(record.mirrors.size(), 1u);
    EXPECT_EQ(record.mirrors[0].from(), 1u);
    EXPECT_EQ(record.mirrors[0].to(), 2u);
    EXPECT_EQ(record.mirrors[0].added_size(), 3);
    EXPECT_EQ(record.mirrors[0].added(2).mapping(), 3u);
    EXPECT_EQ(record.mirrors[0].removed_size(), 1);
    EXPECT_EQ(record.mirror_fds[0], 3u);

    EXPECT_LT(map(150), 9s) << "in parts";
    record = daemon_.record();
    ASSERT_EQ(record.mirrors.size(), 4u);
    EXPECT_EQ(record.mirrors[3].added_size(), 22);
    EXPECT_EQ(record.mirror_fds, (std::vector<size_t>{3, 64, 64, 22}));

    EXPECT_LT(map(0), 9s) << "nothing new, as when the export had it";
    EXPECT_EQ(daemon_.record().mirrors.size(), 4u);
}

TEST_F(SessionMirrorTest, ItWaitsForTheAnswer) {
    own();
    daemon_.script([](auto& s) { s.answer_mirrors = false; });
    std::atomic<bool> returned{false};
    std::jthread renderer([&] {
        map(1);
        returned = true;
    });
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 1; }));
    EXPECT_FALSE(returned);
    answer();
    renderer.join();
    EXPECT_TRUE(returned);
}

TEST_F(SessionMirrorTest, AVudadThatDoesNotAnswerIsWaitedForOnce) {
    own(100);
    daemon_.script([](auto& s) { s.answer_mirrors = false; });
    EXPECT_GE(map(1), 100ms);
    EXPECT_LT(map(1), 100ms);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 2; })) << "it is told all the same";
}

// What was unmapped before goes afterwards, by itself, one piece after the other.
TEST_F(SessionMirrorTest, WhatNobodyWaitsForGoesWhenNobodyWaits) {
    own();
    host_.with([](MirrorHost& host) { host.rest_ = 40; });
    EXPECT_LT(map(1), 9s);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 4; }));
    const FakeDaemon::Record record = daemon_.record();
    EXPECT_EQ(record.mirrors[0].removed_size(), 1);
    const int pieces[] = {16, 16, 8};
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(record.mirrors[i + 1].added_size(), 0);
        EXPECT_EQ(record.mirrors[i + 1].removed_size(), pieces[i]);
        EXPECT_EQ(record.mirrors[i + 1].from(), record.mirrors[i].to());
    }
    EXPECT_LT(map(1), 9s);
    EXPECT_EQ(daemon_.record().mirrors.size(), 5u);
}

TEST_F(SessionMirrorTest, AMappingCallWaitsForOnePieceAtMost) {
    own();
    host_.with([](MirrorHost& host) { host.rest_ = 400; });
    daemon_.script([](auto& s) { s.answer_mirrors = false; });
    std::jthread first([&] { map(1); });
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 1; }));
    answer();
    first.join();
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 2; })) << "a piece";
    std::jthread second([&] { map(1); });
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 3; })) << "not behind others";
    EXPECT_EQ(daemon_.record().mirrors[2].added_size(), 1);
    daemon_.script([](auto& s) { s.answer_mirrors = true; });
    answer();  // it goes in order: of the piece, vudad's answer is lost
    daemon_.drop_sessions();
    second.join();
}

// One that is stopped is sent no more than it would be without.
TEST_F(SessionMirrorTest, WhoIsLateIsNotSentWhatNobodyWaitsFor) {
    own();
    host_.with([](MirrorHost& host) { host.rest_ = 400; });
    daemon_.script([](auto& s) { s.answer_mirrors = false; });
    std::jthread first([&] { map(1); });
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 1; }));
    answer(1);
    first.join();
    daemon_.script([](auto& s) { s.answer_mirrors = true; });
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(daemon_.record().mirrors.size(), 1u);
    EXPECT_LT(map(1), 9s);
    EXPECT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() > 10; })) << "it has caught up";
}

TEST_F(SessionMirrorTest, NobodyIsThereToFollow) {
    session_.set_registration("game", kMirrorGpu);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.registers.size() == 1; }));
    map(1);
    own();
    map(1);
    EXPECT_EQ(daemon_.record().mirrors.size(), 1u);
    v1::ServerMessage idle;
    idle.mutable_mirror_idle();
    daemon_.send(idle);
    v1::ServerMessage ping;
    ping.mutable_ping();
    daemon_.send(ping);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.pongs == 1; }));
    map(1);
    EXPECT_EQ(daemon_.record().mirrors.size(), 1u);
}

TEST_F(SessionMirrorTest, ARefusalAndTheEndOfTheLinkFreeTheRenderer) {
    own();
    daemon_.script([](auto& s) {
        v1::Error error;
        error.set_code(9);
        s.mirror_error = error;
    });
    EXPECT_LT(map(1), 9s);
    EXPECT_LT(map(1), 9s);
    EXPECT_EQ(daemon_.record().mirrors.size(), 1u) << "until it is asked for a set";

    daemon_.script([](auto& s) {
        s.mirror_error.reset();
        s.answer_mirrors = false;
    });
    own();
    std::jthread renderer([&] { EXPECT_LT(map(1), 9s); });
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrors.size() == 2; }));
    daemon_.drop_sessions();
    renderer.join();
}

// The next attacher: no whole set, and what is new arrives before the answer that vudad's set is current.
TEST_F(SessionMirrorTest, AnotherAttacherGetsTheSetAndItsChanges) {
    own();
    host_.with([](MirrorHost& host) { host.to_do_ = 2; });
    v1::ServerMessage request;
    request.mutable_export_request()->set_token("0123456789abcdef");
    request.mutable_export_request()->set_held(1);
    request.mutable_export_request()->set_live_ms(10'000);
    daemon_.send(request);
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.current.size() == 1; }));
    const FakeDaemon::Record record = daemon_.record();
    ASSERT_EQ(record.mirrors.size(), 1u) << "before the answer";
    EXPECT_EQ(record.mirrors[0].added_size(), 2);
    EXPECT_EQ(record.pushes, 1u);
}

TEST_F(SessionMirrorTest, AnOwnerThatCannotExportFollowsNoMore) {
    own();
    host_.with([](MirrorHost& host) { host.error_ = Error{Code::kInternal, "refused", ""}; });
    EXPECT_LT(map(1), 9s);
    EXPECT_EQ(daemon_.record().mirrors.size(), 0u);
}

TEST_F(SessionMirrorTest, AnAttacherTakesChangesOverAndSaysSo) {
    ASSERT_TRUE(session_.attach("game", kMirrorGpu, 2, 30s).ok());
    session_.attach_done({SharingState::kSharing, 2, 1, 2, 100, {Code::kOk, "", ""}});
    v1::Frame frame;
    v1::MirrorUpdate& update = *frame.mutable_server()->mutable_mirror_update();
    update.set_from(4);
    update.set_to(5);
    v1::Handle& handle = *update.add_added();
    handle.set_kind(v1::HANDLE_KIND_CONTROL_BUFFER);
    handle.set_va(0x9000);
    handle.set_length(0x1000);
    update.add_removed()->set_va(0x1000);
    const auto bytes = [&] {
        std::string out;
        EXPECT_TRUE(append_frame(out, frame.SerializeAsString()).ok());
        return out;
    };
    const UniqueFd memory(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    daemon_.send_raw(bytes(), memory.get());
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrored.size() == 1; }));
    EXPECT_EQ(daemon_.record().mirrored[0].to(), 5u);
    EXPECT_FALSE(daemon_.record().mirrored[0].has_reason());
    EXPECT_EQ(host_.with([](MirrorHost& host) { return host.valid_; }), 1);
    EXPECT_EQ(host_.with([](MirrorHost& host) { return host.updates_.at(0).removed.size(); }), 1u);

    // A descriptor that got lost, and a refusal of the driver's: vudad hears of both.
    update.set_to(6);
    daemon_.send_raw(bytes());
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrored.size() == 2; }));
    EXPECT_TRUE(daemon_.record().mirrored[1].has_reason());
    host_.with([](MirrorHost& host) { host.error_ = Error{Code::kFailedPrecondition, "something is there", ""}; });
    update.set_to(7);
    daemon_.send_raw(bytes(), memory.get());
    ASSERT_TRUE(daemon_.wait_for([](const auto& r) { return r.mirrored.size() == 3; }));
    EXPECT_EQ(daemon_.record().mirrored[2].reason().text(), "something is there");
    EXPECT_EQ(daemon_.record().mirrored[2].to(), 7u);
}

}  // namespace
}  // namespace vuda::client
