// TSGs that die. Time is the test's own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "daemon/registry.h"

namespace vuda::daemon {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

const std::string kGpuOfFaults(16, '\x11');
constexpr uint64_t kFaultFeatures = v1::FEATURE_SHARE | v1::FEATURE_FAULTS;

class FaultsTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        std::optional<Error> closed;
        void send(const v1::ServerMessage& message) override { sent.push_back(message); }
        void close(const Error& reason) override { closed = reason; }

        // Takes the oldest message of that kind; an empty one when there is none.
        v1::ServerMessage take(v1::ServerMessage::BodyCase kind) {
            for (auto it = sent.begin(); it != sent.end(); ++it) {
                if (it->body_case() != kind) continue;
                v1::ServerMessage message = *it;
                sent.erase(it);
                return message;
            }
            return {};
        }
        bool got(v1::ServerMessage::BodyCase kind) { return take(kind).body_case() == kind; }
        v1::Error error() { return take(v1::ServerMessage::kError).error(); }
    };

    static Peer peer_of(pid_t pid, uid_t uid, const std::string& exe) {
        Peer peer;
        peer.process = {pid, static_cast<uint64_t>(pid)};
        peer.uid = peer.gid = uid;
        peer.program = "prog";
        peer.exe = exe;
        return peer;
    }
    Process& open(pid_t pid, const std::string& exe = "/bin/compute", uid_t uid = 1000,
                  uint64_t features = kFaultFeatures) {
        Process& process = processes_.emplace_back();
        process.peer = peer_of(pid, uid, exe);
        v1::Hello hello;
        hello.set_features(features);
        const Result<SessionId> id = registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        EXPECT_TRUE(id.ok());
        process.id = id ? *id : 0;
        process.sent.clear();
        return process;
    }
    void say(const Process& process, v1::ClientMessage message) {
        message.set_id(2);
        registry_.receive(process.id, message);
    }
    void send_register(const Process& process, const std::string& name = "game") {
        v1::ClientMessage message;
        message.mutable_register_request()->set_name(name);
        message.mutable_register_request()->set_gpu_uuid(kGpuOfFaults);
        say(process, message);
    }
    Process& renderer(pid_t pid, const std::string& name = "game", uid_t uid = 1000) {
        Process& process = open(pid, "/bin/renderer", uid);
        send_register(process, name);
        EXPECT_TRUE(process.got(v1::ServerMessage::kRegisterReply));
        return process;
    }
    HandleSetPtr handles() {
        auto set = std::make_shared<HandleSet>(reaper_);
        v1::HandleBundle bundle;
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        std::vector<UniqueFd> fds;
        fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        EXPECT_TRUE(set->append(bundle, std::move(fds), kHandlesPerSet).ok());
        return set;
    }
    void send_attach(const Process& process, const std::string& name = "game") {
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name(name);
        message.mutable_attach_request()->set_gpu_uuid(kGpuOfFaults);
        message.mutable_attach_request()->set_channels(8);
        say(process, message);
    }
    // Up to the grant.
    void begin_attach(Process& owner, Process& process, const std::string& name = "game") {
        send_attach(process, name);
        const v1::ServerMessage asked = owner.take(v1::ServerMessage::kExportRequest);
        ASSERT_TRUE(asked.has_export_request()) << process.error().text();
        const Result<PushTicket> ticket = registry_.begin_push(asked.export_request().token(), owner.peer);
        ASSERT_TRUE(ticket.ok());
        EXPECT_TRUE(registry_.complete_push(*ticket, handles(), 2).ok());
        EXPECT_TRUE(process.got(v1::ServerMessage::kAttachReply));
    }
    void end_attach(Process& process) {
        v1::ClientMessage message;
        message.mutable_attach_done()->set_state(v1::SHARING_STATE_SHARING);
        message.mutable_attach_done()->set_channels_moved(8);
        message.mutable_attach_done()->set_veid(63);
        say(process, message);
    }
    void attach(Process& owner, Process& process, const std::string& name = "game") {
        begin_attach(owner, process, name);
        end_attach(process);
        now_ += 1s;
    }
    Process& sharer(Process& owner, pid_t pid, const std::string& exe = "/bin/compute", uid_t uid = 1000) {
        Process& process = open(pid, exe, uid);
        attach(owner, process);
        return process;
    }
    v1::Error fault(Process& process, uint32_t xid = 13, const std::string& name = "", bool own = false) {
        v1::ClientMessage message;
        v1::Fault& said = *message.mutable_fault();
        said.set_kind(xid != 0 ? v1::FAULT_KIND_CHANNEL : v1::FAULT_KIND_DEVICE_LOST);
        said.set_xid(xid);
        said.set_name(name);
        said.set_own(own);
        return fault(process, message);
    }
    v1::Error fault(Process& process, const v1::ClientMessage& message) {
        say(process, message);
        if (process.got(v1::ServerMessage::kFaultReply)) return {};
        const v1::Error error = process.error();
        EXPECT_NE(error.code(), 0u) << "no answer";
        return error;
    }
    v1::Error stuck(Process& process, bool over = false, const std::string& name = "", uint32_t age_ms = 0) {
        v1::ClientMessage message;
        v1::Fault& said = *message.mutable_fault();
        said.set_kind(v1::FAULT_KIND_STUCK);
        said.set_name(name);
        said.set_text("45000 a second\x1b");
        said.set_age_ms(age_ms);
        said.set_over(over);
        return fault(process, message);
    }
    void close(const Process& process) { registry_.close_session(process.id, {Code::kCancelled, "gone", ""}); }
    void pass(Milliseconds time) {
        now_ += time;
        registry_.expire();
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
        return {};
    }
    v1::FaultInfo fault_info() {
        const v1::StatusReply all = status();
        if (all.tsgs_size() == 1) return all.tsgs(0).fault();
        return all.faults_size() == 1 ? all.faults(0) : v1::FaultInfo();
    }
    std::string culprit() { return fault_info().has_culprit() ? fault_info().culprit().program() : "nobody"; }
    std::vector<std::string> kinds() const {
        std::vector<std::string> out;
        for (const v1::Event& event : events_) out.push_back(event.kind());
        return out;
    }
    // Of a new process of that program: why it may not attach; empty: it may.
    std::string refused(pid_t pid, const std::string& exe = "/bin/compute", uid_t uid = 1000) {
        Process& process = open(pid, exe, uid);
        send_attach(process);
        const std::string text = process.error().text();
        close(process);
        return text;
    }
    Result<v1::UnquarantineReply> unquarantine(const std::string& name, uid_t uid = 1000, bool all = false) {
        v1::UnquarantineRequest request;
        request.set_name(name);
        request.set_all(all);
        return registry_.unquarantine(request, peer_of(99, uid, "/bin/vudactl"));
    }

    FdReaper reaper_;
    TimePoint now_{1000s};
    uint8_t tokens_ = 0;
    int changes_ = 0;  // of what is kept
    std::vector<v1::Event> events_;
    std::deque<Process> processes_;
    Registry registry_{
        Identity{"test", "/h", kFaultFeatures, false}, Settings{}, [this] { return now_; },
        [this] {
            Token token;
            token.fill(++tokens_);
            return token;
        },
        Registry::Hooks{[this](const v1::Event& event) { events_.push_back(event); }, {}, {}, [this] { ++changes_; }}};
};

TEST_F(FaultsTest, TheOwnersWordClosesTheNameAndTellsEverybody) {
    Process& owner = renderer(1);
    Process& first = sharer(owner, 2, "/bin/first");
    Process& second = sharer(owner, 3, "/bin/second");
    Process& waiting = open(4, "/bin/third");
    send_attach(waiting);
    EXPECT_EQ(fault(owner).code(), 0u);

    EXPECT_THAT(waiting.error().text(), HasSubstr("the TSG 'game' died: Xid 13 (graphics engine exception)"));
    for (Process* one : {&first, &second}) {
        const v1::FaultNotice notice = one->take(v1::ServerMessage::kFaultNotice).fault_notice();
        EXPECT_EQ(notice.name(), "game");
        EXPECT_EQ(notice.xid(), 13u);
        EXPECT_FALSE(notice.look());
        EXPECT_THAT(notice.text(), HasSubstr("taken for the cause: /bin/second, pid 3, uid 1000"));
        EXPECT_EQ(notice.culprit(), one == &second);
        EXPECT_EQ(info(*one).state(), v1::SHARING_STATE_FAULTED);
        EXPECT_EQ(info(*one).name(), "game");
    }
    EXPECT_EQ(info(owner).state(), v1::SHARING_STATE_FAULTED);
    EXPECT_FALSE(owner.got(v1::ServerMessage::kFaultNotice)) << "it said so itself";

    const v1::StatusReply all = status();
    EXPECT_EQ(all.tsgs(0).channels(), 0u);
    EXPECT_FALSE(all.tsgs(0).exported()) << "nothing keeps a dead TSG";
    const v1::FaultInfo info = all.tsgs(0).fault();
    EXPECT_EQ(info.state(), v1::FAULT_STATE_FAULTED);
    EXPECT_EQ(info.xid(), 13u);
    EXPECT_EQ(info.culprit().program(), "/bin/second");
    EXPECT_EQ(info.culprit().pid(), 3u);
    EXPECT_GT(info.unix_ms(), 0u);
    ASSERT_EQ(info.quarantines_size(), 1);
    EXPECT_EQ(info.quarantines(0).program(), "/bin/second");
    EXPECT_EQ(info.quarantines(0).left_ms(), 10'000u);
    EXPECT_THAT(kinds(), Contains("faulted"));
    EXPECT_THAT(kinds(), Contains("quarantined"));
    EXPECT_EQ(registry_.counters().faults, 1u);
    EXPECT_GT(changes_, 0);
    EXPECT_THAT(refused(5, "/bin/first"), HasSubstr("died"));
}

TEST_F(FaultsTest, TheEventNamesXidAndCulprit) {
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner, 31);
    const auto faulted =
        std::find_if(events_.begin(), events_.end(), [](const v1::Event& e) { return e.kind() == "faulted"; });
    ASSERT_NE(faulted, events_.end());
    EXPECT_EQ(faulted->name(), "game");
    EXPECT_EQ(faulted->peer().pid(), 1u);
    EXPECT_THAT(faulted->reason().text(), HasSubstr("Xid 31 (MMU fault)"));
    EXPECT_EQ(faulted->fields().at("VUDA_XID"), "31");
    EXPECT_EQ(faulted->fields().at("VUDA_CULPRIT"), "/bin/compute");
    EXPECT_EQ(faulted->fields().at("VUDA_CULPRIT_PID"), "2");
    EXPECT_EQ(faulted->fields().at("VUDA_CULPRIT_UID"), "1000");
    EXPECT_EQ(faulted->fields().at("VUDA_HELD_MS"), "10000");
}

TEST_F(FaultsTest, ARendererThatComesBackIsSharedByAllButTheCulprit) {
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner);
    close(owner);
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_QUARANTINED) << "nobody owns it, somebody is held off";
    Process& again = renderer(11);
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_QUARANTINED);
    EXPECT_THAT(refused(12), HasSubstr("/bin/compute is held off from 'game' for 10 s more, taken for the cause of "
                                       "Xid 13 (graphics engine exception)"));
    pass(1s);
    EXPECT_THAT(refused(15), HasSubstr("for 9 s more")) << "the 10 s began with the fault";
    Process& other = open(13, "/bin/other");
    attach(again, other);
    pass(10s);
    EXPECT_THAT(kinds(), Contains("quarantine-over"));
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_SHARING);
    Process& back = open(14);
    attach(again, back);
}

TEST_F(FaultsTest, TheOwnersOwnProcessMayRegisterANewTsg) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    fault(owner);
    const uint64_t before = info(compute).session_id();
    send_register(owner);
    EXPECT_TRUE(owner.got(v1::ServerMessage::kRegisterReply));
    EXPECT_EQ(info(owner).state(), v1::SHARING_STATE_REGISTERED);
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_QUARANTINED);
    EXPECT_THAT(kinds(), Contains("recovered"));
    Process& other = open(3, "/bin/other");
    attach(owner, other);
    EXPECT_EQ(status().tsgs(0).channels(), 10u) << "those of the dead one do not count";
    EXPECT_EQ(info(compute).session_id(), before) << "its session lives";
    // The next fault of this new TSG is another one.
    EXPECT_EQ(fault(owner).code(), 0u);
    EXPECT_EQ(registry_.counters().faults, 2u);
    EXPECT_EQ(culprit(), "/bin/other");
}

TEST_F(FaultsTest, BackOffGrowsWithEachFault) {
    for (int i = 0; i < 3; ++i) {
        Process& owner = renderer(10 * i + 1);
        sharer(owner, 10 * i + 2);
        fault(owner);
        const v1::FaultInfo info = fault_info();
        ASSERT_EQ(info.quarantines_size(), 1);
        EXPECT_EQ(info.quarantines(0).faults(), static_cast<uint32_t>(i + 1));
        EXPECT_EQ(info.quarantines(0).left_ms(), i == 0 ? 10'000u : i == 1 ? 40'000u : 160'000u);
        close(owner);
        pass(200s);
    }
}

TEST_F(FaultsTest, ASharersWordIsItsOwnAndHasTheOwnerLook) {
    Process& owner = renderer(1);
    Process& liar = sharer(owner, 2);
    Process& other = sharer(owner, 3, "/bin/other");
    EXPECT_EQ(fault(liar, 31).code(), 0u);
    EXPECT_EQ(info(liar).state(), v1::SHARING_STATE_FAULTED);
    const v1::FaultNotice notice = owner.take(v1::ServerMessage::kFaultNotice).fault_notice();
    EXPECT_TRUE(notice.look());
    EXPECT_EQ(notice.xid(), 31u);
    // The owner finds nothing: the name stays open, nobody is held off, nobody else hears of it.
    EXPECT_FALSE(other.got(v1::ServerMessage::kFaultNotice));
    EXPECT_EQ(info(other).state(), v1::SHARING_STATE_SHARING);
    EXPECT_FALSE(status().tsgs(0).has_fault());
    EXPECT_EQ(registry_.counters().faults, 0u);
    EXPECT_EQ(registry_.counters().fault_reports, 1u);
    EXPECT_THAT(kinds(), Contains("fault-reported"));
    EXPECT_THAT(kinds(), Not(Contains("faulted")));
    Process& again = open(4);
    attach(owner, again);
}

TEST_F(FaultsTest, TheNewestSharerIsTakenForTheCauseWhoeverSpeaksFirst) {
    Process& owner = renderer(1);
    Process& old = sharer(owner, 2, "/bin/old");
    sharer(owner, 3, "/bin/new");
    fault(old);
    now_ += 40ms;
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/new");
    EXPECT_EQ(fault_info().quarantines_size(), 1);
}

TEST_F(FaultsTest, ASecondContextIsAChange) {
    Process& owner = renderer(1);
    Process& old = sharer(owner, 2, "/bin/old");
    sharer(owner, 3, "/bin/new");
    attach(owner, old);
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/old");
    EXPECT_EQ(info(old).channels_moved(), 0u) << "both contexts are dead";
}

TEST_F(FaultsTest, WhoSaysThatItWasItsOwnIsBelieved) {
    Process& owner = renderer(1);
    Process& old = sharer(owner, 2, "/bin/old");
    sharer(owner, 3, "/bin/new");
    fault(old, 13, "game", true);
    now_ += 40ms;
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/old");
}

TEST_F(FaultsTest, WhoSaysSoAfterwardsRelievesTheOther) {
    Process& owner = renderer(1);
    Process& old = sharer(owner, 2, "/bin/old");
    sharer(owner, 3, "/bin/new");
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/new");
    now_ += 40ms;
    EXPECT_EQ(fault(old, 13, "game", true).code(), 0u);
    EXPECT_EQ(culprit(), "/bin/old");
    ASSERT_EQ(fault_info().quarantines_size(), 1);
    EXPECT_EQ(fault_info().quarantines(0).program(), "/bin/old");
    // Much later it is of another day.
    now_ += 3s;
    Process& third = open(4, "/bin/third");
    EXPECT_EQ(fault(third, 13, "game", true).code(), 9u);
    EXPECT_EQ(culprit(), "/bin/old");
}

TEST_F(FaultsTest, AProgramThatEndsOfItsFaultIsRemembered) {
    Process& owner = renderer(1);
    close(sharer(owner, 2));
    now_ += 50ms;
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/compute");
}

TEST_F(FaultsTest, AProgramThatWentLongAgoIsNotTheCause) {
    Process& owner = renderer(1);
    close(sharer(owner, 2));
    now_ += 3s;
    fault(owner);
    EXPECT_EQ(culprit(), "nobody");
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_FAULTED);
    EXPECT_EQ(fault_info().quarantines_size(), 0);
}

TEST_F(FaultsTest, ARendererThatEndsOfTheFaultBeforeItCanSaySo) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    close(owner);
    now_ += 50ms;
    EXPECT_EQ(fault(compute).code(), 0u);
    EXPECT_EQ(registry_.counters().faults, 1u);
    renderer(11);
    EXPECT_THAT(refused(12), HasSubstr("held off"));
}

TEST_F(FaultsTest, ARendererThatEndsAfterTheSharerSaidSo) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    fault(compute);
    EXPECT_EQ(registry_.counters().faults, 0u);
    now_ += 50ms;
    close(owner);
    EXPECT_EQ(registry_.counters().faults, 1u);
    renderer(11);
    EXPECT_THAT(refused(12), HasSubstr("held off"));
}

TEST_F(FaultsTest, AFaultLongAfterTheRendererEndedHoldsNobody) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    close(owner);
    now_ += 10s;
    EXPECT_EQ(fault(compute).code(), 0u);
    EXPECT_EQ(info(compute).state(), v1::SHARING_STATE_FAULTED);
    EXPECT_EQ(registry_.counters().faults, 0u);
    renderer(11);
    EXPECT_THAT(refused(12), IsEmpty());
}

TEST_F(FaultsTest, AFaultWhileSomebodyAttachesIsTheirs) {
    Process& owner = renderer(1);
    sharer(owner, 2, "/bin/old");
    Process& coming = open(3, "/bin/coming");
    begin_attach(owner, coming);
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/coming");
    // It finishes what it had begun, and finds that its channels are dead.
    end_attach(coming);
    EXPECT_EQ(status().tsgs(0).channels(), 0u);
    EXPECT_EQ(fault(coming, 13, "game").code(), 0u);
    EXPECT_EQ(info(coming).state(), v1::SHARING_STATE_FAULTED);
    EXPECT_EQ(registry_.counters().faults, 1u);
}

TEST_F(FaultsTest, AFaultThatTheAttacherSeesBeforeItIsDone) {
    Process& owner = renderer(1);
    Process& coming = open(3);
    begin_attach(owner, coming);
    EXPECT_EQ(fault(coming, 13, "game").code(), 0u);
    EXPECT_TRUE(owner.take(v1::ServerMessage::kFaultNotice).fault_notice().look());
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/compute");
    // The next in the queue did not have to wait for it.
    send_register(owner);
    Process& next = open(4, "/bin/next");
    attach(owner, next);
}

TEST_F(FaultsTest, OnlyWhatIsTheirsCanBeReported) {
    Process& owner = renderer(1);
    Process& stranger = open(2);
    EXPECT_EQ(fault(stranger).code(), 9u);
    EXPECT_EQ(fault(stranger, 13, "game").code(), 9u) << "it does not share that";
    EXPECT_EQ(fault(stranger, 13, "none").code(), 9u);
    EXPECT_EQ(fault(owner, 13, "other").code(), 9u);
    v1::ClientMessage message;
    message.mutable_fault()->set_xid(13);
    EXPECT_EQ(fault(owner, message).code(), 3u) << "no kind";
    message.mutable_fault()->set_kind(static_cast<v1::FaultKind>(77));
    EXPECT_EQ(fault(owner, message).code(), 3u);
    message.mutable_fault()->set_kind(v1::FAULT_KIND_CHANNEL);
    message.mutable_fault()->set_xid(45);
    EXPECT_THAT(fault(owner, message).text(), HasSubstr("which is no fault"));
    message.mutable_fault()->set_xid(1024);
    EXPECT_THAT(fault(owner, message).text(), HasSubstr("xid: 1024"));
    message.mutable_fault()->set_xid(13);
    message.mutable_fault()->set_name("../x");
    EXPECT_EQ(fault(owner, message).code(), 3u);
    EXPECT_EQ(registry_.counters().faults, 0u);
    EXPECT_EQ(registry_.counters().fault_reports, 0u);
    EXPECT_THAT(kinds(), Contains("fault-refused"));
    EXPECT_FALSE(status().tsgs(0).has_fault());
    Process& compute = open(3);
    attach(owner, compute);
}

TEST_F(FaultsTest, WhatTheReporterSaysIsInert) {
    Process& owner = renderer(1);
    v1::ClientMessage message;
    message.mutable_fault()->set_kind(v1::FAULT_KIND_DEVICE_LOST);
    message.mutable_fault()->set_text("\x1b[31mred\nline" + std::string(5000, 'x'));
    message.mutable_fault()->set_age_ms(UINT32_MAX);
    EXPECT_EQ(fault(owner, message).code(), 0u);
    EXPECT_THAT(fault_info().text(), HasSubstr("the device was lost, no Xid was seen: ?[31mred?line"));
    EXPECT_LT(fault_info().text().size(), 300u);
}

TEST_F(FaultsTest, ReportsAreRateLimited) {
    Process& owner = renderer(1);
    int taken = 0;
    v1::Error last;
    for (int i = 0; i < 100; ++i) {
        last = fault(owner);
        taken += last.code() == 0 ? 1 : 0;
    }
    EXPECT_EQ(taken, 8);
    EXPECT_EQ(last.code(), 8u);
    EXPECT_EQ(registry_.counters().faults, 1u) << "one TSG died";
    now_ += 10s;
    EXPECT_EQ(fault(owner).code(), 0u);
}

TEST_F(FaultsTest, ANumberThatComesAfterTheDeviceWasLost) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    fault(owner, 0);
    EXPECT_THAT(fault_info().text(), HasSubstr("no Xid was seen"));
    fault(compute, 31, "game");
    EXPECT_EQ(fault_info().xid(), 31u);
    EXPECT_EQ(fault_info().text(), "Xid 31 (MMU fault)");
    EXPECT_EQ(registry_.counters().faults, 1u);
}

TEST_F(FaultsTest, ANameIsKeptForItsUserWhileSomebodyIsHeldOff) {
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner);
    close(owner);
    Process& stranger = open(3, "/bin/renderer", 1001);
    send_register(stranger);
    const v1::Error error = stranger.error();
    EXPECT_EQ(error.code(), 6u);
    EXPECT_THAT(error.text(), HasSubstr("is kept for uid 1000 after a fault"));
    pass(10s);
    send_register(stranger);
    EXPECT_TRUE(stranger.got(v1::ServerMessage::kRegisterReply));
}

TEST_F(FaultsTest, UnquarantineLetsItInAtOnce) {
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner);
    Result<v1::UnquarantineReply> done = unquarantine("game");
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(done->lifted(), 1u);
    EXPECT_THAT(done->names(), ElementsAre("game"));
    EXPECT_THAT(done->note(), HasSubstr("dead until its renderer is restarted"));
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_FAULTED);
    EXPECT_THAT(kinds(), Contains("unquarantined"));
    EXPECT_EQ(events_.back().peer().pid(), 99u);
    close(owner);
    Process& again = renderer(11);
    Process& compute = open(12);
    attach(again, compute);
    EXPECT_EQ(fault_info().state(), v1::FAULT_STATE_SHARING);
    EXPECT_EQ(fault_info().age_ms(), 1000u) << "what was last is still told";
    EXPECT_EQ(unquarantine("game")->lifted(), 0u);
    EXPECT_FALSE(status().tsgs(0).has_fault());
    EXPECT_EQ(unquarantine("game").error().code, Code::kNotFound);
}

TEST_F(FaultsTest, WhoMayUnquarantine) {
    registry_.set_settings([] {
        Settings settings;
        settings.partition.admin_group = 55;
        return settings;
    }());
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner);
    EXPECT_EQ(unquarantine("game", 1001).error().code, Code::kPermissionDenied);
    EXPECT_THAT(kinds(), Contains("unquarantine-refused"));
    EXPECT_EQ(unquarantine("", 1001, true).error().code, Code::kPermissionDenied);
    EXPECT_EQ(unquarantine("", 1000, false).error().code, Code::kInvalidArgument);
    EXPECT_EQ(unquarantine("game", 1000, true).error().code, Code::kInvalidArgument);
    EXPECT_EQ(unquarantine("none").error().code, Code::kNotFound);
    v1::UnquarantineRequest request;
    request.set_name("game");
    Peer admin = peer_of(98, 1002, "/bin/vudactl");
    admin.groups = {55};
    EXPECT_TRUE(registry_.unquarantine(request, admin).ok());
}

TEST_F(FaultsTest, UnquarantineAllTakesWhatTheCallerMay) {
    Process& mine = renderer(1, "mine");
    Process& compute = open(2);
    attach(mine, compute, "mine");
    Process& theirs = renderer(3, "theirs", 1001);
    Process& other = open(4, "/bin/compute", 1001);
    attach(theirs, other, "theirs");
    fault(mine);
    fault(theirs);
    const Result<v1::UnquarantineReply> done = unquarantine("", 1000, true);
    ASSERT_TRUE(done.ok());
    EXPECT_THAT(done->names(), ElementsAre("mine"));
    EXPECT_EQ(registry_.faults().holds_in_force(now_), 1u);
    EXPECT_EQ(unquarantine("", 0, true)->names_size(), 2) << "mine is dead still, and in the book";
    EXPECT_EQ(registry_.faults().holds_in_force(now_), 0u);
}

TEST_F(FaultsTest, HoldsOutliveTheDaemonAndTheCulpritsDeath) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    fault(owner);
    close(compute);
    close(owner);
    const std::string kept = registry_.faults_text();
    ASSERT_TRUE(unquarantine("game").ok());
    EXPECT_EQ(registry_.load_faults(kept), 0u);
    EXPECT_TRUE(registry_.next_deadline().has_value());
    renderer(11);
    EXPECT_THAT(refused(12), HasSubstr("held off"));
}

TEST_F(FaultsTest, ASharerWithoutTheFeatureIsToldInTheOldWay) {
    Process& owner = renderer(1);
    Process& old = open(2, "/bin/compute", 1000, v1::FEATURE_SHARE);
    attach(owner, old);
    fault(owner);
    EXPECT_FALSE(old.got(v1::ServerMessage::kFaultNotice));
    EXPECT_EQ(old.take(v1::ServerMessage::kDetachCommand).detach_command().reason().code(), 14u);
}

TEST_F(FaultsTest, AnExecutableThatTheKernelDoesNotShowIsKnownByItsName) {
    Process& owner = renderer(1);
    sharer(owner, 2, "");
    fault(owner);
    EXPECT_EQ(culprit(), "[prog]");
    send_register(owner);
    EXPECT_THAT(refused(3, ""), HasSubstr("[prog] is held off"));
    EXPECT_THAT(refused(4, "/bin/x"), IsEmpty());
}

TEST_F(FaultsTest, WhereTheKernelIsSilentTheProgramsOwnWordServes) {
    const auto open_saying = [this](pid_t pid, const std::string& said) -> Process& {
        Process& process = processes_.emplace_back();
        process.peer = peer_of(pid, 1000, "");
        v1::Hello hello;
        hello.set_features(kFaultFeatures);
        hello.set_executable(said);
        process.id = *registry_.open_session(process.peer, Transport::kFrames, hello, 1, process);
        process.sent.clear();
        return process;
    };
    Process& owner = renderer(1);
    attach(owner, open_saying(2, "/opt/one/bin/python3"));
    fault(owner);
    EXPECT_EQ(culprit(), "/opt/one/bin/python3");
    send_register(owner);
    const auto why = [&](Process& process) {
        send_attach(process);
        const std::string text = process.error().text();
        close(process);
        return text;
    };
    EXPECT_THAT(why(open_saying(3, "/opt/one/bin/python3")), HasSubstr("held off"));
    EXPECT_THAT(why(open_saying(4, "/opt/two/bin/python3")), IsEmpty());
    EXPECT_THAT(why(open_saying(5, "no path")), IsEmpty()) << "known by its name";
    EXPECT_THAT(refused(6, "/bin/other"), IsEmpty());
}

TEST_F(FaultsTest, AProgramThatSharesWithItselfIsNotHeldOff) {
    Process& owner = renderer(1);
    v1::ClientMessage message;
    message.mutable_state_report()->set_state(v1::SHARING_STATE_SHARING);
    say(owner, message);
    fault(owner);
    EXPECT_EQ(culprit(), "nobody");
    EXPECT_EQ(fault_info().quarantines_size(), 0);
}

TEST_F(FaultsTest, WhoIsStuckSharesOnAndIsShown) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    EXPECT_EQ(stuck(compute, false, "", 500).code(), 0u);
    EXPECT_EQ(info(compute).state(), v1::SHARING_STATE_SHARING);
    EXPECT_EQ(info(compute).stuck().text(), "45000 a second?");
    EXPECT_EQ(info(compute).stuck().since_ms(), 500u);
    EXPECT_FALSE(info(owner).has_stuck());
    EXPECT_EQ(registry_.sessions_stuck(), 1u);
    EXPECT_EQ(registry_.counters().faults, 0u);
    EXPECT_FALSE(status().tsgs(0).has_fault()) << "nothing died";
    EXPECT_FALSE(owner.got(v1::ServerMessage::kFaultNotice));
    ASSERT_THAT(kinds(), Contains("stuck"));
    EXPECT_EQ(events_.back().kind(), "stuck");
    EXPECT_EQ(events_.back().name(), "game");
    EXPECT_EQ(events_.back().peer().pid(), 2u);
    EXPECT_EQ(events_.back().reason().code(), 0u);
    EXPECT_THAT(events_.back().reason().text(),
                HasSubstr("repeats page faults, as after a bad access; 45000 a second?"));
    // It is in its place, and others come in meanwhile.
    sharer(owner, 3, "/bin/other");
    now_ += 1s;
    EXPECT_EQ(info(compute).stuck().since_ms(), 2500u);
    const size_t events = events_.size();
    EXPECT_EQ(stuck(compute).code(), 0u);
    EXPECT_EQ(events_.size(), events) << "said already, as after a restart of vudad";
    EXPECT_EQ(info(compute).stuck().since_ms(), 2500u);

    EXPECT_EQ(stuck(compute, true).code(), 0u);
    EXPECT_EQ(events_.back().kind(), "stuck-over");
    EXPECT_FALSE(info(compute).has_stuck());
    EXPECT_EQ(registry_.sessions_stuck(), 0u);
    EXPECT_EQ(stuck(compute, true).code(), 0u);
    EXPECT_EQ(events_.size(), events + 1);
}

TEST_F(FaultsTest, WhoIsStuckIsTakenForTheCause) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2, "/bin/stuck");
    sharer(owner, 3, "/bin/newer");
    stuck(compute);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/stuck");
    EXPECT_EQ(registry_.sessions_stuck(), 0u) << "it died of it";
    EXPECT_FALSE(info(compute).has_stuck());
}

TEST_F(FaultsTest, WhoWasStuckWhenItWasKilledIsTakenForTheCause) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2, "/bin/stuck");
    sharer(owner, 3, "/bin/newer");
    stuck(compute);
    close(compute);
    EXPECT_EQ(registry_.sessions_stuck(), 0u);
    now_ += 50ms;
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/stuck");
}

TEST_F(FaultsTest, OfTwoThatAreStuckTheNewerOneAndNoneForWhomItIsOver) {
    Process& owner = renderer(1);
    Process& first = sharer(owner, 2, "/bin/first");
    Process& second = sharer(owner, 3, "/bin/second");
    Process& third = sharer(owner, 4, "/bin/third");
    sharer(owner, 5, "/bin/newest");
    // The counter is the machine's: everybody sees it.
    for (Process* one : {&first, &second, &third}) stuck(*one);
    stuck(third, true);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/second");
}

TEST_F(FaultsTest, OfTwoThatAreStuckTheOneThatEnded) {
    Process& owner = renderer(1);
    Process& first = sharer(owner, 2, "/bin/first");
    Process& second = sharer(owner, 3, "/bin/second");
    for (Process* one : {&first, &second}) stuck(*one);
    close(first);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/first") << "while it lived the TSG did";
}

TEST_F(FaultsTest, OfTwoThatEndedTheLaterOneUnlessAnotherSaysThatItDidIt) {
    Process& owner = renderer(1);
    Process& first = sharer(owner, 2, "/bin/first");
    Process& second = sharer(owner, 3, "/bin/second");
    Process& third = sharer(owner, 4, "/bin/third");
    for (Process* one : {&first, &second, &third}) stuck(*one);
    close(second);
    pass(500ms);
    close(first);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/first");
    fault(third, 31, "game", true);
    EXPECT_EQ(culprit(), "/bin/third");
}

TEST_F(FaultsTest, WhoJoinsWhereOneIsStuckIsNot) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2, "/bin/stuck");
    stuck(compute);
    pass(1s);
    Process& later = sharer(owner, 3, "/bin/later");
    EXPECT_EQ(stuck(later).code(), 0u) << "it sees the same";
    EXPECT_FALSE(info(later).has_stuck());
    EXPECT_EQ(registry_.sessions_stuck(), 1u);
    EXPECT_THAT(kinds(), testing::Contains("stuck").Times(1));
    EXPECT_EQ(stuck(later, true).code(), 0u);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/stuck");
}

TEST_F(FaultsTest, WhoJoinedAfterItBeganIsNotTheCauseWhoeverSaysItFirst) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2, "/bin/stuck");
    Process& later = sharer(owner, 3, "/bin/later");
    // The machine was busy: the word of the one that is stuck came after the other's.
    stuck(later);
    stuck(compute, false, "", 1500);
    close(later);
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/stuck");
}

// A further context is a change, and no joining.
TEST_F(FaultsTest, WhoIsStuckAndMakesAFurtherContextIsStillTheCause) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2, "/bin/stuck");
    stuck(compute);
    pass(1s);
    attach(owner, compute);
    sharer(owner, 3, "/bin/newest");
    EXPECT_TRUE(info(compute).has_stuck());
    fault(owner, 31);
    EXPECT_EQ(culprit(), "/bin/stuck");
}

TEST_F(FaultsTest, OnlyWhoSharesCanBeStuck) {
    Process& owner = renderer(1);
    Process& stranger = open(2);
    EXPECT_EQ(stuck(stranger).code(), 9u);
    EXPECT_EQ(stuck(stranger, false, "game").code(), 9u);
    EXPECT_EQ(stuck(owner).code(), 9u) << "a renderer without CUDA";
    EXPECT_THAT(kinds(), Contains("fault-refused"));
    EXPECT_THAT(kinds(), Not(Contains("stuck")));
    Process& compute = sharer(owner, 3);
    EXPECT_EQ(stuck(compute, false, "other").code(), 9u);
    v1::ClientMessage message;
    message.mutable_fault()->set_kind(v1::FAULT_KIND_STUCK);
    message.mutable_fault()->set_xid(31);
    EXPECT_EQ(fault(compute, message).code(), 3u);
    EXPECT_EQ(registry_.sessions_stuck(), 0u);
    // CUDA in the renderer's own process.
    v1::ClientMessage report;
    report.mutable_state_report()->set_state(v1::SHARING_STATE_SHARING);
    say(owner, report);
    EXPECT_EQ(stuck(owner).code(), 0u);
    EXPECT_TRUE(info(owner).has_stuck());
    fault(owner, 31);
    EXPECT_FALSE(info(owner).has_stuck());
}

TEST_F(FaultsTest, WhoLeavesIsStuckNoLonger) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    stuck(compute);
    v1::ClientMessage message;
    message.mutable_detach_notice();
    say(compute, message);
    EXPECT_FALSE(info(compute).has_stuck());
    EXPECT_EQ(stuck(compute).code(), 9u);
}

TEST_F(FaultsTest, WhoIsStuckAgainAndAgainCanStillSayThatItsTsgDied) {
    Process& owner = renderer(1);
    Process& compute = sharer(owner, 2);
    int taken = 0;
    for (int i = 0; i < 20; ++i) taken += stuck(compute, i % 2 == 1).code() == 0 ? 1 : 0;
    EXPECT_EQ(taken, 8);
    EXPECT_EQ(fault(compute).code(), 0u);
}

TEST_F(FaultsTest, ASwitchedOffBackOffHoldsNobody) {
    registry_.set_settings([] {
        Settings settings;
        settings.faults.first = Milliseconds(0);
        return settings;
    }());
    Process& owner = renderer(1);
    sharer(owner, 2);
    fault(owner);
    EXPECT_EQ(culprit(), "/bin/compute");
    EXPECT_THAT(kinds(), Not(Contains("quarantined")));
    send_register(owner);
    Process& again = open(3);
    attach(owner, again);
}

}  // namespace
}  // namespace vuda::daemon
