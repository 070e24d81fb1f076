#include "probe/limit_plan.h"

#include <gtest/gtest.h>

namespace vuda::probe {
namespace {

constexpr uint32_t kKiB = 1024;
constexpr limits::ScgLimit kHopper{48 * kKiB, true, 47 * kKiB};

PairReport good(double subject_ms) {
    PairReport report;
    report.bytes = 4096;
    report.control = Phase{50, 0.5, 50, 10};
    report.tried = true;
    report.subject = Phase{50, subject_ms, 50, 10};
    return report;
}

TEST(Judge, ByTheKernelsTimeAndTheFrames) {
    EXPECT_EQ(judge(good(0.6)).outcome, Outcome::kBeside);
    EXPECT_EQ(judge(good(3.3)).outcome, Outcome::kBeside);
    EXPECT_EQ(judge(good(8.9)).outcome, Outcome::kWaits);
    EXPECT_EQ(judge(good(6.0)).outcome, Outcome::kWaits);
    EXPECT_EQ(judge(good(4.5)).outcome, Outcome::kUnclear);
    EXPECT_NE(judge(good(4.5)).why.find("4.50 ms beside frames of 10.00"), std::string::npos);
}

TEST(Judge, DeathIsOnlyWhatComesOfTheKernel) {
    PairReport report = good(0.5);
    report.subject.reset();
    report.lost = true;
    EXPECT_EQ(judge(report).outcome, Outcome::kDies);
    report.lost = false;
    report.hung = true;
    EXPECT_EQ(judge(report).outcome, Outcome::kDies);
    report.tried = false;
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear) << "it hung before";
    report = {};
    report.lost = true;
    report.error = "no CUDA driver";
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear);
    EXPECT_NE(judge(report).why.find("no CUDA driver"), std::string::npos);
}

TEST(Judge, APairThatDoesNotShareTellsNothing) {
    PairReport report = good(9);
    report.control->median_ms = 9;
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear);
    EXPECT_NE(judge(report).why.find("does not share"), std::string::npos);
    report = good(0.5);
    report.control->frames = 1;
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear);
    report = good(0.5);
    report.subject->frames = 1;
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear) << "the renderer stopped";
    report = good(0.5);
    report.wrong = 2;
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear);
    report = good(0.5);
    report.subject.reset();
    report.error = "launch a kernel: too many resources (701)";
    EXPECT_EQ(judge(report).outcome, Outcome::kUnclear) << "refused is not dead";
}

// All boundaries of `count` sizes: the tries that the worst takes, and its deaths.
struct Worst {
    uint32_t tries = 0;
    uint32_t deaths = 0;
};
Worst worst_of(uint32_t count, uint32_t allowed) {
    Worst worst;
    for (uint32_t boundary = 0; boundary <= count; ++boundary) {
        uint32_t low = 0, high = count, tries = 0, deaths = 0;  // the boundary is in [low, high]
        while (low < high && deaths < allowed) {
            const uint32_t at = low + careful_pick(high - low, allowed - deaths);
            EXPECT_LT(at, high);
            ++tries;
            if (at >= boundary) {
                ++deaths;
                high = at;
            } else {
                low = at + 1;
            }
        }
        EXPECT_EQ(low, boundary);
        EXPECT_EQ(high, boundary) << "not found with the deaths that were allowed";
        worst = {std::max(worst.tries, tries), std::max(worst.deaths, deaths)};
    }
    return worst;
}

TEST(CarefulPick, FindsEachBoundaryWithTheDeathsAllowed) {
    EXPECT_EQ(careful_pick(1, 1), 0u);
    EXPECT_EQ(careful_pick(100, 1), 0u) << "one death: upwards, one size after the other";
    EXPECT_EQ(careful_pick(100, 2), 13u) << "14 tries do";
    EXPECT_EQ(worst_of(20, 1).tries, 20u);
    EXPECT_EQ(worst_of(100, 2).tries, 14u);
    EXPECT_EQ(worst_of(127, 7).tries, 7u) << "enough deaths: plain bisection";
    for (const uint32_t count : {2u, 3u, 17u, 64u}) {
        for (uint32_t deaths = 1; deaths <= 4; ++deaths) EXPECT_LE(worst_of(count, deaths).deaths, deaths);
    }
}

// A GPU.
struct Chip {
    uint32_t beside;
    uint32_t limit;
    Outcome run(uint32_t bytes) const {
        return bytes > limit ? Outcome::kDies : bytes > beside ? Outcome::kWaits : Outcome::kBeside;
    }
};

struct Searched {
    Found found;
    std::vector<uint32_t> sizes;
};
Searched search(const SearchTerms& terms, const Chip& chip) {
    LimitSearch search(terms);
    Searched out;
    while (const auto bytes = search.next()) {
        out.sizes.push_back(*bytes);
        search.add(*bytes, chip.run(*bytes));
        if (out.sizes.size() > 400) {
            ADD_FAILURE() << "does not end";
            break;
        }
    }
    out.found = search.found();
    return out;
}

TEST(LimitSearch, ChecksTheTableWithHarmlessSizes) {
    const Searched hopper = search({kHopper}, {47 * kKiB, 48 * kKiB});
    EXPECT_EQ(hopper.sizes, (std::vector<uint32_t>{47 * kKiB, 48 * kKiB}));
    EXPECT_EQ(hopper.found.deaths, 0u);
    EXPECT_EQ(compare(kHopper, hopper.found, kKiB).agreement, Agreement::kNotContradicted);
    const Searched other = search({limits::ScgLimit{84 * kKiB, false, 0}}, {83 * kKiB, 84 * kKiB});
    EXPECT_EQ(other.sizes, std::vector<uint32_t>{84 * kKiB});
}

TEST(LimitSearch, FindsWhereKernelsWaitWithoutADeath) {
    SearchTerms terms{kHopper};
    terms.search = true;
    terms.from = 2 * kKiB;
    terms.to = 48 * kKiB;
    for (uint32_t beside = 2 * kKiB; beside < 48 * kKiB; beside += kKiB) {
        const Searched out = search(terms, {beside, 48 * kKiB});
        EXPECT_EQ(out.found.largest_beside, beside);
        EXPECT_EQ(out.found.smallest_waiting, beside + kKiB);
        EXPECT_EQ(out.found.deaths, 0u);
        EXPECT_LE(out.sizes.size(), 9u);
    }
}

TEST(LimitSearch, OneDeathShowsThatTheTableIsRight) {
    SearchTerms terms{kHopper};
    terms.search = true;
    terms.over = true;
    terms.from = 47 * kKiB;
    terms.to = 228 * kKiB;
    const Searched out = search(terms, {47 * kKiB, 48 * kKiB});
    EXPECT_EQ(out.sizes, (std::vector<uint32_t>{47 * kKiB, 48 * kKiB, 49 * kKiB}));
    EXPECT_EQ(out.found.deaths, 1u);
    EXPECT_EQ(compare(kHopper, out.found, kKiB).agreement, Agreement::kAgrees);
}

TEST(LimitSearch, FindsAnotherLimitWithTheDeathsAllowed) {
    SearchTerms terms{kHopper};
    terms.search = true;
    terms.over = true;
    terms.from = 8 * kKiB;
    terms.to = 228 * kKiB;
    for (uint32_t limit = 8 * kKiB; limit <= 228 * kKiB; limit += kKiB) {
        for (const uint32_t beside : {limit, limit - kKiB}) {
            if (beside < 8 * kKiB) continue;
            const Searched out = search(terms, {beside, limit});
            EXPECT_LE(out.found.deaths, 2u);
            // A death at a harmless size of the table's leaves one for what is below.
            EXPECT_EQ(out.found.largest_running, limit) << beside;
            EXPECT_EQ(compare(kHopper, out.found, kKiB).agreement, limit != 48 * kKiB || beside < 47 * kKiB
                                                                       ? Agreement::kContradicted
                                                                   : beside == 47 * kKiB ? Agreement::kAgrees
                                                                                         : Agreement::kNotContradicted)
                << limit << " " << beside;
        }
    }
}

TEST(LimitSearch, WhatIsUnclearIsTriedOnceMore) {
    LimitSearch search({kHopper});
    EXPECT_EQ(search.next(), 47 * kKiB);
    search.add(47 * kKiB, Outcome::kUnclear);
    EXPECT_EQ(search.next(), 47 * kKiB);
    search.add(47 * kKiB, Outcome::kBeside);
    EXPECT_EQ(search.next(), 48 * kKiB);
    search.add(48 * kKiB, Outcome::kUnclear);
    search.add(48 * kKiB, Outcome::kUnclear);
    EXPECT_EQ(search.next(), std::nullopt);
    EXPECT_EQ(compare(kHopper, search.found(), kKiB).agreement, Agreement::kUnknown);
}

TEST(Compare, EachKindOfContradiction) {
    Found found{.largest_beside = 47 * kKiB, .largest_running = 47 * kKiB};
    found.smallest_dying = 48 * kKiB;
    EXPECT_EQ(compare(kHopper, found, kKiB).agreement, Agreement::kContradicted);
    found = {.largest_beside = 46 * kKiB, .smallest_waiting = 47 * kKiB, .largest_running = 48 * kKiB};
    EXPECT_EQ(compare(kHopper, found, kKiB).agreement, Agreement::kContradicted);
    found = {.largest_beside = 48 * kKiB, .largest_running = 48 * kKiB};
    EXPECT_EQ(compare(kHopper, found, kKiB).agreement, Agreement::kNotContradicted) << "more than is promised";
    EXPECT_NE(compare(kHopper, found, kKiB).text.find("49152 bytes runs beside frames here"), std::string::npos);
    EXPECT_EQ(compare({48 * kKiB, false, 0}, found, kKiB).agreement, Agreement::kNotContradicted);
    found = {.largest_beside = 47 * kKiB, .smallest_waiting = 48 * kKiB, .largest_running = 49 * kKiB};
    EXPECT_EQ(compare(kHopper, found, kKiB).agreement, Agreement::kContradicted);
    EXPECT_EQ(compare(kHopper, {}, kKiB).agreement, Agreement::kUnknown);
}

}  // namespace
}  // namespace vuda::probe
