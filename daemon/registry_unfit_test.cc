// Programs that run unshared for a while because their kernels do not fit. Time is the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "daemon/registry.h"

namespace vuda::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

const std::string kGpuOfUnfit(16, '\x11');

class UnfitTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        void send(const v1::ServerMessage& message) override { sent.push_back(message); }
        void close(const Error&) override {}
        // The newest message of that kind; an empty one when there is none.
        v1::ServerMessage last(v1::ServerMessage::BodyCase kind) const {
            for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
                if (it->body_case() == kind) return *it;
            }
            return {};
        }
    };

    static Peer peer_of(pid_t pid, uid_t uid, const std::string& exe) {
        Peer peer;
        peer.process = {pid, static_cast<uint64_t>(pid)};
        peer.uid = peer.gid = uid;
        peer.program = "prog";
        peer.exe = exe;
        return peer;
    }
    Process& open(pid_t pid, const std::string& exe = "/bin/compute", uid_t uid = 1000) {
        Process& process = processes_.emplace_back();
        process.peer = peer_of(pid, uid, exe);
        v1::Hello hello;
        hello.set_features(v1::FEATURE_SHARE | v1::FEATURE_UNSHARE);
        const Result<SessionId> id = registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        EXPECT_TRUE(id.ok());
        process.id = id ? *id : 0;
        process.sent.clear();
        return process;
    }
    void say(Process& process, v1::ClientMessage message) {
        process.sent.clear();
        message.set_id(2);
        registry_.receive(process.id, message);
    }
    Process& renderer(pid_t pid, const std::string& name = "game", uid_t uid = 1000) {
        Process& process = open(pid, "/bin/renderer", uid);
        v1::ClientMessage message;
        message.mutable_register_request()->set_name(name);
        message.mutable_register_request()->set_gpu_uuid(kGpuOfUnfit);
        message.mutable_register_request()->add_allow_uids(1001);
        say(process, message);
        EXPECT_TRUE(process.last(v1::ServerMessage::kRegisterReply).has_register_reply());
        return process;
    }
    // Of a new process of that program: why it may not attach; empty: its turn came.
    std::string refused(Process& owner, v1::OverLimit policy = v1::OVER_LIMIT_UNSHARE, bool fitted = false,
                        const std::string& exe = "/bin/compute", const std::string& name = "game", uid_t uid = 1000) {
        Process& process = open(++last_pid_, exe, uid);
        owner.sent.clear();
        v1::ClientMessage message;
        v1::AttachRequest& request = *message.mutable_attach_request();
        request.set_name(name);
        request.set_gpu_uuid(kGpuOfUnfit);
        request.set_channels(8);
        request.set_over_limit(policy);
        request.set_fitted(fitted);
        say(process, message);
        const std::string text = process.last(v1::ServerMessage::kError).error().text();
        EXPECT_EQ(text.empty(), owner.last(v1::ServerMessage::kExportRequest).has_export_request()) << text;
        registry_.close_session(process.id, {Code::kCancelled, "gone", ""});
        return text;
    }
    v1::ServerMessage does_not_fit(Process& process, uint32_t bytes = 65'536, bool fitted = false,
                                   const std::string& name = "game", uint32_t limit = 49'152) {
        v1::ClientMessage message;
        v1::DoesNotFit& said = *message.mutable_does_not_fit();
        said.set_name(name);
        said.set_bytes(bytes);
        said.set_limit(limit);
        said.set_fitted(fitted);
        say(process, message);
        EXPECT_EQ(process.sent.size(), 1u);
        return process.sent.back();
    }
    void pass(Milliseconds time) {
        now_ += time;
        registry_.expire();
    }
    v1::StatusReply status() {
        v1::StatusReply reply;
        registry_.fill_status(reply);
        return reply;
    }
    std::vector<std::string> kinds() const {
        std::vector<std::string> out;
        for (const v1::Event& event : events_) out.push_back(event.kind());
        return out;
    }
    Result<v1::UnquarantineReply> unquarantine(const std::string& name, uid_t uid = 1000) {
        v1::UnquarantineRequest request;
        request.set_name(name);
        return registry_.unquarantine(request, peer_of(99, uid, "/bin/vudactl"));
    }

    TimePoint now_{1000s};
    pid_t last_pid_ = 1000;
    uint8_t tokens_ = 0;
    int changes_ = 0;  // of what is kept
    std::vector<v1::Event> events_;
    std::deque<Process> processes_;
    Registry registry_{
        Identity{"test", "/h", v1::FEATURE_SHARE | v1::FEATURE_UNSHARE, false}, Settings{}, [this] { return now_; },
        [this] {
            Token token;
            token.fill(++tokens_);
            return token;
        },
        Registry::Hooks{[this](const v1::Event& event) { events_.push_back(event); }, {}, {}, [this] { ++changes_; }}};
};

TEST_F(UnfitTest, WhoSaysThatItDoesNotFitRunsUnsharedForAWhile) {
    Process& owner = renderer(1);
    Process& compute = open(2);
    EXPECT_EQ(refused(owner), "");
    EXPECT_EQ(does_not_fit(compute).does_not_fit_reply().held_ms(), 600'000u);
    EXPECT_GT(changes_, 0);
    EXPECT_EQ(refused(owner),
              "/bin/compute runs unshared for 10 min more: a kernel wants 65536 bytes of shared memory a block, beside "
              "graphics 49152 are possible");
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_UNSHARE, false, "/bin/other"), "");
    ASSERT_THAT(kinds(), Contains("unshared"));
    const auto event =
        std::find_if(events_.begin(), events_.end(), [](const auto& e) { return e.kind() == "unshared"; });
    EXPECT_EQ(event->name(), "game");
    EXPECT_EQ(event->peer().program(), "/bin/compute");
    EXPECT_EQ(event->peer().pid(), 2u);
    EXPECT_EQ(event->fields().at("VUDA_SHARED_BYTES"), "65536");
    EXPECT_EQ(event->fields().at("VUDA_SHARED_LIMIT"), "49152");
    EXPECT_EQ(event->fields().at("VUDA_HELD_MS"), "600000");

    const v1::StatusReply all = status();
    ASSERT_EQ(all.unfit_size(), 1);
    EXPECT_EQ(all.unfit(0).name(), "game");
    EXPECT_EQ(all.unfit(0).program(), "/bin/compute");
    EXPECT_EQ(all.unfit(0).uid(), 1000u);
    EXPECT_EQ(all.unfit(0).bytes(), 65'536u);
    EXPECT_EQ(all.unfit(0).limit(), 49'152u);
    EXPECT_EQ(all.unfit(0).left_ms(), 600'000u);
    EXPECT_EQ(all.unfit(0).times(), 1u);
    EXPECT_FALSE(all.tsgs(0).has_fault()) << "nothing died";
    EXPECT_EQ(all.faults_size(), 0);

    EXPECT_EQ(registry_.next_deadline(), now_ + 600s);
    pass(600s);
    EXPECT_THAT(kinds(), Contains("unshare-over"));
    EXPECT_EQ(refused(owner), "");
    EXPECT_EQ(status().unfit_size(), 0);
    EXPECT_EQ(does_not_fit(compute).does_not_fit_reply().held_ms(), 2'400'000u) << "it came back and still does not";
}

TEST_F(UnfitTest, ItsOwnProcessIsHeldOffAsWell) {
    Process& owner = renderer(1);
    Process& compute = open(2);
    does_not_fit(compute);
    v1::ClientMessage message;
    message.mutable_attach_request()->set_name("game");
    message.mutable_attach_request()->set_gpu_uuid(kGpuOfUnfit);
    message.mutable_attach_request()->set_channels(8);
    message.mutable_attach_request()->set_over_limit(v1::OVER_LIMIT_UNSHARE);
    say(compute, message);
    EXPECT_THAT(compute.last(v1::ServerMessage::kError).error().text(), HasSubstr("runs unshared"));
    EXPECT_EQ(compute.last(v1::ServerMessage::kError).error().hint(), "vudactl unquarantine game lets it in at once");
    EXPECT_THAT(kinds(), Contains("attach-failed"));
    EXPECT_FALSE(owner.last(v1::ServerMessage::kExportRequest).has_export_request());
}

TEST_F(UnfitTest, WhoCanLiveWithTheLimitIsLetIn) {
    Process& owner = renderer(1);
    does_not_fit(open(2));
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_NATIVE), "");
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_REJECT), "");
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_UNSPECIFIED), "");
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_UNSHARE, true), "") << "its libraries choose smaller kernels";
    EXPECT_NE(refused(owner, v1::OVER_LIMIT_UNSHARE), "");
    does_not_fit(open(3), 65'536, true);
    EXPECT_NE(refused(owner, v1::OVER_LIMIT_UNSHARE, true), "") << "they did not";
}

TEST_F(UnfitTest, SaidAgainItIsNoNews) {
    renderer(1);
    Process& compute = open(2);
    does_not_fit(compute);
    const int changes = changes_;
    events_.clear();
    pass(100s);
    EXPECT_EQ(does_not_fit(compute).does_not_fit_reply().held_ms(), 500'000u);
    EXPECT_EQ(changes_, changes);
    EXPECT_THAT(kinds(), Not(Contains("unshared")));
}

TEST_F(UnfitTest, LetBackByWhoSteersTheName) {
    Process& owner = renderer(1);
    EXPECT_EQ(unquarantine("game").error().code, Code::kNotFound);
    does_not_fit(open(2, "/bin/compute", 1001));
    EXPECT_EQ(unquarantine("game", 1001).error().code, Code::kPermissionDenied);
    EXPECT_NE(refused(owner, v1::OVER_LIMIT_UNSHARE, false, "/bin/compute", "game", 1001), "");
    const Result<v1::UnquarantineReply> lifted = unquarantine("game");
    ASSERT_TRUE(lifted);
    EXPECT_EQ(lifted->lifted(), 1u);
    EXPECT_THAT(kinds(), Contains("unquarantined"));
    EXPECT_EQ(refused(owner, v1::OVER_LIMIT_UNSHARE, false, "/bin/compute", "game", 1001), "");
    EXPECT_EQ(registry_.next_deadline(), std::nullopt);
}

TEST_F(UnfitTest, AnotherOwnersNameIsAnotherName) {
    Process& owner = renderer(1, "game", 1000);
    does_not_fit(open(2, "/bin/compute", 1001));
    registry_.close_session(owner.id, {Code::kCancelled, "gone", ""});
    Process& next = renderer(3, "game", 1002);
    EXPECT_EQ(refused(next, v1::OVER_LIMIT_UNSHARE, false, "/bin/compute", "game", 1001), "");
    registry_.close_session(next.id, {Code::kCancelled, "gone", ""});
    Process& back = renderer(4, "game", 1000);
    EXPECT_NE(refused(back, v1::OVER_LIMIT_UNSHARE, false, "/bin/compute", "game", 1001), "");
}

TEST_F(UnfitTest, WhatIsNotTaken) {
    renderer(1);
    Process& compute = open(2);
    EXPECT_EQ(does_not_fit(compute, 65'536, false, "-x").error().code(), 3u);
    EXPECT_EQ(does_not_fit(compute, 49'152).error().code(), 3u) << "that fits";
    EXPECT_EQ(does_not_fit(compute, 49'152, false, "game", 0).error().code(), 3u);
    EXPECT_EQ(does_not_fit(compute, 65'536, false, "none").error().code(), 5u);
    EXPECT_EQ(does_not_fit(open(3, "/bin/compute", 1002)).error().code(), 7u) << "it may not attach at all";
    const std::vector<std::string> said = kinds();
    EXPECT_EQ(std::count(said.begin(), said.end(), "unshare-refused"), 5);
    EXPECT_EQ(status().unfit_size(), 0);
    EXPECT_EQ(changes_, 0);
}

TEST_F(UnfitTest, SwitchedOff) {
    Process& owner = renderer(1);
    Settings settings;
    settings.unshare.first = 0ms;
    registry_.set_settings(settings);
    events_.clear();
    EXPECT_EQ(does_not_fit(open(2)).does_not_fit_reply().held_ms(), 0u);
    EXPECT_EQ(refused(owner), "");
    EXPECT_THAT(kinds(), Not(Contains("unshared")));
    EXPECT_EQ(status().unfit_size(), 0);
}

TEST_F(UnfitTest, OutlivesTheDaemon) {
    renderer(1);
    does_not_fit(open(2));
    const std::string text = registry_.faults_text();
    Registry next(
        Identity{"test", "/h", v1::FEATURE_SHARE, false}, Settings{}, [this] { return now_; }, [] { return Token{}; },
        Registry::Hooks{{}, {}});
    EXPECT_EQ(next.load_faults(text), 0u) << text;
    v1::StatusReply reply;
    next.fill_status(reply);
    ASSERT_EQ(reply.unfit_size(), 1);
    EXPECT_EQ(reply.unfit(0).program(), "/bin/compute");
    EXPECT_GT(reply.unfit(0).left_ms(), 590'000u);
    EXPECT_LE(reply.unfit(0).left_ms(), 600'000u);
    EXPECT_EQ(reply.faults_size(), 0);
}

}  // namespace
}  // namespace vuda::daemon
