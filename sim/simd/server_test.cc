// The server with real processes: the preload, the stand-ins, deaths and faults.
#include <gtest/gtest.h>

#include "sim/testing.h"

namespace vuda::sim {
namespace {

const std::string kBin = VUDA_TEST_BIN;
const std::string kLib = VUDA_TEST_LIB;

class SimServerTest : public testing::Test {
 protected:
    void SetUp() override { ASSERT_TRUE(server.ready()); }

    TempDir dir;
    SimServer server{dir, kBin, kLib};
};

// Each runs sim_probe in a process of its own (preload/probe_main.cc).
class SimPreload : public SimServerTest, public testing::WithParamInterface<const char*> {};

TEST_P(SimPreload, BehavesLikeFiles) {
    Child probe = server.start("sim_probe", {GetParam()});
    (void)probe.output();
    EXPECT_EQ(probe.wait(), 0);
    EXPECT_TRUE(server.empties()) << server.ctl({"counts"});
}

INSTANTIATE_TEST_SUITE_P(Probe, SimPreload,
                         testing::Values("devices", "version", "errors", "inherit", "export", "closed", "threads",
                                         "fork"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(SimServerTest, RendererRuns) {
    Child renderer = server.start("vuda-sim-renderer", {"--frames", "5", "--frame-ms", "2"});
    const std::string line = renderer.output();
    EXPECT_EQ(renderer.wait(), 0) << line;
    EXPECT_EQ(json_value(line, "frames"), "5");
    EXPECT_EQ(json_value(line, "verified"), "true");
    EXPECT_EQ(json_value(line, "device_lost"), "false");
    EXPECT_EQ(json_value(line, "simulated"), "true");
    EXPECT_TRUE(server.empties()) << server.ctl({"counts"});
}

TEST_F(SimServerTest, LegacyRendererRuns) {
    Child renderer = server.start("vuda-sim-renderer", {"--frames", "3", "--frame-ms", "2", "--legacy"});
    const std::string line = renderer.output();
    EXPECT_EQ(renderer.wait(), 0) << line;
    EXPECT_EQ(json_value(line, "verified"), "true");
}

TEST_F(SimServerTest, ComputeRuns) {
    Child compute = server.start("vuda-sim-compute",
                                 {"--kernels", "20", "--kernel-ms", "0.2", "--threads", "3", "--contexts", "2"});
    const std::string line = compute.output();
    EXPECT_EQ(compute.wait(), 0) << line;
    EXPECT_EQ(json_value(line, "kernels"), "120");
    EXPECT_EQ(json_value(line, "veid"), "63");
    EXPECT_EQ(json_value(line, "verified"), "true");
    EXPECT_TRUE(server.empties()) << server.ctl({"counts"});
}

TEST_F(SimServerTest, BadLuckChangesNothing) {
    for (const char* luck : {"--fork", "--exec-self", "--close-range"}) {
        Child renderer = server.start("vuda-sim-renderer", {"--frames", "3", "--frame-ms", "1", luck});
        const std::string frames = renderer.output();
        EXPECT_EQ(renderer.wait(), 0) << luck << " " << frames;
        EXPECT_EQ(json_value(frames, "verified"), "true") << luck;
        Child compute = server.start("vuda-sim-compute", {"--kernels", "3", "--kernel-ms", "0.1", luck});
        const std::string kernels = compute.output();
        EXPECT_EQ(compute.wait(), 0) << luck << " " << kernels;
        EXPECT_EQ(json_value(kernels, "verified"), "true") << luck;
    }
    EXPECT_TRUE(server.empties()) << server.ctl({"counts"});
}

// Two programs, two TSGs: neither gets the GPU to itself. Ratios of what the server counted, not of wall-clock times.
TEST_F(SimServerTest, TimeSlicesBetweenPrograms) {
    const std::string ready = dir / "ready";
    Child renderer = server.start("vuda-sim-renderer", {"--seconds", "60", "--frame-ms", "5", "--ready-file", ready});
    ASSERT_TRUE(wait_for_file(ready));
    Child compute = server.start("vuda-sim-compute", {"--kernels", "30", "--kernel-ms", "0.5"});
    const std::string kernels = compute.output();
    EXPECT_EQ(compute.wait(), 0) << kernels;
    renderer.signal(SIGTERM);
    const std::string frames = renderer.output();
    EXPECT_EQ(renderer.wait(), 0) << frames;
    const std::string status = server.ctl({"status"});
    const size_t at = status.find("switches=");
    ASSERT_NE(at, std::string::npos) << status;
    EXPECT_GT(std::atoi(status.c_str() + at + 9), 10) << status;
}

TEST_F(SimServerTest, KilledProgramsLeaveNothing) {
    const std::string ready = dir / "ready";
    Child renderer = server.start("vuda-sim-renderer", {"--seconds", "60", "--ready-file", ready});
    ASSERT_TRUE(wait_for_file(ready));
    renderer.signal(SIGKILL);
    EXPECT_EQ(renderer.wait(), 128 + SIGKILL);
    EXPECT_TRUE(server.empties()) << server.ctl({"counts"});
}

TEST_F(SimServerTest, AnIllegalMethodEndsTheProgramAndIsLogged) {
    Child compute = server.start("vuda-sim-compute", {"--kernels", "100", "--kernel-ms", "0.1", "--illegal-method"});
    const std::string line = compute.output();
    EXPECT_EQ(compute.wait(), 1) << line;
    EXPECT_EQ(json_value(line, "device_lost"), "true") << line;
    EXPECT_EQ(json_value(line, "xid"), "11") << line;
    EXPECT_NE(server.ctl({"log"}).find("Xid (PCI:0000:06:00): 11"), std::string::npos) << server.ctl({"log"});
    EXPECT_NE(server.ctl({"status"}).find("wedged=1"), std::string::npos);
    (void)server.ctl({"reset"});
    EXPECT_NE(server.ctl({"status"}).find("wedged=0"), std::string::npos);
}

TEST_F(SimServerTest, RulesAndFailuresCanBeChangedFromOutside) {
    EXPECT_EQ(server.ctl({"break", "no.such-rule"}).substr(0, 6), "failed");
    EXPECT_EQ(server.ctl({"inject", "alloc:9067=0x1a"}), "");
    Child compute = server.start("vuda-sim-compute", {"--kernels", "1"});
    const std::string line = compute.output();
    EXPECT_EQ(compute.wait(), 1);
    EXPECT_EQ(json_value(line, "error"), "alloc class 9067: status 0x1a") << line;
    EXPECT_EQ(server.ctl({"inject", "clear"}), "");
    EXPECT_EQ(server.ctl({"break", "schedule.whole-tsg"}), "");
    EXPECT_NE(server.ctl({"rules"}).find("schedule.whole-tsg  OFF"), std::string::npos);
}

TEST_F(SimServerTest, EndsOnSigtermAndRemovesItsSocket) {
    server.child().signal(SIGTERM);
    EXPECT_EQ(server.child().wait(), 0);
    EXPECT_NE(access(server.socket().c_str(), F_OK), 0);
}

TEST(SimServerAlone, EndsWithItsParent) {
    TempDir dir;
    const std::string socket = dir / "sim.sock";
    // A shell starts the server, tells its pid and is killed.
    Child shell = Child::start(
        {"/bin/sh", "-c", kBin + "/vuda-simd --quiet --socket " + socket + " --ready-fd 1 & echo $!; wait"}, {});
    ASSERT_TRUE(wait_for_file(socket));
    shell.signal(SIGKILL);
    (void)shell.wait();
    for (int i = 0; i < 2000 && access(socket.c_str(), F_OK) == 0; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_NE(access(socket.c_str(), F_OK), 0);
}

TEST(SimServerAlone, SimulatesSeveralGpusAndOtherDrivers) {
    TempDir dir;
    SimServer server(dir, kBin, kLib, {"--preset", "rtx4090", "--gpus", "2", "--driver-version", "570.86.15"});
    ASSERT_TRUE(server.ready());
    EXPECT_NE(server.ctl({"status"}).find("gpu1 name=\"NVIDIA GeForce RTX 4090 (simulated)\""), std::string::npos);
    Child probe = server.start("sim_probe", {"version"});
    EXPECT_NE(probe.wait(), 0);  // it looks for the default version
}

TEST(SimServerAlone, VirtualTimeSkipsTheWork) {
    TempDir dir;
    SimServer server(dir, kBin, kLib, {"--speed", "virtual"});
    ASSERT_TRUE(server.ready());
    // 50 frames of a second each: 50 s of simulated GPU time.
    Child renderer = server.start("vuda-sim-renderer", {"--frames", "50", "--frame-ms", "1000"});
    const auto start = std::chrono::steady_clock::now();
    const std::string line = renderer.output();
    EXPECT_EQ(renderer.wait(), 0) << line;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
    EXPECT_EQ(json_value(line, "frames"), "50");
}

}  // namespace
}  // namespace vuda::sim
