#include "bench/common/gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace vuda::bench {
namespace {

class GateTest : public ::testing::Test {
 protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "vuda-gate-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        dir_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    std::filesystem::path dir_;
};

TEST_F(GateTest, WithoutFilesStartsWhenEveryPartyIsReady) {
    GateOptions options;
    options.parties = 2;
    StartGate gate(options);
    ASSERT_TRUE(gate.ready().ok());
    EXPECT_FALSE(*gate.started());
    ASSERT_TRUE(gate.ready().ok());
    EXPECT_TRUE(*gate.started());
}

TEST_F(GateTest, ReadyFileComesAndStartFileIsWaitedFor) {
    GateOptions options;
    options.ready_file = dir_ / "ready";
    options.start_file = dir_ / "start";
    StartGate gate(options);
    EXPECT_FALSE(std::filesystem::exists(options.ready_file));
    ASSERT_TRUE(gate.ready().ok());
    EXPECT_TRUE(std::filesystem::exists(options.ready_file));
    EXPECT_FALSE(*gate.started());
    std::ofstream(options.start_file).put('\n');
    EXPECT_TRUE(*gate.started());
    std::filesystem::remove(options.start_file);
    EXPECT_TRUE(*gate.started()) << "a start is not taken back";
}

TEST_F(GateTest, MissingStartFileIsAnErrorThatNamesIt) {
    GateOptions options;
    options.start_file = dir_ / "never";
    options.start_timeout = -1;
    StartGate gate(options);
    ASSERT_TRUE(gate.ready().ok());
    const Result<bool> started = gate.started();
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, Code::kDeadlineExceeded);
    EXPECT_NE(started.error().text.find(options.start_file), std::string::npos);
}

TEST_F(GateTest, OnePartyThatGivesUpStopsTheOthers) {
    GateOptions options;
    options.parties = 2;
    StartGate gate(options);
    ASSERT_TRUE(gate.ready().ok());
    EXPECT_FALSE(*gate.started());
    gate.abandon("no CUDA driver");
    const Result<bool> started = gate.started();
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().code, Code::kAborted);
    EXPECT_NE(started.error().text.find("no CUDA driver"), std::string::npos);
}

TEST_F(GateTest, ReadyFileThatCannotBeMadeIsAnError) {
    GateOptions options;
    options.ready_file = dir_ / "missing" / "ready";
    StartGate gate(options);
    const Status ready = gate.ready();
    ASSERT_FALSE(ready.ok());
    EXPECT_EQ(ready.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace vuda::bench
