#include "client/backoff.h"

#include <gtest/gtest.h>

#include <array>

namespace vuda::client {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, DoublesUpToItsLastAndStaysThere) {
    Backoff backoff([] { return 1023u; });
    for (const auto wanted : {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms, 2000ms})
        EXPECT_EQ(backoff.next(), wanted);
    backoff.reset();
    EXPECT_EQ(backoff.next(), 50ms);
}

TEST(Backoff, NeverShorterThanHalf) {
    Backoff backoff([] { return 0u; });
    for (const auto wanted : {25ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms})
        EXPECT_EQ(backoff.next(), wanted);
}

// A daemon that comes back meets its clients one after the other, not all at once: none of the ten parts of the span
// gets more than twice its share.
TEST(Backoff, AThousandProgramsSpread) {
    for (const int failures : {1, 3, 8}) {
        std::array<int, 10> parts{};
        std::chrono::microseconds shortest = 1h;
        std::chrono::microseconds longest = 0ms;
        for (unsigned pid = 1000; pid < 2000; ++pid) {
            std::minstd_rand random(pid);
            Backoff backoff([&] { return static_cast<uint32_t>(random()); });
            std::chrono::microseconds wait{};
            for (int i = 0; i < failures; ++i) wait = backoff.next();
            const std::chrono::microseconds whole = std::min<std::chrono::microseconds>(25ms * (1 << failures), 2000ms);
            ASSERT_GE(wait, whole / 2);
            ASSERT_LE(wait, whole);
            const auto part = 10 * (wait - whole / 2) / (whole / 2 + 1us);
            ++parts[static_cast<size_t>(part)];
            shortest = std::min(shortest, wait);
            longest = std::max(longest, wait);
        }
        for (const int count : parts) EXPECT_LT(count, 200) << failures;
        EXPECT_GT(longest, shortest * 18 / 10) << failures;
    }
}

}  // namespace
}  // namespace vuda::client
