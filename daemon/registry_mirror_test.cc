#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "daemon/registry.h"
#include "daemon/session_page.h"
#include "proto/page/page_memory.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr uint64_t kOwnerFeatures = v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH | v1::FEATURE_LIVE_MIRROR;
constexpr uint64_t kSharerFeatures = v1::FEATURE_SHARE | v1::FEATURE_LIVE_MIRROR;

class RegistryMirrorTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        std::deque<size_t> fds;  // of each message
        UniqueFd page_fd;
        page::PageMapping page;
        // Its kernels wait.
        bool held() const { return page->daemon.hold.load() != 0; }

        void send(const v1::ServerMessage& message) override { send_with(message, {}); }
        void send_with(const v1::ServerMessage& message, std::vector<HeldPtr> handles) override {
            sent.push_back(message);
            fds.push_back(handles.size());
        }
        void close(const Error&) override {}

        v1::ServerMessage take(v1::ServerMessage::BodyCase kind) {
            if (sent.empty()) {
                ADD_FAILURE() << "pid " << peer.pid() << " got nothing, wanted message kind " << kind;
                return {};
            }
            v1::ServerMessage message = sent.front();
            sent.pop_front();
            if (message.has_mirror_update()) {
                EXPECT_EQ(fds.front(), static_cast<size_t>(message.mirror_update().added_size()));
            }
            fds.pop_front();
            EXPECT_EQ(message.body_case(), kind) << "pid " << peer.pid() << ": " << message.ShortDebugString();
            return message;
        }
        v1::MirrorUpdate take_update() { return take(v1::ServerMessage::kMirrorUpdate).mirror_update(); }
    };

    Process& open(pid_t pid, uint64_t features, Transport transport = Transport::kFrames) {
        Process& process = processes_.emplace_back();
        process.peer.process = {pid, static_cast<uint64_t>(pid) * 7};
        process.peer.uid = process.peer.gid = 1000;
        v1::Hello hello;
        hello.set_features(features);
        hello.set_driver_version("580.159.04");
        Result<SessionPage::Made> made = SessionPage::make();
        process.page_fd = std::move(made->fd);
        process.page = *page::PageMapping::of_received(process.page_fd.get(), page::kPageBytes);
        Result<SessionId> id =
            registry_.open_session(process.peer, transport, hello, 1, process, std::move(made->page));
        process.id = id ? *id : 0;
        granted_ = process.take(v1::ServerMessage::kHelloReply).hello_reply().features();
        return process;
    }
    void say(Process& process, v1::ClientMessage message, uint64_t id = 2) {
        message.set_id(id);
        registry_.receive(process.id, message);
    }
    HandleSetPtr handles(size_t buffers) {
        std::vector<HeldPtr> items;
        for (size_t i = 0; i <= buffers; ++i) items.push_back(held(i == 0 ? tsg() : buffer(0x1000 * i, i)));
        return std::make_shared<const HandleSet>(reaper_, std::move(items));
    }
    static v1::Handle tsg() {
        v1::Handle handle;
        handle.set_kind(v1::HANDLE_KIND_TSG);
        return handle;
    }
    static v1::Handle buffer(uint64_t va, uint64_t mapping) {
        v1::Handle handle;
        handle.set_kind(v1::HANDLE_KIND_CONTROL_BUFFER);
        handle.set_va(va);
        handle.set_length(0x1000);
        handle.set_mapping(mapping);
        return handle;
    }
    HeldPtr held(const v1::Handle& handle) {
        return std::make_shared<const HeldHandle>(reaper_, handle, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    }
    // The owner answers its ExportRequest; returns live_ms of the request.
    uint32_t push(Process& owner, uint64_t generation, size_t buffers = 2) {
        const v1::ExportRequest request = owner.take(v1::ServerMessage::kExportRequest).export_request();
        Result<PushTicket> ticket = registry_.begin_push(request.token(), owner.peer);
        EXPECT_TRUE(ticket.ok());
        EXPECT_TRUE(ticket && registry_.complete_push(*ticket, handles(buffers), 2, generation).ok());
        return request.live_ms();
    }
    uint32_t still_current(Process& owner) {
        const v1::ExportRequest request = owner.take(v1::ServerMessage::kExportRequest).export_request();
        v1::ClientMessage message;
        message.mutable_export_current()->set_token(request.token());
        say(owner, message, 0);
        return request.live_ms();
    }
    Process& renderer(pid_t pid = 1, uint64_t features = kOwnerFeatures) {
        Process& owner = open(pid, features);
        send_register(owner);
        EXPECT_EQ(push(owner, 5), 0u) << "nobody is there to follow";
        return owner;
    }
    void send_register(Process& owner) {
        v1::ClientMessage message;
        message.mutable_register_request()->set_name("game");
        message.mutable_register_request()->set_gpu_uuid(std::string(16, '\x11'));
        say(owner, message);
        owner.take(v1::ServerMessage::kRegisterReply);
    }
    void send_attach(Process& process) {
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name("game");
        message.mutable_attach_request()->set_gpu_uuid(std::string(16, '\x11'));
        message.mutable_attach_request()->set_channels(8);
        say(process, message);
    }
    PullTicket pull(Process& process) {
        const v1::AttachReply reply = process.take(v1::ServerMessage::kAttachReply).attach_reply();
        Result<PullTicket> ticket = registry_.redeem_pull(reply.token(), process.peer);
        EXPECT_TRUE(ticket.ok());
        EXPECT_TRUE(ticket && ticket->handles->size() == reply.handles());
        return ticket ? *ticket : PullTicket{};
    }
    void send_done(Process& process) {
        v1::ClientMessage message;
        message.mutable_attach_done()->set_state(v1::SHARING_STATE_SHARING);
        message.mutable_attach_done()->set_channels_moved(8);
        say(process, message);
        process.take(v1::ServerMessage::kAttachDoneReply);
    }
    Process& sharer(Process& owner, pid_t pid, uint64_t features = kSharerFeatures) {
        Process& process = open(pid, features);
        send_attach(process);
        still_current(owner);
        pull(process);
        send_done(process);
        return process;
    }
    // The owner maps one more buffer.
    void update(Process& owner, uint64_t from, uint64_t va, uint64_t id = 50) {
        v1::ClientMessage message;
        message.set_id(id);
        v1::MirrorUpdate& update = *message.mutable_mirror_update();
        update.set_from(from);
        update.set_to(from + 1);
        *update.add_added() = buffer(va, 100 + from);
        registry_.receive_mirror(owner.id, message, {held(update.added(0))});
    }
    void mirrored(Process& process, uint64_t to, bool failed = false) {
        v1::ClientMessage message;
        message.mutable_mirror_done()->set_to(to);
        if (failed) message.mutable_mirror_done()->mutable_reason()->set_code(6);
        say(process, message, 0);
    }
    v1::MirrorUpdateReply reply(Process& owner) {
        return owner.take(v1::ServerMessage::kMirrorUpdateReply).mirror_update_reply();
    }
    void pass(Milliseconds time) {
        now_ += time;
        registry_.expire();
    }
    size_t events(const std::string& kind) {
        return static_cast<size_t>(
            std::ranges::count_if(events_, [&](const v1::Event& event) { return event.kind() == kind; }));
    }

    FdReaper reaper_;
    TimePoint now_{1000s};
    uint8_t next_token_ = 0;
    uint64_t granted_ = 0;
    std::vector<v1::Event> events_;
    std::deque<Process> processes_;
    Registry registry_{Identity{"1.2.3", "/h.sock", ~uint64_t{0}, true}, Settings{}, [this] { return now_; },
                       [this] {
                           Token token{};
                           token[0] = ++next_token_;
                           return token;
                       },
                       Registry::Hooks{[this](const v1::Event& event) { events_.push_back(event); }, {}}};
};

TEST_F(RegistryMirrorTest, ABufferMappedLaterReachesAllWhoShareBeforeTheOwnerIsAnswered) {
    Process& owner = renderer();
    Process& first = open(2, kSharerFeatures);
    send_attach(first);
    EXPECT_EQ(still_current(owner), 50u) << "40 ms for those who share, and the way back";
    pull(first);
    send_done(first);
    Process& second = sharer(owner, 3);

    update(owner, 5, 0x9000);
    for (Process* process : {&first, &second}) {
        const v1::MirrorUpdate got = process->take_update();
        EXPECT_EQ(got.from(), 5u);
        EXPECT_EQ(got.to(), 6u);
        ASSERT_EQ(got.added_size(), 1);
        EXPECT_EQ(got.added(0).va(), 0x9000u);
    }
    mirrored(first, 6);
    EXPECT_TRUE(owner.sent.empty()) << "one is missing";
    mirrored(second, 6);
    EXPECT_EQ(reply(owner).mirrored(), 2u);
    EXPECT_EQ(registry_.counters().mirror_updates, 1u);

    Process& late = open(4, kSharerFeatures);
    send_attach(late);
    still_current(owner);
    EXPECT_EQ(pull(late).handles->size(), 4u) << "the set that vudad keeps has followed";
    send_done(late);
    EXPECT_TRUE(late.sent.empty());
}

TEST_F(RegistryMirrorTest, OneThatDoesNotAnswerIsWaitedForOnce) {
    Process& owner = renderer();
    Process& stuck = sharer(owner, 2);
    Process& good = sharer(owner, 3);
    update(owner, 5, 0x9000);
    mirrored(good, 6);
    pass(39ms);
    EXPECT_TRUE(owner.sent.empty());
    pass(1ms);
    v1::MirrorUpdateReply got = reply(owner);
    EXPECT_EQ(got.mirrored(), 1u);
    EXPECT_EQ(got.late(), 1u);
    EXPECT_EQ(events("mirror-late"), 1u);
    EXPECT_EQ(registry_.counters().mirrors_late, 1u);
    EXPECT_TRUE(stuck.held()) << "the renderer goes on without it";
    EXPECT_FALSE(good.held());

    update(owner, 6, 0xa000);
    mirrored(good, 7);
    got = reply(owner);
    EXPECT_EQ(got.late(), 1u) << "it is sent what changes, and not waited for";
    EXPECT_EQ(stuck.sent.size(), 2u);
    mirrored(stuck, 6);
    update(owner, 7, 0xb000);
    mirrored(good, 8);
    EXPECT_EQ(reply(owner).late(), 1u) << "it is behind still";
    EXPECT_TRUE(stuck.held());
    mirrored(stuck, 8);
    EXPECT_FALSE(stuck.held());
    update(owner, 8, 0xc000);
    mirrored(good, 9);
    EXPECT_TRUE(owner.sent.empty()) << "it has caught up";
    mirrored(stuck, 9);
    EXPECT_EQ(reply(owner).mirrored(), 2u);
    EXPECT_EQ(events("mirror-late"), 1u);
}

// Nobody waits for what is taken away, and having it still does no harm.
TEST_F(RegistryMirrorTest, OneThatDoesNotLetGoInTimeIsNeitherLateNorHeld) {
    Process& owner = renderer();
    Process& stuck = sharer(owner, 2);
    v1::ClientMessage message;
    message.set_id(50);
    v1::MirrorUpdate& piece = *message.mutable_mirror_update();
    piece.set_from(5);
    piece.set_to(6);
    v1::MirrorRange& range = *piece.add_removed();
    range.set_va(0x1000);
    range.set_length(0x1000);
    range.set_mapping(1);
    registry_.receive_mirror(owner.id, message, {});
    EXPECT_EQ(stuck.take_update().removed_size(), 1);
    pass(40ms);
    EXPECT_EQ(reply(owner).late(), 1u) << "so that no more of it is sent";
    EXPECT_EQ(events("mirror-late"), 0u);
    EXPECT_EQ(registry_.counters().mirrors_late, 0u);
    EXPECT_FALSE(stuck.held());
    update(owner, 6, 0x9000);
    pass(39ms);
    EXPECT_TRUE(owner.sent.empty()) << "it is waited for with what it needs";
    mirrored(stuck, 6);
    mirrored(stuck, 7);
    EXPECT_EQ(reply(owner).mirrored(), 1u);
}

// Neither does one wait that has left, or whose renderer is gone.
TEST_F(RegistryMirrorTest, NobodyIsHeldForATsgThatItDoesNotShare) {
    Process& owner = renderer();
    Process& leaves = sharer(owner, 2);
    Process& stays = sharer(owner, 3);
    update(owner, 5, 0x9000);
    pass(40ms);
    EXPECT_TRUE(leaves.held() && stays.held());
    v1::ClientMessage notice;
    notice.mutable_detach_notice();
    say(leaves, notice, 0);
    EXPECT_FALSE(leaves.held());
    registry_.close_session(owner.id, {Code::kUnavailable, "gone", ""});
    EXPECT_FALSE(stays.held());
}

TEST_F(RegistryMirrorTest, AnAnswerIsFreeOnce) {
    Process& owner = renderer();
    Process& cuda = sharer(owner, 2);
    EXPECT_FALSE(registry_.awaits_mirror(cuda.id, 5)) << "the set that it pulled";
    update(owner, 5, 0x9000);
    EXPECT_TRUE(registry_.awaits_mirror(cuda.id, 6));
    EXPECT_FALSE(registry_.awaits_mirror(cuda.id, 7));
    EXPECT_FALSE(registry_.awaits_mirror(owner.id, 6));
    EXPECT_FALSE(registry_.awaits_mirror(999, 6));
    mirrored(cuda, 6);
    EXPECT_FALSE(registry_.awaits_mirror(cuda.id, 6));
}

TEST_F(RegistryMirrorTest, OneThatDiesOrLeavesIsWaitedForNoLonger) {
    Process& owner = renderer();
    Process& dies = sharer(owner, 2);
    Process& leaves = sharer(owner, 3);
    update(owner, 5, 0x9000);
    registry_.close_session(dies.id, {Code::kUnavailable, "killed", ""});
    EXPECT_TRUE(owner.sent.empty());
    v1::ClientMessage message;
    message.mutable_detach_notice();
    say(leaves, message, 0);
    EXPECT_EQ(reply(owner).mirrored(), 0u);
    owner.take(v1::ServerMessage::kMirrorIdle);
    update(owner, 6, 0xa000);
    EXPECT_EQ(reply(owner).late(), 0u) << "on its way when the owner was told";
}

TEST_F(RegistryMirrorTest, OneThatCannotTakeItOverIsAnEventAndTheRendererGoesOn) {
    Process& owner = renderer();
    Process& cuda = sharer(owner, 2);
    update(owner, 5, 0x9000);
    mirrored(cuda, 6, true);
    EXPECT_EQ(reply(owner).late(), 1u);
    EXPECT_EQ(events("mirror-failed"), 1u);
    EXPECT_EQ(registry_.counters().mirrors_failed, 1u);
}

// What AttachReply announced is what comes, and the change follows on the session.
TEST_F(RegistryMirrorTest, AnAttacherInTheMiddleOfItsTurnGetsTheSetOfItsAnswerAndTheChange) {
    Process& owner = renderer();
    Process& cuda = open(2, kSharerFeatures);
    send_attach(cuda);
    still_current(owner);
    update(owner, 5, 0x9000);
    EXPECT_EQ(pull(cuda).generation, 5u);
    EXPECT_EQ(cuda.take_update().to(), 6u);
    send_done(cuda);
    mirrored(cuda, 6);
    EXPECT_EQ(reply(owner).mirrored(), 1u);
}

TEST_F(RegistryMirrorTest, OldProgramsAreNeitherToldNorWaitedFor) {
    Process& owner = renderer();
    Process& old = open(2, v1::FEATURE_SHARE);
    send_attach(old);
    EXPECT_EQ(still_current(owner), 0u) << "nobody could follow";
    pull(old);
    send_done(old);
    EXPECT_TRUE(owner.sent.empty());
    Process& now = open(3, kSharerFeatures);
    send_attach(now);
    EXPECT_EQ(still_current(owner), 50u);
    pull(now);
    send_done(now);
    update(owner, 5, 0x9000);
    mirrored(now, 6);
    EXPECT_EQ(reply(owner).mirrored(), 1u);
    EXPECT_TRUE(old.sent.empty());

    open(9, ~uint64_t{0}, Transport::kGrpc);
    EXPECT_EQ(granted_ & v1::FEATURE_LIVE_MIRROR, 0u) << "gRPC carries no descriptors";
}

// An owner that knows nothing of this exports anew at each attach; those who share get that set.
TEST_F(RegistryMirrorTest, AnOldOwnersNextSetGoesToAllWhoShare) {
    Process& owner = renderer(1, v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH);
    Process& first = open(2, kSharerFeatures);
    send_attach(first);
    EXPECT_EQ(still_current(owner), 0u);
    pull(first);
    send_done(first);
    Process& second = open(3, kSharerFeatures);
    send_attach(second);
    EXPECT_EQ(push(owner, 6, 3), 0u);
    pull(second);
    send_done(second);
    EXPECT_TRUE(second.sent.empty());
    EXPECT_TRUE(first.sent.empty()) << "an owner without the feature is nobody to follow";
}

TEST_F(RegistryMirrorTest, AnUpdateOfAnotherSetBringsAWholeOne) {
    Process& owner = renderer();
    Process& cuda = sharer(owner, 2);
    update(owner, 4, 0x9000, 77);
    EXPECT_EQ(owner.take(v1::ServerMessage::kError).id(), 77u);
    EXPECT_EQ(events("mirror-refused"), 1u);
    EXPECT_EQ(push(owner, 9, 70), 50u) << "it is asked for a set at once";
    EXPECT_EQ(cuda.take_update().added_size(), 64);
    const v1::MirrorUpdate rest = cuda.take_update();
    EXPECT_EQ(rest.from(), 0u);
    EXPECT_EQ(rest.to(), 9u);
    EXPECT_EQ(rest.added_size(), 6);
    mirrored(cuda, 9);
    update(owner, 9, 0x90000);
    EXPECT_EQ(cuda.take_update().to(), 10u);
}

TEST_F(RegistryMirrorTest, AfterARestartThoseWhoShareGetTheSetAndTheOwnerFollowsAgain) {
    Process& cuda = open(2, kSharerFeatures);
    v1::ClientMessage report;
    report.mutable_state_report()->set_state(v1::SHARING_STATE_SHARING);
    report.mutable_state_report()->set_name("game");
    report.mutable_state_report()->set_channels_moved(8);
    say(cuda, report, 0);
    Process& owner = open(1, kOwnerFeatures);
    send_register(owner);
    EXPECT_FALSE(cuda.held());
    EXPECT_EQ(push(owner, 8), 50u);
    EXPECT_EQ(cuda.take_update().added_size(), 2);
    EXPECT_TRUE(cuda.held()) << "it may lack any of these";
    mirrored(cuda, 8);
    EXPECT_FALSE(cuda.held());

    Process& later = open(3, kSharerFeatures);
    say(later, report, 0);
    EXPECT_EQ(later.take_update().to(), 8u);
    update(owner, 8, 0x9000);
    EXPECT_EQ(cuda.take_update().to(), 9u);
    EXPECT_EQ(later.take_update().to(), 9u);
    mirrored(cuda, 9);
    mirrored(later, 9);
    EXPECT_EQ(reply(owner).mirrored(), 2u);
}

TEST_F(RegistryMirrorTest, OnlyAnOwnerMayAndWithinItsLimits) {
    Process& owner = renderer();
    Process& cuda = sharer(owner, 2);
    update(cuda, 5, 0x9000, 9);
    EXPECT_EQ(cuda.take(v1::ServerMessage::kError).error().code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    Settings tight;
    tight.handles_per_uid = 3;
    registry_.set_settings(tight);
    update(owner, 5, 0x9000, 9);
    EXPECT_EQ(owner.take(v1::ServerMessage::kError).error().code(), static_cast<uint32_t>(Code::kResourceExhausted));
    EXPECT_TRUE(owner.sent.empty()) << "asking for a whole set would not help";
    EXPECT_TRUE(cuda.sent.empty());
}

}  // namespace
}  // namespace vuda::daemon
