// What the recorder is made of, without its hooks: runs under sanitizers, where the hooks cannot.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "rm/ioctl_view.h"
#include "trace/capture.h"
#include "trace/format.h"
#include "trace/sink.h"

namespace vuda::trace {
namespace {

namespace fs = std::filesystem;

TEST(Capture, ReadsOnlyWhatIsThere) {
    const uint32_t word = 0x12345678;
    EXPECT_EQ(read_memory(reinterpret_cast<uintptr_t>(&word), 4).size(), 4u);
    EXPECT_TRUE(read_memory(1, 64).empty());
    EXPECT_TRUE(read_memory(~uint64_t{0} - 10, 64).empty());
}

TEST(Capture, KnowsTheArgumentsOfTheRecordedPrograms) {
    std::ifstream in(std::string(VUDA_TEST_DATA) + "/traces/h200-580.159.04-vulkan-then-cuda.vtrace", std::ios::binary);
    const auto trace = parse(std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
    ASSERT_TRUE(trace.ok());
    for (const Record& r : trace->records) {
        if (r.kind != Kind::kIoctl) continue;
        const auto surface = r.is_uvm() ? rm::Surface::kUvm : rm::Surface::kRm;
        EXPECT_EQ(argument_bytes(surface, r.request, rm::abi_580()), r.arg.size) << std::hex << r.request;
    }
}

TEST(Capture, StopsWhereThePageEnds) {
    const long page = ::sysconf(_SC_PAGESIZE);
    void* two =
        ::mmap(nullptr, static_cast<size_t>(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(two, MAP_FAILED);
    ASSERT_EQ(::munmap(static_cast<char*>(two) + page, static_cast<size_t>(page)), 0);
    const auto near_end = reinterpret_cast<uintptr_t>(two) + static_cast<uintptr_t>(page) - 8;
    EXPECT_LE(read_memory(near_end, 64).size(), 8u);
    ::munmap(two, static_cast<size_t>(page));
}

TEST(Capture, TakesTheBlockBehindAnAllocation) {
    rm::ContextShareParams params{7, rm::kCtxShareAsync, 0};
    rm::AllocArgs args{1, 2, 3, rm::cls::kContextShare, reinterpret_cast<uintptr_t>(&params), 0, 0, 0, 0, 0};
    Capture capture(rm::Surface::kRm, rm::rm_request(rm::escape::kAlloc, sizeof args),
                    reinterpret_cast<uintptr_t>(&args), rm::abi_580());
    params.subctxId = 63;
    args.status = 5;
    Record record;
    capture.after(record);
    EXPECT_EQ(rm::load<rm::AllocArgs>(record.arg.before).status, 0u);
    EXPECT_EQ(rm::load<rm::AllocArgs>(record.arg.after).status, 5u);
    EXPECT_EQ(rm::load<rm::ContextShareParams>(record.params.before).subctxId, 0u);
    EXPECT_EQ(rm::load<rm::ContextShareParams>(record.params.after).subctxId, 63u);
}

TEST(Capture, AControlsBlockIsAsLongAsTheCallerSaysUpToALimit) {
    rm::ControlArgs args{1, 2, 0x12345678, 0, 0x1000, 100, 0};
    const auto region = [&args] {
        const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
        return parameter_region(rm::Surface::kRm, rm::rm_request(rm::escape::kControl, sizeof args),
                                {bytes, sizeof args}, rm::abi_580());
    };
    EXPECT_EQ(region().size, 100u);
    args.paramsSize = ~0u;
    EXPECT_EQ(region().size, kMaxBlock);
    args.params = 0;
    EXPECT_EQ(region().size, 0u);
}

class SinkTest : public testing::Test {
 protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "vuda-sink-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }
    static std::string slurp(const fs::path& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    fs::path dir_;
};

TEST_F(SinkTest, NeverWritesIntoAFileThatIsThere) {
    const fs::path path = dir_ / "t";
    const std::string pid = std::to_string(::getpid());
    for (const char* name : {"", ".", "..1"}) {
        Sink sink(path.string());
        EXPECT_TRUE(sink.enabled());
        EXPECT_FALSE(sink.append("early\n"));
        ASSERT_TRUE(sink.start("head\n"));
        EXPECT_TRUE(sink.append(std::string("line") + name + "\n"));
        EXPECT_TRUE(sink.append("end\n"));
    }
    EXPECT_EQ(slurp(path), "head\nline\nend\n");
    EXPECT_EQ(slurp(path.string() + "." + pid), "head\nline.\nend\n");
    EXPECT_EQ(slurp(path.string() + "." + pid + ".1"), "head\nline..1\nend\n");
}

TEST_F(SinkTest, GivesUpQuietly) {
    Sink nowhere("/nonexistent/folder/t");
    EXPECT_FALSE(nowhere.start("head\n"));
    EXPECT_FALSE(nowhere.enabled());
    EXPECT_FALSE(nowhere.append("x\n"));
    EXPECT_FALSE(Sink("").enabled());

    const fs::path path = dir_ / "t";
    Sink sink(path.string());
    ASSERT_TRUE(sink.start("head\n"));
    fs::remove(path);
    EXPECT_FALSE(sink.append("x\n"));  // taken away: not made again
    EXPECT_FALSE(sink.enabled());
    EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace vuda::trace
