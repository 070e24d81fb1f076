#include "probe/pair_child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace vuda::probe {
namespace {

bool has(const std::vector<std::string>& environment, const std::string& entry) {
    return std::ranges::find(environment, entry) != environment.end();
}

TEST(PairEnvironment, SharesWithNobodyElse) {
    const std::vector<std::string> environment =
        pair_environment({"HOME=/h", "VUDA_REGISTER=game", "VUDA_ATTACH=game", "VUDA_SOCKET=/run/vuda/vudad.sock",
                          "VUDA_DISABLE=1", "VUDA_RESERVE=2", "VUDA_OVER_LIMIT=reject", "VUDA_SIM_SOCKET=/s",
                          "LD_PRELOAD=/old/libvuda_preload.so:/a.so /b/libvuda_sim.so:/c/libvuda_fit.so:"},
                         "/new/libvuda_preload.so");
    EXPECT_TRUE(has(environment, "HOME=/h"));
    EXPECT_TRUE(has(environment, "VUDA_SIM_SOCKET=/s"));
    EXPECT_TRUE(has(environment, "LD_PRELOAD=/new/libvuda_preload.so:/a.so:/b/libvuda_sim.so"));
    EXPECT_TRUE(has(environment, "VUDA_SHARE=1"));
    EXPECT_TRUE(has(environment, "VUDA_REQUIRE=1"));
    EXPECT_TRUE(has(environment, "VUDA_SOCKET=/dev/null"));
    EXPECT_TRUE(has(environment, "VUDA_PARTITION=off"));
    EXPECT_EQ(environment.size(), 8u) << "no other variable of VUDA's";
    EXPECT_TRUE(has(pair_environment({}, "/p.so"), "LD_PRELOAD=/p.so"));
}

TEST(PairLines, AreReadAsTheyCome) {
    PairRun run;
    run.report.bytes = 4096;
    EXPECT_TRUE(read_pair_line(R"({"pair":{"gpu":"G","driver":"D","cuda":"13.0","capability":[9,0],"reserved":1024,)"
                               R"("largest":233472,"l1":3}})",
                               run));
    ASSERT_TRUE(run.gpu);
    EXPECT_EQ(run.gpu->capability_major, 9);
    EXPECT_EQ(run.gpu->largest, 233472u);
    EXPECT_TRUE(run.l1_set);
    EXPECT_TRUE(read_pair_line(R"({"tries":4096})", run));
    EXPECT_TRUE(run.report.tried);
    EXPECT_TRUE(read_pair_line(R"({"launches":{"error":{"text":"gone","lost":true},"wrong":0}})", run));
    EXPECT_TRUE(run.report.lost);
    EXPECT_EQ(run.report.error, "gone");
    EXPECT_TRUE(read_pair_line(
        R"({"frames":{"wrong":2,"control":{"launches":9,"median_ms":0.5,"frames":50,"frame_ms":10.0}}})", run));
    ASSERT_TRUE(run.report.control);
    EXPECT_EQ(run.report.control->frames, 50u);
    EXPECT_EQ(run.report.wrong, 2u);
    EXPECT_FALSE(run.report.subject);
}

TEST(PairLines, NothingElseIsTaken) {
    for (const char* line :
         {"", "hello", "[]", "{}", "3", R"({"pair":3})", R"({"other":{}})", R"({"pair":{"gpu":"G"}})",
          R"({"frames":{"control":{"launches":"x"}}})", R"({"tries":"x","pair":{}})"}) {
        PairRun run;
        EXPECT_FALSE(read_pair_line(line, run)) << line;
    }
}

// A pair that is a shell script.
class RunPair : public testing::Test {
 protected:
    void SetUp() override {
        char name[] = "/tmp/vuda-pair-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
    }
    void TearDown() override {
        for (const char* file : {"pair", "gate"}) unlink((folder_ + "/" + file).c_str());
        rmdir(folder_.c_str());
    }
    Result<PairRun> run(const std::string& script, std::chrono::milliseconds patience = std::chrono::seconds(30)) {
        const std::string path = folder_ + "/pair";
        std::ofstream(path) << "#!/bin/sh\n" << script;
        chmod(path.c_str(), 0700);
        PairCommand command;
        command.program = path;
        command.preload = "";
        command.gpu = "GPU-x";
        command.options.bytes = 4096;
        command.options.l1 = 3;
        command.patience = patience;
        return run_pair(command);
    }
    std::string folder_;
};

TEST_F(RunPair, HearsWhatItSays) {
    const auto ran =
        run("test \"$*\" = '--gpu GPU-x --bytes 4096 --seconds 1.000000 --l1 3' || exit 3\n"
            "test \"$VUDA_SHARE$VUDA_REQUIRE$VUDA_PARTITION\" = 11off || exit 4\n"
            "echo 'vuda: noise' >&2\n"
            "echo '{\"tries\":4096}'\n"
            "echo '{\"launches\":{\"wrong\":0}}'\n");
    ASSERT_TRUE(ran);
    EXPECT_TRUE(ran->report.tried);
    EXPECT_FALSE(ran->report.hung);
    EXPECT_FALSE(ran->report.crashed);
    EXPECT_EQ(ran->report.error, "");
}

TEST_F(RunPair, ItsLastWordsSayWhyItFailed) {
    const auto ran = run("echo one >&2; echo 'not sharing' >&2; exit 70\n");
    ASSERT_TRUE(ran);
    EXPECT_FALSE(ran->report.tried);
    EXPECT_EQ(ran->report.error, "not sharing");
    const auto silent = run("exit 9\n");
    ASSERT_TRUE(silent);
    EXPECT_NE(silent->report.error.find("status"), std::string::npos);
}

TEST_F(RunPair, ASignalIsACrash) {
    const auto ran = run("echo '{\"tries\":4096}'; kill -SEGV $$\n");
    ASSERT_TRUE(ran);
    EXPECT_TRUE(ran->report.crashed);
    EXPECT_EQ(judge(ran->report).outcome, Outcome::kDies);
}

TEST_F(RunPair, WhatHangsIsKilled) {
    // Nobody ever opens the other end.
    ASSERT_EQ(mkfifo((folder_ + "/gate").c_str(), 0600), 0);
    const auto ran = run("echo '{\"tries\":4096}'; exec cat " + folder_ + "/gate\n", std::chrono::milliseconds(400));
    ASSERT_TRUE(ran);
    EXPECT_TRUE(ran->report.hung);
    EXPECT_FALSE(ran->report.crashed);
}

TEST_F(RunPair, AProgramThatIsNotThereIsSaid) {
    PairCommand command;
    command.program = folder_ + "/none";
    command.options.bytes = 4096;
    const auto ran = run_pair(command);
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().code, Code::kUnavailable);
    EXPECT_NE(ran.error().to_string().find("cannot start " + command.program), std::string::npos);
    EXPECT_NE(ran.error().hint.find("package vuda-probe-pair"), std::string::npos);
    const Status simulated = pair_is_there(folder_ + "/vuda-sim-pair");
    ASSERT_FALSE(simulated);
    EXPECT_NE(simulated.error().hint.find("package vudad"), std::string::npos);
    EXPECT_TRUE(pair_is_there("/bin/sh"));
}

}  // namespace
}  // namespace vuda::probe
