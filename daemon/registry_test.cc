#include "daemon/registry.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

namespace vuda::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const std::string kGpu(16, '\x11');
const std::string kOtherGpu(16, '\x22');

class RegistryTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        std::optional<Error> closed;

        void send(const v1::ServerMessage& message) override { sent.push_back(message); }
        void close(const Error& reason) override { closed = reason; }

        // The oldest message, which must be of the kind asked for.
        v1::ServerMessage take(v1::ServerMessage::BodyCase kind) {
            if (sent.empty()) {
                ADD_FAILURE() << peer.describe() << " got nothing, wanted message kind " << kind;
                return {};
            }
            v1::ServerMessage message = sent.front();
            sent.pop_front();
            EXPECT_EQ(message.body_case(), kind) << peer.describe() << ": " << message.ShortDebugString();
            return message;
        }
        v1::Error take_error() { return take(v1::ServerMessage::kError).error(); }
    };

    static Peer peer_of(pid_t pid, uid_t uid = 1000) {
        Peer peer;
        peer.process = {pid, static_cast<uint64_t>(pid) * 7};
        peer.uid = uid;
        peer.gid = uid;
        peer.program = "prog" + std::to_string(pid);
        return peer;
    }

    Process& open(pid_t pid, uid_t uid = 1000, const std::string& driver = "580.159.04",
                  uint64_t features = v1::FEATURE_SHARE | v1::FEATURE_SLO) {
        Process& process = processes_.emplace_back();
        process.peer = peer_of(pid, uid);
        v1::Hello hello;
        hello.set_features(features);
        hello.set_driver_version(driver);
        Result<SessionId> id = registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().to_string());
        if (id) {
            process.id = *id;
            process.take(v1::ServerMessage::kHelloReply);
        }
        return process;
    }

    void say(Process& process, v1::ClientMessage message, uint64_t id = 2) {
        message.set_id(id);
        registry_.receive(process.id, message);
    }

    void send_register(Process& process, const std::string& name, const std::string& gpu = kGpu) {
        v1::ClientMessage message;
        message.mutable_register_request()->set_name(name);
        message.mutable_register_request()->set_gpu_uuid(gpu);
        say(process, message);
    }

    Process& renderer(pid_t pid, const std::string& name, uid_t uid = 1000) {
        Process& process = open(pid, uid);
        send_register(process, name);
        process.take(v1::ServerMessage::kRegisterReply);
        return process;
    }

    void send_attach(Process& process, const std::string& name, uint32_t channels = 8, const std::string& gpu = kGpu,
                     uint32_t deadline_ms = 0) {
        v1::ClientMessage message;
        v1::AttachRequest& request = *message.mutable_attach_request();
        request.set_name(name);
        request.set_gpu_uuid(gpu);
        request.set_channels(channels);
        request.set_deadline_ms(deadline_ms);
        say(process, message);
    }

    void send_done(Process& process, uint32_t moved = 8, uint32_t veid = 63, uint64_t veids = 0) {
        v1::ClientMessage message;
        v1::AttachDone& done = *message.mutable_attach_done();
        done.set_state(v1::SHARING_STATE_SHARING);
        done.set_channels_moved(moved);
        done.set_veid(veid);
        done.set_veids(veids);
        done.set_attach_us(1500);
        say(process, message);
    }

    // Understands Subcontexts.
    Process& follower(pid_t pid) { return open(pid, 1000, "580.159.04", v1::FEATURE_SHARE | v1::FEATURE_SUBCONTEXTS); }
    void send_subcontexts(Process& process, uint64_t taken, uint32_t channels = 0, uint64_t stale = 0) {
        v1::ClientMessage message;
        v1::Subcontexts& now = *message.mutable_subcontexts();
        now.set_name("game");
        now.set_taken(taken);
        now.set_stale(stale);
        now.set_channels(channels);
        say(process, message, 0);
    }

    HandleSetPtr handles(size_t buffers = 2) {
        auto set = std::make_shared<HandleSet>(reaper_);
        v1::HandleBundle bundle;
        std::vector<UniqueFd> fds;
        for (size_t i = 0; i <= buffers; ++i) {
            v1::Handle& handle = *bundle.add_handles();
            handle.set_kind(i == 0 ? v1::HANDLE_KIND_TSG : v1::HANDLE_KIND_CONTROL_BUFFER);
            if (i > 0) {
                handle.set_va(0x1000 * i);
                handle.set_length(0x1000);
            }
            fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        }
        EXPECT_TRUE(set->append(bundle, std::move(fds), kHandlesPerSet).ok());
        return set;
    }

    // A renderer that numbers its sets: it is asked for one as soon as it registers.
    Process& numbering_renderer(pid_t pid, const std::string& name) {
        Process& process = open(pid, 1000, "580.159.04", v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH);
        send_register(process, name);
        process.take(v1::ServerMessage::kRegisterReply);
        return process;
    }

    // "The set that you hold is complete."
    void answer_current(Process& owner, uint64_t held) {
        const v1::ServerMessage request = owner.take(v1::ServerMessage::kExportRequest);
        EXPECT_EQ(request.export_request().held(), held);
        v1::ClientMessage message;
        message.mutable_export_current()->set_token(request.export_request().token());
        say(owner, message, 0);
    }

    // The owner answers its ExportRequest.
    void push(Process& owner, uint32_t channels_in_use = 2, uint64_t generation = 0) {
        const std::string token = owner.take(v1::ServerMessage::kExportRequest).export_request().token();
        Result<PushTicket> ticket = registry_.begin_push(token, owner.peer);
        ASSERT_TRUE(ticket.ok()) << ticket.error().to_string();
        EXPECT_TRUE(registry_.complete_push(*ticket, handles(), channels_in_use, generation).ok());
    }

    std::string take_pull_token(Process& attacher) {
        return attacher.take(v1::ServerMessage::kAttachReply).attach_reply().token();
    }

    void attach_all_the_way(Process& owner, Process& attacher, const std::string& name) {
        send_attach(attacher, name);
        push(owner);
        EXPECT_TRUE(registry_.redeem_pull(take_pull_token(attacher), attacher.peer).ok());
        send_done(attacher);
        attacher.take(v1::ServerMessage::kAttachDoneReply);
    }

    v1::StatusReply status() {
        v1::StatusReply reply;
        registry_.fill_status(reply);
        return reply;
    }

    v1::SessionInfo info(const Process& process) {
        const v1::StatusReply all = status();
        for (const v1::SessionInfo& one : all.sessions()) {
            if (one.session_id() == process.id) return one;
        }
        ADD_FAILURE() << "no session " << process.id;
        return {};
    }

    void pass(Milliseconds time) {
        now_ += time;
        registry_.expire();
    }

    FdReaper reaper_;
    TimePoint now_{1000s};
    uint8_t next_token_ = 0;
    std::vector<v1::Event> events_;
    std::optional<TimePoint> announced_;
    std::deque<Process> processes_;
    Registry registry_{
        Identity{"1.2.3", "/h.sock", v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH | v1::FEATURE_SUBCONTEXTS, true},
        Settings{}, [this] { return now_; },
        [this] {
            Token token{};
            token[0] = ++next_token_;
            return token;
        },
        Registry::Hooks{[this](const v1::Event& event) { events_.push_back(event); },
                        [this](std::optional<TimePoint> when) { announced_ = when; }}};
};

TEST_F(RegistryTest, HelloOffersWhatBothSidesKnow) {
    Process& process = processes_.emplace_back();
    process.peer = peer_of(1);
    v1::Hello hello;
    hello.set_features(v1::FEATURE_SHARE | v1::FEATURE_QUOTA);
    hello.set_program("bad\x1b[31mname");
    ASSERT_TRUE(registry_.open_session(process.peer, Transport::kGrpc, hello, 5, process).ok());
    const v1::ServerMessage message = process.take(v1::ServerMessage::kHelloReply);
    EXPECT_EQ(message.id(), 5u);
    EXPECT_EQ(message.hello_reply().features(), uint64_t{v1::FEATURE_SHARE});
    EXPECT_EQ(message.hello_reply().daemon_version(), "1.2.3");
    EXPECT_EQ(message.hello_reply().handle_socket(), "/h.sock");
    EXPECT_TRUE(message.hello_reply().simulated());
    EXPECT_EQ(status().sessions(0).peer().program(), "bad?[31mname");
    EXPECT_EQ(status().sessions(0).transport(), "grpc");
}

TEST_F(RegistryTest, NamesFollowTheRules) {
    for (const char* good : {"a", "game", "A.b_c-9", "0"}) EXPECT_TRUE(valid_name(good)) << good;
    EXPECT_TRUE(valid_name(std::string(64, 'x')));
    for (const char* bad : {"", ".a", "-a", "a b", "a/b", "a\n", "\xc3\xa4"}) EXPECT_FALSE(valid_name(bad)) << bad;
    EXPECT_FALSE(valid_name(std::string(65, 'x')));

    Process& process = open(1);
    send_register(process, "../x");
    EXPECT_EQ(process.take_error().code(), 3u);
    send_register(process, "x", "short");
    EXPECT_EQ(process.take_error().code(), 3u);
    send_register(process, "x", std::string(16, '\0'));
    EXPECT_EQ(process.take_error().code(), 3u);
    EXPECT_EQ(registry_.name_count(), 0u);
}

TEST_F(RegistryTest, TakenNameErrorNamesTheOwner) {
    renderer(4711, "game");
    Process& second = open(2);
    send_register(second, "game");
    const v1::Error error = second.take_error();
    EXPECT_EQ(error.code(), 6u);
    EXPECT_THAT(error.text(), HasSubstr("pid 4711 (prog4711), uid 1000"));
}

TEST_F(RegistryTest, RegisteringAgainUpdatesAndOneNameEachSession) {
    Process& owner = renderer(1, "game");
    v1::ClientMessage message;
    message.mutable_register_request()->set_name("game");
    message.mutable_register_request()->set_gpu_uuid(kGpu);
    message.mutable_register_request()->add_allow_uids(7);
    say(owner, message);
    owner.take(v1::ServerMessage::kRegisterReply);
    EXPECT_THAT(status().tsgs(0).allow_uids(), ElementsAre(7));
    send_register(owner, "other");
    EXPECT_EQ(owner.take_error().code(), 9u);
    EXPECT_EQ(registry_.name_count(), 1u);
}

TEST_F(RegistryTest, NewSessionOfTheSameProcessReplacesTheOld) {
    Process& before = renderer(1, "game");
    Process& after = renderer(1, "game");
    ASSERT_TRUE(before.closed.has_value());
    EXPECT_EQ(before.closed->code, Code::kAborted);
    EXPECT_EQ(registry_.session_count(), 1u);
    EXPECT_EQ(status().tsgs(0).owner_session(), after.id);
    // The replaced connection's own end comes later and changes nothing.
    registry_.close_session(before.id, {Code::kUnavailable, "closed", ""});
    EXPECT_EQ(registry_.session_count(), 1u);
}

TEST_F(RegistryTest, SamePidButAnotherProcessReplacesNothing) {
    Process& before = renderer(1, "game");
    Process& reused = processes_.emplace_back();
    reused.peer = peer_of(1);
    reused.peer.process.unique = 99;
    ASSERT_TRUE(registry_.open_session(reused.peer, Transport::kFrames, {}, 1, reused).ok());
    EXPECT_FALSE(before.closed.has_value());
    EXPECT_EQ(registry_.session_count(), 2u);
}

TEST_F(RegistryTest, AttachGoesThroughAllItsSteps) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    send_attach(attacher, "game", 8);
    EXPECT_EQ(info(attacher).state(), v1::SHARING_STATE_WAITING);
    EXPECT_TRUE(announced_.has_value());
    push(owner, 2);
    const v1::ServerMessage reply = attacher.take(v1::ServerMessage::kAttachReply);
    EXPECT_EQ(reply.id(), 2u);
    EXPECT_EQ(reply.attach_reply().handles(), 3u);
    EXPECT_EQ(reply.attach_reply().owner_pid(), 1u);
    EXPECT_EQ(reply.attach_reply().veids_used(), 0u);
    const Result<PullTicket> pull = registry_.redeem_pull(reply.attach_reply().token(), attacher.peer);
    ASSERT_TRUE(pull.ok());
    EXPECT_EQ(pull->handles->size(), 3u);
    EXPECT_EQ(pull->channels_in_use, 2u);
    send_done(attacher, 8, 63);
    attacher.take(v1::ServerMessage::kAttachDoneReply);
    EXPECT_FALSE(announced_.has_value());

    const v1::SessionInfo session = info(attacher);
    EXPECT_EQ(session.state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(session.role(), v1::ROLE_COMPUTE);
    EXPECT_EQ(session.name(), "game");
    EXPECT_EQ(session.channels_moved(), 8u);
    EXPECT_EQ(session.veid(), 63u);
    EXPECT_EQ(session.attach_us(), 1500u);
    const v1::TsgInfo tsg = status().tsgs(0);
    EXPECT_TRUE(tsg.exported());
    EXPECT_EQ(tsg.control_buffers(), 2u);
    EXPECT_EQ(tsg.channels(), 10u);
    EXPECT_THAT(tsg.attached_sessions(), ElementsAre(attacher.id));
    EXPECT_EQ(registry_.counters().attaches, 1u);
}

TEST_F(RegistryTest, RefusalsSayWhy) {
    renderer(1, "game", 1000);
    Process& same = open(2, 1000);
    send_attach(same, "nothing");
    EXPECT_EQ(same.take_error().code(), 5u);

    send_attach(same, "game", 8, kOtherGpu);
    v1::Error error = same.take_error();
    EXPECT_EQ(error.code(), 9u);
    EXPECT_THAT(error.text(), HasSubstr("GPU-11111111-1111-1111-1111-111111111111"));
    EXPECT_THAT(error.text(), HasSubstr("GPU-22222222-2222-2222-2222-222222222222"));

    Process& old = open(3, 1000, "550.100");
    send_attach(old, "game");
    error = old.take_error();
    EXPECT_EQ(error.code(), 9u);
    EXPECT_THAT(error.text(), HasSubstr("580.159.04"));
    EXPECT_THAT(error.text(), HasSubstr("550.100"));

    Process& stranger = open(4, 1001);
    send_attach(stranger, "game");
    EXPECT_EQ(stranger.take_error().code(), 7u);
    EXPECT_EQ(info(stranger).state(), v1::SHARING_STATE_UNSHARED);
    EXPECT_EQ(info(stranger).reason().code(), 7u);

    send_attach(same, "game", 0);
    EXPECT_EQ(same.take_error().code(), 3u);
    send_attach(same, "game", 129);
    EXPECT_EQ(same.take_error().code(), 3u);
    EXPECT_EQ(registry_.counters().attach_failures, 6u);
}

TEST_F(RegistryTest, RootAndAllowedUsersAndGroupsMayAttach) {
    Process& owner = open(1, 1000);
    v1::ClientMessage message;
    v1::RegisterRequest& request = *message.mutable_register_request();
    request.set_name("game");
    request.set_gpu_uuid(kGpu);
    request.add_allow_uids(1001);
    request.add_allow_gids(44);
    say(owner, message);
    owner.take(v1::ServerMessage::kRegisterReply);
    Settings settings = registry_.settings();
    settings.attach.uids = {1005};
    registry_.set_settings(settings);

    for (const uid_t uid : {0u, 1000u, 1001u, 1005u}) {
        Process& process = open(static_cast<pid_t>(100 + uid), uid);
        attach_all_the_way(owner, process, "game");
    }
    Process& member = processes_.emplace_back();
    member.peer = peer_of(50, 1002);
    member.peer.groups = {20, 44};
    v1::Hello hello;
    hello.set_driver_version("580.159.04");
    member.id = *registry_.open_session(member.peer, Transport::kFrames, hello, 1, member);
    member.take(v1::ServerMessage::kHelloReply);
    attach_all_the_way(owner, member, "game");
    Process& stranger = open(60, 1003);
    send_attach(stranger, "game");
    EXPECT_EQ(stranger.take_error().code(), 7u);
}

TEST_F(RegistryTest, TenAttachersAtOnceAreServedOneAfterTheOther) {
    Process& owner = renderer(1, "game");
    std::vector<Process*> attachers;
    for (int i = 0; i < 10; ++i) {
        attachers.push_back(&open(10 + i));
        send_attach(*attachers.back(), "game", 4);
    }
    for (Process* attacher : attachers) {
        EXPECT_EQ(owner.sent.size(), 1u);  // one export at a time
        push(owner);
        for (Process* other : attachers) EXPECT_EQ(other->sent.size(), other == attacher ? 1u : 0u);
        take_pull_token(*attacher);
        send_done(*attacher, 4);
        attacher->take(v1::ServerMessage::kAttachDoneReply);
    }
    EXPECT_EQ(status().tsgs(0).channels(), 42u);
    EXPECT_EQ(registry_.waiting_count(), 0u);
}

TEST_F(RegistryTest, ChannelBudgetIsJudgedAtTheTurn) {
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    Process& second = open(3);
    send_attach(first, "game", 100);
    send_attach(second, "game", 27);  // fits beside the first and one channel of the owner
    push(owner, 2);
    take_pull_token(first);
    send_done(first, 100);
    const v1::Error error = second.take_error();  // and the owner is not even asked
    EXPECT_EQ(error.code(), 8u);
    EXPECT_THAT(error.text(), HasSubstr("102 of 128"));
    // Detaching makes room.
    first.sent.clear();
    v1::ClientMessage notice;
    notice.mutable_detach_notice();
    say(first, notice, 0);
    EXPECT_EQ(info(first).state(), v1::SHARING_STATE_IDLE);
    send_attach(second, "game", 27);
    push(owner, 2);
    take_pull_token(second);
}

TEST_F(RegistryTest, AsManyProgramsShareATsgAsMay) {
    Settings settings;
    settings.programs_per_tsg = 1;
    registry_.set_settings(settings);
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    Process& second = open(3);
    Process& third = open(4);
    send_attach(first, "game");
    send_attach(second, "game");  // its turn comes when the first has had its own
    push(owner);
    take_pull_token(first);
    send_done(first);
    const v1::Error error = second.take_error();
    EXPECT_EQ(error.code(), 8u);
    EXPECT_THAT(error.text(), HasSubstr("'game' is shared by pid 2"));
    send_attach(third, "game");
    EXPECT_EQ(third.take_error().code(), 8u);
    first.sent.clear();
    v1::ClientMessage notice;
    notice.mutable_detach_notice();
    say(first, notice, 0);
    send_attach(second, "game");
    push(owner);
    take_pull_token(second);
    send_done(second);
    EXPECT_EQ(info(second).state(), v1::SHARING_STATE_SHARING);
    settings.programs_per_tsg = 2;
    registry_.set_settings(settings);
    send_attach(third, "game");
    push(owner);
    take_pull_token(third);
}

TEST_F(RegistryTest, ProgramsWithLaunchDescriptorsAtTheSameAddressesDoNotShare) {
    Settings settings;
    settings.same_addresses = false;
    registry_.set_settings(settings);
    Process& owner = renderer(1, "game");
    const auto ask = [&](Process& process, uint64_t base) {
        process.sent.clear();
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name("game");
        message.mutable_attach_request()->set_gpu_uuid(kGpu);
        message.mutable_attach_request()->set_channels(8);
        message.mutable_attach_request()->set_va_base(base);
        say(process, message);
    };
    const auto shares = [&](Process& process, uint64_t base) {
        ask(process, base);
        push(owner);
        process.take(v1::ServerMessage::kAttachReply);
        send_done(process);
        return info(process).state() == v1::SHARING_STATE_SHARING;
    };
    constexpr uint64_t kBase = 0x2'0000'0000, kStride = uint64_t{8} << 30;
    Process& first = open(2);
    Process& second = open(3);
    Process& third = open(4);
    EXPECT_TRUE(shares(first, 0)) << "alone it does not matter where";
    ask(second, kBase);
    EXPECT_EQ(second.take_error().code(), 9u) << "where the first one's are is not known";
    v1::ClientMessage notice;
    notice.mutable_detach_notice();
    say(first, notice, 0);
    EXPECT_TRUE(shares(first, kBase + kStride));
    for (const uint64_t base : {uint64_t{0}, kBase + 1, kBase + kStride, kBase + 2 * kStride - 1}) {
        ask(second, base);
        const v1::Error error = second.take_error();
        EXPECT_EQ(error.code(), 9u) << base;
        EXPECT_THAT(error.text(), HasSubstr("pid 2 (prog2)"));
    }
    EXPECT_TRUE(shares(second, kBase));
    EXPECT_TRUE(shares(second, kBase)) << "another context of the same process";
    EXPECT_TRUE(shares(third, kBase + 2 * kStride));
}

// Whoever says what it will attach to gets a place of its own among those.
TEST_F(RegistryTest, PlacesOfThoseThatWillAttach) {
    pid_t pid = 10;
    const auto greet = [&](const std::string& name, uint32_t held = 0) {
        Process& process = processes_.emplace_back();
        process.peer = peer_of(++pid);
        v1::Hello hello;
        hello.set_attach_name(name);
        hello.set_va_slot(held);
        Result<SessionId> id = registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        process.id = *id;
        return std::pair(*id, process.take(v1::ServerMessage::kHelloReply).hello_reply().va_slot());
    };
    const SessionId first = greet("game").first;
    EXPECT_EQ(greet("game").second, 1u);
    EXPECT_EQ(greet("other").second, 0u);
    EXPECT_EQ(greet("").second, 0u);
    EXPECT_EQ(greet("game").second, 2u);
    registry_.close_session(first, {Code::kUnavailable, "closed", ""});
    EXPECT_EQ(greet("game").second, 0u);
    EXPECT_EQ(greet("game", 8).second, 7u) << "it is there already";
    EXPECT_EQ(greet("game", 3).second, 3u) << "that one is taken";
    EXPECT_EQ(greet("no name!").second, 0u);
}

// Of subcontexts in which programs computed none may be nobody's when the next one begins to.
TEST_F(RegistryTest, WhoAttachesIsToldWhichSubcontextsToTake) {
    Process& owner = renderer(1, "game");
    const auto attach = [&](Process& process, uint32_t veid) {
        process.sent.clear();
        send_attach(process, "game");
        push(owner);
        const uint64_t stale = process.take(v1::ServerMessage::kAttachReply).attach_reply().stale_veids();
        send_done(process, 8, veid, stale);
        return stale;
    };
    const auto leave = [&](Process& process) {
        v1::ClientMessage notice;
        notice.mutable_detach_notice();
        say(process, notice, 0);
    };
    constexpr uint64_t k61 = uint64_t{1} << 61, k62 = uint64_t{1} << 62, k63 = uint64_t{1} << 63;
    Process& first = open(2);
    Process& second = open(3);
    Process& third = open(4);
    EXPECT_EQ(attach(first, 63), 0u);
    EXPECT_EQ(attach(second, 62), 0u);
    leave(second);
    leave(first);
    EXPECT_EQ(attach(third, 63), k63 | k62);
    EXPECT_EQ(attach(second, 61), 0u) << "62 is the third's, which took it";
    leave(third);
    EXPECT_EQ(attach(first, 63), k63 | k62);
    registry_.close_session(first.id, {Code::kUnavailable, "closed", ""});
    leave(second);
    EXPECT_EQ(attach(third, 63), k63 | k62 | k61);
}

// Two contexts in one process, of which one ends: the third takes its subcontext, and not that of the second.
TEST_F(RegistryTest, SubcontextsAndChannelsOfOneContextOfTwo) {
    Process& owner = renderer(1, "game");
    Process& compute = follower(2);
    const auto attach = [&](uint32_t veid) {
        send_attach(compute, "game");
        push(owner);
        const uint64_t stale = compute.take(v1::ServerMessage::kAttachReply).attach_reply().stale_veids();
        send_done(compute, 8, veid);
        compute.take(v1::ServerMessage::kAttachDoneReply);
        return stale;
    };
    attach(63);
    attach(62);
    EXPECT_EQ(info(compute).channels_moved(), 16u);
    send_subcontexts(compute, uint64_t{1} << 62, 9'999);
    EXPECT_EQ(info(compute).channels_moved(), 16u) << "more it gets by attaching only";
    send_subcontexts(compute, uint64_t{1} << 62, 8);
    EXPECT_EQ(info(compute).channels_moved(), 8u);
    EXPECT_EQ(status().tsgs(0).channels(), 2u + 8u);
    EXPECT_EQ(attach(63), uint64_t{1} << 63);
    EXPECT_EQ(info(compute).channels_moved(), 16u);
}

// CUDA in the renderer's own process computes in the TSG as well.
TEST_F(RegistryTest, TheOwnersSubcontextsAndThoseOfOthers) {
    Process& owner = follower(1);
    send_register(owner, "game");
    owner.take(v1::ServerMessage::kRegisterReply);
    constexpr uint64_t k61 = uint64_t{1} << 61, k62 = uint64_t{1} << 62, k63 = uint64_t{1} << 63;
    const auto told = [&](uint64_t taken, uint64_t stale) {
        const v1::Subcontexts others = owner.take(v1::ServerMessage::kSubcontexts).subcontexts();
        EXPECT_EQ(others.name(), "game");
        EXPECT_EQ(others.taken(), taken);
        EXPECT_EQ(others.stale(), stale);
    };
    told(0, 0);
    // It has one, and left another; what it says of subcontext 0 is nonsense.
    send_subcontexts(owner, k63 | 1, 0, k62 | 1);
    told(0, k62);
    Process& compute = follower(2);
    send_attach(compute, "game");
    push(owner);
    EXPECT_EQ(compute.take(v1::ServerMessage::kAttachReply).attach_reply().stale_veids(), k62);
    send_done(compute, 8, 62, k62 | k61);
    told(k62 | k61, 0);
    compute.take(v1::ServerMessage::kAttachDoneReply);
    send_subcontexts(owner, 0, 0, k63);
    told(k62 | k61, k63);
    send_subcontexts(owner, 0, 0, k63);
    EXPECT_TRUE(owner.sent.empty()) << "nothing new";
    registry_.close_session(compute.id, {Code::kUnavailable, "killed", ""});
    told(0, k63 | k62 | k61);
    // Who has nothing there says nothing of it.
    Process& stranger = follower(3);
    send_subcontexts(stranger, k61);
    EXPECT_TRUE(owner.sent.empty());
    send_subcontexts(owner, k63, 0, k62 | k61);
    told(0, k62 | k61);
}

// A renderer that lost its name, and those who share its TSG all the while.
TEST_F(RegistryTest, WhoSharesATsgWhoseNameComesBack) {
    constexpr uint64_t k62 = uint64_t{1} << 62, k63 = uint64_t{1} << 63;
    for (const bool same : {true, false}) {
        Process& owner = follower(same ? 1 : 11);
        send_register(owner, "game");
        owner.take(v1::ServerMessage::kRegisterReply);
        owner.take(v1::ServerMessage::kSubcontexts);
        Process& compute = follower(same ? 2 : 12);
        attach_all_the_way(owner, compute, "game");
        registry_.close_session(owner.id, {Code::kUnavailable, "silent", ""});
        EXPECT_EQ(compute.take(v1::ServerMessage::kDetachCommand).detach_command().reason().code(), 14u);
        pass(Milliseconds(3'600'000));
        Process& back = follower(same ? 1 : 13);
        v1::ClientMessage again;
        again.mutable_register_request()->set_name("game");
        again.mutable_register_request()->set_gpu_uuid(kGpu);
        again.mutable_register_request()->set_again(true);
        say(back, again, 1);
        back.take(v1::ServerMessage::kRegisterReply);
        EXPECT_EQ(back.take(v1::ServerMessage::kSubcontexts).subcontexts().taken(), same ? k63 : 0);
        EXPECT_EQ(status().tsgs(0).channels(), same ? 8u : 0u);
        EXPECT_EQ(info(compute).has_reason(), !same);
        send_subcontexts(back, 0, 0, k62 | (same ? 0 : k63));
        back.take(v1::ServerMessage::kSubcontexts);
        Process& next = follower(same ? 3 : 14);
        send_attach(next, "game");
        push(back);
        EXPECT_EQ(next.take(v1::ServerMessage::kAttachReply).attach_reply().stale_veids(), same ? k62 : k62 | k63);
        for (Process* one : {&next, &compute, &back}) registry_.close_session(one->id, {Code::kUnavailable, "", ""});
    }
}

// A vudad that was restarted does not know who computed before, and believes those who still do.
TEST_F(RegistryTest, SubcontextsOfATsgThatAnEarlierVudadServed) {
    Process& owner = open(1);
    v1::ClientMessage again;
    again.mutable_register_request()->set_name("game");
    again.mutable_register_request()->set_gpu_uuid(kGpu);
    again.mutable_register_request()->set_again(true);
    say(owner, again, 1);
    owner.take(v1::ServerMessage::kRegisterReply);
    Process& sharer = open(2);
    v1::ClientMessage report;
    report.mutable_state_report()->set_state(v1::SHARING_STATE_SHARING);
    report.mutable_state_report()->set_name("game");
    report.mutable_state_report()->set_channels_moved(16);
    report.mutable_state_report()->set_veid(62);
    report.mutable_state_report()->set_veids(uint64_t{3} << 62);
    say(sharer, report, 0);
    Process& attacher = open(3);
    send_attach(attacher, "game");
    push(owner);
    const v1::AttachReply reply = attacher.take(v1::ServerMessage::kAttachReply).attach_reply();
    EXPECT_EQ(reply.stale_veids(), 0u);
    EXPECT_EQ(reply.unknown_veids(), uint64_t{0x3fff} << 48);
    // Of these it could not have 61: somebody of whom vudad knows nothing is there.
    constexpr uint64_t kOne = 1;
    send_done(attacher, 8, 47, uint64_t{0x1fff} << 48 | kOne << 47);
    v1::ClientMessage notice;
    notice.mutable_detach_notice();
    say(attacher, notice, 0);
    Process& next = open(4);
    send_attach(next, "game");
    push(owner);
    const v1::AttachReply then = next.take(v1::ServerMessage::kAttachReply).attach_reply();
    EXPECT_EQ(then.stale_veids(), uint64_t{0x1fff} << 48 | kOne << 47);
    EXPECT_EQ(then.unknown_veids(), kOne << 61);
}

TEST_F(RegistryTest, TokensAreForOneUseOneProcessOnePurposeAndATime) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    send_attach(attacher, "game");
    const std::string token = owner.take(v1::ServerMessage::kExportRequest).export_request().token();
    EXPECT_EQ(registry_.begin_push("", owner.peer).error().code, Code::kUnauthenticated);
    EXPECT_EQ(registry_.begin_push(std::string(16, 'x'), owner.peer).error().code, Code::kUnauthenticated);
    EXPECT_EQ(registry_.begin_push(token, attacher.peer).error().code, Code::kPermissionDenied);
    Peer other_user = owner.peer;
    other_user.uid = 1;
    EXPECT_EQ(registry_.begin_push(token, other_user).error().code, Code::kPermissionDenied);
    EXPECT_EQ(registry_.redeem_pull(token, owner.peer).error().code, Code::kPermissionDenied);
    // None of that spent it.
    const Result<PushTicket> ticket = registry_.begin_push(token, owner.peer);
    ASSERT_TRUE(ticket.ok());
    EXPECT_EQ(registry_.begin_push(token, owner.peer).error().code, Code::kUnauthenticated);
    ASSERT_TRUE(registry_.complete_push(*ticket, handles(), 2).ok());
    EXPECT_EQ(registry_.complete_push(*ticket, handles(), 2).error().code, Code::kAborted);

    const std::string pull = take_pull_token(attacher);
    EXPECT_EQ(registry_.redeem_pull(pull, owner.peer).error().code, Code::kPermissionDenied);
    now_ += registry_.settings().turn_limit;
    EXPECT_EQ(registry_.redeem_pull(pull, attacher.peer).error().code, Code::kUnauthenticated);
    EXPECT_EQ(registry_.counters().tokens_refused, 8u);
}

TEST_F(RegistryTest, OwnerThatDoesNotExportCostsItsAttacherOnlyTheTime) {
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    Process& second = open(3);
    attach_all_the_way(owner, first, "game");  // handles of an earlier export are at hand, and are not used
    Process& third = open(4);
    send_attach(second, "game");
    send_attach(third, "game");
    const std::string token = owner.take(v1::ServerMessage::kExportRequest).export_request().token();
    pass(registry_.settings().export_limit - 1ms);
    EXPECT_TRUE(second.sent.empty());
    pass(1ms);
    const v1::Error error = second.take_error();
    EXPECT_EQ(error.code(), 4u);
    EXPECT_THAT(error.text(), HasSubstr("pid 1 (prog1)"));
    EXPECT_EQ(registry_.begin_push(token, owner.peer).error().code, Code::kUnauthenticated);
    push(owner);  // the next one's turn has begun
    take_pull_token(third);
}

TEST_F(RegistryTest, RefusedExportReachesTheAttacher) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    send_attach(attacher, "game");
    const std::string token = owner.take(v1::ServerMessage::kExportRequest).export_request().token();
    v1::ClientMessage refused;
    refused.mutable_export_refused()->set_token("another turn's  ");
    say(owner, refused, 0);
    EXPECT_TRUE(attacher.sent.empty());
    refused.mutable_export_refused()->set_token(token);
    refused.mutable_export_refused()->mutable_error()->set_code(9);
    refused.mutable_export_refused()->mutable_error()->set_text("no TSG\nyet");
    say(owner, refused, 0);
    const v1::Error error = attacher.take_error();
    EXPECT_EQ(error.code(), 9u);
    EXPECT_THAT(error.text(), HasSubstr("refused: no TSG?yet"));
}

TEST_F(RegistryTest, SetIsExportedAheadAndUsedWhileItIsCurrent) {
    Process& owner = numbering_renderer(1, "game");
    EXPECT_EQ(registry_.waiting_count(), 0u);
    push(owner, 2, 7);
    EXPECT_FALSE(announced_.has_value()) << "an export made ahead leaves no turn behind";
    for (const pid_t pid : {2, 3}) {
        Process& attacher = open(pid);
        send_attach(attacher, "game");
        answer_current(owner, 7);
        const Result<PullTicket> pull = registry_.redeem_pull(take_pull_token(attacher), attacher.peer);
        ASSERT_TRUE(pull.ok());
        EXPECT_EQ(pull->handles->size(), 3u);
        EXPECT_EQ(pull->channels_in_use, 2u);
        send_done(attacher);
        attacher.take(v1::ServerMessage::kAttachDoneReply);
    }
    EXPECT_EQ(registry_.counters().exports, 1u);
}

TEST_F(RegistryTest, SetThatIsOutOfDateIsExportedAgain) {
    Process& owner = numbering_renderer(1, "game");
    push(owner, 2, 7);
    Process& attacher = open(2);
    send_attach(attacher, "game");
    push(owner, 3, 8);
    const Result<PullTicket> pull = registry_.redeem_pull(take_pull_token(attacher), attacher.peer);
    ASSERT_TRUE(pull.ok());
    EXPECT_EQ(pull->channels_in_use, 3u);
    send_done(attacher);
    attacher.take(v1::ServerMessage::kAttachDoneReply);
    Process& next = open(3);
    send_attach(next, "game");
    answer_current(owner, 8);
    take_pull_token(next);
}

TEST_F(RegistryTest, AttachDuringAnExportAheadWaitsForItAndThenAsks) {
    Process& owner = numbering_renderer(1, "game");
    Process& attacher = open(2);
    send_attach(attacher, "game");
    EXPECT_EQ(registry_.waiting_count(), 1u);
    push(owner, 2, 7);
    answer_current(owner, 7);
    take_pull_token(attacher);
}

TEST_F(RegistryTest, ExportAheadThatFailsCostsNobodyAnything) {
    for (const bool refuse : {true, false}) {
        const std::string name = refuse ? "refusing" : "silent";
        Process& owner = numbering_renderer(refuse ? 1 : 11, name);
        Process& attacher = open(refuse ? 2 : 12);
        send_attach(attacher, name);
        const std::string token = owner.take(v1::ServerMessage::kExportRequest).export_request().token();
        if (refuse) {
            v1::ClientMessage message;
            message.mutable_export_refused()->set_token(token);
            message.mutable_export_refused()->mutable_error()->set_code(9);
            say(owner, message, 0);
        } else {
            pass(registry_.settings().export_limit);
        }
        EXPECT_EQ(registry_.counters().attach_failures, 0u);
        EXPECT_EQ(info(attacher).state(), v1::SHARING_STATE_WAITING);
        push(owner, 2, 1);
        take_pull_token(attacher);
    }
}

TEST_F(RegistryTest, OwnerCannotCallASetCurrentThatItNeverSent) {
    Process& owner = numbering_renderer(1, "game");
    push(owner, 2, 0);  // promised numbers and gives none
    Process& attacher = open(2);
    send_attach(attacher, "game");
    answer_current(owner, 0);
    EXPECT_EQ(attacher.take_error().code(), static_cast<uint32_t>(Code::kDataLoss));
    EXPECT_EQ(registry_.waiting_count(), 0u);
    // And out of turn it means nothing.
    v1::ClientMessage message;
    message.mutable_export_current()->set_token(std::string(16, '\x07'));
    say(owner, message, 0);
    EXPECT_EQ(registry_.waiting_count(), 0u);
}

TEST_F(RegistryTest, BrokenPushReachesTheAttacher) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    send_attach(attacher, "game");
    const PushTicket ticket =
        *registry_.begin_push(owner.take(v1::ServerMessage::kExportRequest).export_request().token(), owner.peer);
    registry_.abandon_push(ticket, {Code::kDataLoss, "the connection ended inside a frame", ""});
    EXPECT_THAT(attacher.take_error().text(), HasSubstr("could not hand over"));
    EXPECT_EQ(registry_.complete_push(ticket, handles(), 1).error().code, Code::kAborted);
}

TEST_F(RegistryTest, AttacherThatHangsLosesItsTurnButItsChannelsStillCount) {
    Process& owner = renderer(1, "game");
    Process& slow = open(2);
    Process& next = open(3);
    send_attach(slow, "game", 8);
    push(owner);
    take_pull_token(slow);
    send_attach(next, "game", 8, kGpu, 5000);
    pass(registry_.settings().turn_limit);
    EXPECT_EQ(info(slow).state(), v1::SHARING_STATE_UNSHARED);
    EXPECT_EQ(info(slow).reason().code(), 4u);
    EXPECT_TRUE(slow.sent.empty());  // its request has its answer
    push(owner);
    take_pull_token(next);
    send_done(slow, 8);  // late
    slow.take(v1::ServerMessage::kAttachDoneReply);
    EXPECT_EQ(info(slow).state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(status().tsgs(0).channels(), 10u);
    send_done(next, 8);  // its turn was not ended by the other's word
    next.take(v1::ServerMessage::kAttachDoneReply);
    EXPECT_EQ(status().tsgs(0).channels(), 18u);
}

TEST_F(RegistryTest, WaitersTimeOutWithTheNameOfTheOneBeforeThem) {
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    Process& second = open(3);
    send_attach(first, "game");
    push(owner);
    send_attach(second, "game", 8, kGpu, 100);
    EXPECT_EQ(*announced_, now_ + 100ms);
    pass(100ms);
    const v1::Error error = second.take_error();
    EXPECT_EQ(error.code(), 4u);
    EXPECT_THAT(error.text(), HasSubstr("pid 2 (prog2) is still attaching"));
    // Longer deadlines than the configuration allows are cut.
    send_attach(second, "game", 8, kGpu, 3'600'000);
    pass(registry_.settings().attach_max);
    EXPECT_FALSE(second.sent.empty());
}

TEST_F(RegistryTest, GivingUpEndsTheTurnAtOnce) {
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    Process& second = open(3);
    Process& third = open(4);
    for (Process* process : {&first, &second, &third}) send_attach(*process, "game");
    v1::ClientMessage give_up;
    give_up.mutable_attach_done()->set_state(v1::SHARING_STATE_UNSHARED);
    say(second, give_up);  // while queued
    second.take(v1::ServerMessage::kAttachDoneReply);
    say(first, give_up);  // while the owner is being asked
    first.take(v1::ServerMessage::kAttachDoneReply);
    owner.take(v1::ServerMessage::kExportRequest);  // the first one's
    push(owner);
    take_pull_token(third);
    say(third, give_up);  // instead of importing
    third.take(v1::ServerMessage::kAttachDoneReply);
    EXPECT_EQ(registry_.waiting_count(), 0u);
    EXPECT_EQ(info(third).state(), v1::SHARING_STATE_UNSHARED);
    say(third, give_up);
    EXPECT_EQ(third.take_error().code(), 9u);
}

TEST_F(RegistryTest, DeathOfTheAttacherAtEveryStepFreesTheTurn) {
    const Error died{Code::kUnavailable, "the process ended", ""};
    for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(step);
        Process& owner = renderer(100 + step, "game");
        Process& victim = open(200 + step);
        Process& other = open(300 + step);
        send_attach(victim, "game");
        send_attach(other, "game");
        PushTicket ticket;
        if (step == 1) {
            ticket = *registry_.begin_push(owner.take(v1::ServerMessage::kExportRequest).export_request().token(),
                                           owner.peer);
        } else if (step >= 2) {
            push(owner);
            const std::string token = take_pull_token(victim);
            if (step == 3) {
                ASSERT_TRUE(registry_.redeem_pull(token, victim.peer).ok());
            }
        } else {
            owner.take(v1::ServerMessage::kExportRequest);
        }
        registry_.close_session(victim.id, died);
        if (step == 1) {
            EXPECT_EQ(registry_.complete_push(ticket, handles(), 1).error().code, Code::kAborted);
        }
        push(owner);
        take_pull_token(other);
        send_done(other);
        other.take(v1::ServerMessage::kAttachDoneReply);
        EXPECT_EQ(status().tsgs(0).channels(), 10u);
        registry_.close_session(other.id, died);
        EXPECT_EQ(status().tsgs(0).channels(), 2u);
        registry_.close_session(owner.id, died);
        EXPECT_EQ(registry_.session_count(), 0u);
        EXPECT_EQ(registry_.next_deadline(), std::nullopt);
    }
}

TEST_F(RegistryTest, DeathOfTheOwnerAtEveryStepIsToldToEverybody) {
    const Error died{Code::kUnavailable, "the process ended", ""};
    for (int step = 0; step < 3; ++step) {
        SCOPED_TRACE(step);
        Process& owner = renderer(100 + step, "game");
        Process& sharing = open(200 + step);
        attach_all_the_way(owner, sharing, "game");
        Process& attacher = open(300 + step);
        Process& queued = open(400 + step);
        send_attach(attacher, "game");
        send_attach(queued, "game");
        std::string token;
        if (step == 1) {
            ASSERT_TRUE(
                registry_.begin_push(owner.take(v1::ServerMessage::kExportRequest).export_request().token(), owner.peer)
                    .ok());
        } else if (step == 2) {
            push(owner);
            token = take_pull_token(attacher);
        }
        registry_.close_session(owner.id, died);
        EXPECT_EQ(registry_.name_count(), 0u);
        EXPECT_EQ(registry_.handle_count(), 0u);
        const v1::Error error = queued.take_error();
        EXPECT_EQ(error.code(), 14u);
        EXPECT_THAT(error.text(), HasSubstr("went away"));
        if (step < 2) {
            EXPECT_EQ(attacher.take_error().code(), 14u);
        } else {
            EXPECT_EQ(registry_.redeem_pull(token, attacher.peer).error().code, Code::kUnauthenticated);
            send_done(attacher);  // it had imported before the owner went: it shares a TSG that only it keeps alive
            attacher.take(v1::ServerMessage::kAttachDoneReply);
            EXPECT_EQ(info(attacher).state(), v1::SHARING_STATE_SHARING);
            EXPECT_EQ(info(attacher).reason().code(), 14u);
        }
        EXPECT_EQ(sharing.take(v1::ServerMessage::kDetachCommand).detach_command().reason().code(), 14u);
        EXPECT_EQ(info(sharing).state(), v1::SHARING_STATE_SHARING);
        send_attach(queued, "game");
        EXPECT_EQ(queued.take_error().code(), 5u);
        // A new renderer takes the name; whoever shares the old TSG may attach to the new one.
        Process& reborn = renderer(500 + step, "game");
        EXPECT_EQ(status().tsgs(0).attached_sessions_size(), 0);
        attach_all_the_way(reborn, sharing, "game");
        EXPECT_EQ(info(sharing).channels_moved(), 8u);
        for (const Process* process : {&sharing, &attacher, &queued, &reborn})
            registry_.close_session(process->id, died);
        EXPECT_EQ(registry_.session_count(), 0u);
    }
}

// A program with one context in the TSG began to attach a second one when an earlier daemon lived.
TEST_F(RegistryTest, WhatAnEarlierDaemonGrantedComesOnTop) {
    renderer(1, "game");
    Process& sharer = open(2);
    const auto report = [&](uint32_t channels) {
        v1::ClientMessage message;
        v1::StateReport& state = *message.mutable_state_report();
        state.set_state(v1::SHARING_STATE_SHARING);
        state.set_name("game");
        state.set_channels_moved(channels);
        state.set_veid(60);
        say(sharer, message);
        return status().tsgs(0).channels();
    };
    EXPECT_EQ(report(8), 8u);
    EXPECT_EQ(report(16), 16u);
    EXPECT_EQ(info(sharer).channels_moved(), 16u);
    EXPECT_EQ(report(16), 16u);
    EXPECT_EQ(report(12), 16u);
    EXPECT_EQ(report(1000), kChannelsPerTsg);
    registry_.close_session(sharer.id, {Code::kUnavailable, "died", ""});
    EXPECT_EQ(status().tsgs(0).channels(), 0u);
}

TEST_F(RegistryTest, HandlesAreReplacedAndTheOldSetLivesWhileInUse) {
    Process& owner = renderer(1, "game");
    Process& first = open(2);
    send_attach(first, "game");
    push(owner);
    const HandleSetPtr in_use = registry_.redeem_pull(take_pull_token(first), first.peer)->handles;
    send_done(first);
    Process& second = open(3);
    send_attach(second, "game");
    push(owner);
    EXPECT_NE(registry_.redeem_pull(take_pull_token(second), second.peer)->handles, in_use);
    EXPECT_EQ(in_use.use_count(), 1);
    EXPECT_EQ(::fcntl(in_use->items()[0]->fd.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(RegistryTest, LimitsPerUser) {
    Settings settings;
    settings.sessions_per_uid = 3;
    settings.names_per_uid = 2;
    settings.handles_per_uid = 4;
    registry_.set_settings(settings);
    Process& owner = renderer(1, "one");
    renderer(2, "two");
    Process& third = open(3);
    send_register(third, "three");
    EXPECT_EQ(third.take_error().code(), 8u);
    Process fourth;
    EXPECT_EQ(registry_.open_session(peer_of(4), Transport::kFrames, {}, 1, fourth).error().code,
              Code::kResourceExhausted);
    EXPECT_TRUE(registry_.open_session(peer_of(4, 1001), Transport::kFrames, {}, 1, fourth).ok());
    // A process that comes back is not counted against itself.
    EXPECT_TRUE(registry_.open_session(peer_of(3), Transport::kFrames, {}, 1, third).ok());

    Process& attacher = open(9, 0);
    send_attach(attacher, "one");
    const Result<PushTicket> ticket =
        registry_.begin_push(owner.take(v1::ServerMessage::kExportRequest).export_request().token(), owner.peer);
    EXPECT_EQ(ticket->handle_limit, 4u);
}

TEST_F(RegistryTest, FaultOfTheOwnerClosesTheNameUntilItRegistersAgain) {
    Process& owner = renderer(1, "game");
    Process& waiting = open(2);
    send_attach(waiting, "game");
    owner.take(v1::ServerMessage::kExportRequest);
    v1::ClientMessage report;
    report.mutable_state_report()->set_state(v1::SHARING_STATE_FAULTED);
    report.mutable_state_report()->mutable_reason()->set_text("Xid 31");
    say(owner, report, 0);
    EXPECT_EQ(waiting.take_error().code(), 9u);
    send_attach(waiting, "game");
    EXPECT_EQ(waiting.take_error().code(), 9u);
    EXPECT_EQ(info(owner).state(), v1::SHARING_STATE_FAULTED);
    send_register(owner, "game");
    owner.take(v1::ServerMessage::kRegisterReply);
    attach_all_the_way(owner, waiting, "game");
    // An attacher's word closes nothing.
    say(waiting, report, 0);
    EXPECT_EQ(info(waiting).state(), v1::SHARING_STATE_FAULTED);
    Process& other = open(3);
    attach_all_the_way(owner, other, "game");
}

TEST_F(RegistryTest, OperatorDetaches) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    attach_all_the_way(owner, attacher, "game");
    EXPECT_EQ(registry_.detach(999, peer_of(9, 0)).error().code, Code::kNotFound);
    EXPECT_EQ(registry_.detach(attacher.id, peer_of(9, 1001)).error().code, Code::kPermissionDenied);
    ASSERT_TRUE(registry_.detach(attacher.id, peer_of(9, 1000)).ok());
    EXPECT_EQ(attacher.take(v1::ServerMessage::kDetachCommand).detach_command().reason().code(), 1u);
    // Its channels are where they are until it says otherwise.
    EXPECT_EQ(status().tsgs(0).channels(), 10u);

    Process& waiting = open(3);
    send_attach(waiting, "game");
    ASSERT_TRUE(registry_.detach(waiting.id, peer_of(9, 0)).ok());
    EXPECT_EQ(waiting.take_error().code(), 1u);
    EXPECT_EQ(registry_.waiting_count(), 0u);

    ASSERT_TRUE(registry_.detach(owner.id, peer_of(9, 0)).ok());
    EXPECT_EQ(registry_.name_count(), 0u);
    EXPECT_EQ(info(owner).state(), v1::SHARING_STATE_IDLE);
}

TEST_F(RegistryTest, UnknownAndMisplacedMessagesAreAnsweredNotFatal) {
    Process& process = open(1);
    say(process, {}, 7);
    EXPECT_EQ(process.take_error().code(), 12u);
    v1::ClientMessage hello;
    hello.mutable_hello();
    say(process, hello);
    EXPECT_EQ(process.take_error().code(), 9u);
    send_done(process);
    EXPECT_EQ(process.take_error().code(), 9u);
    v1::ClientMessage unregister;
    unregister.mutable_unregister_request()->set_name("x");
    say(process, unregister);
    EXPECT_EQ(process.take_error().code(), 5u);
    say(process, unregister, 0);  // wants no answer
    EXPECT_TRUE(process.sent.empty());
    registry_.receive(12345, unregister);
    // Two attaches of one process at a time: the second is refused, the first goes on.
    Process& owner = renderer(2, "game");
    send_attach(process, "game");
    send_attach(process, "game");
    EXPECT_EQ(process.take_error().code(), 9u);
    push(owner);
    take_pull_token(process);
}

TEST_F(RegistryTest, MovingToAnotherGpuIsANewTsg) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    attach_all_the_way(owner, attacher, "game");
    send_register(owner, "game", kOtherGpu);
    owner.take(v1::ServerMessage::kRegisterReply);
    EXPECT_EQ(attacher.take(v1::ServerMessage::kDetachCommand).detach_command().reason().code(), 14u);
    EXPECT_FALSE(status().tsgs(0).exported());
    EXPECT_EQ(status().tsgs(0).attached_sessions_size(), 0);
}

TEST_F(RegistryTest, EventsTellTheStory) {
    Process& owner = renderer(1, "game");
    Process& attacher = open(2);
    attach_all_the_way(owner, attacher, "game");
    registry_.close_session(attacher.id, {Code::kUnavailable, "gone", ""});
    registry_.close_session(owner.id, {Code::kUnavailable, "gone", ""});
    std::vector<std::string> kinds;
    for (const v1::Event& event : events_) kinds.push_back(event.kind());
    EXPECT_THAT(kinds, ElementsAre("session-open", "register", "session-open", "attach", "detach", "session-close",
                                   "unregister", "session-close"));
    EXPECT_EQ(events_[3].peer().pid(), 2u);
    EXPECT_EQ(events_[3].name(), "game");
}

TEST_F(RegistryTest, EventsSayWhoMayAttachAndWhenThatChanges) {
    Process& owner = open(1);
    events_.clear();
    v1::ClientMessage message;
    v1::RegisterRequest& request = *message.mutable_register_request();
    request.set_name("game");
    request.set_gpu_uuid(kGpu);
    request.add_allow_uids(1001);
    request.add_allow_uids(1002);
    say(owner, message);
    request.add_allow_gids(44);
    say(owner, message);
    say(owner, message);  // no change
    request.clear_allow_uids();
    request.clear_allow_gids();
    say(owner, message);
    ASSERT_EQ(events_.size(), 3u);
    EXPECT_EQ(events_[0].kind(), "register");
    EXPECT_EQ(events_[0].reason().text(), "open to uids 1001,1002");
    EXPECT_EQ(events_[0].reason().code(), 0u);
    EXPECT_EQ(events_[1].kind(), "access");
    EXPECT_EQ(events_[1].reason().text(), "open to uids 1001,1002, gids 44");
    EXPECT_EQ(events_[1].fields().at("VUDA_ALLOW_UIDS"), "1001,1002");
    EXPECT_EQ(events_[1].fields().at("VUDA_ALLOW_GIDS"), "44");
    EXPECT_EQ(events_[1].peer().uid(), 1000u);
    EXPECT_EQ(events_[2].reason().text(), "open to its owner's user only");
    EXPECT_TRUE(events_[2].fields().empty());
}

// Whatever comes in whatever order: nothing breaks, and the channel count never passes the limit.
TEST_F(RegistryTest, RandomSequencesKeepTheInvariants) {
    uint32_t seed = 12345;
    const auto random = [&seed](uint32_t below) {
        seed = seed * 1664525 + 1013904223;
        return (seed >> 8) % below;
    };
    std::vector<Process*> live;
    pid_t next_pid = 1;
    for (int i = 0; i < 20000; ++i) {
        if (live.size() < 8) live.push_back(&open(next_pid++));
        Process& process = *live[random(static_cast<uint32_t>(live.size()))];
        switch (random(8)) {
            case 0: send_register(process, random(2) != 0 ? "a" : "b"); break;
            case 1: send_attach(process, random(2) != 0 ? "a" : "b", 1 + random(60)); break;
            case 2: send_done(process, 1 + random(60), random(80)); break;
            case 3: pass(Milliseconds(random(900))); break;
            case 4: {
                v1::ClientMessage message;
                message.mutable_detach_notice();
                say(process, message);
                break;
            }
            case 5:
                if (random(4) == 0) {
                    registry_.close_session(process.id, {Code::kUnavailable, "gone", ""});
                    std::erase(live, &process);
                }
                break;
            default:
                while (!process.sent.empty()) {
                    const v1::ServerMessage message = process.sent.front();
                    process.sent.pop_front();
                    if (message.has_export_request()) {
                        if (const auto ticket = registry_.begin_push(message.export_request().token(), process.peer)) {
                            (void)registry_.complete_push(*ticket, handles(0), random(20));
                        }
                    } else if (message.has_attach_reply()) {
                        (void)registry_.redeem_pull(message.attach_reply().token(), process.peer);
                    }
                }
        }
        const v1::StatusReply all = status();
        for (const v1::TsgInfo& tsg : all.tsgs()) ASSERT_LE(tsg.channels(), kChannelsPerTsg + 20);
        ASSERT_LE(registry_.name_count(), 2u);
    }
    EXPECT_GT(registry_.counters().attaches, 100u);
    for (const Process* process : live) registry_.close_session(process->id, {Code::kUnavailable, "gone", ""});
    EXPECT_EQ(registry_.session_count(), 0u);
    EXPECT_EQ(registry_.name_count(), 0u);
    EXPECT_EQ(registry_.handle_count(), 0u);
    EXPECT_TRUE(reaper_.drain(10s));
}

}  // namespace
}  // namespace vuda::daemon
