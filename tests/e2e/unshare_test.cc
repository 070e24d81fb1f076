// Programs with kernels that are too large to share, and what they wish to become of that (--over-limit).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const std::string kRendererProgram = built("vuda-sim-renderer");
const std::string kComputeProgram = built("vuda-sim-compute");

class UnshareE2e : public testing::Test {
 protected:
    void deploy(const std::string& config = "") {
        DeploymentOptions options;
        options.own_simd = true;
        options.simd_arguments = {"--quiet"};
        options.config = config;
        options.daemon_arguments = {"--state-dir", "@state"};
        options.prepare = [](const std::string& folder) { std::filesystem::create_directory(folder + "/state"); };
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
        renderer_ = std::make_unique<Process>(vuda().preloaded(
            {{"VUDA_REGISTER", "game"}}, {kRendererProgram, "--frames", "3", "--frame-ms", "1", "--hold"}));
        ASSERT_TRUE(vuda().wait_registered("game")) << renderer_->err();
    }
    Deployment& vuda() { return *deployment_; }

    // A program with a kernel over the limit, which ends when CUDA refuses it.
    Finished large(const std::vector<std::string>& options, const std::vector<std::string>& further = {}) {
        std::vector<std::string> all{"--attach", "game"};
        all.insert(all.end(), options.begin(), options.end());
        std::vector<std::string> program{kComputeProgram, "--kernels", "3",      "--kernel-ms",
                                         "0.1",           "--guard",   "--smem", "65536"};
        program.insert(program.end(), further.begin(), further.end());
        return run(vuda().wrapped(all, program));
    }
    static void expect_refused(const Finished& finished) {
        EXPECT_EQ(finished.status, 1) << finished.out << finished.err;
        EXPECT_EQ(Json::parse(finished.out, nullptr, false).value("cuda_error", 0), 701) << finished.out;
        EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
        EXPECT_THAT(finished.err, HasSubstr("a kernel was not run (CUDA error 701): it wants 65536 bytes of shared "
                                            "memory a block, beside graphics 49152 are possible; "));
    }
    static void expect_native(const Finished& finished) {
        EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
        const Json json = Json::parse(finished.out, nullptr, false);
        EXPECT_EQ(json.value("cuda_error", -1), 0) << finished.out;
        EXPECT_EQ(json.value("verified", false), true) << finished.out;
        EXPECT_EQ(lines(finished.err).size(), 1u) << finished.err;
        EXPECT_THAT(finished.err, HasSubstr("runs unshared for"));
        EXPECT_THAT(finished.err, HasSubstr("vudactl unquarantine game"));
    }
    // Of the renderer: it lives, and nothing died.
    void expect_unharmed() {
        EXPECT_TRUE(renderer_->running());
        const Json status = vuda().status();
        ASSERT_EQ(status["tsgs"].size(), 1u);
        EXPECT_TRUE(status["tsgs"][0]["fault"].is_null()) << status.dump(2);
    }
    Json unfit() {
        const Json status = vuda().status();
        return status.is_object() ? status["unfit"] : Json(nullptr);
    }
    std::string kept() {
        std::ostringstream text;
        text << std::ifstream(vuda().folder() + "/state/faults").rdbuf();
        return text.str();
    }

    std::unique_ptr<Deployment> deployment_;
    std::unique_ptr<Process> renderer_;
};

TEST_F(UnshareE2e, RefusedThenUnsharedThenLetBack) {
    deploy();
    const auto watch = vuda().watch();
    ASSERT_NE(watch, nullptr);
    const Finished first = large({"--over-limit", "unshare"});
    expect_refused(first);
    EXPECT_THAT(first.err, HasSubstr("the next context of vuda-sim-compute on 'game' starts unshared, for 10 min "
                                     "(vudactl unquarantine game lets it back)"));
    const Json known = unfit();
    ASSERT_EQ(known.size(), 1u) << vuda().daemon().err();
    EXPECT_EQ(known[0]["name"], "game");
    EXPECT_EQ(known[0]["program"], std::filesystem::canonical(kComputeProgram).string());
    EXPECT_EQ(known[0]["bytes"], 65'536);
    EXPECT_EQ(known[0]["limit"], 49'152);
    EXPECT_EQ(known[0]["times"], 1);
    EXPECT_GT(known[0]["left_ms"], 500'000);
    EXPECT_THAT(run(vuda().vudactl({"status"})).out, HasSubstr("UNSHARED FROM"));

    expect_native(large({"--over-limit", "unshare"}));
    expect_unharmed();

    const Finished lifted = run(vuda().vudactl({"unquarantine", "game"}));
    EXPECT_EQ(lifted.status, 0) << lifted.err;
    EXPECT_EQ(lifted.out, "game: 1 program may attach again\n");
    EXPECT_THAT(unfit(), IsEmpty());
    expect_refused(large({"--over-limit", "unshare"}));
    EXPECT_EQ(unfit()[0]["times"], 1) << "what was before is forgotten";
    expect_unharmed();

    EXPECT_TRUE(watch->wait_out("\"kind\":\"unshared\"")) << watch->out();
    EXPECT_TRUE(watch->wait_out("\"VUDA_SHARED_BYTES\":\"65536\"")) << watch->out();
    EXPECT_TRUE(watch->wait_out("\"kind\":\"unquarantined\"")) << watch->out();
    EXPECT_TRUE(vuda().daemon().wait_err("unshared game")) << vuda().daemon().err();
    EXPECT_THAT(run(vuda().vudactl({"metrics"})).out, HasSubstr("vuda_unshared 1\n"));
}

TEST_F(UnshareE2e, TheNextContextOfTheSameProcess) {
    deploy();
    const Finished finished = large({"--over-limit", "unshare"}, {"--retry"});
    EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
    const Json json = Json::parse(finished.out, nullptr, false);
    EXPECT_EQ(json.value("first_cuda_error", 0), 701) << finished.out;
    EXPECT_EQ(json.value("cuda_error", -1), 0) << finished.out;
    EXPECT_EQ(json.value("kernels", 0), 3) << finished.out;
    EXPECT_EQ(json.value("verified", false), true) << finished.out;
    EXPECT_THAT(finished.err, HasSubstr("starts unshared"));
    EXPECT_THAT(finished.err, HasSubstr("runs unshared for"));
    expect_unharmed();
}

TEST_F(UnshareE2e, ByItselfWhenTheTimeIsOverAndLongerTheNextTime) {
    deploy("[unshare]\nbackoff_ms = 1500\nbackoff_factor = 40\n");
    expect_refused(large({"--over-limit", "unshare"}));
    ASSERT_TRUE(vuda().wait_status([](const Json& status) { return status["unfit"].empty(); }));
    expect_refused(large({"--over-limit", "unshare"}));
    const Json known = unfit();
    ASSERT_EQ(known.size(), 1u);
    EXPECT_EQ(known[0]["times"], 2);
    EXPECT_GT(known[0]["left_ms"], 1500) << "40 times as long";
    expect_unharmed();
}

TEST_F(UnshareE2e, WhoCanLiveWithTheLimitIsLetIn) {
    deploy();
    expect_refused(large({"--over-limit", "unshare"}));
    for (const char* policy : {"reject", "native"}) {
        const Finished refused = large({"--over-limit", policy});
        expect_refused(refused);
        EXPECT_THAT(refused.err, HasSubstr(policy == std::string("native")
                                               ? "it cannot run in a TSG of CUDA's own: this program writes its launch "
                                                 "descriptors itself (docs/compatibility.md)"
                                               : "see docs/compatibility.md"));
    }
    const Finished plain = large({});
    expect_refused(plain);
    // What was chosen by a smaller number than the GPU's runs nowhere.
    const Finished told = large({"--fit-kernels"});
    expect_refused(told);
    EXPECT_THAT(told.err, ::testing::Not(HasSubstr("TSG of CUDA's own")));
    const Finished both = large({"--fit-kernels", "--over-limit", "native"});
    EXPECT_EQ(both.status, 64);
    EXPECT_THAT(both.err, HasSubstr("--fit-kernels and --over-limit native exclude each other"));
    // Its kernels are small now.
    const Finished fitted = large({"--over-limit", "unshare", "--fit-kernels"}, {"--smem", "40000"});
    EXPECT_EQ(fitted.status, 0) << fitted.out << fitted.err;
    EXPECT_EQ(fitted.err, "");
    EXPECT_EQ(unfit().size(), 1u) << "it stays for those who wish so";
    expect_native(large({"--over-limit", "unshare"}));
    expect_unharmed();
}

TEST_F(UnshareE2e, OutlivesARestartOfVudad) {
    deploy();
    expect_refused(large({"--over-limit", "unshare"}));
    EXPECT_TRUE(eventually([&] { return kept().find("unfit ") != std::string::npos; })) << kept();
    vuda().stop(SIGKILL);
    vuda().start();
    ASSERT_TRUE(vuda().wait_registered("game")) << vuda().daemon().err();
    ASSERT_EQ(unfit().size(), 1u) << vuda().daemon().err();
    expect_native(large({"--over-limit", "unshare"}));
}

TEST_F(UnshareE2e, ThePolicyIsShown) {
    deploy();
    Process compute(vuda().wrapped({"--attach", "game", "--over-limit", "unshare"},
                                   {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1", "--guard", "--hold"}));
    ASSERT_TRUE(vuda().wait_status([](const Json& status) {
        for (const Json& session : status["sessions"]) {
            if (session["over_limit"] == "unshare" && session["shared_memory_limit"] == 49'152) return true;
        }
        return false;
    })) << vuda().status().dump(2);
    EXPECT_THAT(run(vuda().vudactl({"status"})).out,
                HasSubstr("kernels too large to share (over 49152 bytes a block): 0 refused, policy unshare\n"));
    compute.signal(SIGTERM);
    EXPECT_EQ(compute.wait(), 0) << compute.out() << compute.err();
}

TEST_F(UnshareE2e, WordsThatAreNoPolicy) {
    deploy();
    const Finished option = large({"--over-limit", "nativ"});
    EXPECT_EQ(option.status, 64);
    EXPECT_THAT(option.err, HasSubstr("--over-limit: 'nativ' is none of native, unshare and reject"));
    EXPECT_EQ(option.out, "") << "nothing was started";
    const Finished variable =
        run(vuda().preloaded({{"VUDA_ATTACH", "game"}, {"VUDA_OVER_LIMIT", "Unshare"}},
                             {kComputeProgram, "--kernels", "3", "--kernel-ms", "0.1", "--contexts", "2"}));
    EXPECT_EQ(variable.status, 0) << variable.err;
    EXPECT_EQ(lines(variable.err).size(), 1u) << variable.err;
    EXPECT_THAT(variable.err,
                HasSubstr("VUDA_OVER_LIMIT='Unshare' is none of native, unshare and reject; it is native"));
}

}  // namespace
}  // namespace vuda::e2e
