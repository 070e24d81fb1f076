// The whole of VUDA on a simulated GPU: two programs that share, and everything that can go wrong with that.
//
// The programs' output must be what it is without VUDA; what VUDA has to say is in the daemon's status or one line on
// stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/sanitizers.h"
#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

using ::testing::HasSubstr;

// Longest that VUDA may hold a program up, with room for a loaded machine (the shim itself gives up after 2 s).
constexpr double kHoldUpMs = 4000;

const std::string kRenderer = built("vuda-sim-renderer");
const std::string kCompute = built("vuda-sim-compute");

DeploymentOptions own_simd(std::vector<std::string> arguments = {}) {
    DeploymentOptions options;
    options.own_simd = true;
    options.simd_arguments = std::move(arguments);
    options.simd_arguments.emplace_back("--quiet");
    return options;
}

DeploymentOptions several_programs() {
    DeploymentOptions options;
    options.several_programs = true;
    return options;
}

std::vector<std::string> operator+(std::vector<std::string> left, const std::vector<std::string>& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

// A short program: 20 kernels.
const std::vector<std::string> kShort = {kCompute, "--kernels", "20", "--kernel-ms", "0.1"};
// Works, then keeps its context until SIGTERM.
const std::vector<std::string> kHeld = {kCompute, "--kernels", "3", "--kernel-ms", "0.1", "--hold"};
// Renders a little, then keeps its TSG.
const std::vector<std::string> kHeldRenderer = {kRenderer, "--frames", "3", "--frame-ms", "1", "--hold"};

Json output_of(const Finished& finished) { return Json::parse(finished.out, nullptr, false); }

class ShareTest : public testing::Test {
 protected:
    void deploy(DeploymentOptions options = {}) {
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
    }
    Deployment& vuda() { return *deployment_; }

    // A stand-in that holds its GPU context gets a file to make once it has worked: it must not be ended before.
    std::unique_ptr<Process> start(Command command) {
        std::string ready;
        if (std::find(command.argv.begin(), command.argv.end(), "--hold") != command.argv.end()) {
            const std::string folder = vuda().folder() + "/ready";
            mkdir(folder.c_str(), 0777);
            chmod(folder.c_str(), 0777);  // whatever the umask: programs of other users come here too
            ready = folder + "/" + std::to_string(ready_files_.size());
            command.argv.insert(command.argv.end(), {"--ready-file", ready});
        }
        auto process = std::make_unique<Process>(command);
        ready_files_[process.get()] = ready;
        return process;
    }
    void wait_ready(Process& process) {
        const std::string& ready = ready_files_[&process];
        EXPECT_TRUE(eventually([&] { return ready.empty() || std::filesystem::exists(ready) || !process.running(); }))
            << process.err();
    }
    std::unique_ptr<Process> start_renderer(const std::string& name = "game",
                                            const std::vector<std::string>& extra = {}) {
        auto process = start(vuda().wrapped({"--register", name}, kHeldRenderer + extra));
        EXPECT_TRUE(vuda().wait_registered(name)) << process->err();
        return process;
    }
    Finished attach(const std::vector<std::string>& program, const std::string& name = "game") {
        return run(vuda().wrapped({"--attach", name}, program));
    }

    // The program worked, and its results are those of a run without VUDA.
    static void expect_worked(const Finished& finished) {
        EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
        const Json json = output_of(finished);
        ASSERT_TRUE(json.is_object()) << finished.out;
        EXPECT_FALSE(json.contains("error")) << finished.out;
        EXPECT_EQ(json["verified"], true) << finished.out;
        EXPECT_EQ(json["device_lost"], false) << finished.out;
    }
    void expect_like_native(const Finished& finished, const std::vector<std::string>& program) {
        expect_worked(finished);
        const Finished native = run(vuda().native(program));
        ASSERT_EQ(native.status, 0) << native.out << native.err;
        const Json one = output_of(finished), other = output_of(native);
        EXPECT_EQ(one["checksum"], other["checksum"]);
        std::string keys, native_keys;
        for (const auto& [key, value] : one.items()) keys += key + " ";
        for (const auto& [key, value] : other.items()) native_keys += key + " ";
        EXPECT_EQ(keys, native_keys);
        if (one.contains("create_ms")) {
            EXPECT_LT(one["create_ms"].get<double>(), other["create_ms"].get<double>() + kHoldUpMs);
        }
    }
    // Not shared: VUDA's one line says why.
    static void expect_one_line(const Finished& finished, const std::string& about) {
        EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
        EXPECT_NE(finished.err.find(about), std::string::npos) << finished.err;
    }
    void expect_ends_well(Process& process) {
        wait_ready(process);
        process.signal(SIGTERM);
        EXPECT_EQ(process.wait(), 0) << process.out() << process.err();
        const Json json = Json::parse(process.out(), nullptr, false);
        ASSERT_TRUE(json.is_object()) << process.out();
        EXPECT_EQ(json["verified"], true);
        EXPECT_EQ(json["device_lost"], false);
    }

    void attach_at_once(size_t count);

    std::unique_ptr<Deployment> deployment_;
    std::map<const Process*, std::string> ready_files_;
};

TEST_F(ShareTest, TwoProcessesShare) {
    deploy();
    const auto renderer = start_renderer();
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err() << vuda().status().dump(2);
    const Json status = vuda().status();
    EXPECT_EQ(status["daemon"]["simulated"], true);
    ASSERT_EQ(status["tsgs"].size(), 1u);
    const Json& tsg = status["tsgs"][0];
    EXPECT_EQ(tsg["name"], "game");
    EXPECT_EQ(tsg["exported"], true);
    EXPECT_GT(tsg["control_buffers"].get<int>(), 0);
    ASSERT_EQ(tsg["attached_sessions"].size(), 1u);
    for (const Json& session : status["sessions"]) {
        if (session["id"] != tsg["attached_sessions"][0]) continue;
        EXPECT_EQ(session["role"], "compute");
        EXPECT_EQ(session["channels_moved"], 8);
        EXPECT_EQ(session["reason"], nullptr);
        EXPECT_EQ(session["control_buffers"], tsg["control_buffers"]);
    }
    expect_ends_well(*compute);
    EXPECT_EQ(compute->err(), "");
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    expect_ends_well(*renderer);
    EXPECT_EQ(renderer->err(), "");
    expect_like_native(run(vuda().wrapped({}, kShort)), kShort);
}

TEST_F(ShareTest, OneProcessShares) {
    deploy();
    const auto both = start(vuda().wrapped({"--share"}, {built("e2e-both")}));
    ASSERT_TRUE(both->wait_out("\n")) << both->err();
    EXPECT_TRUE(vuda().wait_state("sharing", 1)) << vuda().status().dump(2);
    expect_ends_well(*both);
    EXPECT_EQ(both->err(), "");
}

TEST_F(ShareTest, OneProcessWithARendererThatOthersJoin) {
    deploy(several_programs());
    const auto both = start(vuda().wrapped({"--share", "--register", "game"}, {built("e2e-both")}));
    ASSERT_TRUE(vuda().wait_registered("game")) << both->err();
    const Finished finished = attach(kShort);
    expect_like_native(finished, kShort);
    EXPECT_EQ(finished.err, "");
    expect_ends_well(*both);
    EXPECT_EQ(both->err(), "");
}

// CUDA computes in the renderer's own process, then in another, then in its own again: no subcontext in which somebody
// computed may be nobody's. One at a time, so with vudad as it is installed.
TEST_F(ShareTest, ContextsOfTheRenderersProcessAndOfOthersInTurns) {
    deploy();
    const auto file = [&](const char* name) { return vuda().folder() + "/" + name; };
    const auto both = start(vuda().wrapped({"--share", "--register", "game", "--require"},
                                           {built("e2e-steps"), "R", "+0", "+1", "-0", "-1", "@" + file("left"),
                                            "?" + file("goes"), "+0", "-0", "@" + file("again"), "?" + file("end")}));
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("left")) || !both->running(); })) << both->err();
    ASSERT_TRUE(vuda().wait_registered("game")) << both->out() << both->err();
    const auto attach_twice = [&](const std::string& name) {
        for (int i = 0; i < 2; ++i) {
            // Two contexts, so that it has another subcontext than the one before.
            const Finished finished =
                run(vuda().wrapped({"--attach", "game", "--require"}, {built("e2e-steps"), "+0", "+1", "-0", "+2"}));
            EXPECT_EQ(finished.status, 0) << name << i << finished.out << finished.err;
            EXPECT_EQ(finished.err, "") << name << i;
            EXPECT_TRUE(vuda().wait_state("sharing", 0));
        }
    };
    attach_twice("after its own ");
    std::ofstream(file("goes")) << "\n";
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("again")) || !both->running(); })) << both->err();
    attach_twice("after its own again ");
    std::ofstream(file("end")) << "\n";
    EXPECT_EQ(both->wait(), 0) << both->out() << both->err();
    EXPECT_EQ(both->err(), "");
}

// One of several contexts ends: what it had is free for the next, and the others go on.
TEST_F(ShareTest, ContextsThatComeAndGoInOneProcess) {
    deploy();
    const auto renderer = start_renderer();
    const std::string made = vuda().folder() + "/made", end = vuda().folder() + "/end";
    const auto compute =
        start(vuda().wrapped({"--attach", "game", "--require"}, {built("e2e-steps"), "+0", "+1", "-0", "+2", "+3", "-1",
                                                                 "-2", "+4", "@" + made, "?" + end}));
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(made) || !compute->running(); })) << compute->err();
    const Json status = vuda().status();
    ASSERT_EQ(status["tsgs"].size(), 1u) << compute->out() << compute->err();
    EXPECT_EQ(status["tsgs"][0]["channels"], 2 + 2 * 8) << "two contexts are left";
    std::ofstream(end) << "\n";
    EXPECT_EQ(compute->wait(), 0) << compute->out();
    EXPECT_EQ(compute->err(), "");
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    expect_ends_well(*renderer);
    EXPECT_EQ(renderer->err(), "");
}

TEST_F(ShareTest, ShareWithoutARendererSaysSo) {
    deploy();
    const Finished finished = run(vuda().wrapped({"--share"}, kShort));
    expect_like_native(finished, kShort);
    expect_one_line(finished, "no renderer TSG");
}

TEST_F(ShareTest, ReservedChannelsOnly) {
    deploy();
    const auto renderer = start_renderer();
    const auto compute = start(vuda().wrapped({"--attach", "game", "--reserve", "2"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    EXPECT_EQ(vuda().status()["tsgs"][0]["channels"], 4);  // two of the renderer's own
    expect_ends_well(*compute);
    EXPECT_EQ(compute->err(), "");
    const std::vector<std::string> threads = kShort + std::vector<std::string>{"--threads", "4"};
    const Finished mixed = run(vuda().wrapped({"--attach", "game", "--reserve", "2"}, threads));
    expect_like_native(mixed, threads);
}

TEST_F(ShareTest, DaemonNotRunning) {
    deploy(own_simd());
    vuda().stop(SIGTERM);
    Command command = vuda().wrapped({"--attach", "game"}, kShort);
    command.env["LD_PRELOAD"] = built_library("libvuda_sim.so");
    command.env["VUDA_SIM_SOCKET"] = vuda().sim_socket();
    const Finished finished = run(command);
    expect_like_native(finished, kShort);
    // vudactl's line, and the shim's when the context is made.
    EXPECT_LE(lines(finished.err).size(), 2u) << finished.err;
    EXPECT_NE(finished.err.find("no such socket"), std::string::npos) << finished.err;

    const Finished direct = run(vuda().preloaded({{"VUDA_ATTACH", "game"}}, kShort));
    expect_like_native(direct, kShort);
    EXPECT_EQ(lines(direct.err).size(), 1u) << direct.err;
    const Finished renderer =
        run(vuda().preloaded({{"VUDA_REGISTER", "game"}}, {kRenderer, "--frames", "5", "--frame-ms", "1"}));
    expect_worked(renderer);
    EXPECT_LE(lines(renderer.err).size(), 1u) << renderer.err;
}

TEST_F(ShareTest, DaemonDiesWhileAttached) {
    deploy(own_simd());
    const auto renderer = start_renderer();
    const auto compute =
        start(vuda().wrapped({"--attach", "game"}, {kCompute, "--seconds", "1.5", "--kernel-ms", "1", "--hold"}));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    EXPECT_EQ(vuda().stop(SIGKILL), 128 + SIGKILL);
    const Finished status = run(vuda().vudactl({"status", "--json"}));
    EXPECT_EQ(status.status, 69);
    EXPECT_EQ(Json::parse(status.out)["error"]["code"], "UNAVAILABLE");
    EXPECT_FALSE(compute->wait_out("error", std::chrono::milliseconds(1000)));
    EXPECT_TRUE(compute->running());
    expect_ends_well(*compute);
    expect_ends_well(*renderer);
    EXPECT_LE(lines(compute->err()).size(), 1u) << compute->err();
    EXPECT_LE(lines(renderer->err()).size(), 1u) << renderer->err();
}

TEST_F(ShareTest, DaemonRestarts) {
    deploy(several_programs());
    const auto renderer = start_renderer();
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    vuda().stop(SIGKILL);
    vuda().start();
    ASSERT_TRUE(vuda().ready());
    // The name is registered again, the sharing program is seen again.
    EXPECT_TRUE(vuda().wait_registered("game")) << vuda().status().dump(2);
    EXPECT_TRUE(vuda().wait_state("sharing", 1)) << vuda().status().dump(2);
    const Finished another = attach(kShort);
    expect_like_native(another, kShort);
    EXPECT_EQ(another.err, "");
    expect_ends_well(*compute);
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, DaemonHangs) {
    deploy(own_simd());
    const auto renderer = start_renderer();
    vuda().daemon().signal(SIGSTOP);
    const Finished finished = run(vuda().preloaded({{"VUDA_ATTACH", "game"}}, kShort));
    const Finished status = run(vuda().vudactl({"status"}));
    vuda().daemon().signal(SIGCONT);
    expect_like_native(finished, kShort);
    EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
    EXPECT_EQ(status.status, 69);
    EXPECT_NE(status.err.find("no answer"), std::string::npos) << status.err;
    EXPECT_LT(status.took.count(), kHoldUpMs);
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, NameUnknown) {
    deploy();
    const Finished finished = attach(kShort, "gmae");
    expect_like_native(finished, kShort);
    expect_one_line(finished, "'gmae'");

    const auto held = start(vuda().wrapped({"--attach", "gmae"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("unshared", 1));
    EXPECT_EQ(vuda().status()["sessions"][0]["reason"]["code"], "NOT_FOUND");
    EXPECT_NE(run(vuda().vudactl({"status"})).out.find("no TSG is registered as 'gmae'"), std::string::npos);
    expect_ends_well(*held);
}

TEST_F(ShareTest, NameTaken) {
    deploy();
    const auto first = start_renderer();
    const int owner = vuda().status()["tsgs"][0]["owner"]["pid"];
    const auto second = start(vuda().wrapped({"--register", "game"}, kHeldRenderer));
    ASSERT_TRUE(second->wait_err("\n")) << second->out();
    EXPECT_NE(second->err().find(std::to_string(owner)), std::string::npos) << second->err();
    expect_ends_well(*second);
    EXPECT_EQ(lines(second->err()).size(), 1u) << second->err();
    EXPECT_EQ(vuda().status()["tsgs"][0]["owner"]["pid"], owner);
    expect_ends_well(*first);
}

TEST_F(ShareTest, NameIsFreeAgainAfterItsOwner) {
    deploy();
    { const auto first = start_renderer(); }
    EXPECT_TRUE(vuda().wait_sessions(0));
    const auto second = start_renderer();
    const Finished finished = attach(kShort);
    expect_like_native(finished, kShort);
    EXPECT_EQ(finished.err, "");
}

TEST_F(ShareTest, OtherGpu) {
    deploy(own_simd({"--gpus", "2"}));
    const auto renderer = start_renderer("game", {"--gpu", "0"});
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld + std::vector<std::string>{"--gpu", "1"}));
    ASSERT_TRUE(vuda().wait_state("unshared", 1)) << compute->err();
    const Json status = vuda().status();
    const std::string owner_gpu = status["tsgs"][0]["gpu"];
    std::string text;
    for (const Json& session : status["sessions"]) {
        if (session["state"] == "unshared") {
            EXPECT_EQ(session["reason"]["code"], "FAILED_PRECONDITION");
            text = session["reason"]["text"];
        }
    }
    const size_t first = text.find("GPU-");
    EXPECT_NE(text.find(owner_gpu), std::string::npos) << text;
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_NE(text.find("GPU-", first + 1), std::string::npos) << text;
    expect_ends_well(*compute);
    EXPECT_EQ(lines(compute->err()).size(), 1u) << compute->err();
    expect_ends_well(*renderer);

    // On the second GPU it works as well as on the first.
    const auto other = start_renderer("other", {"--gpu", "1"});
    const std::vector<std::string> program = kShort + std::vector<std::string>{"--gpu", "1"};
    const Finished finished = attach(program, "other");
    expect_like_native(finished, program);
    EXPECT_EQ(finished.err, "");
}

// What keeps a program's channels its own whoever draws: it runs as without VUDA, and the renderer hears nothing of it.
TEST_F(ShareTest, SurroundingsThatAllowNoSharing) {
    deploy();
    const auto renderer = start_renderer();
    ASSERT_TRUE(vuda().wait_registered("game"));
    Command command = vuda().wrapped({"--attach", "game"}, kShort);
    command.env["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] = "1";
    const Finished finished = run(command);
    expect_like_native(finished, kShort);
    expect_one_line(finished, "GPU core dumps");

    Command held = vuda().wrapped({"--attach", "game"}, kHeld);
    held.env["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] = "1";
    const auto compute = start(held);
    ASSERT_TRUE(vuda().wait_state("unshared", 1)) << compute->err();
    const Json status = vuda().status();
    EXPECT_TRUE(std::ranges::any_of(status["sessions"], [](const Json& session) {
        return session["state"] == "unshared" && session["reason"]["code"] == "FAILED_PRECONDITION" &&
               session["reason"]["text"].get<std::string>().find("GPU core dumps") != std::string::npos;
    })) << status.dump(2);
    EXPECT_TRUE(status["tsgs"][0]["attached_sessions"].empty());
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, DriverUnknown) {
    deploy(own_simd({"--driver-version", "999.11"}));
    const std::vector<std::string> program = {kRenderer, "--frames", "5", "--frame-ms", "1"};
    const Finished renderer = run(vuda().wrapped({"--register", "game"}, program));
    expect_like_native(renderer, program);
    expect_one_line(renderer, "999.11");
    const Finished compute = attach(kShort);
    expect_like_native(compute, kShort);
    expect_one_line(compute, "999.11");
}

TEST_F(ShareTest, DriverKnownBad) {
    deploy(own_simd({"--driver-version", "610.57.04"}));
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(compute->wait_err("610.57.04")) << compute->out();
    EXPECT_TRUE(vuda().wait_status([](const Json& now) {
        return now["sessions"].size() == 1 && now["sessions"][0]["state"] == "unshared" &&
               now["sessions"][0]["reason"]["text"].get<std::string>().find("610.57.04") != std::string::npos;
    })) << vuda().status().dump(2);
    expect_ends_well(*compute);
}

TEST_F(ShareTest, TsgFull) {
    deploy(several_programs());
    const auto renderer = start_renderer();
    std::vector<std::unique_ptr<Process>> programs;
    // The renderer has channels of its own, so the 16th program with 8 cannot fit into 128.
    for (int i = 0; i < 15; ++i) {
        programs.push_back(start(vuda().preloaded({{"VUDA_ATTACH", "game"}}, kHeld)));
        wait_ready(*programs.back());
    }
    ASSERT_TRUE(vuda().wait_state("sharing", 15)) << vuda().status().dump(2);
    const Finished last = attach(kShort);
    expect_like_native(last, kShort);
    expect_one_line(last, "full");
    EXPECT_LE(vuda().status()["tsgs"][0]["channels"].get<int>(), 128);
    for (const auto& program : programs) expect_ends_well(*program);
    // Room again.
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    const Finished again = attach(kShort);
    expect_like_native(again, kShort);
    EXPECT_EQ(again.err, "");
}

TEST_F(ShareTest, ImportRefused) {
    deploy();
    const auto renderer = start_renderer();
    vuda().simctl({"inject", "ctl:3d06=0x1b"});
    const Finished finished = attach(kShort);
    vuda().simctl({"inject", "clear"});
    expect_like_native(finished, kShort);
    EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
    // Nothing is left half done: the next one shares.
    const Finished next = attach(kShort);
    expect_like_native(next, kShort);
    EXPECT_EQ(next.err, "");
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, ExportRefused) {
    deploy();
    const auto renderer = start_renderer();
    vuda().simctl({"inject", "ctl:3d05=0x1b"});
    const Finished finished = attach(kShort);
    vuda().simctl({"inject", "clear"});
    expect_like_native(finished, kShort);
    EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
    const Finished next = attach(kShort);
    expect_like_native(next, kShort);
    EXPECT_EQ(next.err, "");
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, RendererKilled) {
    deploy();
    const auto renderer = start_renderer();
    const auto compute =
        start(vuda().wrapped({"--attach", "game"}, {kCompute, "--seconds", "3", "--kernel-ms", "1", "--hold"}));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    kill(vuda().status()["tsgs"][0]["owner"]["pid"].get<int>(), SIGKILL);
    EXPECT_EQ(renderer->wait(), 128 + SIGKILL);
    EXPECT_TRUE(vuda().wait_status([](const Json& now) { return now["tsgs"].empty(); }));
    // It goes on working for the rest of its 3 s.
    EXPECT_FALSE(compute->wait_out("\n", std::chrono::milliseconds(3000))) << compute->out();
    EXPECT_TRUE(compute->running());
    expect_ends_well(*compute);
    EXPECT_LE(lines(compute->err()).size(), 1u) << compute->err();
    EXPECT_TRUE(vuda().wait_sessions(0));
}

// As in a debugger: for longer than vudad waits.
TEST_F(ShareTest, RendererStoppedForLongComesBack) {
    DeploymentOptions options;
    options.config = "[liveness]\nheartbeat_ms = 1500\nrelease_ms = 3000\n";
    deploy(options);
    const auto renderer = start_renderer();
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    const int pid = vuda().status()["tsgs"][0]["owner"]["pid"].get<int>();
    kill(pid, SIGSTOP);
    EXPECT_TRUE(vuda().wait_status([](const Json& now) { return now["tsgs"].empty(); }));
    const Finished meanwhile = attach(kShort);
    expect_like_native(meanwhile, kShort);
    kill(pid, SIGCONT);
    EXPECT_TRUE(vuda().wait_registered("game")) << vuda().status().dump(2);
    // It is the same TSG, with the same program in it. The renderer's own channels are known with its handles.
    EXPECT_TRUE(vuda().wait_status([](const Json& now) {
        return !now["tsgs"].empty() && now["tsgs"][0]["channels"] == 2 + 8;
    })) << vuda().status().dump(2);
    const Finished another = attach(kShort);
    expect_like_native(another, kShort);
    expect_one_line(another, "one program at a time");
    expect_ends_well(*compute);
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    const Finished next = attach(kShort);
    expect_like_native(next, kShort);
    EXPECT_EQ(next.err, "");
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, CudaKilled) {
    deploy();
    const auto renderer =
        start(vuda().wrapped({"--register", "game"}, {kRenderer, "--seconds", "3", "--frame-ms", "2", "--hold"}));
    ASSERT_TRUE(vuda().wait_registered("game")) << renderer->err();
    const std::string before = vuda().simctl({"counts"});
    {
        const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
        ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
        const Json status = vuda().status();
        for (const Json& session : status["sessions"]) {
            if (session["role"] == "compute") kill(session["peer"]["pid"].get<int>(), SIGKILL);
        }
        EXPECT_EQ(compute->wait(), 128 + SIGKILL);
    }
    EXPECT_TRUE(vuda().wait_state("sharing", 0));
    EXPECT_TRUE(vuda().wait_status(
        [](const Json& now) { return !now["tsgs"].empty() && now["tsgs"][0]["attached_sessions"].empty(); }));
    // What it had on the GPU is gone, but for the exports that vudad keeps for the next one.
    const auto channels = [&] {
        const std::string counts = vuda().simctl({"counts"});
        return counts.substr(counts.find("channels="), counts.find(" memories=") - counts.find("channels="));
    };
    EXPECT_TRUE(eventually([&] { return before.find(channels()) != std::string::npos; }))
        << before << vuda().simctl({"counts"});
    expect_ends_well(*renderer);
    EXPECT_EQ(renderer->err(), "");
}

TEST_F(ShareTest, AttachAHundredTimes) {
    deploy();
    const auto renderer = start_renderer();
    const std::vector<std::string> program = {kCompute, "--kernels", "2", "--kernel-ms", "0.05"};
    // The first leaves what is made once.
    expect_worked(attach(program));
    ASSERT_TRUE(vuda().wait_sessions(1));
    const auto counts = [&] { return std::pair(open_fds(vuda().daemon().pid()), open_fds(vuda().simd_pid())); };
    const auto before = counts();
    const std::string objects = vuda().simctl({"counts"});
    for (int i = 0; i < 100; ++i) {
        const Finished finished = run(vuda().preloaded({{"VUDA_ATTACH", "game"}}, program));
        expect_worked(finished);
        ASSERT_EQ(finished.err, "") << "cycle " << i;
    }
    ASSERT_TRUE(vuda().wait_sessions(1));
    EXPECT_TRUE(eventually([&] { return counts().first <= before.first && counts().second <= before.second; }))
        << "vudad " << before.first << " -> " << counts().first << ", vuda-simd " << before.second << " -> "
        << counts().second;
    EXPECT_TRUE(eventually([&] { return vuda().simctl({"counts"}) == objects; })) << objects << "\n"
                                                                                  << vuda().simctl({"counts"});
    expect_ends_well(*renderer);
}

// Everyone gets a turn, one after the other. On a slow machine the last may have waited for the 2 s after which a
// program goes ahead alone; that, said in one line, is the only excuse.
void ShareTest::attach_at_once(size_t count) {
    std::vector<std::unique_ptr<Process>> programs;
    for (size_t i = 0; i < count; ++i) programs.push_back(start(vuda().preloaded({{"VUDA_ATTACH", "game"}}, kHeld)));
    for (const auto& program : programs) wait_ready(*program);
    const Json status = vuda().status();
    size_t sharing = 0;
    for (const Json& session : status["sessions"]) {
        if (session["role"] != "compute") continue;
        if (session["state"] == "sharing") {
            ++sharing;
        } else {
            EXPECT_EQ(session["reason"]["code"], "DEADLINE_EXCEEDED") << session.dump(2);
        }
    }
    EXPECT_GE(sharing, 2u) << status.dump(2);
    size_t silent = 0;
    for (const auto& program : programs) {
        expect_ends_well(*program);
        EXPECT_LE(lines(program->err()).size(), 1u) << program->err();
        if (program->err().empty()) ++silent;
    }
    EXPECT_EQ(silent, sharing);
}

TEST_F(ShareTest, TwoAttachAtTheSameMoment) {
    deploy(several_programs());
    const auto renderer = start_renderer();
    attach_at_once(2);
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, TenAttachAtTheSameMoment) {
    deploy(several_programs());
    const auto renderer = start_renderer();
    attach_at_once(10);
    expect_ends_well(*renderer);
}

// With vudad as it is installed, but for the number of programs: each has its launch descriptors at other addresses.
TEST_F(ShareTest, ProgramsShareATsgAtAddressesOfTheirOwn) {
    DeploymentOptions options;
    options.config = "[limits]\nprograms_per_tsg = 2\n";
    deploy(options);
    const auto renderer = start_renderer();
    const auto one = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << one->err();
    const auto other = start(vuda().wrapped({"--attach", "game"}, kHeld));
    wait_ready(*other);
    if (kAddressSanitizer) {  // in the programs, too
        EXPECT_THAT(other->err(),
                    HasSubstr("not sharing: the launch descriptors of this program lie where those of pid"));
    } else {
        EXPECT_TRUE(vuda().wait_state("sharing", 2)) << other->err();
        const Finished third = attach(kShort);
        EXPECT_THAT(third.err, HasSubstr("2 programs at a time may"));
    }
    expect_ends_well(*other);
    expect_ends_well(*one);
    // What they leave in the TSG ends nobody.
    const Finished next = attach(kShort);
    expect_like_native(next, kShort);
    EXPECT_EQ(next.err, "");
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, TwoThreadsMakeContextsAtOnce) {
    deploy();
    const auto renderer = start_renderer();
    const std::vector<std::string> program = kShort + std::vector<std::string>{"--contexts", "2"};
    for (int i = 0; i < 5; ++i) {
        const Finished finished = attach(program);
        expect_like_native(finished, program);
        EXPECT_LE(lines(finished.err).size(), 1u) << finished.err;
    }
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, ProgramForks) {
    deploy();
    const auto renderer = start_renderer();
    const std::vector<std::string> program = kShort + std::vector<std::string>{"--fork"};
    const Finished finished = attach(program);
    expect_like_native(finished, program);
    EXPECT_EQ(finished.err, "");
    const std::vector<std::string> forking = {kRenderer, "--frames", "5", "--frame-ms", "1", "--fork"};
    const Finished second = run(vuda().wrapped({"--register", "second"}, forking));
    expect_like_native(second, forking);
    EXPECT_TRUE(vuda().wait_sessions(1));
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, ProgramExecs) {
    deploy();
    const auto renderer = start_renderer();
    const std::vector<std::string> program = kShort + std::vector<std::string>{"--exec-self"};
    const Finished finished = attach(program);
    expect_like_native(finished, program);
    EXPECT_EQ(finished.err, "");
    EXPECT_TRUE(vuda().wait_sessions(1));
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, RendererExecsAndKeepsItsName) {
    deploy();
    const auto renderer = start_renderer("game", {"--exec-self"});
    const Finished finished = attach(kShort);
    expect_like_native(finished, kShort);
    EXPECT_EQ(finished.err, "");
    expect_ends_well(*renderer);
}

// With the system call itself, past every hook: VUDA's connection is gone, the program works on.
TEST_F(ShareTest, ProgramClosesOurDescriptors) {
    deploy();
    const auto renderer = start_renderer();
    const std::vector<std::string> program = kShort + std::vector<std::string>{"--close-range"};
    const Finished finished = attach(program);
    expect_like_native(finished, program);
    EXPECT_LE(lines(finished.err).size(), 1u) << finished.err;
    const std::vector<std::string> careless = {kRenderer, "--frames", "5", "--frame-ms", "1", "--close-range"};
    const Finished second = run(vuda().wrapped({"--register", "second"}, careless));
    expect_like_native(second, careless);
    expect_ends_well(*renderer);
    EXPECT_TRUE(vuda().wait_sessions(0));
}

// Through libc, where the shim keeps its own: nothing is lost.
TEST_F(ShareTest, ProgramClosesWhatItDoesNotKnow) {
    deploy(several_programs());
    const auto both = start(vuda().wrapped({"--share", "--register", "game"}, {built("e2e-both"), "--close-foreign"}));
    ASSERT_TRUE(both->wait_out("\n")) << both->err();
    EXPECT_TRUE(vuda().wait_registered("game")) << both->err();
    const Finished finished = attach(kShort);
    expect_like_native(finished, kShort);
    EXPECT_EQ(finished.err, "");
    expect_ends_well(*both);
    EXPECT_EQ(both->err(), "");
}

TEST_F(ShareTest, FaultEndsBothAndIsSeen) {
    deploy();
    const auto renderer =
        start(vuda().wrapped({"--register", "game"}, {kRenderer, "--seconds", "20", "--frame-ms", "2"}));
    ASSERT_TRUE(vuda().wait_registered("game")) << renderer->err();
    const Finished compute = attach({kCompute, "--kernels", "200", "--kernel-ms", "0.5", "--illegal-method"});
    EXPECT_NE(compute.status, 0);
    EXPECT_EQ(output_of(compute)["device_lost"], true) << compute.out << compute.err;
    // One fault domain: the renderer of the shared TSG loses its device as well. Without VUDA it would not.
    EXPECT_NE(renderer->wait(), 0);
    EXPECT_EQ(Json::parse(renderer->out())["device_lost"], true) << renderer->out();
    EXPECT_TRUE(vuda().wait_sessions(0));
    EXPECT_TRUE(vuda().daemon().running());
}

TEST_F(ShareTest, DetachedByAnOperator) {
    deploy();
    const auto renderer = start_renderer();
    const auto compute = start(vuda().wrapped({"--attach", "game"}, kHeld));
    ASSERT_TRUE(vuda().wait_state("sharing", 1)) << compute->err();
    const std::string session = vuda().status()["tsgs"][0]["attached_sessions"][0].dump();
    const Finished detach = run(vuda().vudactl({"detach", session}));
    EXPECT_EQ(detach.status, 0) << detach.err;
    EXPECT_EQ(run(vuda().vudactl({"detach", "99999"})).status, 66);
    expect_ends_well(*compute);
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, OrdinaryUser) {
    if (getuid() != 0) {
        deploy();  // then every other test has shown it
        return;
    }
    deploy();
    const uid_t nobody = 65534;
    Command render = vuda().wrapped({"--register", "game"}, kHeldRenderer);
    render.uid = nobody;
    const auto renderer = start(render);
    ASSERT_TRUE(vuda().wait_registered("game")) << renderer->err();
    Command command = vuda().wrapped({"--attach", "game"}, kShort);
    command.uid = nobody;
    const Finished finished = run(command);
    expect_worked(finished);
    EXPECT_EQ(finished.err, "");
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, RequireStartsNothingThatCannotShare) {
    deploy();
    const Finished unknown = run(vuda().wrapped({"--attach", "gmae", "--require"}, {"/bin/echo", "started"}));
    EXPECT_EQ(unknown.status, 69);
    EXPECT_EQ(unknown.out, "");
    expect_one_line(unknown, "'gmae'");

    const auto renderer = start_renderer();
    const Finished taken = run(vuda().wrapped({"--register", "game", "--require"}, {"/bin/echo", "started"}));
    EXPECT_EQ(taken.status, 69);
    EXPECT_EQ(taken.out, "");
    expect_one_line(taken, "taken");
    const Finished idle = run(vuda().wrapped({"--attach", "game", "--require"}, {"/bin/echo", "started"}));
    EXPECT_EQ(idle.status, 69);
    EXPECT_EQ(idle.out, "started\n");
    expect_one_line(idle, "no GPU context");
    EXPECT_EQ(run(vuda().wrapped({"--attach", "game", "--require"}, {"/bin/sh", "-c", "exit 5"})).status, 5);

    const Finished shared = run(vuda().wrapped({"--attach", "game", "--require"}, kShort));
    expect_like_native(shared, kShort);
    EXPECT_EQ(shared.err, "");
}

TEST_F(ShareTest, RequireMakesTheContextFail) {
    deploy();
    const auto renderer = start_renderer();
    vuda().simctl({"inject", "ctl:3d06=0x1b"});
    const Finished finished = run(vuda().wrapped({"--attach", "game", "--require"}, kShort));
    vuda().simctl({"inject", "clear"});
    EXPECT_NE(finished.status, 0);
    EXPECT_TRUE(output_of(finished).contains("error")) << finished.out;
    expect_ends_well(*renderer);
}

TEST_F(ShareTest, ProgramsWithoutAGpuNoticeNothing) {
    deploy();
    for (const std::vector<std::string>& program : {std::vector<std::string>{"/bin/echo", "a b", ""},
                                                    {"/bin/ls", "/"},
                                                    {"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}}) {
        const Finished wrapped = run(vuda().wrapped({"--attach", "game"}, program));
        const Finished plain = run({program, {}, static_cast<uid_t>(-1)});
        EXPECT_EQ(wrapped.status, plain.status) << program[0];
        EXPECT_EQ(wrapped.out, plain.out) << program[0];
        EXPECT_EQ(wrapped.err, plain.err) << program[0];
    }
}

}  // namespace
}  // namespace vuda::e2e
