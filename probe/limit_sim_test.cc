// vuda-probe limit and l1 on the simulated GPU: the probe, its pairs and the preload are the real ones.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/testing.h"

namespace vuda::probe {
namespace {

using Json = nlohmann::json;

const std::string kBin = VUDA_TEST_BIN;
const std::string kLib = VUDA_TEST_LIB;

struct Answer {
    int status = -1;
    Json json;
    std::string kernel_log;
    bool left_nothing = false;
};

Answer probe(const std::vector<std::string>& arguments, const std::vector<std::string>& simulator = {}) {
    const sim::TempDir dir;
    sim::SimServer server(dir, kBin, kLib, simulator);
    Answer answer;
    if (!server.ready()) return answer;
    std::vector<std::string> words = arguments;
    words.emplace_back("--json");
    sim::Child probe = server.start("vuda-probe", words);
    const std::string text = probe.output();
    answer.status = probe.wait();
    answer.json = Json::parse(text, nullptr, false);
    if (!answer.json.is_object()) answer.json = Json::object();
    answer.kernel_log = server.ctl({"log"});
    answer.left_nothing = server.empties();
    return answer;
}

std::string outcomes(const Answer& answer) {
    std::string text;
    for (const Json& line : answer.json.value("tries", Json::array()))
        text += std::to_string(line.value("bytes", 0)) + " " + line.value("outcome", "") + "; ";
    return text;
}

TEST(ProbeLimitOnSim, ChecksTheTableAndHurtsNothing) {
    const Answer answer = probe({"limit"});
    EXPECT_EQ(answer.status, 0) << answer.json;
    EXPECT_EQ(outcomes(answer), "16384 beside; 48128 beside; 49152 waits; ") << answer.json;
    EXPECT_EQ(answer.json.value("verdict", ""), "not contradicted");
    EXPECT_EQ(answer.kernel_log.find("Xid"), std::string::npos) << answer.kernel_log;
    EXPECT_TRUE(answer.left_nothing);
}

TEST(ProbeLimitOnSim, GoesOverTheLimitWhenTold) {
    const Answer answer = probe({"limit", "--all"});
    EXPECT_EQ(answer.status, 0) << answer.json;
    EXPECT_EQ(outcomes(answer), "16384 beside; 48128 beside; 49152 waits; 50176 dies; 16384 beside; ") << answer.json;
    EXPECT_EQ(answer.json.value("verdict", ""), "agrees");
    EXPECT_EQ(answer.json.value("deaths", 0), 1);
    EXPECT_TRUE(answer.json.value("fresh_pair_works", false));
    EXPECT_NE(answer.kernel_log.find("13"), std::string::npos) << answer.kernel_log;
    EXPECT_TRUE(answer.left_nothing);
}

TEST(ProbeLimitOnSim, AGpuThatDoesBetterThanTheTable) {
    const Answer answer = probe({"limit"}, {"--break", "smem.limit-waits"});
    EXPECT_EQ(answer.status, 0) << answer.json;
    EXPECT_EQ(answer.json.value("verdict", ""), "not contradicted") << answer.json;
    EXPECT_NE(answer.json.value("text", "").find("49152"), std::string::npos);
}

TEST(ProbeLimitOnSim, SizesOverTheLimitNeedConsent) {
    const Answer answer = probe({"limit", "--from", "20480", "--to", "60416"});
    EXPECT_EQ(answer.status, 64);
    EXPECT_EQ(answer.kernel_log.find("Xid"), std::string::npos) << answer.kernel_log;
}

TEST(ProbeLimitOnSim, L1IsSentToThePairsOwnTsg) {
    const Answer answer = probe({"l1", "--values", "1,3"});
    EXPECT_EQ(answer.status, 0) << answer.json;
    EXPECT_EQ(outcomes(answer), "16384 beside; 49152 waits; 49152 waits; 49152 waits; ") << answer.json;
    EXPECT_EQ(answer.json.value("verdict", ""), "not moved");
    EXPECT_TRUE(answer.left_nothing);
}

}  // namespace
}  // namespace vuda::probe
