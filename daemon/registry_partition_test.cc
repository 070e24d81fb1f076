// Splits as the registry keeps and hands them out: whose, when, and to whom.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "daemon/metrics.h"
#include "daemon/partition_metrics.h"
#include "daemon/partition_testing.h"
#include "daemon/registry.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

const std::string kGpu(16, '\x11');
const std::string kOtherGpu(16, '\x22');

class SplitTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        UniqueFd page_fd;
        page::PageMapping page;
        page::SampleWriter* writer = nullptr;

        void send(const v1::ServerMessage& message) override { sent.push_back(message); }
        void close(const Error&) override {}
        v1::ServerMessage take() {
            if (sent.empty()) {
                ADD_FAILURE() << peer.describe() << " got nothing";
                return {};
            }
            v1::ServerMessage message = std::move(sent.front());
            sent.pop_front();
            return message;
        }
        page::Split split() const {
            page::Split split;
            EXPECT_TRUE(page::read_split(page->daemon, split));
            return split;
        }
        bool free() const { return split().disable[0] == 0 && split().disable[1] == 0; }
    };

    Process& open(pid_t pid, uid_t uid = 1000,
                  uint64_t features = ~uint64_t{v1::FEATURE_LIVE_MIRROR | v1::FEATURE_SUBCONTEXTS}) {
        Process& process = processes_.emplace_back();
        process.peer.process = {pid, static_cast<uint64_t>(pid)};
        process.peer.uid = process.peer.gid = uid;
        process.peer.program = "prog" + std::to_string(pid);
        v1::Hello hello;
        hello.set_features(features);
        Result<SessionPage::Made> made = SessionPage::make();
        EXPECT_TRUE(made.ok());
        process.page_fd = std::move(made->fd);
        Result<page::PageMapping> mapped = page::PageMapping::of_received(process.page_fd.get(), page::kPageBytes);
        EXPECT_TRUE(mapped.ok());
        process.page = *std::move(mapped);
        Result<SessionId> id =
            registry_.open_session(process.peer, Transport::kFrames, hello, 1, process, std::move(made->page));
        EXPECT_TRUE(id.ok());
        process.id = *id;
        const v1::HelloReply reply = process.take().hello_reply();
        EXPECT_EQ(reply.page_bytes(), page::kPageBytes);
        return process;
    }

    void say(Process& process, v1::ClientMessage message, uint64_t id = 2) {
        message.set_id(id);
        registry_.receive(process.id, message);
    }

    Process& renderer(pid_t pid, const std::string& name = "game", uid_t uid = 1000, const std::string& gpu = kGpu) {
        Process& process = open(pid, uid);
        register_name(process, name, gpu);
        return process;
    }
    void register_name(Process& process, const std::string& name, const std::string& gpu = kGpu) {
        v1::ClientMessage message;
        message.mutable_register_request()->set_name(name);
        message.mutable_register_request()->set_gpu_uuid(gpu);
        say(process, message);
        EXPECT_TRUE(process.take().has_register_reply());
        if (!process.sent.empty()) serve_export(process);  // made ahead
    }

    void serve_export(Process& owner) {
        const v1::ServerMessage asked = owner.take();
        ASSERT_TRUE(asked.has_export_request()) << asked.ShortDebugString();
        Result<PushTicket> ticket = registry_.begin_push(asked.export_request().token(), owner.peer);
        ASSERT_TRUE(ticket.ok());
        auto set = std::make_shared<HandleSet>(reaper_);
        v1::HandleBundle bundle;
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        std::vector<UniqueFd> fds;
        fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        ASSERT_TRUE(set->append(bundle, std::move(fds), kHandlesPerSet).ok());
        ASSERT_TRUE(registry_.complete_push(*ticket, set, 2, ++sets_).ok());
    }

    void ask_attach(Process& owner, Process& attacher, const std::string& name = "game") {
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name(name);
        message.mutable_attach_request()->set_gpu_uuid(kGpu);
        message.mutable_attach_request()->set_channels(8);
        say(attacher, message);
        serve_export(owner);
        EXPECT_TRUE(attacher.take().has_attach_reply());
    }
    void finish_attach(Process& attacher, v1::SharingState state = v1::SHARING_STATE_SHARING) {
        v1::ClientMessage message;
        message.mutable_attach_done()->set_state(state);
        message.mutable_attach_done()->set_channels_moved(8);
        message.mutable_attach_done()->set_veid(63);
        say(attacher, message);
        EXPECT_TRUE(attacher.take().has_attach_done_reply());
    }
    // A CUDA program that shares and can keep to a split.
    Process& sharer(Process& owner, pid_t pid, const partition::Topology& layout = partition::testing::h200()) {
        Process& process = open(pid);
        ask_attach(owner, process);
        finish_attach(process);
        say(process, partition_report(v1::BACKEND_QMD_MASK, layout));
        return process;
    }

    Registry::Writer by(pid_t pid, uid_t uid = 1000) {
        Registry::Writer writer;
        writer.peer.process = {pid, static_cast<uint64_t>(pid)};
        writer.peer.uid = writer.peer.gid = uid;
        writer.peer.program = writer.program = "vudactl";
        return writer;
    }
    Result<v1::SetQuotaReply> quota(uint32_t tpcs, const Registry::Writer& writer, const std::string& name = "game") {
        v1::SetQuotaRequest request;
        request.set_name(name);
        request.set_tpcs(tpcs);
        return registry_.set_quota(request, writer);
    }
    Result<v1::SetQuotaReply> quota(uint32_t tpcs) { return quota(tpcs, by(900)); }
    Result<v1::SetModeReply> mode(v1::Mode mode, const Registry::Writer& writer, const std::string& name = "game") {
        v1::SetModeRequest request;
        request.set_name(name);
        request.set_mode(mode);
        return registry_.set_mode(request, writer);
    }
    template <typename Reply>
    static Code code(const Result<Reply>& result) {
        return result ? Code::kOk : result.error().code;
    }

    v1::PartitionInfo info(const std::string& name = "game") {
        v1::StatusReply status;
        registry_.fill_status(status);
        for (const v1::TsgInfo& tsg : status.tsgs()) {
            if (tsg.name() == name) return tsg.partition();
        }
        ADD_FAILURE() << name << " is not there";
        return {};
    }
    v1::SessionInfo session(const Process& process) {
        v1::StatusReply status;
        registry_.fill_status(status);
        for (const v1::SessionInfo& one : status.sessions()) {
            if (one.session_id() == process.id) return one;
        }
        ADD_FAILURE() << "no session " << process.id;
        return {};
    }

    TimePoint now_{std::chrono::hours(1)};
    uint8_t tokens_ = 0;
    uint64_t sets_ = 0;
    FdReaper reaper_;
    std::deque<v1::Event> events_;
    std::deque<Process> processes_;
    Registry registry_{Identity{"9.9", "/h", ~uint64_t{0}, true}, Settings{}, [this] { return now_; },
                       [this] {
                           Token token{};
                           token[0] = ++tokens_;
                           return token;
                       },
                       Registry::Hooks{[this](const v1::Event& event) {
                                           if (event.kind() == "partition") events_.push_back(event);
                                       },
                                       {}}};
};

TEST_F(SplitTest, DefaultIsInForceBeforeTheFirstLaunch) {
    Process& owner = renderer(1);
    EXPECT_EQ(info().mode(), v1::MODE_INTRA_SM);
    EXPECT_EQ(info().applied_tpcs(), 0u);
    EXPECT_EQ(info().topology().tpcs_size(), 0);

    // It says what it can before it attaches, or in the middle of it.
    Process& cuda = open(2);
    say(cuda, partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200()));
    EXPECT_TRUE(cuda.free());
    ask_attach(owner, cuda);
    EXPECT_EQ(cuda.split().mode, page::SplitMode::kInterSm) << "with AttachReply at the latest";
    EXPECT_EQ(cuda.split().disable[0], uint64_t{1} << 1 | uint64_t{1} << 25);
    EXPECT_EQ(cuda.split().applied_tpcs, 64u);
    finish_attach(cuda);
    EXPECT_EQ(info().mode(), v1::MODE_INTER_SM);
    EXPECT_EQ(info().applied_tpcs(), 64u);
    EXPECT_EQ(info().topology().tpcs_size(), 66);
    EXPECT_FALSE(info().automatic());
    EXPECT_EQ(session(cuda).backend(), v1::BACKEND_QMD_MASK);
    ASSERT_FALSE(events_.empty());
    EXPECT_EQ(events_.back().session_id(), cuda.id);
    EXPECT_EQ(events_.back().reason().text(), "inter-sm, quota none, compute on 64 of 66 TPCs");

    // A renderer without CUDA is told nothing, whatever its page is for.
    EXPECT_TRUE(owner.free());
}

TEST_F(SplitTest, FailedAttachIsNotSplit) {
    Process& owner = renderer(1);
    Process& cuda = open(2);
    say(cuda, partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200()));
    ask_attach(owner, cuda);
    EXPECT_FALSE(cuda.free());
    finish_attach(cuda, v1::SHARING_STATE_UNSHARED);
    EXPECT_TRUE(cuda.free());
    EXPECT_EQ(cuda.split().mode, page::SplitMode::kUnspecified);

    ask_attach(owner, cuda);
    EXPECT_FALSE(cuda.free());
    now_ += 1min;
    registry_.expire();
    EXPECT_TRUE(cuda.free()) << "its turn is over";
}

TEST_F(SplitTest, QuotaReachesAllWhoShareAndThoseWhoComeLater) {
    Process& owner = renderer(1);
    Process& first = sharer(owner, 2);
    const auto reply = quota(17);
    ASSERT_TRUE(reply.ok()) << reply.error().to_string();
    EXPECT_EQ(reply->applied_tpcs(), 16u);
    EXPECT_THAT(reply->note(), HasSubstr("one TPC of each GPC"));
    EXPECT_EQ(first.split().applied_tpcs, 16u);
    EXPECT_EQ(first.split().generation, reply->generation());
    EXPECT_EQ(info().generation(), reply->generation());
    EXPECT_EQ(info().quota_tpcs(), 17u);

    Process& second = sharer(owner, 3);
    EXPECT_EQ(second.split().applied_tpcs, 16u);
    page::SampleWriter(*second.page).set_applied(second.split().generation);
    EXPECT_EQ(session(second).applied_generation(), reply->generation());
    EXPECT_EQ(session(first).applied_generation(), 0u);

    v1::SetQuotaRequest none;
    none.set_name("game");
    none.set_none(true);
    EXPECT_EQ(registry_.set_quota(none, by(900))->applied_tpcs(), 64u);
    EXPECT_EQ(first.split().applied_tpcs, 64u);
    ASSERT_TRUE(mode(v1::MODE_INTRA_SM, by(900)).ok());
    EXPECT_TRUE(first.free());
    EXPECT_TRUE(second.free());
    v1::SetQuotaRequest automatic;
    automatic.set_name("game");
    automatic.set_automatic(true);
    EXPECT_THAT(registry_.set_quota(automatic, by(900))->note(), HasSubstr("no targets"));
    EXPECT_TRUE(info().automatic());
}

TEST_F(SplitTest, BadWishesChangeNothing) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    ASSERT_TRUE(quota(24).ok());
    const v1::PartitionInfo before = info();
    const size_t told = events_.size();

    EXPECT_EQ(code(quota(0)), Code::kInvalidArgument);
    EXPECT_EQ(code(quota(67)), Code::kInvalidArgument);
    EXPECT_EQ(code(quota(0xffffffffu)), Code::kInvalidArgument);
    EXPECT_EQ(code(quota(8, by(900), "nobody")), Code::kNotFound);
    EXPECT_EQ(code(quota(8, by(900), "")), Code::kNotFound);
    EXPECT_EQ(code(quota(8, by(900), "\x1b[2J")), Code::kNotFound);
    EXPECT_EQ(code(quota(8, by(900, 1001))), Code::kPermissionDenied);
    EXPECT_EQ(code(mode(v1::MODE_UNSPECIFIED, by(900))), Code::kInvalidArgument);
    EXPECT_EQ(code(mode(static_cast<v1::Mode>(77), by(900))), Code::kInvalidArgument);
    EXPECT_EQ(code(mode(v1::MODE_SLICED, by(900))), Code::kFailedPrecondition);
    EXPECT_EQ(code(mode(v1::MODE_INTRA_SM, by(900, 1001))), Code::kPermissionDenied);
    v1::SetQuotaRequest nothing;
    nothing.set_name("game");
    EXPECT_EQ(code(registry_.set_quota(nothing, by(900))), Code::kInvalidArgument);

    EXPECT_EQ(info().ShortDebugString(), before.ShortDebugString());
    EXPECT_EQ(cuda.split().generation, before.generation());
    EXPECT_EQ(events_.size(), told);
    EXPECT_TRUE(quota(8, by(901, 0)).ok()) << "root may";
}

TEST_F(SplitTest, AdministratorsMaySplit) {
    Settings settings;
    settings.partition.admin_group = 77;
    registry_.set_settings(settings);
    Process& owner = renderer(1);
    sharer(owner, 2);
    Registry::Writer admin = by(900, 1001);
    EXPECT_EQ(code(quota(8, admin)), Code::kPermissionDenied);
    admin.peer.groups = {5, 77};
    EXPECT_TRUE(quota(8, admin).ok());
}

TEST_F(SplitTest, LastWriterWinsAndBothAreTold) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    EXPECT_EQ(quota(16, by(900))->note(), "");
    const auto second = quota(32, by(901));
    EXPECT_THAT(second->note(),
                HasSubstr("was inter-sm, quota 16, compute on 16 of 66 TPCs, set by pid 900 (vudactl)"));
    EXPECT_EQ(cuda.split().applied_tpcs, 32u);
    ASSERT_GE(events_.size(), 2u);
    EXPECT_EQ(events_.back().peer().pid(), 901u);
    EXPECT_EQ(events_.back().kind(), "partition");
    EXPECT_EQ(events_.back().reason().code(), 0u);
    EXPECT_THAT(events_.back().reason().text(), HasSubstr("quota 32"));
    EXPECT_EQ(events_[events_.size() - 2].peer().pid(), 900u);
}

TEST_F(SplitTest, ProgramsThatCannotAreNamed) {
    Process& owner = renderer(1);
    EXPECT_THAT(quota(8).error().text, HasSubstr("layout of the GPU is not known"));
    say(owner, partition_report(v1::BACKEND_NONE, partition::testing::h200(), "no CUDA in this process"));
    EXPECT_TRUE(quota(8).ok()) << "for whoever attaches";

    Process& torch = open(2);
    ask_attach(owner, torch);
    finish_attach(torch);
    say(torch, partition_report(v1::BACKEND_NONE, {}, "CUDA 99 is not in the slot table"));
    const auto refused = quota(16);
    EXPECT_EQ(code(refused), Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().text, HasSubstr("pid 2 (prog2): CUDA 99 is not in the slot table"));
    EXPECT_EQ(code(mode(v1::MODE_INTER_SM, by(900))), Code::kFailedPrecondition);
    EXPECT_TRUE(mode(v1::MODE_INTRA_SM, by(900)).ok());
    EXPECT_EQ(info().quota_tpcs(), 8u);
    EXPECT_EQ(session(torch).backend_reason().text(), "CUDA 99 is not in the slot table");

    // Beside one that can, the quota is for that one.
    sharer(owner, 3);
    EXPECT_TRUE(quota(16).ok());

    Process& old = open(4, 1000, v1::FEATURE_SHARE | v1::FEATURE_SHARED_PAGE);
    EXPECT_EQ(session(old).backend(), v1::BACKEND_UNSPECIFIED);
}

TEST_F(SplitTest, AProgramThatKnowsNoSplitsIsNamed) {
    Process& owner = renderer(1);
    say(owner, partition_report(v1::BACKEND_NONE, partition::testing::h200()));
    Process& old = open(4, 1000, v1::FEATURE_SHARE | v1::FEATURE_SHARED_PAGE);
    ask_attach(owner, old);
    finish_attach(old);
    EXPECT_THAT(quota(8).error().text, HasSubstr("pid 4 (prog4): its libvuda.so knows no splits"));
}

TEST_F(SplitTest, SessionsSplitTheirOwnName) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    v1::ClientMessage message;
    message.mutable_set_quota()->set_tpcs(8);
    say(owner, message);
    EXPECT_EQ(owner.take().set_quota_reply().applied_tpcs(), 8u);
    EXPECT_EQ(cuda.split().applied_tpcs, 8u);
    message.mutable_set_mode()->set_mode(v1::MODE_INTRA_SM);
    say(cuda, message);
    EXPECT_EQ(cuda.take().set_mode_reply().applied(), v1::MODE_INTRA_SM);
    message.mutable_set_mode()->set_mode(v1::MODE_SLICED);
    say(cuda, message);
    EXPECT_EQ(cuda.take().error().code(), 9u);
    Process& tool = open(3);
    message.mutable_set_quota()->set_tpcs(8);
    say(tool, message);
    EXPECT_EQ(tool.take().error().code(), 5u);
}

TEST_F(SplitTest, WhatBecomesOfLargeKernelsIsShown) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    EXPECT_EQ(session(cuda).over_limit(), v1::OVER_LIMIT_UNSPECIFIED) << "an older library";
    v1::ClientMessage message = partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200());
    v1::PartitionReport& report = *message.mutable_partition_report();
    report.set_shared_memory_limit(49'152);
    report.set_over_limit(v1::OVER_LIMIT_NATIVE);
    report.set_native_launches(12);
    report.set_native_reason("bad\x01" + std::string(1000, 'x'));
    say(cuda, message);
    EXPECT_EQ(session(cuda).over_limit(), v1::OVER_LIMIT_NATIVE);
    EXPECT_EQ(session(cuda).launches_native(), 12u);
    EXPECT_EQ(session(cuda).shared_memory_limit(), 49'152u);
    EXPECT_LE(session(cuda).native_reason().size(), 256u);
    EXPECT_EQ(session(cuda).native_reason().find('\x01'), std::string::npos);
    report.set_over_limit(static_cast<v1::OverLimit>(77));
    report.clear_native_reason();
    say(cuda, message);
    EXPECT_EQ(session(cuda).over_limit(), v1::OVER_LIMIT_UNSPECIFIED) << "a newer library";
    EXPECT_EQ(session(cuda).native_reason(), "");
}

TEST_F(SplitTest, WrongReportsAreRefused) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    v1::ClientMessage message = partition_report(v1::BACKEND_UNSPECIFIED);
    say(cuda, message);
    EXPECT_EQ(cuda.take().error().code(), 3u);
    message = partition_report(static_cast<v1::Backend>(50));
    say(cuda, message);
    EXPECT_EQ(cuda.take().error().code(), 3u);
    message = partition_report(v1::BACKEND_SCG);
    message.mutable_partition_report()->mutable_topology()->add_tpcs();
    say(cuda, message);
    EXPECT_EQ(cuda.take().error().code(), 3u);
    EXPECT_EQ(session(cuda).backend(), v1::BACKEND_QMD_MASK);
    EXPECT_EQ(info().topology().tpcs_size(), 66);
}

TEST_F(SplitTest, OwnersWordOnTheGpuGoesFirst) {
    Process& owner = renderer(1);
    say(owner, partition_report(v1::BACKEND_NONE, partition::testing::h200()));
    sharer(owner, 2, partition::testing::orin());
    EXPECT_EQ(info().topology().tpcs_size(), 66);
}

TEST_F(SplitTest, NameKeepsItsSplitWhileItsOwnerIsAway) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    ASSERT_TRUE(quota(24).ok());
    registry_.close_session(owner.id, {Code::kUnavailable, "gone", ""});
    EXPECT_TRUE(cuda.free()) << "its renderer is gone: nothing to keep off";
    EXPECT_EQ(code(quota(8)), Code::kNotFound);

    Process& again = renderer(3);
    EXPECT_EQ(info().quota_tpcs(), 24u);
    EXPECT_EQ(info().applied_tpcs(), 24u);
    Process& other = sharer(again, 4);
    EXPECT_EQ(other.split().applied_tpcs, 24u);
    EXPECT_TRUE(cuda.free()) << "it shares the old TSG";
}

TEST_F(SplitTest, NothingIsInheritedFromAnotherUserOrGpu) {
    Process& owner = renderer(1);
    sharer(owner, 2);
    ASSERT_TRUE(quota(24).ok());
    registry_.close_session(owner.id, {Code::kUnavailable, "gone", ""});
    Process& stranger = renderer(3, "game", 1001);
    EXPECT_EQ(info().quota_tpcs(), 0u);
    registry_.close_session(stranger.id, {Code::kUnavailable, "gone", ""});

    Process& back = renderer(5);
    sharer(back, 6);
    ASSERT_TRUE(quota(24).ok());
    registry_.close_session(back.id, {Code::kUnavailable, "gone", ""});
    renderer(7, "game", 1000, kOtherGpu);
    EXPECT_EQ(info().quota_tpcs(), 0u);
    EXPECT_EQ(info().topology().tpcs_size(), 0);
}

TEST_F(SplitTest, NamesThatNobodyOwnsAreForgottenInTheEnd) {
    Process& owner = renderer(1, "name0");
    say(owner, partition_report(v1::BACKEND_NONE, partition::testing::h200()));
    for (int i = 0; i < 1100; ++i) {
        const std::string name = "name" + std::to_string(i);
        now_ += 1s;
        ASSERT_TRUE(quota(8, by(900), name).ok());
        v1::ClientMessage message;
        message.mutable_unregister_request()->set_name(name);
        say(owner, message);
        owner.take();
        register_name(owner, "name" + std::to_string(i + 1));
    }
    const auto quota_of = [&](const std::string& name) {
        v1::ClientMessage message;
        message.mutable_unregister_request()->set_name(session(owner).name());
        say(owner, message);
        owner.take();
        register_name(owner, name);
        return info(name).quota_tpcs();
    };
    EXPECT_EQ(quota_of("name1000"), 8u);
    EXPECT_EQ(quota_of("name3"), 0u);
}

TEST_F(SplitTest, DetachedProgramsAreFree) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    EXPECT_FALSE(cuda.free());
    v1::ClientMessage message;
    message.mutable_detach_notice();
    say(cuda, message);
    EXPECT_TRUE(cuda.free());
    EXPECT_EQ(info().mode(), v1::MODE_INTER_SM) << "stays for the next one";
}

TEST_F(SplitTest, CudaInTheRenderersOwnProcess) {
    Process& both = renderer(1);
    say(both, partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200()));
    EXPECT_TRUE(both.free());
    v1::ClientMessage message;
    message.mutable_state_report()->set_state(v1::SHARING_STATE_SHARING);
    say(both, message);
    EXPECT_EQ(both.split().applied_tpcs, 64u);
    EXPECT_TRUE(quota(8).ok());
    EXPECT_EQ(both.split().applied_tpcs, 8u);
    message.mutable_state_report()->set_state(v1::SHARING_STATE_IDLE);
    say(both, message);
    EXPECT_TRUE(both.free());
}

// SCG methods go to the renderer's own TSG from its own process, for all who share it.
TEST_F(SplitTest, AnOwnerThatSteersItsTsg) {
    Process& owner = renderer(1);
    say(owner, partition_report(v1::BACKEND_SCG, partition::testing::rtx4090()));
    EXPECT_EQ(info().mode(), v1::MODE_INTRA_SM);
    ASSERT_TRUE(mode(v1::MODE_INTER_SM, by(900)).ok()) << "before anybody attached";
    EXPECT_EQ(quota(24)->applied_tpcs(), 22u);
    EXPECT_EQ(owner.split().applied_tpcs, 22u);
    Process& cuda = open(2);
    ask_attach(owner, cuda);
    finish_attach(cuda);
    say(cuda, partition_report(v1::BACKEND_NONE, {}, "no CUDA in this process"));
    EXPECT_EQ(quota(33)->applied_tpcs(), 33u) << "the program need not be able to";
    EXPECT_EQ(owner.split().applied_tpcs, 33u);
    say(owner, partition_report(v1::BACKEND_NONE, {}, "the channel does not answer"));
    EXPECT_TRUE(owner.free());
    EXPECT_EQ(code(quota(22)), Code::kFailedPrecondition);
}

TEST_F(SplitTest, GenerationsOnlyRise) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    uint64_t last = cuda.split().generation;
    for (uint32_t i = 1; i <= 50; ++i) {
        ASSERT_TRUE(quota(8 * (1 + i % 8)).ok());
        EXPECT_GT(cuda.split().generation, last);
        last = cuda.split().generation;
    }
    EXPECT_EQ(registry_.counters().splits, 51u);
    // The same again is no change.
    ASSERT_TRUE(quota(8 * (1 + 50 % 8)).ok());
    EXPECT_EQ(cuda.split().generation, last);
}

TEST_F(SplitTest, ReloadDecidesAnew) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    Settings settings;
    settings.partition.mode = v1::MODE_INTRA_SM;
    registry_.set_settings(settings);
    registry_.refresh_splits();
    EXPECT_TRUE(cuda.free());
}

TEST_F(SplitTest, SamplesAreTakenAndShown) {
    EXPECT_FALSE(registry_.has_pages());
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    EXPECT_TRUE(registry_.has_pages());
    page::SampleWriter writer(*cuda.page);
    for (uint64_t i = 1; i <= 100; ++i) writer.push({page::SampleKind::kStep, i, 0, i * 1'000'000});
    page::SampleWriter(*owner.page).push({page::SampleKind::kFrame, 1, 0, 16'000'000});
    registry_.drain_pages();
    EXPECT_EQ(session(cuda).samples(), 100u);
    EXPECT_EQ(session(owner).samples(), 1u);
    const auto samples = registry_.samples();
    ASSERT_EQ(samples.size(), 2u);
    EXPECT_EQ(samples[1].name, "game");
    EXPECT_EQ(samples[1].summary.p50_ns, 50'000'000u);

    v1::StatusReply status;
    registry_.fill_status(status);
    MetricsText text;
    add_partition_metrics(text, status, samples);
    const std::string out = std::move(text).take();
    EXPECT_THAT(out, HasSubstr("vuda_tsg_compute_tpcs{name=\"game\"} 64\n"));
    EXPECT_THAT(out, HasSubstr("vuda_session_samples_total{session=\"2\",name=\"game\"} 100\n"));
    EXPECT_THAT(
        out,
        HasSubstr("vuda_session_sample_seconds{session=\"2\",name=\"game\",kind=\"step\",quantile=\"0.5\"} 0.05\n"));
}

// A program that does nothing costs little, and loses nothing when it begins: vudad looks every 100 ms, the ring holds
// what comes at 10,000 samples a second until it looks again.
TEST_F(SplitTest, AnIdlePageIsLookedAtLessOftenAndLosesNothing) {
    Process& owner = renderer(1);
    page::SampleWriter writer(*owner.page);
    uint64_t pushed = 0;
    const auto push = [&](uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) writer.push({page::SampleKind::kFrame, ++pushed, 0, 1'000'000});
    };
    const auto tick = [&] {
        now_ += Registry::kDrainInterval;
        registry_.drain_pages();
    };
    push(1);
    tick();
    ASSERT_EQ(session(owner).samples(), 1u);
    for (int i = 0; i < 9; ++i) tick();
    push(1);
    tick();
    EXPECT_EQ(session(owner).samples(), 2u) << "a second without samples is no idleness yet";

    // Rounds until one sample is seen, from each moment of the longer pause.
    int longest = 0, all = 0;
    for (int moment = 0; moment < 8; ++moment) {
        for (int i = 0; i < 20 + moment; ++i) tick();
        push(1);
        int rounds = 0;
        for (; session(owner).samples() != pushed && rounds < 100; ++rounds) tick();
        longest = std::max(longest, rounds);
        all += rounds;
    }
    EXPECT_EQ(longest, 4);
    EXPECT_GT(all, 8);

    // From nothing to 10,000 a second, at whatever moment of the longer pause.
    for (int moment = 0; moment < 4; ++moment) {
        for (int i = 0; i < 20 + moment; ++i) tick();
        for (int i = 0; i < 30; ++i) {
            push(1'000);
            tick();
        }
        for (int i = 0; i < 10; ++i) tick();
        EXPECT_EQ(session(owner).samples(), pushed);
        EXPECT_EQ(session(owner).samples_lost(), 0u);
    }
}

// However many processes flood their rings, one call does bounded work and everybody gets a turn.
TEST_F(SplitTest, FloodsAreTakenInTurns) {
    std::vector<Process*> flood;
    for (pid_t pid = 1; pid <= 20; ++pid) flood.push_back(&open(pid));
    for (Process* process : flood) {
        page::SampleWriter writer(*process->page);
        while (writer.push({page::SampleKind::kStep, 1, 0, 1})) {
        }
    }
    registry_.drain_pages();
    uint64_t taken = 0;
    for (Process* process : flood) taken += session(*process).samples();
    EXPECT_EQ(taken, 65'536u);
    registry_.drain_pages();
    registry_.drain_pages();
    for (Process* process : flood) EXPECT_EQ(session(*process).samples(), page::kRingCells);
}

// ---- After a restart of the daemon: the programs go on sharing and say so.

v1::ClientMessage sharing_report(const std::string& name, uint32_t channels, uint32_t veid = 63) {
    v1::ClientMessage message;
    v1::StateReport& report = *message.mutable_state_report();
    report.set_state(v1::SHARING_STATE_SHARING);
    report.set_name(name);
    report.set_channels_moved(channels);
    report.set_veid(veid);
    report.set_control_buffers(84);
    return message;
}

TEST_F(SplitTest, ResumedShareCountsWhicheverComesFirst) {
    for (const bool owner_first : {true, false}) {
        const pid_t base = owner_first ? 10 : 20;
        const std::string name = owner_first ? "one" : "two";
        Process* owner = owner_first ? &renderer(base, name) : nullptr;
        Process& cuda = open(base + 1);
        say(cuda, sharing_report(name, 8));
        v1::SessionInfo shown = session(cuda);
        EXPECT_EQ(shown.role(), v1::ROLE_COMPUTE);
        EXPECT_EQ(shown.state(), v1::SHARING_STATE_SHARING);
        EXPECT_EQ(shown.name(), name);
        EXPECT_EQ(shown.channels_moved(), 8u);
        EXPECT_EQ(shown.veid(), 63u);
        EXPECT_EQ(shown.control_buffers(), 84u);
        now_ += 2s;
        if (owner == nullptr) owner = &renderer(base, name);

        v1::StatusReply status;
        registry_.fill_status(status);
        const v1::TsgInfo* tsg = nullptr;
        for (const v1::TsgInfo& one : status.tsgs()) tsg = one.name() == name ? &one : tsg;
        ASSERT_NE(tsg, nullptr);
        ASSERT_EQ(tsg->attached_sessions_size(), 1);
        EXPECT_EQ(tsg->attached_sessions(0), cuda.id);
        EXPECT_EQ(tsg->channels(), 8u + (tsg->exported() ? 2u : 0u));
        EXPECT_EQ(registry_.sessions_sharing(), owner_first ? 1u : 2u);

        say(cuda, partition_report(v1::BACKEND_QMD_MASK, partition::testing::h200()));
        EXPECT_EQ(cuda.split().applied_tpcs, 64u);

        // And is given back like any other.
        v1::ClientMessage notice;
        notice.mutable_detach_notice();
        say(cuda, notice);
        EXPECT_TRUE(cuda.free());
        status.Clear();
        registry_.fill_status(status);
        for (const v1::TsgInfo& one : status.tsgs()) {
            EXPECT_TRUE(one.name() != name || one.attached_sessions_size() == 0);
        }
        say(cuda, sharing_report(name, 8));
    }
}

TEST_F(SplitTest, ResumedShareLeavesNoRoomThatIsTaken) {
    renderer(1);
    Process& cuda = open(2);
    say(cuda, sharing_report("game", 126));
    Process& more = open(3);
    v1::ClientMessage message;
    message.mutable_attach_request()->set_name("game");
    message.mutable_attach_request()->set_gpu_uuid(kGpu);
    message.mutable_attach_request()->set_channels(8);
    say(more, message);
    EXPECT_EQ(more.take().error().code(), 8u);
}

TEST_F(SplitTest, ClaimsAreNotBelievedBlindly) {
    renderer(1);
    Process& stranger = open(2, 1001);
    say(stranger, sharing_report("game", 128));
    Process& liar = open(3);
    say(liar, sharing_report("../etc", 8));
    EXPECT_EQ(session(liar).name(), "");
    Process& greedy = open(4);
    say(greedy, sharing_report("game", 0xffffffff, 0xffffffff));
    EXPECT_EQ(session(greedy).channels_moved(), 128u);
    EXPECT_EQ(session(greedy).veid(), 63u);
    v1::StatusReply status;
    registry_.fill_status(status);
    EXPECT_LE(status.tsgs(0).channels(), 128u);
    ASSERT_EQ(status.tsgs(0).attached_sessions_size(), 1);
    EXPECT_EQ(status.tsgs(0).attached_sessions(0), greedy.id);

    // A renderer that takes the name long after is another one.
    Process& waits = open(5);
    say(waits, sharing_report("late", 8));
    now_ += 10min;
    renderer(6, "late");
    status.Clear();
    registry_.fill_status(status);
    for (const v1::TsgInfo& tsg : status.tsgs()) {
        EXPECT_TRUE(tsg.name() != "late" || tsg.attached_sessions_size() == 0);
    }
}

TEST_F(SplitTest, ARendererThatTakesTurnsIsToldHow) {
    Process& owner = renderer(1);
    EXPECT_EQ(mode(v1::MODE_SLICED, by(900)).error().code, Code::kFailedPrecondition) << "its frames were never seen";
    page::SampleWriter(*owner.page).set_paces();
    const Result<v1::SetModeReply> done = mode(v1::MODE_SLICED, by(900));
    ASSERT_TRUE(done.ok()) << done.error().to_string();
    EXPECT_EQ(done->applied(), v1::MODE_SLICED);
    EXPECT_EQ(owner.split().mode, page::SplitMode::kSliced);
    EXPECT_EQ(owner.split().graphics_permille, 0u);

    v1::SetQuotaRequest percent;
    percent.set_name("game");
    percent.set_percent(30);
    const Result<v1::SetQuotaReply> quota_done = registry_.set_quota(percent, by(900));
    ASSERT_TRUE(quota_done.ok()) << quota_done.error().to_string();
    EXPECT_EQ(quota_done->applied_percent(), 30u);
    EXPECT_EQ(owner.split().graphics_permille, 700u);
    EXPECT_EQ(owner.split().generation, quota_done->generation());
    EXPECT_EQ(info().compute_percent(), 30u);
    EXPECT_EQ(info().quota_percent(), 30u);

    v1::SetSloRequest target;
    target.set_name("game");
    target.set_frame_ms(16.67);
    target.set_frame_miss(0.01);
    ASSERT_TRUE(registry_.set_slo(target, by(900)).ok());
    EXPECT_EQ(owner.split().frame_ns, 16'670'000u) << "a target is a term of its turns";
    EXPECT_EQ(info().frame_us(), 16'670u);

    ASSERT_TRUE(mode(v1::MODE_INTRA_SM, by(900)).ok());
    EXPECT_EQ(owner.split().mode, page::SplitMode::kUnspecified) << "frames go as they come again";
    EXPECT_EQ(owner.split().graphics_permille, 0u);
    EXPECT_EQ(owner.split().frame_ns, 0u);
}

TEST_F(SplitTest, WhoSharesBesideTurnsIsNotMasked) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    page::SampleWriter(*owner.page).set_paces();
    ASSERT_TRUE(quota(16).ok());
    EXPECT_FALSE(cuda.free());
    ASSERT_TRUE(mode(v1::MODE_SLICED, by(900)).ok());
    EXPECT_TRUE(cuda.free());
    EXPECT_EQ(owner.split().graphics_permille, 1000u - 10u * 24u) << "16 of 66 TPCs, in time";
    ASSERT_TRUE(mode(v1::MODE_INTER_SM, by(900)).ok());
    EXPECT_FALSE(cuda.free());
    EXPECT_EQ(owner.split().mode, page::SplitMode::kUnspecified);
}

}  // namespace
}  // namespace vuda::daemon
