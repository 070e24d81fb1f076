// Targets through the registry: set, kept, tuned for with samples from the pages, and shown.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitset>
#include <deque>
#include <functional>
#include <utility>

#include "daemon/audit.h"
#include "daemon/partition_testing.h"
#include "daemon/registry.h"

namespace vuda::daemon {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const std::string kGpu(16, '\x11');

class SloTest : public ::testing::Test {
 protected:
    struct Process final : SessionSink {
        Peer peer;
        SessionId id = 0;
        std::deque<v1::ServerMessage> sent;
        page::PageMapping page;
        int64_t next = 0;                    // when its next frame or step begins
        std::function<double(uint32_t)> ms;  // how long one takes, with so many TPCs for compute
        page::SampleKind kind = page::SampleKind::kStep;

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
    };

    Process& open(pid_t pid, uid_t uid = 1000, uint64_t life = 1) {
        Process& process = processes_.emplace_back();
        process.peer.process = {pid, static_cast<uint64_t>(pid) * 10 + life};
        process.peer.uid = process.peer.gid = uid;
        process.peer.program = "prog" + std::to_string(pid);
        v1::Hello hello;
        hello.set_features(~uint64_t{v1::FEATURE_SUBCONTEXTS});
        Result<SessionPage::Made> made = SessionPage::make();
        EXPECT_TRUE(made.ok());
        Result<page::PageMapping> mapped = page::PageMapping::of_received(made->fd.get(), page::kPageBytes);
        EXPECT_TRUE(mapped.ok());
        process.page = *std::move(mapped);
        Result<SessionId> id =
            registry().open_session(process.peer, Transport::kFrames, hello, 1, process, std::move(made->page));
        EXPECT_TRUE(id.ok());
        process.id = *id;
        EXPECT_TRUE(process.take().has_hello_reply());
        process.next = ns();
        return process;
    }
    void say(Process& process, v1::ClientMessage message) {
        message.set_id(2);
        registry().receive(process.id, message);
    }
    Process& renderer(pid_t pid, uid_t uid = 1000) {
        Process& process = open(pid, uid);
        v1::ClientMessage message;
        message.mutable_register_request()->set_name("game");
        message.mutable_register_request()->set_gpu_uuid(kGpu);
        say(process, message);
        EXPECT_TRUE(process.take().has_register_reply());
        if (!process.sent.empty()) serve_export(process);
        process.kind = page::SampleKind::kFrame;
        return process;
    }
    void serve_export(Process& owner) {
        const v1::ServerMessage asked = owner.take();
        ASSERT_TRUE(asked.has_export_request());
        Result<PushTicket> ticket = registry().begin_push(asked.export_request().token(), owner.peer);
        ASSERT_TRUE(ticket.ok());
        auto set = std::make_shared<HandleSet>(reaper_);
        v1::HandleBundle bundle;
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        std::vector<UniqueFd> fds;
        fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        ASSERT_TRUE(set->append(bundle, std::move(fds), kHandlesPerSet).ok());
        ASSERT_TRUE(registry().complete_push(*ticket, set, 2, ++sets_).ok());
    }
    Process& sharer(Process& owner, pid_t pid, v1::Backend backend = v1::BACKEND_QMD_MASK) {
        Process& process = open(pid);
        v1::ClientMessage message;
        message.mutable_attach_request()->set_name("game");
        message.mutable_attach_request()->set_gpu_uuid(kGpu);
        message.mutable_attach_request()->set_channels(8);
        say(process, message);
        serve_export(owner);
        EXPECT_TRUE(process.take().has_attach_reply());
        v1::ClientMessage done;
        done.mutable_attach_done()->set_state(v1::SHARING_STATE_SHARING);
        done.mutable_attach_done()->set_channels_moved(8);
        done.mutable_attach_done()->set_veid(63);
        say(process, done);
        EXPECT_TRUE(process.take().has_attach_done_reply());
        say(process, partition_report(backend, partition::testing::rtx4090()));
        return process;
    }

    Registry::Writer by(uid_t uid = 1000) {
        Registry::Writer writer;
        writer.peer.process = {900, 900};
        writer.peer.uid = writer.peer.gid = uid;
        writer.peer.program = writer.program = "vudactl";
        return writer;
    }
    static v1::SetSloRequest frames(double ms) {
        v1::SetSloRequest request;
        request.set_name("game");
        request.set_frame_ms(ms);
        request.set_frame_miss(0.01);
        return request;
    }
    static v1::SetSloRequest latency(double ms, uint64_t session = 0) {
        v1::SetSloRequest request;
        request.set_name("game");
        request.set_session_id(session);
        request.set_latency_ms(ms);
        request.set_latency_miss(0.01);
        return request;
    }
    static v1::SetSloRequest clear() {
        v1::SetSloRequest request;
        request.set_name("game");
        request.set_clear(true);
        return request;
    }
    v1::TsgInfo tsg() {
        v1::StatusReply status;
        registry().fill_status(status);
        for (const v1::TsgInfo& tsg : status.tsgs()) {
            if (tsg.name() == "game") return tsg;
        }
        ADD_FAILURE() << "game is not there";
        return {};
    }
    v1::SloTarget target(v1::SloKind kind, uint64_t session = 0) {
        const v1::TsgInfo info = tsg();
        for (const v1::SloTarget& target : info.slo().targets()) {
            if (target.kind() == kind && target.session_id() == session) return target;
        }
        ADD_FAILURE() << "no such target";
        return {};
    }

    int64_t ns() const { return std::chrono::nanoseconds(now_.time_since_epoch()).count(); }
    // Frames and steps as the split allows, and the daemon's loop.
    void run(std::chrono::milliseconds length) {
        for (const TimePoint until = now_ + length; now_ < until;) {
            const auto tpcs_of = [](const Process& process) {
                const uint32_t tpcs = process.page ? process.split().applied_tpcs : 0;
                return tpcs == 0 ? 64 : tpcs;
            };
            // Frames wait for the TPCs that any of the others has.
            std::bitset<64> taken;
            for (const Process& process : processes_) {
                if (process.id == 0 || !process.page || process.split().applied_tpcs == 0) continue;
                taken |= ~std::bitset<64>(process.split().disable[0]);
            }
            const auto compute = taken.any() ? static_cast<uint32_t>(taken.count()) : 64;
            now_ += registry().drain_interval();
            for (Process& process : processes_) {
                if (!process.ms || process.id == 0) continue;
                page::SampleWriter writer(*process.page);
                while (process.next < ns()) {
                    const bool frames = process.kind == page::SampleKind::kFrame;
                    const auto duration = static_cast<int64_t>(1e6 * process.ms(frames ? compute : tpcs_of(process)));
                    const int64_t end = process.next + duration;
                    if (end > ns()) break;
                    writer.push(
                        {process.kind, 0, static_cast<uint64_t>(end + clock_skew_), static_cast<uint64_t>(duration)});
                    process.next = frames ? std::max<int64_t>(end, process.next + 16'666'667) : end;
                }
                writer.set_applied(process.split().generation);
            }
            registry().drain_pages();
            registry().tune();
        }
    }
    size_t count(const std::string& kind) const {
        return static_cast<size_t>(
            std::count_if(events_.begin(), events_.end(), [&](const v1::Event& e) { return e.kind() == kind; }));
    }

    // 10 ms, slower once graphics has less than 60 % of the TPCs; steps of 8 ms on all of them.
    static double frame_ms(uint32_t tpcs) { return 10 / std::min(1.0, (64.0 - std::min(tpcs, 63u)) / 64 / 0.6); }
    static double step_ms(uint32_t tpcs) { return 8 * 64.0 / tpcs; }

    Registry& registry() { return *registry_; }
    void restart() {
        const TargetTable kept = registry_->targets();
        for (Process& process : processes_) process.id = 0;
        make();
        size_t bad = 0;
        registry_->load_targets(parse_targets(to_text(kept, "boot"), "boot", bad));
        EXPECT_EQ(bad, 0u);
    }
    void make() {
        registry_.emplace(
            Identity{"9.9", "/h", ~uint64_t{0}, true}, Settings{}, [this] { return now_; },
            [this] {
                Token token{};
                token[0] = ++tokens_;
                return token;
            },
            Registry::Hooks{[this](const v1::Event& event) { events_.push_back(event); }, {}, [this] { ++kept_; }});
    }
    SloTest() { make(); }

    TimePoint now_{std::chrono::hours(1)};
    int64_t clock_skew_ = 0;
    int kept_ = 0;
    uint8_t tokens_ = 0;
    uint64_t sets_ = 0;
    FdReaper reaper_;
    std::deque<v1::Event> events_;
    std::deque<Process> processes_;
    std::optional<Registry> registry_;
};

TEST_F(SloTest, TargetsAreMetAndShown) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    EXPECT_FALSE(tsg().has_slo());
    EXPECT_EQ(registry().drain_interval(), Registry::kDrainInterval);
    const auto reply = registry().set_slo(frames(16.67), by());
    ASSERT_TRUE(reply.ok()) << reply.error().to_string();
    EXPECT_EQ(kept_, 1);
    EXPECT_TRUE(tsg().partition().automatic());
    EXPECT_EQ(tsg().partition().mode(), v1::MODE_INTER_SM) << "there is nothing to tune otherwise";
    EXPECT_EQ(cuda.split().applied_tpcs, 53u) << "the most that leaves something to graphics";
    run(1s);
    EXPECT_EQ(registry().drain_interval(), Registry::kTunerInterval);
    run(9s);
    EXPECT_EQ(cuda.split().applied_tpcs, 33u);
    EXPECT_EQ(tsg().partition().applied_tpcs(), 33u);
    const v1::SloInfo info = tsg().slo();
    EXPECT_EQ(info.regime(), "graphics");
    EXPECT_EQ(info.level_tpcs(), 33u);
    EXPECT_TRUE(info.automatic());
    EXPECT_FALSE(info.infeasible());
    EXPECT_THAT(info.last_change(), HasSubstr("33"));
    const v1::SloTarget frame = target(v1::SLO_KIND_FRAME);
    EXPECT_EQ(frame.state(), v1::SLO_STATE_MEETING);
    EXPECT_NEAR(frame.attained(), 12.4, 1);

    // Why, with the numbers, for people and for programs.
    const auto cut = std::find_if(events_.begin(), events_.end(), [](const v1::Event& e) {
        return e.kind() == "tuner-level" && e.fields().count("VUDA_MISSES") != 0;
    });
    ASSERT_NE(cut, events_.end());
    EXPECT_EQ(cut->name(), "game");
    EXPECT_THAT(cut->reason().text(), AllOf(HasSubstr("compute TPCs 53 -> "), HasSubstr("frames over 16.67 ms")));
    EXPECT_EQ(cut->fields().at("VUDA_OLD_TPCS"), "53");
    const std::vector<std::string> fields = audit_fields(*cut);
    EXPECT_THAT(fields, Contains("VUDA_OLD_TPCS=53"));
    EXPECT_THAT(fields, Contains("VUDA_EVENT=tuner-level"));
    EXPECT_THAT(fields, testing::Not(Contains(testing::StartsWith("VUDA_CLIENT_PID"))));
}

TEST_F(SloTest, TargetsOfProcesses) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    Process& other = sharer(owner, 3);
    owner.ms = frame_ms;
    cuda.ms = other.ms = step_ms;
    ASSERT_TRUE(registry().set_slo(latency(60), by()));
    ASSERT_TRUE(registry().set_slo(latency(40, other.id), by()));
    run(300ms);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, cuda.id).bound(), 60);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, other.id).bound(), 40);
    EXPECT_EQ(registry().set_slo(latency(40, owner.id), by()).error().code, Code::kNotFound);
    EXPECT_EQ(registry().set_slo(latency(40, 999), by()).error().code, Code::kNotFound);
    v1::SetSloRequest one = clear();
    one.set_session_id(other.id);
    ASSERT_TRUE(registry().set_slo(one, by()));
    run(300ms);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, other.id).bound(), 60);
    registry().close_session(other.id, {Code::kUnavailable, "ended", ""});
    other.id = 0;
    run(300ms);
    EXPECT_EQ(tsg().slo().targets_size(), 1);
}

TEST_F(SloTest, AProcessStatesItsOwn) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    const auto state = [&](Process& process, double frame_ms, double latency_ms) {
        v1::ClientMessage message;
        message.mutable_set_targets()->set_frame_ms(frame_ms);
        message.mutable_set_targets()->set_latency_ms(latency_ms);
        say(process, message);
        return process.take();
    };
    EXPECT_TRUE(state(owner, 16.67, 0).has_set_targets_reply());
    EXPECT_TRUE(state(cuda, 0, 60).has_set_targets_reply());
    EXPECT_EQ(kept_, 2);
    EXPECT_TRUE(tsg().partition().automatic());
    EXPECT_EQ(state(cuda, 16.67, 60).error().code(), 3u) << "frames are the owner's";
    EXPECT_EQ(state(owner, 0, 60).error().code(), 3u) << "it has no steps";
    run(5s);
    EXPECT_EQ(cuda.split().applied_tpcs, 33u);
    EXPECT_EQ(target(v1::SLO_KIND_FRAME).bound(), 16.67);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, cuda.id).bound(), 60);
    EXPECT_TRUE(state(cuda, 0, 0).has_set_targets_reply());
    EXPECT_TRUE(state(owner, 0, 0).has_set_targets_reply());
    run(100ms);
    EXPECT_FALSE(tsg().has_slo());
    EXPECT_FALSE(tsg().partition().automatic());
    Process& nobody = open(9);
    EXPECT_EQ(state(nobody, 16.67, 0).error().code(), 5u) << "it owns and shares nothing";
}

TEST_F(SloTest, AProcessThatOwnsOneNameAndSharesAnother) {
    Process& owner = renderer(1);
    Process& both = sharer(owner, 2);
    v1::ClientMessage registration;
    registration.mutable_register_request()->set_name("other");
    registration.mutable_register_request()->set_gpu_uuid(kGpu);
    say(both, registration);
    EXPECT_TRUE(both.take().has_register_reply());
    v1::ClientMessage message;
    message.mutable_set_targets()->set_frame_ms(20);
    message.mutable_set_targets()->set_latency_ms(60);
    both.sent.clear();
    say(both, message);
    ASSERT_TRUE(both.take().has_set_targets_reply());
    const TargetTable& kept = registry().targets();
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_EQ(kept.at("other").frames.frame_ms, 20);
    EXPECT_TRUE(kept.at("other").own.empty());
    EXPECT_FALSE(kept.at("game").frames.any());
    EXPECT_EQ(kept.at("game").of(both.peer.process).latency_ms, 60);
}

TEST_F(SloTest, ComputeIsDividedByWeight) {
    Process& owner = renderer(1);
    Process& heavy = sharer(owner, 2);
    Process& light = sharer(owner, 3);
    owner.ms = frame_ms;
    heavy.ms = light.ms = step_ms;
    v1::SetSloRequest weight;
    weight.set_name("game");
    weight.set_weight(2);
    EXPECT_EQ(registry().set_slo(weight, by()).error().code, Code::kInvalidArgument) << "whose?";
    weight.set_session_id(heavy.id);
    ASSERT_TRUE(registry().set_slo(weight, by()));
    EXPECT_FALSE(tsg().partition().automatic()) << "a weight is no target";
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    run(5s);
    ASSERT_EQ(tsg().partition().applied_tpcs(), 33u);
    EXPECT_EQ(heavy.split().applied_tpcs, 22u);
    EXPECT_EQ(light.split().applied_tpcs, 11u);
    const auto tpcs = [](const Process& process) { return ~std::bitset<64>(process.split().disable[0]); };
    EXPECT_EQ(tpcs(heavy).count(), 22u);
    EXPECT_EQ(tpcs(light).count(), 11u);
    EXPECT_TRUE((tpcs(heavy) & tpcs(light)).none()) << "side by side";
    ASSERT_EQ(tsg().slo().shares_size(), 2);
    EXPECT_EQ(tsg().slo().shares(0).weight(), 2);
    EXPECT_EQ(tsg().slo().shares(0).tpcs(), 22u);
    EXPECT_GE(count("tuner-shares"), 1u);

    // One that has nothing to do claims nothing.
    light.ms = nullptr;
    run(4s);
    EXPECT_EQ(heavy.split().applied_tpcs, 33u);
    EXPECT_TRUE(tsg().slo().shares(1).idle());
    light.ms = step_ms;
    light.next = ns();
    run(2s);
    EXPECT_EQ(heavy.split().applied_tpcs, 22u);

    // Changed live; and by hand everybody has the same TPCs again.
    weight.set_weight(0.5);
    ASSERT_TRUE(registry().set_slo(weight, by()));
    run(1s);
    EXPECT_EQ(heavy.split().applied_tpcs, 11u);
    EXPECT_EQ(light.split().applied_tpcs, 22u);
    v1::SetQuotaRequest quota;
    quota.set_name("game");
    quota.set_tpcs(33);
    ASSERT_TRUE(registry().set_quota(quota, by()));
    run(100ms);
    EXPECT_EQ(heavy.split().applied_tpcs, 33u);
    EXPECT_EQ(light.split().applied_tpcs, 33u);
}

TEST_F(SloTest, AFixedQuotaIsWatchedOnly) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    v1::SetModeRequest mode;
    mode.set_name("game");
    mode.set_mode(v1::MODE_INTER_SM);
    ASSERT_TRUE(registry().set_mode(mode, by()));
    v1::SetQuotaRequest quota;
    quota.set_name("game");
    quota.set_tpcs(44);
    ASSERT_TRUE(registry().set_quota(quota, by()));
    EXPECT_THAT(registry().set_slo(frames(16.67), by())->note(), HasSubstr("fixed at 44"));
    run(5s);
    EXPECT_EQ(cuda.split().applied_tpcs, 44u);
    EXPECT_FALSE(tsg().slo().automatic());
    EXPECT_EQ(target(v1::SLO_KIND_FRAME).state(), v1::SLO_STATE_INFEASIBLE);
    quota.set_automatic(true);
    ASSERT_TRUE(registry().set_quota(quota, by()));
    run(5s);
    EXPECT_EQ(cuda.split().applied_tpcs, 33u);
    // And by hand again, while it tunes.
    quota.set_tpcs(22);
    EXPECT_THAT(registry().set_quota(quota, by())->note(), HasSubstr("watched"));
    run(2s);
    EXPECT_EQ(cuda.split().applied_tpcs, 22u);
}

TEST_F(SloTest, ClearingGivesTheSplitBack) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    run(3s);
    ASSERT_EQ(cuda.split().applied_tpcs, 33u);
    ASSERT_TRUE(registry().set_slo(clear(), by()));
    run(100ms);
    EXPECT_FALSE(tsg().partition().automatic());
    EXPECT_EQ(tsg().partition().mode(), v1::MODE_INTRA_SM);
    EXPECT_FALSE(tsg().has_slo());
    EXPECT_TRUE(registry().targets().empty());
    EXPECT_EQ(registry().drain_interval(), Registry::kDrainInterval);
}

TEST_F(SloTest, ARestartKeepsThem) {
    Process* owner = &renderer(1);
    Process* cuda = &sharer(*owner, 2);
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    ASSERT_TRUE(registry().set_slo(latency(60, cuda->id), by()));
    restart();
    owner = &renderer(1);
    cuda = &sharer(*owner, 2);
    EXPECT_TRUE(tsg().partition().automatic());
    owner->ms = frame_ms;
    cuda->ms = step_ms;
    run(3s);
    EXPECT_EQ(cuda->split().applied_tpcs, 33u);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, cuda->id).bound(), 60) << "the same process under another session number";
}

TEST_F(SloTest, AnotherUsersTargetsAreNotInherited) {
    Process& owner = renderer(1);
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    registry().close_session(owner.id, {Code::kUnavailable, "ended", ""});
    owner.id = 0;
    Process& again = renderer(2);
    EXPECT_EQ(tsg().slo().targets_size(), 1) << "the same user's are";
    registry().close_session(again.id, {Code::kUnavailable, "ended", ""});
    again.id = 0;
    renderer(3, 1001);
    EXPECT_FALSE(tsg().has_slo());
}

TEST_F(SloTest, RefusesWhoMayNotAndWhatMakesNoSense) {
    renderer(1);
    EXPECT_EQ(registry().set_slo(frames(16), by(1001)).error().code, Code::kPermissionDenied);
    EXPECT_EQ(count("slo-refused"), 1u);
    EXPECT_EQ(registry().set_slo(frames(-1), by()).error().code, Code::kInvalidArgument);
    v1::SetSloRequest nobody = frames(16);
    nobody.set_name("nobody");
    EXPECT_EQ(registry().set_slo(nobody, by()).error().code, Code::kNotFound);
    EXPECT_EQ(kept_, 0);
    EXPECT_FALSE(tsg().has_slo());
    EXPECT_TRUE(registry().set_slo(frames(16), by(0))) << "root may";
}

TEST_F(SloTest, ProgramsThatCannotKeepToASplit) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2, v1::BACKEND_NONE);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    ASSERT_TRUE(registry().set_slo(frames(9), by()));
    run(5s);
    EXPECT_FALSE(tsg().slo().automatic());
    EXPECT_EQ(target(v1::SLO_KIND_FRAME).state(), v1::SLO_STATE_INFEASIBLE);
    EXPECT_LE(count("tuner-level"), 1u) << "nothing that could be put into force is chosen";
}

TEST_F(SloTest, WaitsCountWhereNoStepIsMarked) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    cuda.ms = step_ms;
    cuda.kind = page::SampleKind::kSync;
    ASSERT_TRUE(registry().set_slo(latency(100), by()));
    run(2s);
    EXPECT_GT(target(v1::SLO_KIND_LATENCY, cuda.id).samples(), 20u);
}

TEST_F(SloTest, WhatAGpuNeededForAFrameIsNoStepAndNoFrameTime) {
    Process& owner = renderer(1);
    Process& both = sharer(owner, 2);
    owner.ms = frame_ms;
    owner.kind = page::SampleKind::kGpuFrame;
    both.ms = step_ms;
    both.kind = page::SampleKind::kGpuFrame;
    ASSERT_TRUE(registry().set_slo(latency(100), by()));
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    run(2s);
    EXPECT_EQ(target(v1::SLO_KIND_FRAME).samples(), 0u);
    EXPECT_EQ(target(v1::SLO_KIND_LATENCY, both.id).samples(), 0u);
}

TEST_F(SloTest, AProcessWithAnotherClockIsHeard) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    owner.ms = frame_ms;
    cuda.ms = step_ms;
    clock_skew_ = -3'000'000'000'000;
    ASSERT_TRUE(registry().set_slo(frames(16.67), by()));
    run(4s);
    EXPECT_EQ(cuda.split().applied_tpcs, 33u);
}

TEST_F(SloTest, FullRingsAndHostilePagesAreSurvived) {
    Process& owner = renderer(1);
    Process& cuda = sharer(owner, 2);
    ASSERT_TRUE(registry().set_slo(latency(10), by()));
    run(40ms);
    page::SampleWriter writer(*cuda.page);
    for (int round = 0; round < 20; ++round) {
        for (uint64_t i = 0; i < 2 * page::kRingCells; ++i)
            writer.push({page::SampleKind::kStep, i, i % 3 == 0 ? UINT64_MAX : static_cast<uint64_t>(ns()),
                         page::kDurationLimit * (i % 2)});
        cuda.page->process.lost.store(round % 2 == 0 ? UINT64_MAX : 0);
        run(40ms);
    }
    EXPECT_TRUE(tsg().has_slo());
}

}  // namespace
}  // namespace vuda::daemon
