#include "daemon/textfile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

std::string content(const std::string& path) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
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
