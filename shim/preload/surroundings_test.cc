#include "shim/preload/surroundings.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/unique_fd.h"

namespace vuda::shim {
namespace {

class SurroundingsTest : public ::testing::Test {
 protected:
    SurroundingsTest() {
        char name[] = "/tmp/vuda-test-XXXXXX";
        folder_ = mkdtemp(name);
        mps_ = folder_ + "/mps";
        proc_ = folder_ + "/proc";
        std::filesystem::create_directories(mps_);
        std::filesystem::create_directories(proc_ + "/self");
        status(0);
        for (const char* variable : kVariables) unsetenv(variable);
    }
    ~SurroundingsTest() override {
        for (const char* variable : kVariables) unsetenv(variable);
        std::filesystem::remove_all(folder_);
    }

    void status(int tracer) {
        std::ofstream(proc_ + "/self/status")
            << "Name:\tx\nState:\tR (running)\nTracerPid:\t" << tracer << "\nUid:\t0\n";
    }
    void process(int pid, const char* name) {
        std::filesystem::create_directories(proc_ + "/" + std::to_string(pid));
        std::ofstream(proc_ + "/" + std::to_string(pid) + "/comm") << name << "\n";
    }
    UniqueFd listen_at(const std::string& folder, int type = SOCK_STREAM) {
        UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder.c_str());
        EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(listen(fd.get(), 0), 0);
        return fd;
    }
    Refusal look() { return unfit_surroundings({proc_.c_str(), mps_.c_str()}); }

    static constexpr const char* kVariables[] = {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
                                                 "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
                                                 "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"};
    std::string folder_;
    std::string mps_;
    std::string proc_;
};

TEST_F(SurroundingsTest, NothingIsWrongWithAnOrdinaryProcess) {
    errno = 7;
    EXPECT_FALSE(look());
    EXPECT_EQ(errno, 7);
    // Nor with a /proc that cannot be read.
    EXPECT_FALSE(unfit_surroundings({"/nonexistent", "/nonexistent"}));
}

TEST_F(SurroundingsTest, CudaGdbKeepsItOutAndGdbDoesNot) {
    status(4242);
    process(4242, "gdb");
    EXPECT_FALSE(look());
    for (const char* name : {"cuda-gdb", "cuda-gdb-minima"}) {
        process(4242, name);
        const Refusal refusal = look();
        EXPECT_EQ(refusal.reason, Reason::kDebugger);
        EXPECT_EQ(refusal.detail, 4242u);
        EXPECT_NE(std::string(describe(refusal).text).find("4242"), std::string::npos);
    }
    // Its debugger went, and with it what /proc says of it.
    std::filesystem::remove_all(proc_ + "/4242");
    EXPECT_FALSE(look());
}

TEST_F(SurroundingsTest, GpuCoreDumpsKeepItOut) {
    for (size_t i = 1; i < std::size(kVariables); ++i) {
        setenv(kVariables[i], "1", 1);
        EXPECT_EQ(look().reason, Reason::kCoreDumps) << kVariables[i];
        for (const char* off : {"0", ""}) {
            setenv(kVariables[i], off, 1);
            EXPECT_FALSE(look()) << kVariables[i];
        }
    }
}

TEST_F(SurroundingsTest, MpsKeepsItOutWhileItsDaemonListens) {
    {
        const UniqueFd daemon = listen_at(mps_);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(look().reason, Reason::kMps);  // its queue is full from the second on
    }
    EXPECT_FALSE(look()) << "the socket of a daemon that ended is still there";
    std::filesystem::remove(mps_ + "/control");
    const UniqueFd daemon = listen_at(mps_, SOCK_SEQPACKET);
    EXPECT_EQ(look().reason, Reason::kMps);
}

TEST_F(SurroundingsTest, MpsIsLookedForWhereCudaLooks) {
    const std::string other = folder_ + "/other";
    std::filesystem::create_directories(other);
    const UniqueFd daemon = listen_at(mps_);
    setenv("CUDA_MPS_PIPE_DIRECTORY", other.c_str(), 1);
    EXPECT_FALSE(look());
    const UniqueFd other_daemon = listen_at(other);
    EXPECT_EQ(look().reason, Reason::kMps);
    setenv("CUDA_MPS_PIPE_DIRECTORY", std::string(300, 'x').c_str(), 1);  // longer than a socket's path may be
    EXPECT_FALSE(look());
    setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1);
    EXPECT_EQ(look().reason, Reason::kMps);
}

}  // namespace
}  // namespace vuda::shim
