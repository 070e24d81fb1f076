#include "shim/limits/scg_limit.h"

#include <gtest/gtest.h>

#include <utility>

namespace vuda::limits {
namespace {

TEST(ScgLimit, HopperIsMeasuredBothWays) {
    const ScgLimit hopper = scg_limit(9, 0);
    EXPECT_TRUE(hopper.measured);
    EXPECT_GE(hopper.bytes, 49'152u) << "seen to run";
    EXPECT_LT(hopper.bytes, 50'176u) << "seen to end both programs";
    EXPECT_EQ(hopper.beside, 48'128u) << "49,152 was seen to wait";
}

TEST(ScgLimit, WhatIsNotKnownGetsTheLowest) {
    for (const auto& [major, minor] :
         {std::pair{7, 0}, {7, 5}, {8, 6}, {8, 9}, {9, 9}, {10, 0}, {12, 1}, {0, 0}, {-1, -1}}) {
        EXPECT_EQ(scg_limit(major, minor).bytes, 48u * 1024) << major << "." << minor;
        EXPECT_FALSE(scg_limit(major, minor).measured);
        EXPECT_EQ(scg_limit(major, minor).beside, 0u) << "nobody looked";
    }
}

}  // namespace
}  // namespace vuda::limits
