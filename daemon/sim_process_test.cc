#include "daemon/sim_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Shell scripts play vuda-simd.
class SimProcessTest : public ::testing::Test {
 protected:
    SimOptions script(const std::string& body) {
        SimOptions options;
        options.program = dir_.file("vuda-simd");
        std::ofstream(options.program) << "#!/bin/sh\necho \"$@\" >> " << dir_.file("args") << "\n" << body;
        ::chmod(options.program.c_str(), 0755);
        options.socket = dir_.file("sim.sock");
        options.preset = "h200";
        options.first_pause = 1ms;
        return options;
    }
    std::string arguments() {
        std::ifstream in(dir_.file("args"));
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    Status start(SimProcess& sim) {
        std::optional<Status> started;
        sim.start([&](Status status) { started = std::move(status); });
        while (!started && loop_.run_one_for(kPatience) > 0) {
        }
        return started ? *started : Error{Code::kInternal, "never called", ""};
    }
    TempDir dir_;
    boost::asio::io_context loop_{1};
};

constexpr char kServe[] = "echo >&3; exec 3>&-; exec sleep 1000\n";

TEST_F(SimProcessTest, IsReadyWhenItSaysSoAndEndsWithUs) {
    pid_t pid = -1;
    {
        SimProcess sim(loop_, script(kServe));
        const Status started = start(sim);
        ASSERT_TRUE(started.ok()) << started.error().to_string();
        EXPECT_EQ(arguments(), "--socket " + dir_.file("sim.sock") + " --ready-fd 3 --preset h200\n");
        pid = sim.pid();
        EXPECT_EQ(::kill(pid, 0), 0);
    }
    EXPECT_EQ(::kill(pid, 0), -1);  // gone and reaped
}

TEST_F(SimProcessTest, EndBeforeReadyIsAnError) {
    SimProcess sim(loop_, script("exit 3\n"));
    const Status started = start(sim);
    ASSERT_FALSE(started.ok());
    EXPECT_THAT(started.error().text, HasSubstr("exited with status 3 before it was ready"));
}

TEST_F(SimProcessTest, SilenceIsAnError) {
    SimOptions options = script("exec 3>&-; exec sleep 1000\n");
    options.start_limit = 100ms;
    SimProcess sim(loop_, options);
    EXPECT_EQ(start(sim).error().code, Code::kDeadlineExceeded);
}

TEST_F(SimProcessTest, MissingProgramIsAnError) {
    SimOptions options;
    options.program = dir_.file("none");
    SimProcess sim(loop_, options);
    EXPECT_FALSE(start(sim).ok());
}

TEST_F(SimProcessTest, IsStartedAgainWhenItDies) {
    SimProcess sim(loop_, script(kServe));
    ASSERT_TRUE(start(sim).ok());
    const pid_t first = sim.pid();
    ::kill(first, SIGKILL);
    while ((sim.pid() == first || sim.pid() < 0) && loop_.run_one_for(kPatience) > 0) {
    }
    EXPECT_GT(sim.pid(), 0);
    EXPECT_NE(sim.pid(), first);
}

}  // namespace
}  // namespace vuda::daemon
