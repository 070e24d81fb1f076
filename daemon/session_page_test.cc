#include "daemon/session_page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace vuda::daemon {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow(100s);

struct Ends {
    std::unique_ptr<SessionPage> daemon;
    UniqueFd fd;
    page::PageMapping process;
};

Ends make() {
    Result<SessionPage::Made> made = SessionPage::make();
    EXPECT_TRUE(made.ok());
    Ends ends{std::move(made->page), std::move(made->fd), {}};
    Result<page::PageMapping> mapped = page::PageMapping::of_received(ends.fd.get(), page::kPageBytes);
    EXPECT_TRUE(mapped.ok());
    ends.process = *std::move(mapped);
    return ends;
}

page::Sample sample(uint64_t duration_ns, page::SampleKind kind = page::SampleKind::kStep) {
    return {kind, 1, 1000, duration_ns};
}

TEST(SessionPage, SplitsGoOneWayAndSamplesTheOther) {
    Ends ends = make();
    page::Split seen;
    ASSERT_TRUE(page::read_split(ends.process->daemon, seen));
    EXPECT_EQ(seen.generation, 0u);
    ends.daemon->publish({7, page::SplitMode::kInterSm, 64, {0x3, 0, 0, 0}});
    ASSERT_TRUE(page::read_split(ends.process->daemon, seen));
    EXPECT_EQ(seen.generation, 7u);
    EXPECT_EQ(seen.disable[0], 3u);
    EXPECT_EQ(ends.daemon->split().applied_tpcs, 64u);

    page::SampleWriter writer(*ends.process);
    writer.set_applied(7);
    writer.count_launch();
    EXPECT_EQ(ends.daemon->applied_generation(), 7u);
    EXPECT_EQ(ends.daemon->launches(), 1u);
    for (uint64_t i = 1; i <= 100; ++i) EXPECT_TRUE(writer.push(sample(i)));
    EXPECT_EQ(ends.daemon->drain(kNow), 100u);
    EXPECT_EQ(ends.daemon->drain(kNow), 0u);
    EXPECT_EQ(ends.daemon->samples(), 100u);
    EXPECT_EQ(ends.daemon->lost(), 0u);
    const auto summary = ends.daemon->summary(page::SampleKind::kStep, kNow);
    ASSERT_TRUE(summary);
    EXPECT_EQ(summary->count, 100u);
    EXPECT_EQ(summary->p50_ns, 50u);
    EXPECT_EQ(summary->p99_ns, 99u);
    EXPECT_EQ(summary->last_seen, kNow);
    EXPECT_FALSE(ends.daemon->summary(page::SampleKind::kFrame, kNow));
}

TEST(SessionPage, TenThousandASecondAreTakenWithoutLoss) {
    Ends ends = make();
    page::SampleWriter writer(*ends.process);
    uint64_t pushed = 0;
    for (int tick = 1; tick <= 30; ++tick) {
        for (int i = 0; i < 1000; ++i) pushed += writer.push(sample(10)) ? 1 : 0;
        ends.daemon->drain(kNow + tick * 100ms);
    }
    EXPECT_EQ(pushed, 30'000u);
    EXPECT_EQ(ends.daemon->samples(), 30'000u);
    EXPECT_EQ(ends.daemon->lost(), 0u);
    EXPECT_EQ(ends.daemon->summary(page::SampleKind::kStep, kNow + 3s)->rate, 10'000);
    EXPECT_EQ(ends.daemon->summary(page::SampleKind::kStep, kNow + 10s)->rate, 0) << "long ago";
}

TEST(SessionPage, WhatDoesNotFitIsCounted) {
    Ends ends = make();
    page::SampleWriter writer(*ends.process);
    for (uint64_t i = 0; i < page::kRingCells + 5; ++i) writer.push(sample(1));
    EXPECT_EQ(ends.daemon->drain(kNow), page::kRingCells);
    EXPECT_EQ(ends.daemon->samples(), page::kRingCells);
    EXPECT_EQ(ends.daemon->lost(), 5u);
}

// A process that writes whatever it likes: bounded work, and what vudad wrote itself stays what it was.
TEST(SessionPage, HostileContentIsANumberAndNothingElse) {
    Ends ends = make();
    // Not through of_received: everything writable, also vudad's half.
    void* all = ::mmap(nullptr, page::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends.fd.get(), 0);
    ASSERT_NE(all, MAP_FAILED);
    uint64_t seed = 1;
    uint64_t cells = 0;
    for (int round = 0; round < 50; ++round) {
        auto* words = static_cast<uint64_t*>(all);
        for (size_t i = 0; i < page::kPageBytes / 8; ++i) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            // Noise, all ones, or sequences that look right.
            words[i] = round % 3 == 0 ? seed : round % 3 == 1 ? ~uint64_t{0} : i + static_cast<uint64_t>(round);
        }
        const size_t taken = ends.daemon->drain(kNow + round * 100ms);
        EXPECT_LE(taken, page::kRingCells);
        cells += taken;
        ends.daemon->publish({static_cast<uint64_t>(round), page::SplitMode::kInterSm, 8, {1, 2, 3, 4}});
        EXPECT_EQ(ends.daemon->split().disable[3], 4u);
        (void)ends.daemon->lost();
        (void)ends.daemon->launches();
        for (uint32_t kind = 1; kind <= page::kSampleKinds; ++kind)
            (void)ends.daemon->summary(static_cast<page::SampleKind>(kind), kNow);
    }
    EXPECT_LE(cells, 50 * page::kRingCells);
    ::munmap(all, page::kPageBytes);
}

TEST(SessionPage, CannotBeResizedByTheProcess) {
    Ends ends = make();
    EXPECT_NE(::ftruncate(ends.fd.get(), 4096), 0);
    EXPECT_NE(::ftruncate(ends.fd.get(), static_cast<off_t>(page::kPageBytes) * 2), 0);
    struct stat facts {};
    ASSERT_EQ(::fstat(ends.fd.get(), &facts), 0);
    EXPECT_EQ(static_cast<size_t>(facts.st_size), page::kPageBytes);
}

TEST(SampleLog, PercentilesAreOfTheNewest) {
    SampleLog log;
    EXPECT_FALSE(log.summary(kNow));
    for (int i = 0; i < 2000; ++i) log.add(1'000'000, kNow);
    for (size_t i = 0; i < SampleLog::kRecent; ++i) log.add(5, kNow + 1s);
    EXPECT_EQ(log.summary(kNow + 1s)->p99_ns, 5u);
    EXPECT_EQ(log.summary(kNow + 1s)->count, 2000u + SampleLog::kRecent);
    EXPECT_EQ(log.summary(kNow + 1s)->rate, 2000);
}

TEST(SampleLog, AClockThatStandsOrGoesBackDoesNoHarm) {
    SampleLog log;
    log.add(1, kNow);
    log.add(1, kNow - 50s);
    log.add(1, kNow - 50s);
    EXPECT_EQ(log.summary(kNow - 100s)->count, 3u);
}

}  // namespace
}  // namespace vuda::daemon
