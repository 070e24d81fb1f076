// TSGs that die on the simulated GPU: who notices, what vudad makes of it, and how one gets out of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

using namespace std::chrono_literals;

const std::string kRendererProgram = built("vuda-sim-renderer");
const std::string kComputeProgram = built("vuda-sim-compute");

// From the fault to vudad's status: 100 ms where the machine has time. A look is due every 50 ms; what is more is the
// test machine's.
constexpr auto kNoticed = 3000ms;

class FaultsE2e : public testing::Test {
 protected:
    void deploy(const std::string& config = "", bool several_programs = false) {
        DeploymentOptions options;
        options.several_programs = several_programs;
        options.own_simd = true;
        options.simd_arguments = {"--quiet"};
        options.config = config;
        options.daemon_arguments = {"--state-dir", "@state"};
        options.prepare = [](const std::string& folder) { std::filesystem::create_directory(folder + "/state"); };
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
    }
    Deployment& vuda() { return *deployment_; }

    // Without vudactl in between: the process that is started is the one that shares.
    std::unique_ptr<Process> start(const std::map<std::string, std::string>& wishes, std::vector<std::string> program) {
        const std::string ready = vuda().folder() + "/ready" + std::to_string(++started_);
        program.insert(program.end(), {"--ready-file", ready});
        auto process = std::make_unique<Process>(vuda().preloaded(wishes, program));
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(ready) || !process->running(); }))
            << process->err();
        return process;
    }
    std::unique_ptr<Process> renderer(const std::vector<std::string>& extra = {"--keep-lost"}) {
        std::vector<std::string> program = {kRendererProgram, "--frames", "3", "--frame-ms", "1", "--hold"};
        program.insert(program.end(), extra.begin(), extra.end());
        auto process = start({{"VUDA_REGISTER", "game"}}, program);
        EXPECT_TRUE(vuda().wait_registered("game")) << process->err();
        return process;
    }
    std::unique_ptr<Process> compute(const std::vector<std::string>& extra = {"--keep-lost"}) {
        std::vector<std::string> program = {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1", "--hold"};
        program.insert(program.end(), extra.begin(), extra.end());
        return start({{"VUDA_ATTACH", "game"}}, program);
    }
    // A short program: shares, or runs natively and says why.
    Finished try_attach() {
        return run(vuda().wrapped({"--attach", "game"}, {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1"}));
    }
    void fault(const Process& process, uint32_t xid = 13) {
        faulted_at_ = Clock::now();
        vuda().simctl({"fault", std::to_string(xid) + "@" + std::to_string(process.pid())});
        ASSERT_NE(vuda().simctl({"log"}).find("planted"), std::string::npos);
    }

    // What is known of the name; null: nothing.
    static Json fault_of(const Json& status) {
        if (!status.is_object()) return nullptr;
        for (const Json& tsg : status["tsgs"]) {
            if (tsg["name"] == "game") return tsg["fault"];
        }
        for (const Json& one : status["faults"]) {
            if (one["name"] == "game") return one;
        }
        return nullptr;
    }
    static std::string state_of(const Json& status) {
        const Json fault = fault_of(status);
        return fault.is_object() ? fault["state"].get<std::string>() : "none";
    }
    bool wait_fault_state(const std::string& state, std::chrono::milliseconds patience = kPatience) {
        return vuda().wait_status([&](const Json& status) { return state_of(status) == state; }, patience);
    }
    void expect_noticed() {
        ASSERT_TRUE(wait_fault_state("faulted")) << vuda().daemon().err();
        const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - faulted_at_);
        RecordProperty("noticed_ms", static_cast<int>(took.count()));
        EXPECT_LT(took.count(), kNoticed.count());
    }
    // What vudad keeps over a restart.
    std::string kept() {
        std::ostringstream text;
        text << std::ifstream(vuda().folder() + "/state/faults").rdbuf();
        return text.str();
    }
    static void expect_shared(const Finished& finished) {
        EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
        EXPECT_EQ(finished.err, "");
    }
    static void expect_held_off(const Finished& finished) {
        EXPECT_EQ(finished.status, 0) << "it runs all the same: " << finished.out << finished.err;
        EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
        EXPECT_NE(finished.err.find("is held off from 'game' for"), std::string::npos) << finished.err;
        EXPECT_NE(finished.err.find("vudactl unquarantine game"), std::string::npos) << finished.err;
    }
    static void end(Process& process) {
        process.signal(SIGTERM);
        process.wait();
    }

    std::unique_ptr<Deployment> deployment_;
    Clock::time_point faulted_at_;
    int started_ = 0;
};

TEST_F(FaultsE2e, BothLearnStatusShowsItAndUnquarantineLetsItInAtOnce) {
    deploy();
    auto owner = renderer();
    const auto sharer = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    const auto watch = vuda().watch();
    ASSERT_NE(watch, nullptr);
    fault(*sharer, 31);
    expect_noticed();
    EXPECT_TRUE(vuda().wait_state("faulted", 2)) << vuda().daemon().err();

    const Json known = fault_of(vuda().status());
    EXPECT_EQ(known["xid"], 31);
    EXPECT_EQ(known["text"], "Xid 31 (MMU fault)");
    EXPECT_EQ(known["culprit"]["pid"], sharer->pid());
    EXPECT_EQ(known["culprit"]["program"], std::filesystem::canonical(kComputeProgram).string());
    ASSERT_EQ(known["quarantines"].size(), 1u);
    EXPECT_GT(known["quarantines"][0]["left_ms"], 0);
    const Finished text = run(vuda().vudactl({"status"}));
    EXPECT_NE(text.out.find("Xid 31 (MMU fault)"), std::string::npos) << text.out;
    for (Process* one : {owner.get(), sharer.get()}) {
        EXPECT_TRUE(one->wait_err("the TSG 'game' died: Xid 31 (MMU fault)")) << one->err();
        end(*one);
        EXPECT_EQ(lines(one->err()).size(), 1u) << "one line for one cause: " << one->err();
    }

    // The renderer is started again; what did it is held off, until somebody says otherwise.
    EXPECT_TRUE(vuda().wait_sessions(0));
    EXPECT_EQ(state_of(vuda().status()), "quarantined");
    owner = renderer();
    expect_held_off(try_attach());
    EXPECT_EQ(state_of(vuda().status()), "quarantined");
    const Finished lifted = run(vuda().vudactl({"unquarantine", "game"}));
    EXPECT_EQ(lifted.status, 0) << lifted.err;
    EXPECT_EQ(lifted.out, "game: 1 program may attach again\n");
    expect_shared(try_attach());
    EXPECT_EQ(run(vuda().vudactl({"unquarantine", "game"})).status, 66);
    EXPECT_EQ(run(vuda().vudactl({"unquarantine"})).status, 64);
    EXPECT_EQ(run(vuda().vudactl({"unquarantine", "--all"})).status, 0);

    const std::string metrics = run(vuda().vudactl({"metrics"})).out;
    EXPECT_NE(metrics.find("vuda_faults_total 1\n"), std::string::npos) << metrics;
    EXPECT_NE(metrics.find("vuda_quarantined 0\n"), std::string::npos) << metrics;
    EXPECT_TRUE(watch->wait_out("\"kind\":\"faulted\"")) << watch->out();
    // As vudad's own clock has it, without the time that vudactl takes.
    for (const std::string& line : lines(watch->out())) {
        const Json event = Json::parse(line, nullptr, false);
        if (!event.is_object() || event["kind"] != "faulted") continue;
        const auto planted =
            std::chrono::duration_cast<std::chrono::microseconds>(faulted_at_.time_since_epoch()).count();
        const int64_t took = event["monotonic_us"].get<int64_t>() - planted;
        RecordProperty("fault_to_event_us", std::to_string(took));
        EXPECT_LT(took, std::chrono::microseconds(kNoticed).count());
    }
    EXPECT_TRUE(watch->wait_out("\"VUDA_XID\":\"31\"")) << watch->out();
    EXPECT_TRUE(watch->wait_out("\"kind\":\"quarantined\"")) << watch->out();
    EXPECT_TRUE(watch->wait_out("\"kind\":\"unquarantined\"")) << watch->out();
    EXPECT_TRUE(vuda().daemon().wait_err("quarantined game")) << vuda().daemon().err();
}

TEST_F(FaultsE2e, ProgramsThatEndInPeaceAreNoFault) {
    deploy();
    auto owner = renderer();
    for (int i = 0; i < 3; ++i) expect_shared(try_attach());
    auto attached = compute();
    end(*owner);
    end(*attached);
    auto again = renderer();
    expect_shared(try_attach());
    EXPECT_EQ(state_of(vuda().status()), "none") << vuda().status().dump(2);
    EXPECT_EQ(kept().find("hold"), std::string::npos) << kept();
    end(*again);
}

TEST_F(FaultsE2e, AKernelOverTheLimitEndsBothAndTheBackOffRunsOut) {
    deploy("[faults]\nbackoff_ms = 1500\n");
    auto owner = renderer({});
    // Both programs end of it, as programs do, faster than anybody looks.
    const Finished over = run(vuda().wrapped(
        {"--attach", "game"}, {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1", "--smem", "50176"}));
    EXPECT_NE(over.status, 0) << over.out;
    EXPECT_NE(owner->wait(), 0) << owner->out();
    EXPECT_TRUE(wait_fault_state("quarantined")) << vuda().daemon().err();
    EXPECT_EQ(fault_of(vuda().status())["xid"], 13);
    owner = renderer({});
    const Finished held = try_attach();
    EXPECT_EQ(held.status, 0) << held.out;
    EXPECT_TRUE(wait_fault_state("sharing")) << vuda().daemon().err();
    expect_shared(try_attach());
}

TEST_F(FaultsE2e, ARendererThatLoosesItsDeviceAloneHoldsNobodyOff) {
    deploy();
    const auto owner = renderer();
    fault(*owner, 69);
    expect_noticed();
    const Json known = fault_of(vuda().status());
    EXPECT_EQ(known["text"], "Xid 69 (graphics engine class error)");
    EXPECT_TRUE(known["culprit"].is_null());
    const Finished refused = try_attach();
    EXPECT_EQ(refused.status, 0);
    EXPECT_NE(refused.err.find("the TSG 'game' died"), std::string::npos) << refused.err;
}

TEST_F(FaultsE2e, AProcessWithTwoContextsReportsOnce) {
    deploy();
    const auto owner = renderer();
    const auto sharer = compute({"--keep-lost", "--contexts", "2"});
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    fault(*sharer);
    expect_noticed();
    EXPECT_TRUE(vuda().wait_state("faulted", 2)) << vuda().daemon().err();
    end(*sharer);
    EXPECT_EQ(lines(sharer->err()).size(), 1u) << sharer->err();
    const Json known = fault_of(vuda().status());
    EXPECT_EQ(known["quarantines"][0]["faults"], 1);
}

TEST_F(FaultsE2e, TheOthersInTheTsgAreTold) {
    deploy("", true);
    const auto owner = renderer();
    const auto first = compute();
    const auto second = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 2));
    fault(*second);
    expect_noticed();
    EXPECT_TRUE(vuda().wait_state("faulted", 3)) << vuda().daemon().err();
    EXPECT_TRUE(first->wait_err("died")) << first->err();
    EXPECT_EQ(fault_of(vuda().status())["culprit"]["pid"], second->pid()) << "it came last";
}

TEST_F(FaultsE2e, KilledWhileQuarantinedAndAVudadThatIsRestarted) {
    deploy();
    auto owner = renderer();
    auto sharer = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    fault(*sharer);
    expect_noticed();
    owner->signal(SIGKILL);
    sharer->signal(SIGKILL);
    owner->wait();
    sharer->wait();
    EXPECT_TRUE(wait_fault_state("quarantined")) << vuda().daemon().err();
    EXPECT_TRUE(eventually([&] { return kept().find("hold ") != std::string::npos; })) << kept();
    vuda().stop(SIGKILL);
    vuda().start();
    EXPECT_EQ(state_of(vuda().status()), "quarantined") << vuda().daemon().err();
    owner = renderer();
    expect_held_off(try_attach());
}

TEST_F(FaultsE2e, AFaultWhileVudadIsAwayIsToldLater) {
    deploy();
    auto owner = renderer();
    const auto sharer = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    vuda().stop(SIGTERM);
    fault(*sharer);
    EXPECT_TRUE(owner->wait_err("the TSG 'game' died: Xid 13")) << owner->err();
    EXPECT_TRUE(sharer->wait_err("the TSG 'game' died: Xid 13")) << sharer->err();
    vuda().start();
    EXPECT_TRUE(vuda().wait_state("faulted", 2)) << vuda().daemon().err();
    // The dead TSG is offered to nobody.
    EXPECT_EQ(vuda().status()["tsgs"].size(), 0u);
    owner->signal(SIGKILL);
    owner->wait();
    owner = renderer();
    expect_shared(try_attach());
}

// At whatever moment of the attach it comes: the name is faulted, nobody hangs, and the one who came in is held off.
TEST_F(FaultsE2e, AFaultWhileSomebodyAttaches) {
    deploy();
    const auto owner = renderer();
    Process coming(vuda().preloaded({{"VUDA_ATTACH", "game"}}, {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1",
                                                                "--contexts", "4", "--threads", "4"}));
    ASSERT_TRUE(vuda().wait_status([&](const Json& status) {
        return std::any_of(status["sessions"].begin(), status["sessions"].end(), [&](const Json& session) {
            return session["peer"]["pid"] == coming.pid() && session["state"] != "idle";
        });
    })) << coming.err();
    fault(*owner);
    expect_noticed();
    EXPECT_NE(coming.wait(), -1) << "it hangs";
    const Json known = fault_of(vuda().status());
    EXPECT_EQ(known["state"], "faulted");
    const Finished refused = try_attach();
    EXPECT_EQ(refused.status, 0) << refused.out;
    EXPECT_NE(refused.err.find("died"), std::string::npos) << refused.err;
}

// A bad access of a program that shares: nothing dies, and the GPU repeats the page fault until the program ends.
class StuckE2e : public FaultsE2e {
 protected:
    void plant(const char* what, const Process& process) {
        planted_at_ = Clock::now();
        ASSERT_EQ(vuda().simctl({"fault", std::string(what) + "@" + std::to_string(process.pid())}), "");
    }
    // Of a process, as vudactl has it; null: not stuck.
    Json stuck(const Process& process) {
        const Json status = vuda().status();
        if (!status.is_object()) return nullptr;
        for (const Json& session : status["sessions"]) {
            if (session["peer"]["pid"] == process.pid()) return session["stuck"];
        }
        return nullptr;
    }
    void expect_said(Process& process) {
        EXPECT_TRUE(eventually([&] { return stuck(process).is_object(); })) << process.err();
        const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - planted_at_);
        RecordProperty("stuck_ms", static_cast<int>(took.count()));
        EXPECT_LT(took.count(), kStuckNoticed.count());
        EXPECT_TRUE(process.wait_err("a kernel of this program seems to wait for ever: the GPU repeats page faults "))
            << process.err();
        EXPECT_NE(
            process.err().find(" times a second, as after a bad access; the renderer of 'game' goes on until this "
                               "program ends (docs/faults.md)"),
            std::string::npos)
            << process.err();
    }
    // The renderer's work so far.
    uint64_t frames() {
        const std::string status = vuda().simctl({"status"});
        const size_t at = status.find("frames=");
        return at == std::string::npos ? 0 : std::stoull(status.substr(at + 7));
    }

    // Half a second of looks in a row where the machine has time; each that comes too late begins it anew.
    static constexpr auto kStuckNoticed = 8000ms;
    Clock::time_point planted_at_;
};

TEST_F(StuckE2e, ItIsToldWhileTheRendererDrawsOnAndIsTheCauseWhenTheProgramIsKilled) {
    deploy("", true);
    const auto owner =
        start({{"VUDA_REGISTER", "game"}}, {kRendererProgram, "--seconds", "600", "--frame-ms", "5", "--keep-lost"});
    ASSERT_TRUE(vuda().wait_registered("game")) << owner->err();
    const auto sharer = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    const auto watch = vuda().watch();
    ASSERT_NE(watch, nullptr);
    plant("stuck", *sharer);
    expect_said(*sharer);
    EXPECT_GT(stuck(*sharer)["text"].get<std::string>().find(" a second"), 0u);
    EXPECT_TRUE(stuck(*owner).is_null()) << "it shares its TSG, and has no CUDA";
    EXPECT_EQ(state_of(vuda().status()), "none") << "nothing died";
    const Finished text = run(vuda().vudactl({"status"}));
    EXPECT_NE(text.out.find("the GPU repeats page faults, "), std::string::npos) << text.out;
    EXPECT_NE(run(vuda().vudactl({"metrics"})).out.find("vuda_stuck 1\n"), std::string::npos);
    EXPECT_TRUE(watch->wait_out("\"kind\":\"stuck\"")) << watch->out();
    EXPECT_TRUE(vuda().daemon().wait_err("stuck game")) << vuda().daemon().err();
    const uint64_t drawn = frames();
    EXPECT_TRUE(eventually([&] { return frames() > drawn; })) << "the renderer draws on";
    EXPECT_EQ(owner->err(), "");

    // Somebody joins after it, and is not the cause.
    const auto later = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 2)) << later->err();
    sharer->signal(SIGKILL);
    sharer->wait();
    ASSERT_TRUE(wait_fault_state("faulted")) << vuda().daemon().err();
    const Json known = fault_of(vuda().status());
    EXPECT_EQ(known["xid"], 31);
    EXPECT_EQ(known["culprit"]["pid"], sharer->pid());
    EXPECT_TRUE(owner->wait_err("the TSG 'game' died: Xid 31 (MMU fault)")) << owner->err();
}

TEST_F(StuckE2e, ItMayPass) {
    deploy();
    const auto owner = renderer();
    const auto sharer = compute();
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << sharer->err();
    const auto watch = vuda().watch();
    ASSERT_NE(watch, nullptr);
    plant("stuck", *sharer);
    expect_said(*sharer);
    plant("free", *sharer);
    EXPECT_TRUE(eventually([&] { return stuck(*sharer).is_null(); }));
    EXPECT_TRUE(watch->wait_out("\"kind\":\"stuck-over\"")) << watch->out();
    EXPECT_EQ(lines(sharer->err()).size(), 1u) << sharer->err();
    // And nothing comes of it.
    sharer->signal(SIGKILL);
    sharer->wait();
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    expect_shared(try_attach());
    EXPECT_EQ(state_of(vuda().status()), "none");
    EXPECT_EQ(owner->err(), "");
}

}  // namespace
}  // namespace vuda::e2e
