// What becomes of a program that wishes to run unshared where its kernels do not fit.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "client/fake_daemon.h"
#include "client/partition_client.h"
#include "client/session.h"
#include "client/test_support.h"

namespace vuda::client {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;

const Uuid kUnfitGpu{{1, 2, 3}};
const LargeKernel kLarge{65'536, 49'152, false};

class PlainHost : public SessionHost {
 public:
    Result<HandleSet> export_host(uint64_t) override { return Error{Code::kUnimplemented, "not here", ""}; }
    void detach_command(const Error&) override {}
    void guard_fd(int, bool) override {}
    void register_failed(const Error&) override {}
};

class SessionUnfit : public testing::Test {
 protected:
    SessionUnfit()
        : log_(::open((dir_ / "log").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600)),
          reporter_(LogLevel::kError, log_.get()),
          daemon_(dir_ / "handles.sock"),
          session_(SessionOptions{dir_ / "handles.sock", "0.1.0", "580.159.04", "torch"}, host_, reporter_) {
        daemon_.script([](auto& script) { script.features = kFeatureShare | kFeatureUnshare; });
    }
    void share(const LimitTerms& terms = {limits::OverLimit::kUnshare, false}) {
        ASSERT_TRUE(session_.attach("game", kUnfitGpu, 8, 10s, terms).ok());
        AttachOutcome outcome;
        outcome.state = SharingState::kSharing;
        outcome.channels_moved = 8;
        session_.attach_done(outcome);
    }
    bool wait_unfits(size_t count) {
        return daemon_.wait_for([count](const auto& record) { return record.unfits.size() >= count; });
    }
    std::string said() const {
        std::ostringstream text;
        text << std::ifstream(dir_ / "log").rdbuf();
        return text.str();
    }
    bool wait_said(const std::string& what) const {
        const auto until = std::chrono::steady_clock::now() + 10s;
        while (said().find(what) == std::string::npos && std::chrono::steady_clock::now() < until) ::usleep(1000);
        return said().find(what) != std::string::npos;
    }

    TempDir dir_;
    UniqueFd log_;
    Reporter reporter_;
    PlainHost host_;
    FakeDaemon daemon_;
    Session session_;
};

TEST_F(SessionUnfit, VudadIsToldAndOneLineSaysWhatComesOfIt) {
    share();
    EXPECT_EQ(daemon_.record().attaches.back().over_limit(), v1::OVER_LIMIT_UNSHARE);
    EXPECT_FALSE(daemon_.record().attaches.back().fitted());
    EXPECT_TRUE(session_.does_not_fit({65'536, 49'152, true}));
    ASSERT_TRUE(wait_unfits(1));
    const v1::DoesNotFit told = daemon_.record().unfits[0];
    EXPECT_EQ(told.name(), "game");
    EXPECT_EQ(told.bytes(), 65'536u);
    EXPECT_EQ(told.limit(), 49'152u);
    EXPECT_TRUE(told.fitted());
    const std::string line =
        "vuda: a kernel was not run (CUDA error 701): it wants 65536 bytes of shared memory a block, beside graphics "
        "49152 are possible; the next context of torch on 'game' starts unshared, for 10 min (vudactl unquarantine "
        "game "
        "lets it back)\n";
    ASSERT_TRUE(wait_said("lets it back)\n"));
    EXPECT_EQ(said(), line);
    // Of a later context: told, and not said again.
    EXPECT_TRUE(session_.does_not_fit(kLarge));
    ASSERT_TRUE(wait_unfits(2));
    session_.ending();
    EXPECT_EQ(said(), line);
}

TEST_F(SessionUnfit, TheTermsGoWithEachAttach) {
    share({limits::OverLimit::kReject, true});
    EXPECT_EQ(daemon_.record().attaches.back().over_limit(), v1::OVER_LIMIT_REJECT);
    EXPECT_TRUE(daemon_.record().attaches.back().fitted());
}

TEST_F(SessionUnfit, OfNoAttachNothingIsTold) {
    session_.connect_ahead("game");
    EXPECT_FALSE(session_.does_not_fit(kLarge));
    session_.ending(kLarge);
    EXPECT_EQ(said(), "");
}

TEST_F(SessionUnfit, AProgramThatGaveItsChannelsBackMeanwhile) {
    share();
    session_.detached({});
    EXPECT_TRUE(session_.does_not_fit(kLarge));
    ASSERT_TRUE(wait_unfits(1));
    EXPECT_EQ(daemon_.record().unfits[0].name(), "game");
}

TEST_F(SessionUnfit, AnOlderVudadIsNotTold) {
    daemon_.script([](auto& script) { script.features = kFeatureShare; });
    share();
    EXPECT_TRUE(session_.does_not_fit(kLarge));
    EXPECT_TRUE(wait_said("are possible; see docs/compatibility.md\n"));
    EXPECT_THAT(daemon_.record().unfits, IsEmpty());
    EXPECT_EQ(daemon_.record().bad_frames, 0u);
}

TEST_F(SessionUnfit, AVudadThatHoldsNobodyOff) {
    daemon_.script([](auto& script) { script.held_ms = 0; });
    share();
    EXPECT_TRUE(session_.does_not_fit(kLarge));
    EXPECT_TRUE(wait_said("are possible; see docs/compatibility.md\n"));
}

TEST_F(SessionUnfit, AVudadThatIsAwayHearsOfItLater) {
    share();
    daemon_.script([](auto& script) { script.answer_unfit = false; });
    EXPECT_TRUE(session_.does_not_fit(kLarge));
    ASSERT_TRUE(wait_unfits(1));
    daemon_.script([](auto& script) { script.answer_unfit = true; });
    daemon_.drop_sessions();
    ASSERT_TRUE(wait_unfits(2));
    EXPECT_TRUE(wait_said("starts unshared")) << said();
}

TEST_F(SessionUnfit, AProgramThatEndsAtOnceIsWaitedFor) {
    share();
    session_.ending(kLarge);
    EXPECT_EQ(daemon_.record().unfits.size(), 1u) << "ending returns when vudad has heard of it";
    EXPECT_THAT(said(), HasSubstr("the next context of torch on 'game' starts unshared"));
}

TEST_F(SessionUnfit, AVudadThatDoesNotAnswerIsNotWaitedForLong) {
    share();
    daemon_.script([](auto& script) { script.answer_unfit = false; });
    session_.ending(kLarge);
    EXPECT_THAT(said(), HasSubstr("are possible; see docs/compatibility.md"));
}

// ---- Programs that write their launch descriptors themselves

class OwnKernels : public testing::Test {
 protected:
    OwnKernels() {
        ::unsetenv("VUDA_PARTITION");
        callbacks_.subdevice_control = [](void*, uint32_t, void*, uint32_t) { return uint32_t{0x56}; };
        client_ = std::make_unique<PartitionClient>(
            callbacks_, [](const partition::PartitionState&) {},
            []() -> Result<partition::CudaDriver> {
                return Error{Code::kUnavailable, "no CUDA here", ""};
            },
            [this](uint32_t bytes, uint32_t limit) { refused_.emplace_back(bytes, limit); });
    }

    vuda_private_callbacks callbacks_{};
    std::vector<std::pair<uint32_t, uint32_t>> refused_;
    std::unique_ptr<PartitionClient> client_;
};

TEST_F(OwnKernels, AreRefusedWhileTheProgramShares) {
    EXPECT_EQ(client_->own_kernel(50'176, 49'152), 0) << "no page";
    Result<UniqueFd> fd = page::make_page_fd();
    ASSERT_TRUE(client_->page_received(fd->get(), page::kPageBytes));
    EXPECT_EQ(client_->own_kernel(50'176, 49'152), 0) << "native";
    client_->sharing_began();
    EXPECT_EQ(client_->own_kernel(49'152, 49'152), 0);
    EXPECT_EQ(client_->own_kernel(50'176, 49'152), 701);
    EXPECT_EQ(client_->own_kernel(70'000, 49'152), 701);
    EXPECT_THAT(refused_, testing::ElementsAre(std::pair(50'176u, 49'152u))) << "the first one";
    EXPECT_EQ(page::SampleReader(*client_->page()).refused(), 2u);
    client_->sharing_ended();
    EXPECT_EQ(client_->own_kernel(50'176, 49'152), 0);
    client_->sharing_began();
    EXPECT_EQ(client_->own_kernel(60'000, 49'152), 701);
    EXPECT_EQ(refused_.size(), 2u) << "of another context";
    EXPECT_FALSE(client_->untold_refusal());
}

TEST_F(OwnKernels, WithoutAPartitionerNothingIsRefused) {
    ::setenv("VUDA_PARTITION", "off", 1);
    Result<UniqueFd> fd = page::make_page_fd();
    ASSERT_TRUE(client_->page_received(fd->get(), page::kPageBytes));
    client_->sharing_began();
    EXPECT_EQ(client_->own_kernel(50'176, 49'152), 0);
    ::unsetenv("VUDA_PARTITION");
}

}  // namespace
}  // namespace vuda::client
