// vudactl as people and scripts use it: the real program, its output and its exit status.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/e2e/deployment.h"
#include "tests/e2e/remote_peer.h"

namespace vuda::e2e {
namespace {

Finished vudactl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), built("vudactl"));
    return run({std::move(arguments), {}, static_cast<uid_t>(-1)});
}

DeploymentOptions no_gpu() {
    DeploymentOptions options;
    options.sim = false;
    return options;
}

TEST(Vudactl, HelpVersionAndUsage) {
    EXPECT_EQ(vudactl({"--version"}).out.substr(0, 8), "vudactl ");
    for (const char* command :
         {"run", "status", "doctor", "driver", "detach", "metrics", "watch", "quota", "mode", "slo"}) {
        const Finished help = vudactl({command, "--help"});
        EXPECT_EQ(help.status, 0) << command;
        EXPECT_NE(help.out.find("Example"), std::string::npos) << command;
        EXPECT_NE(vudactl({"--help"}).out.find(command), std::string::npos);
    }
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{},
                                                  {"nonsense"},
                                                  {"run"},
                                                  {"run", "--"},
                                                  {"run", "--nonsense", "--", "true"},
                                                  {"detach"},
                                                  {"detach", "x"},
                                                  {"quota", "game", "much"},
                                                  {"mode", "game", "fast"},
                                                  {"slo", "game", "--frame-miss", "2"},
                                                  {"run", "--attach", "a/b", "--", "true"},
                                                  {"run", "--require", "--", "true"},
                                                  {"status", "--socket", "/x"}}) {
        const Finished finished = vudactl(wrong);
        EXPECT_EQ(finished.status, 64) << (wrong.empty() ? "" : wrong[0]) << finished.err;
        EXPECT_NE(finished.err, "");
        EXPECT_EQ(finished.out, "");
    }
}

TEST(Vudactl, AgainstALivingDaemon) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready()) << deployment.daemon().err();
    const Json status = deployment.status();
    EXPECT_EQ(status["schema"], 1);
    EXPECT_EQ(status["daemon"]["pid"], deployment.daemon().pid());
    EXPECT_EQ(status["daemon"]["socket"], deployment.socket());
    EXPECT_EQ(run(deployment.vudactl({"status"})).status, 0);

    const Finished metrics = run(deployment.vudactl({"metrics"}));
    EXPECT_EQ(metrics.status, 0);
    EXPECT_NE(metrics.out.find("# TYPE vuda_sessions gauge"), std::string::npos) << metrics.out;

    for (const std::vector<std::string>& nameless : {std::vector<std::string>{"quota", "game", "24"},
                                                     {"mode", "game", "inter-sm"},
                                                     {"slo", "game", "--frame-ms", "16"},
                                                     {"slo", "game"}}) {
        const Finished finished = run(deployment.vudactl(nameless));
        EXPECT_EQ(finished.status, 66) << nameless[0];
        EXPECT_EQ(lines(finished.err).size(), 1u);
    }
    EXPECT_EQ(run(deployment.vudactl({"detach", "12345"})).status, 66);

    const Finished doctor = run(deployment.vudactl({"doctor", "--json"}));
    const Json report = Json::parse(doctor.out);
    bool daemon_passes = false;
    for (const Json& check : report["checks"])
        daemon_passes = daemon_passes || (check["name"] == "daemon" && check["outcome"] == "pass");
    EXPECT_TRUE(daemon_passes) << doctor.out;
    EXPECT_EQ(doctor.status, report["failed"] == 0 ? 0 : 1);
}

TEST(Vudactl, SocketFromTheEnvironmentAndBeforeTheCommand) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    EXPECT_EQ(
        run({{built("vudactl"), "status"}, {{"VUDA_SOCKET", deployment.socket()}}, static_cast<uid_t>(-1)}).status, 0);
    EXPECT_EQ(run({{built("vudactl"), "--socket", deployment.socket(), "status"},
                   {{"VUDA_SOCKET", "/none"}},
                   static_cast<uid_t>(-1)})
                  .status,
              0);
    const Finished none = run({{built("vudactl"), "status"}, {{"VUDA_SOCKET", "/none"}}, static_cast<uid_t>(-1)});
    EXPECT_EQ(none.status, 69);
    EXPECT_NE(none.err.find("/none"), std::string::npos);
}

TEST(Vudactl, WatchPrintsWhatHappensUntilTheDaemonEnds) {
    Deployment deployment(no_gpu());
    ASSERT_TRUE(deployment.ready());
    Process watch(deployment.vudactl({"watch", "--json"}));
    // Events from before it listened are not its: make some until it has seen one.
    ASSERT_TRUE(eventually([&] {
        RemotePeer visitor(deployment.handle_socket());
        return visitor.open_session() == "ok" && watch.wait_out("session-open", std::chrono::milliseconds(200));
    }));
    {
        RemotePeer renderer(deployment.handle_socket());
        ASSERT_EQ(renderer.open_session(), "ok");
        ASSERT_EQ(renderer.register_name("game"), "ok");
        EXPECT_TRUE(watch.wait_out("\"register\""));
    }
    EXPECT_TRUE(watch.wait_out("\"session-close\""));
    for (const std::string& line : lines(watch.out())) {
        const Json event = Json::parse(line, nullptr, false);
        ASSERT_TRUE(event.is_object()) << line;
        EXPECT_TRUE(event.contains("kind") && event.contains("session") && event.contains("monotonic_us")) << line;
    }
    deployment.stop(SIGTERM);
    EXPECT_EQ(watch.wait(), 69);  // the daemon went away: not a success
    EXPECT_EQ(lines(watch.err()).size(), 1u) << watch.err();
}

class RunTest : public testing::Test {
 protected:
    RunTest() : deployment(no_gpu()) {}
    Command wrapped(const std::string& script) const {
        return deployment.wrapped({"--attach", "game"}, {"/bin/sh", "-c", script});
    }
    Deployment deployment;
};

TEST_F(RunTest, IsInvisibleToThePrograms) {
    ASSERT_TRUE(deployment.ready());
    const Finished finished = run(wrapped("echo out; echo err >&2; exit 7"));
    EXPECT_EQ(finished.status, 7);
    EXPECT_EQ(finished.out, "out\n");
    EXPECT_EQ(finished.err, "err\n");
    EXPECT_EQ(run(wrapped("kill -KILL $$")).status, 128 + SIGKILL);
    EXPECT_EQ(run(deployment.wrapped({}, {"no-such-program"})).status, 127);
    EXPECT_EQ(run(deployment.wrapped({}, {"/etc/passwd"})).status, 126);
    // Everything from the first "--" on belongs to the program.
    EXPECT_EQ(run(deployment.wrapped({}, {"/bin/echo", "--help", "--", "-x"})).out, "--help -- -x\n");
}

TEST_F(RunTest, StandardInputReachesTheProgram) {
    ASSERT_TRUE(deployment.ready());
    Process process(wrapped("read line; echo \"got $line\""));
    ASSERT_TRUE(process.write_line("words"));
    EXPECT_EQ(process.wait(), 0);
    EXPECT_EQ(process.out(), "got words\n");
}

TEST_F(RunTest, SignalsGoOnToTheProgram) {
    ASSERT_TRUE(deployment.ready());
    Process process(wrapped("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"));
    ASSERT_TRUE(process.wait_out("ready\n"));
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 3);
    EXPECT_EQ(process.out(), "ready\nbye\n");
}

TEST_F(RunTest, EnvironmentIsAppendedTo) {
    ASSERT_TRUE(deployment.ready());
    Command command =
        deployment.wrapped({"--attach", "game", "--reserve", "4"},
                           {"/bin/sh", "-c", "echo $LD_PRELOAD; echo $VUDA_ATTACH $VUDA_RESERVE $VUDA_HANDLE_SOCKET"});
    const std::string other = built_library("libvuda_preload.so") + ".none";
    command.env["LD_PRELOAD"] = other;
    const Finished once = run(command);
    EXPECT_EQ(once.status, 0);
    const std::vector<std::string> printed = lines(once.out);
    ASSERT_EQ(printed.size(), 2u) << once.out;
    EXPECT_EQ(printed[0], other + ":" + built_library("libvuda_preload.so"));
    EXPECT_EQ(printed[1], "game 4 " + deployment.handle_socket());

    std::vector<std::string> twice = {built("vudactl"), "run", "--"};
    twice.insert(twice.end(), command.argv.begin(), command.argv.end());
    command.argv = twice;
    command.env["VUDA_SOCKET"] = deployment.socket();
    EXPECT_EQ(run(command).out, once.out);
}

TEST_F(RunTest, StaticProgramIsNamedAndRunAllTheSame) {
    ASSERT_TRUE(deployment.ready());
    const Finished finished = run(deployment.wrapped({"--attach", "game"}, {built("e2e-static")}));
    EXPECT_EQ(finished.status, 0);
    EXPECT_EQ(finished.out, "static\n");
    EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
    EXPECT_NE(finished.err.find("statically linked"), std::string::npos) << finished.err;
    const Finished required = run(deployment.wrapped({"--attach", "game", "--require"}, {built("e2e-static")}));
    EXPECT_EQ(required.status, 69);
    EXPECT_EQ(required.out, "");
}

TEST_F(RunTest, RequireWithoutADaemonStartsNothing) {
    ASSERT_TRUE(deployment.ready());
    // Where there is no NVIDIA driver the daemon knows it.
    if (access("/proc/driver/nvidia/version", F_OK) != 0) {
        const Finished driver = run(deployment.wrapped({"--register", "game", "--require"}, {"/bin/echo", "started"}));
        EXPECT_EQ(driver.status, 69);
        EXPECT_EQ(driver.out, "");
        EXPECT_NE(driver.err.find("driver"), std::string::npos) << driver.err;
    }
    deployment.stop(SIGTERM);
    const Finished away = run(deployment.wrapped({"--register", "game", "--require"}, {"/bin/echo", "started"}));
    EXPECT_EQ(away.status, 69);
    EXPECT_EQ(away.out, "");
    EXPECT_EQ(lines(away.err).size(), 1u) << away.err;
    const Finished lenient = run(deployment.wrapped({"--register", "game"}, {"/bin/echo", "started"}));
    EXPECT_EQ(lenient.status, 0);
    EXPECT_EQ(lenient.out, "started\n");
    EXPECT_EQ(lines(lenient.err).size(), 1u) << lenient.err;
}

}  // namespace
}  // namespace vuda::e2e
