#include "daemon/textfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

std::string content(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

// For what another thread writes.
bool holds_in_time(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

TEST(Textfile, ReplacesTheFileAsAWhole) {
    const TempDir dir;
    const std::string path = dir.file("vuda.prom");
    ASSERT_TRUE(write_textfile(path, std::string(100'000, 'a')));
    // Whoever has the old one open goes on reading the old one.
    std::ifstream old(path);
    ASSERT_TRUE(write_textfile(path, "b\n"));
    std::ostringstream text;
    text << old.rdbuf();
    EXPECT_EQ(text.str(), std::string(100'000, 'a'));
    EXPECT_EQ(content(path), "b\n");
    EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(Textfile, OthersMayReadItWhateverTheUmask) {
    const TempDir dir;
    const mode_t before = ::umask(0077);
    const Status done = write_textfile(dir.file("m"), "x");
    ::umask(before);
    ASSERT_TRUE(done);
    struct stat st {};
    ASSERT_EQ(::stat(dir.file("m").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0644u);
}

TEST(Textfile, FailureLeavesNothingBehind) {
    const TempDir dir;
    EXPECT_EQ(write_textfile(dir.file("none/m"), "x").error().code, Code::kNotFound);
    // The final name is taken by a folder: the rename fails.
    std::filesystem::create_directory(dir.file("m"));
    EXPECT_FALSE(write_textfile(dir.file("m"), "x"));
    EXPECT_FALSE(std::filesystem::exists(dir.file("m.tmp")));
}

TEST(Textfile, LinkInItsPlaceIsNotFollowed) {
    const TempDir dir;
    std::ofstream(dir.file("victim")) << "keep";
    std::filesystem::create_symlink(dir.file("victim"), dir.file("m.tmp"));
    EXPECT_FALSE(write_textfile(dir.file("m"), "x"));
    EXPECT_EQ(content(dir.file("victim")), "keep");
}

TEST(Textfile, WhatAKilledDaemonLeftIsRemoved) {
    const TempDir dir;
    std::ofstream(dir.file("m")) << "whole";
    std::ofstream(dir.file("m.tmp")) << "par";
    remove_leftover(dir.file("m"));
    EXPECT_FALSE(std::filesystem::exists(dir.file("m.tmp")));
    EXPECT_EQ(content(dir.file("m")), "whole");
    remove_leftover(dir.file("none"));
}

TEST(Textfile, WriterTriesAgainUntilItCan) {
    const TempDir dir;
    const std::string path = dir.file("later/m");
    TextfileWriter writer;
    writer.write(path, "kept");
    writer.write(dir.file("mark"), "");
    // Names go in order, and "later/m" comes before "mark": it has failed by now.
    ASSERT_TRUE(holds_in_time([&] { return std::filesystem::exists(dir.file("mark")); }));
    EXPECT_FALSE(std::filesystem::exists(path));
    std::filesystem::create_directory(dir.file("later"));
    EXPECT_TRUE(holds_in_time([&] { return content(path) == "kept"; }));
}

TEST(Textfile, WriterWritesTheNewestAndRemoves) {
    const TempDir dir;
    const std::string path = dir.file("m");
    {
        TextfileWriter writer;
        for (int i = 0; i < 100; ++i) writer.write(path, std::to_string(i));
    }
    EXPECT_EQ(content(path), "99");
    {
        TextfileWriter writer;
        writer.write(path, "100");
        writer.remove(path);
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace vuda::daemon
