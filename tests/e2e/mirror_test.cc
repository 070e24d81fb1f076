// A renderer that maps control buffers while CUDA shares its TSG: graphics state points at the newest of them, so the
// simulated GPU ends the TSG when a kernel runs in an address space that lacks it, or has the one before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

// Maps one more with each frame.
const std::vector<std::string> kMappingRenderer = {
    built("vuda-sim-renderer"), "--frame-ms", "2", "--map-every", "1", "--seconds", "600"};
std::vector<std::string> kernels(const std::string& count, const std::vector<std::string>& extra = {}) {
    std::vector<std::string> all = {built("vuda-sim-compute"), "--kernels", count, "--kernel-ms", "0.2"};
    all.insert(all.end(), extra.begin(), extra.end());
    return all;
}

class MirrorTest : public testing::Test {
 protected:
    // Generous where nobody is to be late: a loaded machine is none of this test's business.
    void deploy(const std::string& mirror_ms = "20000") {
        DeploymentOptions options;
        options.several_programs = true;
        options.config = "[attach]\nmirror_ms = " + mirror_ms + "\n";
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
    }
    Deployment& vuda() { return *deployment_; }

    std::unique_ptr<Process> start_renderer() {
        auto process = std::make_unique<Process>(vuda().wrapped({"--register", "game"}, kMappingRenderer));
        EXPECT_TRUE(vuda().wait_registered("game")) << process->err();
        return process;
    }
    std::unique_ptr<Process> start(const std::vector<std::string>& program) {
        return std::make_unique<Process>(vuda().wrapped({"--attach", "game"}, program));
    }
    // Of the one program that shares: `vudactl run` is its parent.
    pid_t sharer() {
        const Json status = vuda().status();
        for (const Json& session : status["sessions"]) {
            if (session["state"] == "sharing") return session["peer"]["pid"].get<pid_t>();
        }
        ADD_FAILURE() << status.dump(2);
        return 0;
    }
    static Json json_of(const Process& process) { return Json::parse(process.out(), nullptr, false); }
    static void expect_worked(Process& process) {
        EXPECT_EQ(process.wait(), 0) << process.out() << process.err();
        const Json json = json_of(process);
        ASSERT_TRUE(json.is_object()) << process.out();
        EXPECT_EQ(json["verified"], true) << process.out();
        EXPECT_EQ(process.err(), "");
    }
    // Its maps, how many and the longest.
    Json end(Process& renderer) {
        renderer.signal(SIGTERM);
        EXPECT_EQ(renderer.wait(), 0) << renderer.out() << renderer.err();
        const Json json = json_of(renderer);
        EXPECT_TRUE(json.is_object()) << renderer.out();
        EXPECT_EQ(json["device_lost"], false) << renderer.out();
        return json;
    }
    int buffers() { return vuda().status()["tsgs"][0]["control_buffers"].get<int>(); }

    // What the simulated GPU has to say to a test that failed.
    void TearDown() override {
        if (HasFailure() && deployment_) std::cerr << vuda().simctl({"log"}) << vuda().daemon().err();
    }

    std::unique_ptr<Deployment> deployment_;
};

TEST_F(MirrorTest, ABufferThatIsMappedLaterIsThereBeforeTheGpuNeedsIt) {
    deploy();
    const auto renderer = start_renderer();
    const auto compute = start(kernels("400"));
    expect_worked(*compute);
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    EXPECT_GT(end(*renderer)["maps"].get<int>(), 20);
    EXPECT_EQ(renderer->err(), "");
}

// What the test above would not notice if the simulated GPU did not insist.
TEST_F(MirrorTest, WithoutFollowingTheTsgDies) {
    deploy("0");
    const auto renderer = start_renderer();
    const auto compute = start(kernels("100000"));
    EXPECT_NE(compute->wait(), 0);
    EXPECT_NE(renderer->wait(), 0);
    const Json json = json_of(*renderer);
    ASSERT_TRUE(json.is_object()) << renderer->out();
    EXPECT_EQ(json["device_lost"], true);
}

// The renderer's own thread maps for CUDA beside it, and vudad's other program follows as well.
TEST_F(MirrorTest, OneProcessFollowsItself) {
    deploy();
    Process both(vuda().wrapped({"--share", "--register", "game"}, {built("e2e-both"), "--map"}));
    ASSERT_TRUE(both.wait_out("working\n")) << both.out() << both.err();
    const auto compute = start(kernels("200"));
    expect_worked(*compute);
    both.signal(SIGTERM);
    EXPECT_EQ(both.wait(), 0) << both.out() << both.err();
    EXPECT_NE(both.out().find("\"device_lost\":false"), std::string::npos) << both.out();
    EXPECT_EQ(both.err(), "");
}

// The mapping call waits for what it needs, and what was unmapped goes afterwards. The address is one of those that
// were just unmapped: with the buffer of before the simulated GPU would end the TSG.
TEST_F(MirrorTest, AMappingDoesNotWaitForHundredsThatWereUnmapped) {
    // Handing over as many takes its time on a loaded machine: that is to be done before the program asks.
    deploy("20000\nexport_ms = 10000\nturn_ms = 10000");
    const std::string drop = vuda().folder() + "/drop";
    Process renderer(vuda().wrapped({"--register", "game"}, {built("vuda-sim-renderer"), "--frame-ms", "2", "--seconds",
                                                             "600", "--spare", "400", drop}));
    ASSERT_TRUE(vuda().wait_registered("game")) << renderer.err();
    ASSERT_TRUE(vuda().wait_status([](const Json& now) { return now["tsgs"][0]["control_buffers"] == 484; }))
        << vuda().status().dump(2);
    const auto compute = start(kernels("1000000"));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err() << vuda().status().dump(2);
    const pid_t pid = sharer();
    ASSERT_GT(pid, 0);
    std::ofstream(drop).close();
    EXPECT_TRUE(vuda().wait_status([](const Json& now) { return now["tsgs"][0]["control_buffers"] == 85; }))
        << vuda().status().dump(2);
    // One that brings the new buffer, and many that nobody waits for (client/mirror_test.cc): time says little here, on
    // a loaded machine.
    const std::string metrics = run(vuda().vudactl({"metrics"})).out;
    const size_t at = metrics.find("\nvuda_mirror_updates_total ");
    ASSERT_NE(at, std::string::npos) << metrics;
    EXPECT_GE(std::stoi(metrics.substr(metrics.find(' ', at))), 400 / 17);
    EXPECT_NE(metrics.find("\nvuda_mirrors_late_total 0\n"), std::string::npos) << metrics;
    ASSERT_EQ(kill(pid, SIGTERM), 0);
    expect_worked(*compute);
    end(renderer);
    EXPECT_EQ(renderer.err(), "");
}

TEST_F(MirrorTest, SeveralProgramsFollowAndComeAndGo) {
    deploy();
    const auto renderer = start_renderer();
    const auto first = start(kernels("600"));
    const auto second = start(kernels("300", {"--contexts", "2"}));
    expect_worked(*second);
    const auto third = start(kernels("200"));
    expect_worked(*third);
    expect_worked(*first);
    end(*renderer);
    EXPECT_EQ(renderer->err(), "");
}

TEST_F(MirrorTest, OneThatIsKilledHoldsNobodyUp) {
    deploy();
    const auto renderer = start_renderer();
    const auto killed = start(kernels("1000000"));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << killed->err();
    const pid_t pid = sharer();
    ASSERT_GT(pid, 0);
    const auto other = start(kernels("500"));
    ASSERT_TRUE(vuda().wait_state("sharing", 2)) << killed->err() << other->err();
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    killed->wait();
    expect_worked(*other);
    const auto next = start(kernels("100"));
    expect_worked(*next);
    // A map that had waited for the dead one would have waited for twenty seconds.
    EXPECT_LT(end(*renderer)["map_max_ms"].get<double>(), 15'000);
}

// What was mapped meanwhile reaches those who share when vudad is back; their kernels must not run before.
TEST_F(MirrorTest, ARestartOfVudadBringsEverybodyTheSetOfThen) {
    deploy();
    const auto renderer = start_renderer();
    // Its kernel has run when vudad dies: one that ran after that would not have what is mapped meanwhile.
    const std::string worked = vuda().folder() + "/worked";
    const auto idle = start(kernels("1", {"--hold", "--ready-file", worked}));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << idle->err();
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(worked); })) << idle->err();
    ASSERT_TRUE(vuda().wait_status([](const Json& now) { return now["tsgs"][0]["control_buffers"] == 88; }))
        << "84, and the four that come in turn";
    vuda().stop(SIGKILL);
    vuda().start();
    const auto why = [&] {
        return renderer->out() + renderer->err() + idle->out() + idle->err() + vuda().daemon().err() +
               vuda().status().dump(2);
    };
    ASSERT_TRUE(vuda().wait_registered("game")) << why();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << why();
    EXPECT_TRUE(vuda().wait_status([&](const Json& now) {
        return std::any_of(now["sessions"].begin(), now["sessions"].end(), [](const Json& session) {
            return session["state"] == "sharing" && session["control_buffers"] == 88;
        });
    })) << vuda().status().dump(2);
    const auto next = start(kernels("100"));
    expect_worked(*next);
    const pid_t pid = sharer();
    ASSERT_GT(pid, 0);
    EXPECT_EQ(kill(pid, SIGTERM), 0);
    expect_worked(*idle);
    end(*renderer);
}

TEST_F(MirrorTest, OneThatIsStoppedIsWaitedForOnce) {
    deploy("1500");
    const auto renderer = start_renderer();
    // Rests between kernels: one that was running could not be stopped anyhow.
    const auto stopped = start(kernels("1000000", {"--gap-ms", "100"}));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << stopped->err();
    const auto events = vuda().watch();
    ASSERT_NE(events, nullptr);
    const pid_t pid = sharer();
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    EXPECT_TRUE(events->wait_out("mirror-late")) << events->out();
    const auto other = start(kernels("300"));
    expect_worked(*other);
    const Json json = end(*renderer);
    EXPECT_GT(json["maps"].get<int>(), 20);
    EXPECT_GE(json["map_max_ms"].get<double>(), 1000);
    EXPECT_LT(json["map_p50_ms"].get<double>(), 1000) << "the others are not waited for";
    EXPECT_EQ(kill(pid, SIGKILL), 0);
    stopped->wait();
}

// The renderer went on without it. When it runs again, its next kernel waits until it has what came meanwhile.
TEST_F(MirrorTest, OneThatWasStoppedCatchesUpBeforeItsNextKernel) {
    deploy("200");
    const auto renderer = start_renderer();
    const auto stopped = start(kernels("1000000", {"--gap-ms", "5"}));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << stopped->err();
    const auto events = vuda().watch();
    ASSERT_NE(events, nullptr);
    const pid_t pid = sharer();
    ASSERT_GT(pid, 0);
    const auto launches = [&] {
        const Json session = vuda().session_of(pid);
        return session.is_object() ? session["launches"].get<uint64_t>() : 0;
    };
    for (int i = 0; i < 3; ++i) {
        const uint64_t before = launches();
        ASSERT_EQ(kill(pid, SIGSTOP), 0);
        EXPECT_TRUE(events->wait_out("mirror-late")) << events->out();
        ASSERT_EQ(kill(pid, SIGCONT), 0);
        EXPECT_TRUE(eventually([&] { return launches() > before + 20; })) << stopped->out() << stopped->err();
    }
    ASSERT_EQ(kill(pid, SIGTERM), 0);
    expect_worked(*stopped);
    end(*renderer);
}

}  // namespace
}  // namespace vuda::e2e
