// The vuda-trace program and its recorder, around a program that talks to a fake driver.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "rm/ioctl_view.h"
#include "trace/format.h"

namespace vuda::trace {
namespace {

namespace fs = std::filesystem;

class RecorderTest : public testing::Test {
 protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "vuda-trace-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
        out_ = dir_ / "out.vtrace";
    }
    void TearDown() override { fs::remove_all(dir_); }

    // Exit status of `command` run by the shell; its standard error lands in err_.
    int shell(const std::string& command) {
        const std::string err_file = dir_ / "stderr";
        const std::string line = command + " >" + (dir_ / "stdout").string() + " 2>" + err_file;
        const int status = std::system(line.c_str());
        err_ = slurp(err_file);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    int record(const std::string& command, const std::string& options = "") {
        return shell("LD_PRELOAD=" + std::string(FAKE_DRIVER) + " " + VUDA_TRACE + " record " + options + " -o " +
                     out_.string() + " -- " + command);
    }
    static std::string slurp(const fs::path& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    Trace load(const fs::path& path) {
        auto trace = parse(slurp(path));
        EXPECT_TRUE(trace.ok()) << path << ": " << trace.error().text << "\n" << err_;
        return trace.ok() ? *std::move(trace) : Trace{};
    }
    std::vector<fs::path> traces() const {
        std::vector<fs::path> out;
        for (const auto& entry : fs::directory_iterator(dir_)) {
            if (entry.path().filename().string().starts_with("out.vtrace")) out.push_back(entry.path());
        }
        return out;
    }

    fs::path dir_;
    fs::path out_;
    std::string err_;
};

size_t count(const Trace& trace, Kind kind) {
    size_t n = 0;
    for (const Record& r : trace.records) n += r.kind == kind ? 1 : 0;
    return n;
}

// The fake driver comes first in the list that the shell sets, so it would hide everything from a recorder behind it;
// what the tests want is the recorder in front. vuda-trace keeps its place in a list that names it already.
std::string preload() { return std::string(RECORDER) + ":" + FAKE_DRIVER; }

TEST_F(RecorderTest, RecordsCallsAndChangesNothing) {
    ASSERT_EQ(shell("LD_PRELOAD=" + preload() + " VUDA_TRACE_OUT=" + out_.string() + " " + TRACED_PROGRAM), 0) << err_;
    const Trace trace = load(out_);
    EXPECT_EQ(trace.header.program, "vuda_traced_program");
    EXPECT_NE(trace.header.pid, 0u);
    EXPECT_EQ(traces().size(), 1u);

    std::map<std::string, size_t> devices;
    for (const Record& r : trace.records) ++devices[r.device];
    EXPECT_EQ(devices.size(), 3u);
    EXPECT_EQ(devices["nvidia9"], 1u);
    EXPECT_EQ(count(trace, Kind::kOpen), 3u);
    EXPECT_EQ(count(trace, Kind::kClose), 2u);
    EXPECT_EQ(count(trace, Kind::kDup), 1u);
    EXPECT_EQ(count(trace, Kind::kMmap), 1u);
    EXPECT_EQ(count(trace, Kind::kIoctl), 7u);

    // The second ioctl is the context share: its parameters before and after, by the class since paramsSize is 0.
    size_t seen = 0;
    for (const Record& r : trace.records) {
        if (r.kind != Kind::kIoctl) continue;
        ++seen;
        if (seen == 1) {
            EXPECT_EQ(r.arg.size, 48u);
            EXPECT_TRUE(r.params.empty());
            EXPECT_EQ(rm::load<rm::AllocArgs>(r.arg.before).hObjectNew, 0u);
            EXPECT_EQ(rm::load<rm::AllocArgs>(r.arg.after).hObjectNew, 0xc1d00001u);
        }
        if (seen == 2) {
            ASSERT_EQ(r.params.size, sizeof(rm::ContextShareParams));
            EXPECT_EQ(rm::load<rm::ContextShareParams>(r.params.before).subctxId, 0u);
            EXPECT_EQ(rm::load<rm::ContextShareParams>(r.params.after).subctxId, 63u);
        }
        if (seen == 3) {
            EXPECT_EQ(r.request, rm::uvm::kInitialize);
            EXPECT_EQ(r.arg.size, 16u);
        }
        if (seen == 4) {
            EXPECT_EQ(r.error, ENOTTY);
            EXPECT_TRUE(r.arg.empty());  // a null argument
        }
        if (seen == 5) {
            EXPECT_EQ(r.arg.size, 64u);
            EXPECT_TRUE(r.arg.before.empty());  // not readable
        }
    }
    for (size_t i = 1; i < trace.records.size(); ++i) EXPECT_GE(trace.records[i].time_us, trace.records[i - 1].time_us);
}

TEST_F(RecorderTest, AForkedChildHasItsOwnFile) {
    ASSERT_EQ(shell("LD_PRELOAD=" + preload() + " VUDA_TRACE_OUT=" + out_.string() + " " + TRACED_PROGRAM + " fork"), 0)
        << err_;
    const auto files = traces();
    ASSERT_EQ(files.size(), 2u);
    size_t smaller = SIZE_MAX;
    std::set<uint32_t> pids;
    for (const fs::path& file : files) {
        const Trace trace = load(file);
        smaller = std::min(smaller, trace.records.size());
        pids.insert(trace.header.pid);
        if (file != out_) {
            EXPECT_EQ(file.string(), out_.string() + "." + std::to_string(trace.header.pid));
        }
    }
    EXPECT_EQ(smaller, 2u);  // the child's two allocations
    EXPECT_EQ(pids.size(), 2u);
}

TEST_F(RecorderTest, ThreadsDoNotMixTheirLines) {
    ASSERT_EQ(shell("LD_PRELOAD=" + preload() + " VUDA_TRACE_OUT=" + out_.string() + " " + TRACED_PROGRAM + " threads"),
              0)
        << err_;
    EXPECT_EQ(count(load(out_), Kind::kIoctl), 7u + 4 * 50 * 2);
}

TEST_F(RecorderTest, SurvivesCloseRangeAndReusedNumbers) {
    ASSERT_EQ(
        shell("LD_PRELOAD=" + preload() + " VUDA_TRACE_OUT=" + out_.string() + " " + TRACED_PROGRAM + " close_range"),
        0)
        << err_;
    const Trace trace = load(out_);
    EXPECT_EQ(count(trace, Kind::kIoctl), 9u);  // 7 and 2 after the sweep; the one on /dev/null is not there
    for (const Record& r : trace.records) EXPECT_NE(r.request, 0x5401u);
}

TEST_F(RecorderTest, WithoutAFileNothingIsWritten) {
    ASSERT_EQ(shell("LD_PRELOAD=" + preload() + " " + TRACED_PROGRAM), 0) << err_;
    EXPECT_TRUE(traces().empty());
    ASSERT_EQ(shell("LD_PRELOAD=" + preload() + " VUDA_TRACE_OUT=/nonexistent/x " + TRACED_PROGRAM), 0) << err_;
}

TEST_F(RecorderTest, ToolKeepsTheListAndTheExitStatus) {
    // The list is edited, and the command's status comes through.
    EXPECT_EQ(record("sh -c 'exit 42'"), 42) << err_;
    ASSERT_EQ(record("sh -c 'echo $LD_PRELOAD'"), 0) << err_;
    EXPECT_EQ(slurp(dir_ / "stdout"), std::string(FAKE_DRIVER) + ":" + RECORDER + "\n");
    EXPECT_EQ(record("/nonexistent/program"), 127);
    EXPECT_EQ(record("/etc/passwd"), 126);
    EXPECT_TRUE(traces().empty());  // sh makes no call on NVIDIA's files
}

TEST_F(RecorderTest, ToolRecordsARun) {
    ASSERT_EQ(
        shell("LD_PRELOAD=" + preload() + " " + VUDA_TRACE + " record -o " + out_.string() + " -- " + TRACED_PROGRAM),
        0)
        << err_;
    EXPECT_EQ(count(load(out_), Kind::kIoctl), 7u);
    ASSERT_EQ(shell(std::string(VUDA_TRACE) + " show " + out_.string()), 0) << err_;
    EXPECT_NE(slurp(dir_ / "stdout").find("FERMI_CONTEXT_SHARE_A 0x5"), std::string::npos);
    EXPECT_EQ(shell(std::string(VUDA_TRACE) + " diff " + out_.string() + " " + out_.string()), 0) << err_;

    // An existing file is kept unless told otherwise; a link or folder is never replaced.
    EXPECT_EQ(record("true"), 73);
    EXPECT_NE(err_.find("--force"), std::string::npos);
    EXPECT_EQ(record("true", "--force"), 0) << err_;
    fs::create_directory(out_);
    EXPECT_EQ(record("true", "--force"), 73);
}

TEST_F(RecorderTest, ToolSaysWhatIsWrong) {
    const std::string tool = VUDA_TRACE;
    EXPECT_EQ(shell(tool), 64);
    EXPECT_EQ(shell(tool + " show"), 64);
    EXPECT_EQ(shell(tool + " --version"), 0);
    EXPECT_EQ(shell(tool + " --help"), 0);
    EXPECT_EQ(shell(tool + " show " + (dir_ / "none").string()), 66);
    EXPECT_EQ(shell(tool + " show " + dir_.string()), 66);
    std::ofstream(dir_ / "bad") << "vuda-trace 1\nnonsense\n";
    EXPECT_EQ(shell(tool + " show " + (dir_ / "bad").string()), 65);
    EXPECT_NE(err_.find("line 2: bad time"), std::string::npos) << err_;
    EXPECT_EQ(shell(tool + " record -o /nonexistent/x -- true"), 73);
    const std::string traces = std::string(VUDA_TEST_DATA) + "/traces/h200-580.159.04-";
    EXPECT_EQ(shell(tool + " diff " + traces + "vulkan-then-cuda.vtrace " + traces + "redirected.vtrace"), 1);
    EXPECT_EQ(shell(tool + " replay " + traces + "vulkan-then-cuda.vtrace -o " + (dir_ / "rewritten").string()), 0)
        << err_;
    EXPECT_EQ(shell(tool + " show " + (dir_ / "rewritten").string()), 0) << err_;
}

}  // namespace
}  // namespace vuda::trace
