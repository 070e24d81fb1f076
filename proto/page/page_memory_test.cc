#include "proto/page/page_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vuda::page {
namespace {

UniqueFd made() {
    Result<UniqueFd> fd = make_page_fd();
    EXPECT_TRUE(fd) << fd.error().to_string();
    return *std::move(fd);
}

UniqueFd raw_memfd(size_t size, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(PageMemory, BothSidesSeeOneMemory) {
    const UniqueFd fd = made();
    Result<PageMapping> own = PageMapping::of_own(fd.get());
    Result<PageMapping> received = PageMapping::of_received(fd.get(), kPageBytes);
    ASSERT_TRUE(own);
    ASSERT_TRUE(received) << received.error().to_string();
    SplitWriter writer((*own)->daemon);
    Split split{7, SplitMode::kInterSm, 64, {3, 0, 0, 1}};
    writer.publish(split);
    Split read;
    ASSERT_TRUE(read_split((*received)->daemon, read));
    EXPECT_EQ(read.generation, 7u);
    EXPECT_EQ(read.mode, SplitMode::kInterSm);
    EXPECT_EQ(read.applied_tpcs, 64u);
    EXPECT_EQ(read.disable[0], 3u);
    EXPECT_EQ(read.disable[3], 1u);
}

TEST(PageMemory, NobodyCanResizeIt) {
    const UniqueFd fd = made();
    EXPECT_NE(::ftruncate(fd.get(), 4096), 0);
    EXPECT_NE(::ftruncate(fd.get(), static_cast<off_t>(kPageBytes * 2)), 0);
}

TEST(PageMemory, ThePageOfAnotherLayoutIsRefused) {
    const UniqueFd fd = made();
    EXPECT_EQ(PageMapping::of_received(fd.get(), kPageBytes + 1).error().code, Code::kFailedPrecondition);
    const UniqueFd small = raw_memfd(4096, kAllSeals);
    EXPECT_EQ(PageMapping::of_received(small.get(), kPageBytes).error().code, Code::kFailedPrecondition);
    const UniqueFd no_magic = raw_memfd(kPageBytes, kAllSeals);
    EXPECT_EQ(PageMapping::of_received(no_magic.get(), kPageBytes).error().code, Code::kFailedPrecondition);
    int pipe_fds[2];
    ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
    const UniqueFd in(pipe_fds[0]), out(pipe_fds[1]);
    EXPECT_EQ(PageMapping::of_received(in.get(), kPageBytes).error().code, Code::kFailedPrecondition);
}

TEST(PageMemory, APageThatCouldShrinkIsRefused) {
    const UniqueFd fd = raw_memfd(kPageBytes, F_SEAL_GROW | F_SEAL_SEAL);
    {
        const Result<PageMapping> own = PageMapping::of_own(fd.get());
        ASSERT_TRUE(own);
        (**own).daemon.bytes.store(kPageBytes);
        (**own).daemon.magic.store(kMagic);
    }
    EXPECT_EQ(PageMapping::of_received(fd.get(), kPageBytes).error().code, Code::kFailedPrecondition);
}

TEST(PageMemory, TheProcessCannotWriteIntoVudadsHalfByAccident) {
    const UniqueFd fd = made();
    Result<PageMapping> received = PageMapping::of_received(fd.get(), kPageBytes);
    ASSERT_TRUE(received);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::signal(SIGSEGV, [](int) { ::_exit(42); });
        (*received)->daemon.wanted.store(1);
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(PageMemory, TheNextVudadsPageTakesThePlaceOfTheLast) {
    const UniqueFd first = made();
    const UniqueFd second = made();
    Result<PageMapping> own = PageMapping::of_own(second.get());
    Result<PageMapping> received = PageMapping::of_received(first.get(), kPageBytes);
    ASSERT_TRUE(own);
    ASSERT_TRUE(received);
    const Page* at = &**received;
    const UniqueFd bad = raw_memfd(kPageBytes, kAllSeals);
    EXPECT_FALSE(received->replace(bad.get(), kPageBytes));
    EXPECT_EQ((*received)->daemon.magic.load(), kMagic);
    ASSERT_TRUE(received->replace(second.get(), kPageBytes));
    EXPECT_EQ(&**received, at);
    SampleWriter(**received).set_applied(12);
    EXPECT_EQ(SampleReader(**own).applied_generation(), 12u);
}

// The two processes that it is made for.
TEST(PageMemory, SamplesCrossToAnotherProcess) {
    constexpr uint64_t kSamples = 5000;
    const UniqueFd fd = made();
    Result<PageMapping> own = PageMapping::of_own(fd.get());
    ASSERT_TRUE(own);
    SplitWriter((*own)->daemon).want(kAllSamples);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        Result<PageMapping> mine = PageMapping::of_received(fd.get(), kPageBytes);
        if (!mine) ::_exit(1);
        SampleWriter writer(**mine);
        for (uint64_t i = 1; i <= kSamples; ++i) writer.push({SampleKind::kStep, i, i * 1000, i * 7});
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    SampleReader reader(**own);
    uint64_t expected = 0;
    EXPECT_EQ(reader.drain([&](const Sample& sample) {
        ++expected;
        EXPECT_EQ(sample.id, expected);
        EXPECT_EQ(sample.end_ns, expected * 1000);
        EXPECT_EQ(sample.duration_ns, expected * 7);
    }),
              kSamples);
    EXPECT_EQ(reader.lost(), 0u);
}

}  // namespace
}  // namespace vuda::page
