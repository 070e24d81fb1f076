#include "daemon/driver_facts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

TEST(DriverFacts, FollowTheDriverTable) {
    const TempDir dir;
    const auto facts = [&](const std::string& text) {
        std::ofstream(dir.file("version")) << text;
        return read_driver_facts(dir.file("version").c_str());
    };
    const std::string line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  ";
    const std::string rest = "  Release Build  (root@host)\nGCC version:  gcc version 12.2.0\n";
    EXPECT_EQ(facts(line + "580.159.04" + rest).verdict, v1::DRIVER_VERDICT_SUPPORTED);
    EXPECT_EQ(facts(line + "580.159.04" + rest).version, "580.159.04");
    EXPECT_EQ(facts(line + "999.99" + rest).verdict, v1::DRIVER_VERDICT_UNKNOWN);
    EXPECT_EQ(facts("garbage").verdict, v1::DRIVER_VERDICT_UNKNOWN);
    EXPECT_EQ(facts("garbage").version, "");
    EXPECT_EQ(read_driver_facts(dir.file("none").c_str()).verdict, v1::DRIVER_VERDICT_ABSENT);
}

}  // namespace
}  // namespace vuda::daemon
