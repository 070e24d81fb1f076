#include "rm/driver_version.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace vuda::rm {
namespace {

constexpr const char* kOpen =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  "
    "(dvs-builder@U22-I3-AE18-23-3)  "
    "Tue Apr  7 17:38:01 UTC 2026\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n";
constexpr const char* kProprietary =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";

TEST(DriverVersion, ParsesAndPrintsAsNvidiaWritesIt) {
    for (const char* text :
         {"580.159.04", "550.100", "550.90.12", "535.43.02", "565.77", "590.48.01", "610.57.04", "450.51"}) {
        const auto version = parse_driver_version(text);
        ASSERT_TRUE(version.ok()) << text;
        EXPECT_EQ(version->to_string(), text);
    }
    const DriverVersion v = *parse_driver_version("580.159.04");
    EXPECT_EQ(v.branch, 580);
    EXPECT_EQ(v.minor, 159);
    EXPECT_EQ(v.patch, 4);
    EXPECT_TRUE(v.has_patch);
    EXPECT_FALSE(parse_driver_version("550.100")->has_patch);
}

TEST(DriverVersion, RejectsWhatIsNotAVersion) {
    for (const char* text : {"",
                             ".",
                             "580",
                             "580.",
                             "580.159.",
                             "580.159.4",
                             "580.159.004",
                             "580.159.04.1",
                             " 580.159.04",
                             "580.159.04 ",
                             "580.159.04\n",
                             "58.159.04",
                             "058.159.04",
                             "58000.1.04",
                             "580.15900.04",
                             "580..04",
                             "-80.159.04",
                             "580.159.0x",
                             "580,159,04",
                             "999999999999999999999.1.02",
                             "\xd9\xa5.159.04"}) {
        const auto version = parse_driver_version(text);
        ASSERT_FALSE(version.ok()) << text;
        EXPECT_EQ(version.error().code, Code::kInvalidArgument);
    }
}

TEST(DriverVersion, OrdersReleasesOfOneBranchByNumber) {
    const char* ascending[] = {"535.288.01", "550.40.07", "550.54.15", "550.90.12",  "550.100",
                               "550.127.08", "580.95.05", "580.142",   "580.159.04", "590.44.01"};
    for (size_t i = 1; i < std::size(ascending); ++i) {
        EXPECT_LT(*parse_driver_version(ascending[i - 1]), *parse_driver_version(ascending[i])) << ascending[i];
    }
    EXPECT_EQ(*parse_driver_version("580.142"), *parse_driver_version("580.142.00"));
}

TEST(DriverVersion, EveryVersionRoundTrips) {
    std::mt19937 random(7);
    for (int i = 0; i < 20000; ++i) {
        DriverVersion v;
        v.branch = static_cast<uint16_t>(100 + random() % 9900);
        v.minor = static_cast<uint16_t>(random() % 10000);
        v.has_patch = random() % 2 != 0;
        v.patch = v.has_patch ? static_cast<uint16_t>(random() % 100) : 0;
        const auto back = parse_driver_version(v.to_string());
        ASSERT_TRUE(back.ok()) << v.to_string();
        ASSERT_EQ(*back, v);
        ASSERT_EQ(back->has_patch, v.has_patch);
    }
}

TEST(ProcDriverVersion, FindsTheDriverAndNotTheCompiler) {
    EXPECT_EQ(parse_proc_driver_version(kOpen)->to_string(), "580.159.04");
    EXPECT_EQ(parse_proc_driver_version(kProprietary)->to_string(), "535.104.05");
    EXPECT_EQ(parse_proc_driver_version("NVRM version: 580.159.04\n")->to_string(), "580.159.04");
    EXPECT_FALSE(parse_proc_driver_version("NVRM version: 580.159.04").ok());  // perhaps cut off
    EXPECT_EQ(parse_proc_driver_version("GCC version: 115.1.02\nNVRM version: x 550.100 y\n")->to_string(), "550.100");
}

TEST(ProcDriverVersion, SaysWhatIsWrong) {
    EXPECT_EQ(parse_proc_driver_version("").error().code, Code::kNotFound);
    EXPECT_EQ(parse_proc_driver_version("GCC version:  gcc version 580.159.04\n").error().code, Code::kNotFound);
    const auto no_version = parse_proc_driver_version("NVRM version: \x01\xff garbage 580.x\n");
    ASSERT_FALSE(no_version.ok());
    EXPECT_EQ(no_version.error().code, Code::kInvalidArgument);
    for (const char c : no_version.error().text) EXPECT_TRUE(c >= 0x20 && c < 0x7f);  // fit for a terminal
    // What lies past the first 4 KiB is not the driver's.
    EXPECT_FALSE(parse_proc_driver_version(std::string(5000, '\n') + kOpen).ok());
}

TEST(ProcDriverVersion, AnyTruncationOrMutationIsSafe) {
    std::mt19937 random(11);
    const std::string good = kOpen;
    for (size_t n = 0; n <= good.size(); ++n) {
        const auto version = parse_proc_driver_version(good.substr(0, n));
        // Cut anywhere, it is the right version or none: 580.15 would be another driver.
        if (version.ok()) {
            EXPECT_EQ(version->to_string(), "580.159.04") << n;
        }
    }
    for (int i = 0; i < 20000; ++i) {
        std::string text = good;
        for (int k = 0; k < 4; ++k) text[random() % text.size()] = static_cast<char>(random());
        const auto version = parse_proc_driver_version(text);
        if (version.ok()) {
            EXPECT_TRUE(parse_driver_version(version->to_string()).ok());
        }
    }
}

}  // namespace
}  // namespace vuda::rm
