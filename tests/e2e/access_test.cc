// Who may attach beside the owner's user and root: stated with `vudactl run`, kept by vudad and by the next vudad.
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

// Users that no machine gives to anybody; Command::uid is also the process's only group.
constexpr uid_t kOwner = 64001, kInGroup = 64002, kStranger = 64003, kByNumber = 64004;

const std::vector<std::string> kShort = {built("vuda-sim-compute"), "--kernels", "5", "--kernel-ms", "0.1"};
const std::vector<std::string> kHeldRenderer = {
    built("vuda-sim-renderer"), "--frames", "3", "--frame-ms", "1", "--hold"};

class AccessTest : public testing::Test {
 protected:
    void SetUp() override {
        // Whether another user may attach takes another user; only root can start programs as one. CI runs as root.
        if (getuid() != 0) GTEST_SKIP() << "needs root, to run programs as several users";
        ASSERT_TRUE(vuda_.ready()) << vuda_.daemon().err();
    }

    static DeploymentOptions options() {
        DeploymentOptions options;
        options.own_simd = true;  // the GPU outlives the daemon
        options.simd_arguments = {"--quiet"};
        return options;
    }
    std::unique_ptr<Process> start_renderer(std::vector<std::string> run_options, uid_t uid) {
        const std::string ready = vuda_.folder() + "/ready";
        mkdir(ready.c_str(), 0777);
        chmod(ready.c_str(), 0777);
        run_options.insert(run_options.begin(), {"--register", "game"});
        std::vector<std::string> program = kHeldRenderer;
        program.insert(program.end(), {"--ready-file", ready + "/renderer"});
        Command command = vuda_.wrapped(std::move(run_options), std::move(program));
        command.uid = uid;
        auto process = std::make_unique<Process>(command);
        EXPECT_TRUE(vuda_.wait_registered("game")) << process->err();
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(ready + "/renderer") || !process->running(); }));
        return process;
    }
    // It runs in any case, and says whether it shares.
    std::string attach_as(uid_t uid) {
        Command command = vuda_.wrapped({"--attach", "game"}, kShort);
        command.uid = uid;
        command.env["VUDA_LOG"] = "info";
        const Finished finished = run(command);
        EXPECT_EQ(finished.status, 0) << finished.err;
        EXPECT_EQ(Json::parse(finished.out, nullptr, false)["verified"], true) << finished.out;
        return finished.err;
    }
    void expect_shares(uid_t uid) {
        const std::string said = attach_as(uid);
        EXPECT_NE(said.find("vuda: sharing: "), std::string::npos) << uid << ": " << said;
    }
    void expect_refused(uid_t uid) {
        const std::string said = attach_as(uid);
        EXPECT_NE(said.find("uid " + std::to_string(uid) + " may not attach to a TSG of uid " + std::to_string(kOwner)),
                  std::string::npos)
            << uid << ": " << said;
    }
    void end(Process& renderer) {
        renderer.signal(SIGTERM);
        EXPECT_EQ(renderer.wait(), 0) << renderer.out() << renderer.err();
    }

    Deployment vuda_{options()};
};

TEST_F(AccessTest, WhoIsListedMayAttachAndNobodyElse) {
    const passwd* named = getpwnam("nobody");
    ASSERT_NE(named, nullptr);
    const uid_t by_name = named->pw_uid;
    const auto renderer = start_renderer({"--allow-user", "nobody", "--allow-user", std::to_string(kByNumber),
                                          "--allow-group", std::to_string(kInGroup)},
                                         kOwner);
    const auto check = [&] {
        expect_shares(by_name);
        expect_shares(kByNumber);
        expect_shares(kInGroup);
        expect_shares(kOwner);
        expect_refused(kStranger);
        const Json tsg = vuda_.status()["tsgs"][0];
        EXPECT_EQ(tsg["allow_uids"], Json::array({by_name, kByNumber}));
        EXPECT_EQ(tsg["allow_gids"], Json::array({kInGroup}));
    };
    check();
    const Finished status = run(vuda_.vudactl({"status"}));
    EXPECT_NE(status.out.find("game is open to users " + std::to_string(by_name) + ", 64004 and group 64002 too\n"),
              std::string::npos)
        << status.out;

    // The next vudad hears it from the owner.
    vuda_.stop(SIGKILL);
    vuda_.start();
    ASSERT_TRUE(vuda_.ready());
    ASSERT_TRUE(vuda_.wait_registered("game"));
    check();
    end(*renderer);
}

TEST_F(AccessTest, WithoutAListOnlyTheOwner) {
    const auto renderer = start_renderer({}, kOwner);
    expect_shares(kOwner);
    expect_refused(kStranger);
    end(*renderer);
}

// A shell under `vudactl run --register first --allow-user ...` starts another renderer.
TEST_F(AccessTest, AListForAnotherNameOpensNothing) {
    Command outer = vuda_.wrapped(
        {"--register", "first", "--allow-user", std::to_string(kStranger)},
        vuda_
            .wrapped({"--register", "game"}, {built("vuda-sim-renderer"), "--frames", "3", "--frame-ms", "1", "--hold"})
            .argv);
    outer.uid = kOwner;
    Process renderer(outer);
    ASSERT_TRUE(vuda_.wait_registered("game")) << renderer.err();
    expect_refused(kStranger);
}

// Root's own TSG is root's.
TEST_F(AccessTest, AListThatIsNoneOpensNothing) {
    Command command = vuda_.preloaded({{"VUDA_REGISTER", "game"}, {"VUDA_ALLOW_UIDS", "64003,all"}},
                                      {built("vuda-sim-renderer"), "--frames", "3", "--frame-ms", "1", "--hold"});
    command.uid = kOwner;
    Process renderer(command);
    ASSERT_TRUE(vuda_.wait_registered("game")) << renderer.err();
    expect_refused(kStranger);
    EXPECT_TRUE(renderer.wait_err("VUDA_ALLOW_UIDS='64003,all' is not a list of numeric ids; nobody but"))
        << renderer.err();
    EXPECT_EQ(lines(renderer.err()).size(), 1u) << renderer.err();
}

TEST(AllowOptions, AMistakeIsSaidBeforeAnythingStarts) {
    const Deployment vuda;
    const auto refused = [&](std::vector<std::string> options, const std::string& why) {
        const Finished finished = run(vuda.wrapped(std::move(options), {"/bin/echo", "started"}));
        EXPECT_EQ(finished.status, 64) << finished.err;
        EXPECT_EQ(finished.out, "");
        EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
        EXPECT_NE(finished.err.find(why), std::string::npos) << finished.err;
    };
    refused({"--register", "game", "--allow-user", "no-such-user"}, "--allow-user: 'no-such-user' is no user");
    refused({"--register", "game", "--allow-user", "root", "--allow-group", "no-such-group"},
            "--allow-group: 'no-such-group' is no group");
    refused({"--register", "game", "--allow-user", "4294967295"}, "'4294967295' is no number of a user");
    refused({"--attach", "game", "--allow-user", "root"}, "--allow-user and --allow-group need --register");
    std::vector<std::string> many = {"--register", "game"};
    for (int i = 0; i < 65; ++i) many.insert(many.end(), {"--allow-group", std::to_string(1000 + i)});
    refused(many, "more than 64 groups");
    // One word each: what follows is the program.
    Command loose = vuda.vudactl({"run", "--register", "game", "--allow-user", "root", "/bin/echo", "started"});
    EXPECT_EQ(run(loose).out, "started\n");
}

}  // namespace
}  // namespace vuda::e2e
