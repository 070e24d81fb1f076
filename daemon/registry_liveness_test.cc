// Owners that do not answer. Time is the test's own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "daemon/registry.h"

namespace vuda::daemon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

const std::string kGpuOfAll(16, '\x11');

class LivenessTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        std::optional<Error> closed;
        void send(const v1::ServerMessage& message) override { sent.push_back(message); }
        void close(const Error& reason) override { closed = reason; }

        size_t count(v1::ServerMessage::BodyCase kind) const {
            size_t sum = 0;
            for (const auto& message : sent) sum += message.body_case() == kind ? 1 : 0;
            return sum;
        }
        // The newest error; code 0 if there is none.
        v1::Error error() const {
            for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
                if (it->has_error()) return it->error();
            }
            return {};
        }
    };

    Process& open(pid_t pid, uid_t uid = 1000, uint64_t features = v1::FEATURE_SHARE | v1::FEATURE_HEARTBEAT) {
        Process& process = processes_.emplace_back();
        process.peer.process = {pid, static_cast<uint64_t>(pid)};
        process.peer.uid = process.peer.gid = uid;
        process.peer.program = "prog";
        v1::Hello hello;
        hello.set_features(features);
        const Result<SessionId> id = registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        EXPECT_TRUE(id.ok());
        process.id = id ? *id : 0;
        return process;
    }
    void say(const Process& process, v1::ClientMessage message) {
        message.set_id(2);
        registry_.receive(process.id, message);
    }
    void register_name(const Process& process, const std::string& name = "game") {
        v1::ClientMessage message;
        message.mutable_register_request()->set_name(name);
        message.mutable_register_request()->set_gpu_uuid(kGpuOfAll);
        say(process, message);
    }
    Process& owner(pid_t pid) {
        Process& process = open(pid);
        register_name(process);
        EXPECT_EQ(process.count(v1::ServerMessage::kRegisterReply), 1u);
        return process;
    }
    void attach(const Process& process) {
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name("game");
        message.mutable_attach_request()->set_gpu_uuid(kGpuOfAll);
        message.mutable_attach_request()->set_channels(8);
        say(process, message);
    }
    void pong(const Process& process) {
        v1::ClientMessage message;
        message.mutable_pong();
        registry_.receive(process.id, message);
    }
    // In steps, so that every deadline is kept on the way.
    void pass(Milliseconds time) {
        for (const TimePoint end = now_ + time; now_ < end;) {
            now_ = std::min(end, now_ + 100ms);
            if (const auto next = registry_.next_deadline(); next && *next <= now_) registry_.expire();
        }
    }
    std::vector<std::string> kinds() const { return kinds_; }

    TimePoint now_{1000s};
    uint8_t tokens_ = 0;
    std::vector<std::string> kinds_;
    std::deque<Process> processes_;
    Registry registry_{Identity{"test", "/h", v1::FEATURE_SHARE | v1::FEATURE_HEARTBEAT, false}, Settings{},
                       [this] { return now_; },
                       [this] {
                           Token token;
                           token.fill(++tokens_);
                           return token;
                       },
                       Registry::Hooks{[this](const v1::Event& event) { kinds_.push_back(event.kind()); }, {}, {}}};
};

TEST_F(LivenessTest, AnOwnerIsAskedNowAndThenAndKeepsItsName) {
    Process& renderer = owner(1);
    EXPECT_TRUE(registry_.next_deadline());
    for (int i = 1; i <= 20; ++i) {
        pass(5000ms);
        EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), static_cast<size_t>(i));
        pong(renderer);
    }
    EXPECT_EQ(registry_.name_count(), 1u);
    EXPECT_THAT(kinds(), Not(Contains("owner-silent")));
}

TEST_F(LivenessTest, WhoTalksAnywayIsNotAsked) {
    Process& renderer = owner(1);
    for (int i = 0; i < 20; ++i) {
        pass(3000ms);
        register_name(renderer);
    }
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 0u);
}

TEST_F(LivenessTest, AttachesToASilentOwnersNameAreRefusedAtOnce) {
    Process& renderer = owner(1);
    pass(10'000ms);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 1u);
    EXPECT_THAT(kinds(), Contains("owner-silent"));
    Process& cuda = open(2);
    attach(cuda);
    EXPECT_EQ(cuda.error().code(), static_cast<uint32_t>(Code::kUnavailable));
    EXPECT_THAT(cuda.error().text(), HasSubstr("pid 1 (prog), has not answered for 10 s"));
    EXPECT_EQ(renderer.count(v1::ServerMessage::kExportRequest), 0u);

    pong(renderer);
    EXPECT_THAT(kinds(), Contains("owner-speaks"));
    attach(cuda);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kExportRequest), 1u);
}

TEST_F(LivenessTest, AnExportThatDoesNotComeIsSilenceAndAllWhoWaitAreTold) {
    Process& renderer = owner(1);
    std::vector<Process*> waiting;
    for (pid_t pid = 2; pid < 7; ++pid) {
        waiting.push_back(&open(pid));
        attach(*waiting.back());
    }
    pass(1000ms);  // one export limit, not five
    EXPECT_EQ(waiting[0]->error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    for (size_t i = 1; i < waiting.size(); ++i)
        EXPECT_EQ(waiting[i]->error().code(), static_cast<uint32_t>(Code::kUnavailable));
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 1u);  // its answer is the way back
    EXPECT_EQ(registry_.waiting_count(), 0u);
}

TEST_F(LivenessTest, AnAttachersImpatienceIsNotTheOwnersSilence) {
    Process& renderer = owner(1);
    Process& hasty = open(2);
    v1::ClientMessage message;
    message.mutable_attach_request()->set_name("game");
    message.mutable_attach_request()->set_gpu_uuid(kGpuOfAll);
    message.mutable_attach_request()->set_channels(8);
    message.mutable_attach_request()->set_deadline_ms(10);
    say(hasty, message);
    pass(500ms);
    EXPECT_EQ(hasty.error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    EXPECT_THAT(kinds(), Not(Contains("owner-silent")));
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 0u);
}

TEST_F(LivenessTest, AnOwnerThatIsSlowToExportIsNotSilent) {
    Process& renderer = owner(1);
    Process& cuda = open(2);
    attach(cuda);
    ASSERT_EQ(renderer.sent.back().body_case(), v1::ServerMessage::kExportRequest);
    pass(500ms);
    ASSERT_TRUE(registry_.begin_push(renderer.sent.back().export_request().token(), renderer.peer).ok());
    pass(500ms);
    EXPECT_EQ(cuda.error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    EXPECT_THAT(kinds(), Not(Contains("owner-silent")));
}

TEST_F(LivenessTest, ASessionThatStaysSilentEnds) {
    Process& renderer = owner(1);
    pass(29'900ms);
    EXPECT_FALSE(renderer.closed);
    pass(100ms);
    ASSERT_TRUE(renderer.closed);
    EXPECT_EQ(renderer.closed->code, Code::kUnavailable);
    EXPECT_EQ(registry_.name_count(), 0u);
    EXPECT_EQ(registry_.session_count(), 0u);
    EXPECT_EQ(registry_.counters().silent_ends, 1u);
    EXPECT_FALSE(registry_.next_deadline());  // nothing left that would wake an idle daemon
    Process& heir = open(2, 1001);
    register_name(heir);
    EXPECT_EQ(heir.count(v1::ServerMessage::kRegisterReply), 1u);
}

TEST_F(LivenessTest, ReleaseZeroKeepsTheNameForEver) {
    Settings settings;
    settings.release = 0ms;
    registry_.set_settings(settings);
    Process& renderer = owner(1);
    pass(1h);
    EXPECT_EQ(registry_.name_count(), 1u);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 1u);
    pong(renderer);
    pass(5000ms);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 2u);
}

TEST_F(LivenessTest, HeartbeatZeroNeverAsks) {
    Settings settings;
    settings.heartbeat = 0ms;
    registry_.set_settings(settings);
    Process& renderer = owner(1);
    EXPECT_FALSE(registry_.next_deadline());
    pass(1h);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 0u);
    EXPECT_EQ(registry_.name_count(), 1u);
}

TEST_F(LivenessTest, AShorterPaceAfterAReloadIsNoSurpriseForThoseWhoLive) {
    Process& renderer = owner(1);
    pass(4000ms);
    Settings settings;
    settings.heartbeat = 500ms;
    settings.release = 10'000ms;
    registry_.set_settings(settings);
    pass(100ms);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 1u);
    EXPECT_THAT(kinds(), Not(Contains("owner-silent")));
    pong(renderer);
    EXPECT_EQ(registry_.name_count(), 1u);
}

TEST_F(LivenessTest, ASilentOwnersNameIsItsUsersToTake) {
    Process& renderer = owner(1);
    pass(10'000ms);
    Process& stranger = open(2, 1001);
    register_name(stranger);
    EXPECT_EQ(stranger.error().code(), static_cast<uint32_t>(Code::kAlreadyExists));
    EXPECT_THAT(stranger.error().text(), HasSubstr("does not answer"));
    Process& again = open(3);
    register_name(again);
    EXPECT_EQ(again.count(v1::ServerMessage::kRegisterReply), 1u);
    EXPECT_TRUE(renderer.closed);
    EXPECT_EQ(registry_.name_count(), 1u);
}

TEST_F(LivenessTest, OlderClientsAreNotAsked) {
    Process& renderer = open(1, 1000, v1::FEATURE_SHARE);
    register_name(renderer);
    pass(1h);
    EXPECT_EQ(renderer.count(v1::ServerMessage::kPing), 0u);
    EXPECT_EQ(registry_.name_count(), 1u);
    Process& cuda = open(2);
    attach(cuda);
    pass(1000ms);
    EXPECT_EQ(cuda.error().code(), static_cast<uint32_t>(Code::kDeadlineExceeded));
    attach(cuda);  // waits for it again
    EXPECT_EQ(renderer.count(v1::ServerMessage::kExportRequest), 2u);
}

// Its channels are in the TSG whether it runs or not.
TEST_F(LivenessTest, WhoOwnsNothingIsNeverAskedNorEnded) {
    Process& renderer = owner(1);
    Process& cuda = open(2);
    for (int i = 0; i < 100; ++i) {
        pass(1000ms);
        pong(renderer);
    }
    EXPECT_EQ(cuda.count(v1::ServerMessage::kPing), 0u);
    EXPECT_FALSE(cuda.closed);
}

}  // namespace
}  // namespace vuda::daemon
