// Targets from end to end on a simulated GPU: a person states one, the tuner finds a split that keeps it, and says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

using ::testing::HasSubstr;

const std::string kRenderer = built("vuda-sim-renderer");
const std::string kCompute = built("vuda-sim-compute");

class SloE2eTest : public testing::Test {
 protected:
    void SetUp() override {
        DeploymentOptions options;
        options.several_programs = true;
        options.simd_arguments = {"--preset", "h200"};
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
        renderer_ = std::make_unique<Process>(
            deployment_->wrapped({"--register", "game"}, {kRenderer, "--seconds", "3600", "--frame-ms", "4"}));
        ASSERT_TRUE(deployment_->wait_registered("game")) << renderer_->err();
        // 10 ms on the whole GPU: what a busy machine adds to a kernel's time is small beside it.
        compute_ = std::make_unique<Process>(deployment_->wrapped(
            {"--attach", "game"}, {kCompute, "--seconds", "3600", "--kernel-ms", "10", "--waves", "4"}));
        ASSERT_TRUE(deployment_->wait_state("sharing", 1)) << compute_->err();
        ASSERT_TRUE(deployment_->wait_status([](const Json& now) {
            return tsg(now).is_object() && !tsg(now)["partition"]["levels"].empty() &&
                   tsg(now)["partition"]["topology"].is_object();
        })) << deployment_->status().dump(2);
    }
    void TearDown() override {
        for (Process* process : {compute_.get(), renderer_.get()}) {
            if (process == nullptr) continue;
            process->signal(SIGTERM);
            process->wait();
        }
    }
    static Json tsg(const Json& status) {
        return status.is_object() && !status["tsgs"].empty() ? status["tsgs"][0] : Json();
    }
    Finished vudactl(std::vector<std::string> arguments) { return run(deployment_->vudactl(std::move(arguments))); }
    bool wait_tsg(const std::function<bool(const Json&)>& condition) {
        return deployment_->wait_status([&](const Json& now) { return tsg(now).is_object() && condition(tsg(now)); });
    }

    std::unique_ptr<Deployment> deployment_;
    std::unique_ptr<Process> renderer_, compute_;
};

TEST_F(SloE2eTest, LatencyTargetRaisesComputesShare) {
    // About 80 ms a kernel.
    ASSERT_EQ(vudactl({"quota", "game", "8"}).status, 0);
    Finished set = vudactl({"slo", "game", "--latency-ms", "60", "--latency-miss", "20%"});
    EXPECT_EQ(set.status, 0) << set.err;
    EXPECT_THAT(set.out, HasSubstr("the quota is fixed at 8 TPCs"));
    EXPECT_TRUE(wait_tsg([](const Json& game) {
        return game["slo"]["targets"].size() == 1 && game["slo"]["targets"][0]["state"] == "missed";
    })) << deployment_->status().dump(2);
    EXPECT_EQ(tsg(deployment_->status())["partition"]["applied_tpcs"], 8);

    EXPECT_EQ(vudactl({"quota", "game", "auto"}).status, 0);
    EXPECT_TRUE(wait_tsg([](const Json& game) {
        return game["partition"]["applied_tpcs"] > 8 && game["slo"]["automatic"] == true &&
               game["slo"]["targets"][0]["state"] == "meeting";
    })) << deployment_->status().dump(2);

    const Finished shown = vudactl({"slo", "game"});
    EXPECT_EQ(shown.status, 0);
    EXPECT_THAT(shown.out, HasSubstr("60 ms"));
    EXPECT_THAT(shown.out, HasSubstr("game: compute has "));
    EXPECT_THAT(shown.out, HasSubstr("last change: compute TPCs 8 -> "));
    EXPECT_THAT(vudactl({"status"}).out, HasSubstr("TARGET OF"));
    EXPECT_THAT(vudactl({"top", "--once"}).out, HasSubstr("TARGET OF"));
    EXPECT_EQ(Json::parse(vudactl({"slo", "game", "--json"}).out)["slo"]["targets"][0]["bound"], 60);

    const Finished cleared = vudactl({"slo", "game", "--clear"});
    EXPECT_EQ(cleared.status, 0) << cleared.err;
}

TEST_F(SloE2eTest, TargetAloneLeavesTheQuotaToTheTuner) {
    const Finished set = vudactl({"slo", "game", "--frame-ms", "1000"});
    EXPECT_EQ(set.status, 0) << set.err;
    EXPECT_TRUE(wait_tsg([](const Json& game) {
        return game["partition"]["automatic"] == true && game["slo"]["targets"][0]["state"] == "meeting";
    })) << deployment_->status().dump(2);
    EXPECT_EQ(vudactl({"slo", "game", "--clear"}).status, 0);
    EXPECT_TRUE(wait_tsg([](const Json& game) {
        return game["partition"]["automatic"] == false && game["slo"].is_null();
    })) << deployment_->status().dump(2);
    EXPECT_THAT(vudactl({"slo", "game"}).out, HasSubstr("game: no targets"));
}

// Who is tuned for never waits for who tunes: frames and steps go on, and programs end, while vudad stands still.
TEST_F(SloE2eTest, NoSessionWaitsForTheTuner) {
    ASSERT_EQ(vudactl({"slo", "game", "--frame-ms", "1000", "--latency-ms", "1000"}).status, 0);
    const std::string start = deployment_->folder() + "/go";
    const auto ready = [&](const char* name) { return deployment_->folder() + "/" + name; };
    Process renderer(deployment_->wrapped(
        {"--register", "second"},
        {kRenderer, "--seconds", "2", "--frame-ms", "4", "--start-file", start, "--ready-file", ready("r")}));
    ASSERT_TRUE(deployment_->wait_registered("second")) << renderer.err();
    Process compute(deployment_->wrapped({"--attach", "second"}, {kCompute, "--seconds", "2", "--kernel-ms", "4",
                                                                  "--start-file", start, "--ready-file", ready("c")}));
    ASSERT_TRUE(deployment_->wait_state("sharing", 2)) << compute.err();
    ASSERT_EQ(vudactl({"slo", "second", "--frame-ms", "1000", "--latency-ms", "1000"}).status, 0);
    ASSERT_TRUE(
        eventually([&] { return access(ready("r").c_str(), F_OK) == 0 && access(ready("c").c_str(), F_OK) == 0; }));

    deployment_->daemon().signal(SIGSTOP);
    std::ofstream(start).flush();
    EXPECT_EQ(renderer.wait(), 0) << renderer.err();
    EXPECT_EQ(compute.wait(), 0) << compute.err();
    deployment_->daemon().signal(SIGCONT);
    // Two seconds are room for some hundred of each; a ring of samples holds more.
    EXPECT_GE(Json::parse(renderer.out())["frames"].get<int>(), 20) << renderer.out();
    EXPECT_GE(Json::parse(compute.out())["kernels"].get<int>(), 20) << compute.out();
    EXPECT_TRUE(deployment_->wait_sessions(2)) << "and vudad goes on from there";
    EXPECT_TRUE(wait_tsg([](const Json& game) { return game["slo"]["targets"][0]["state"] == "meeting"; }))
        << deployment_->status().dump(2);
}

TEST_F(SloE2eTest, ComputeIsDividedByWeight) {
    Process second(deployment_->wrapped({"--attach", "game"},
                                        {kCompute, "--seconds", "3600", "--kernel-ms", "10", "--waves", "4"}));
    ASSERT_TRUE(deployment_->wait_state("sharing", 2)) << second.err();
    ASSERT_EQ(vudactl({"slo", "game", "--frame-ms", "1000"}).status, 0);
    // The one that has shared for longer.
    Json one;
    const Json now = deployment_->status();
    for (const Json& session : now["sessions"]) {
        if (session["state"] == "sharing" && (one.is_null() || session["id"] < one["id"])) one = session;
    }
    ASSERT_TRUE(one.is_object());
    const std::string id = std::to_string(one["id"].get<uint64_t>());
    EXPECT_EQ(vudactl({"slo", "game", "--session", id, "--weight", "3"}).status, 0);
    EXPECT_TRUE(wait_tsg([&](const Json& game) {
        const Json& shares = game["slo"]["shares"];
        if (shares.size() != 2) return false;
        const bool first = shares[0]["session"] == one["id"];
        const Json& heavy = shares[first ? 0 : 1];
        const Json& light = shares[first ? 1 : 0];
        return heavy["weight"] == 3 && !heavy["idle"].get<bool>() && !light["idle"].get<bool>() &&
               heavy["tpcs"].get<int>() == 3 * light["tpcs"].get<int>() &&
               heavy["tpcs"].get<int>() + light["tpcs"].get<int>() == game["partition"]["applied_tpcs"].get<int>();
    })) << deployment_->status().dump(2);
    EXPECT_THAT(vudactl({"slo", "game"}).out, HasSubstr(", weight 3\n"));
    EXPECT_EQ(vudactl({"slo", "game", "--weight", "3"}).status, 64) << "whose?";
    // What the kernels themselves saw, once one that was launched by that division has ended: the one after it is
    // launched.
    const uint64_t division = deployment_->status()["tsgs"][0]["partition"]["generation"];
    std::map<uint64_t, uint64_t> following;  // session: its launches when it was first seen to follow
    EXPECT_TRUE(deployment_->wait_status([&](const Json& status) {
        bool ended = true;
        for (const Json& session : status["sessions"]) {
            if (session["state"] != "sharing") continue;
            const auto launches = session["launches"].get<uint64_t>();
            if (session["applied_generation"].get<uint64_t>() >= division)
                following.emplace(session["id"].get<uint64_t>(), launches);
            const auto since = following.find(session["id"].get<uint64_t>());
            ended = ended && since != following.end() && launches >= since->second + 2;
        }
        return ended;
    })) << deployment_->status().dump(2);
    second.signal(SIGTERM);
    EXPECT_EQ(second.wait(), 0);
    const Json told = Json::parse(second.out());
    EXPECT_LE(told["last_tpcs"].get<int>(), 16) << "a quarter of 64";
    EXPECT_EQ(told["astray"], 0);
}

TEST_F(SloE2eTest, BadTargetsAreRefusedInOneLine) {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"--frame-ms", "1e300"},
                                                  {"--latency-ms", "0.0000001"},
                                                  {"--clear", "--frame-ms", "5"},
                                                  {"--frame-ms", "10", "--frame-miss", "100%"}}) {
        std::vector<std::string> arguments = {"slo", "game"};
        arguments.insert(arguments.end(), words.begin(), words.end());
        const Finished refused = vudactl(arguments);
        EXPECT_EQ(refused.status, 64) << words[0] << refused.out;
        EXPECT_EQ(lines(refused.err).size(), 1u) << refused.err;
    }
    EXPECT_EQ(vudactl({"slo", "game", "--session", "4711", "--latency-ms", "5"}).status, 66);
    EXPECT_EQ(vudactl({"slo", "game", "--frame-ms", "nan"}).status, 64);
    EXPECT_EQ(vudactl({"slo", "game", "--frame-ms", "-1"}).status, 64);
    EXPECT_TRUE(tsg(deployment_->status())["slo"].is_null());
}

}  // namespace
}  // namespace vuda::e2e
