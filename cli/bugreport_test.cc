#include "cli/bugreport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "cli/capture.h"
#include "cli/fake_daemon.h"
#include "cli/tar_gz.h"
#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Bugreport, ArchiveIsWhatTarReads) {
    const TestDir dir;
    TarGz archive;
    archive.add("r/a.txt", "hello\n", 1'700'000'000);
    archive.add("r/empty", "", 1'700'000'000);
    archive.add("r/block", std::string(512, 'x'), 1'700'000'000);
    const Result<std::string> bytes = std::move(archive).finish();
    ASSERT_TRUE(bytes.ok());
    const std::string file = dir.write("r.tar.gz", *bytes);
    EXPECT_EQ(*capture({"tar", "--utc", "-tvzf", file}),
              "-rw-r--r-- root/root         6 2023-11-14 22:13 r/a.txt\n"
              "-rw-r--r-- root/root         0 2023-11-14 22:13 r/empty\n"
              "-rw-r--r-- root/root       512 2023-11-14 22:13 r/block\n");
    EXPECT_EQ(*capture({"tar", "-xOzf", file, "r/a.txt"}), "hello\n");
}

TEST(Bugreport, TakesWhatItListsAndNoEnvironment) {
    const FakeDaemon daemon;
    const TestDir dir;
    const std::string file = dir.path("out.tar.gz");
    ::setenv("VUDA_TEST_SECRET", "hunter2", 1);
    testing::internal::CaptureStdout();
    EXPECT_EQ(bugreport_command(daemon.socket(), {file, false}), 0);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr(file));
    ::unsetenv("VUDA_TEST_SECRET");
    struct stat st {};
    ASSERT_EQ(::stat(file.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);

    std::string expected = "out/README.txt\n";
    for (const ReportItem& item : report_items(daemon.socket())) expected += "out/" + item.file + "\n";
    EXPECT_EQ(*capture({"tar", "-tzf", file}), expected);
    const std::string everything = *capture({"tar", "-xOzf", file});
    EXPECT_THAT(everything, Not(HasSubstr("hunter2")));
    EXPECT_THAT(everything, HasSubstr("\"version\": \"9.9\""));
    EXPECT_THAT(everything, HasSubstr(std::string("vudactl ") + VUDA_VERSION));

    // It writes over nothing.
    testing::internal::CaptureStderr();
    EXPECT_NE(bugreport_command(daemon.socket(), {file, false}), 0);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(file));
}

TEST(Bugreport, WithoutADaemonItSaysSoInside) {
    const TestDir dir;
    const std::vector<ReportItem> items = report_items(dir.path("none.sock"), dir.root().string());
    const auto content = [&items](const char* file) {
        const auto item =
            std::find_if(items.begin(), items.end(), [&](const ReportItem& one) { return one.file == file; });
        return item == items.end() ? std::string("no such item") : item->content();
    };
    for (const char* file : {"status.json", "metrics.txt"}) EXPECT_THAT(content(file), HasSubstr("no such socket"));
    for (const char* file : {"vudad.toml", "kernel.txt"}) EXPECT_THAT(content(file), HasSubstr("No such file"));
    const std::string list = report_list(items);
    for (const ReportItem& item : items) EXPECT_THAT(list, HasSubstr(item.file + "\n    " + item.what));
}

TEST(Bugreport, ConfigurationLosesCommentsAndSecrets) {
    EXPECT_EQ(without_secrets("# mine: pw is x\n[log] # a\n  level = \"de#bug\" # b\n\napi_token = "
                              "\"abc\"\nPassword='p'\nq = \"\\\"#\" # c"),
              "[log]\nlevel = \"de#bug\"\napi_token = (left out)\nPassword = (left out)\nq = \"\\\"#\"\n");
}

TEST(Bugreport, KernelsLinesOfTheDriverOnly) {
    EXPECT_EQ(kernel_lines(
                  "6,1,100,-;usb 1-1: new device\n SUBSYSTEM=usb\n4,2,2500,-;NVRM: Xid (PCI:0000:01:00): 109, pid=1\n"
                  " DEVICE=+pci:0000:01:00.0 nvidia\nNVRM without a head\n"),
              "[2500 us] NVRM: Xid (PCI:0000:01:00): 109, pid=1\n");
}

}  // namespace
}  // namespace vuda::cli
