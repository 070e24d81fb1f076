// Splits by SCG methods: a simulated RTX 4090, whose compute class has them. The renderer's shim sends them on a
// channel of its own; the CUDA program has no part in it.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/deployment.h"

namespace vuda::e2e {
namespace {

const std::string kRenderer = built("vuda-sim-renderer");
const std::string kCompute = built("vuda-sim-compute");

class ScgTest : public testing::Test {
 protected:
    void SetUp() override {
        DeploymentOptions options;
        options.config = "[sim]\npreset = \"rtx4090\"\n";
        deployment_ = std::make_unique<Deployment>(std::move(options));
        ASSERT_TRUE(deployment_->ready()) << deployment_->daemon().err();
        renderer_ = std::make_unique<Process>(
            deployment_->wrapped({"--register", "game"}, {kRenderer, "--frames", "3", "--frame-ms", "1", "--hold"}));
        ASSERT_TRUE(deployment_->wait_registered("game")) << renderer_->err();
        ASSERT_TRUE(deployment_->wait_status([this](const Json&) { return owner().value("backend", "") == "scg"; }))
            << deployment_->status().dump();
    }
    void TearDown() override {
        if (renderer_) renderer_->signal(SIGTERM);
    }

    Finished vudactl(std::vector<std::string> arguments) { return run(deployment_->vudactl(std::move(arguments))); }
    // The renderer's session: a child of the vudactl that was started. Empty while there is none.
    Json owner() {
        const Json status = deployment_->status();
        if (!status.is_object() || status["tsgs"].empty()) return Json::object();
        for (const Json& session : status["sessions"]) {
            if (session["id"] == status["tsgs"][0]["owner_session"]) return session;
        }
        return Json::object();
    }
    // The renderer's shim has put the newest split into force.
    bool wait_in_force() {
        return deployment_->wait_status([this](const Json& status) {
            return owner().value("applied_generation", 0u) == status["tsgs"][0]["partition"].value("generation", ~0u);
        });
    }
    // Milliseconds of a kernel that fills the GPU once.
    double kernel_ms() {
        const Finished ran = run(deployment_->wrapped(
            {"--attach", "game", "--require"}, {kCompute, "--kernels", "30", "--kernel-ms", "1", "--blocks", "128"}));
        EXPECT_EQ(ran.status, 0) << ran.err;
        return Json::parse(ran.out, nullptr, false).value("latency_p50_ms", 0.0);
    }

    std::unique_ptr<Deployment> deployment_;
    std::unique_ptr<Process> renderer_;
};

TEST_F(ScgTest, QuotaSlowsComputeDownAndModeIntraSmFreesIt) {
    const double free = kernel_ms();
    ASSERT_GT(free, 0);
    ASSERT_EQ(vudactl({"mode", "game", "inter-sm"}).status, 0);
    const Finished quota = vudactl({"quota", "game", "12"});
    ASSERT_EQ(quota.status, 0) << quota.err;
    EXPECT_NE(quota.out.find("11"), std::string::npos) << "levels take one TPC of each of 11 GPCs: " << quota.out;
    ASSERT_TRUE(wait_in_force());
    const double few = kernel_ms();
    EXPECT_GT(few, 4 * free) << "11 of 64 TPCs";
    ASSERT_EQ(vudactl({"quota", "game", "none"}).status, 0);
    ASSERT_TRUE(wait_in_force());
    const double most = kernel_ms();
    EXPECT_LT(most, few / 2) << "53 of 64 TPCs";
    ASSERT_EQ(vudactl({"mode", "game", "intra-sm"}).status, 0);
    ASSERT_TRUE(wait_in_force());
    EXPECT_LT(kernel_ms(), 1.5 * free);
}

TEST_F(ScgTest, StatusNamesTheBackendAndTheLayout) {
    const Json status = deployment_->status();
    const Json partition = status["tsgs"][0]["partition"];
    EXPECT_EQ(partition["levels"], Json({11, 22, 33, 44, 53})) << partition.dump();
    EXPECT_EQ(owner()["backend"], "scg");
}

}  // namespace
}  // namespace vuda::e2e
