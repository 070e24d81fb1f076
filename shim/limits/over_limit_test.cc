#include "shim/limits/over_limit.h"

#include <gtest/gtest.h>

namespace vuda::limits {
namespace {

TEST(OverLimit, TextBothWays) {
    for (const OverLimit policy : {OverLimit::kReject, OverLimit::kUnshare, OverLimit::kNative})
        EXPECT_EQ(parse_over_limit(over_limit_text(policy)), policy);
    EXPECT_EQ(over_limit_text(OverLimit::kNative), "native");
    EXPECT_EQ(over_limit_text(OverLimit::kUnshare), "unshare");
    EXPECT_EQ(over_limit_text(OverLimit::kReject), "reject");
}

TEST(OverLimit, NothingElseIsAPolicy) {
    for (const char* text : {"", "Native", "native ", " reject", "unshared", "1", "rejec"})
        EXPECT_EQ(parse_over_limit(text), std::nullopt) << text;
    EXPECT_EQ(over_limit_text(static_cast<OverLimit>(0)), "");
    EXPECT_EQ(over_limit_text(static_cast<OverLimit>(4)), "");
}

TEST(OverLimit, NumbersAreThoseOfTheWire) {
    EXPECT_EQ(static_cast<uint32_t>(OverLimit::kReject), 1u);
    EXPECT_EQ(static_cast<uint32_t>(OverLimit::kUnshare), 2u);
    EXPECT_EQ(static_cast<uint32_t>(OverLimit::kNative), 3u);
    EXPECT_EQ(kDefaultOverLimit, OverLimit::kNative);
}

TEST(OverLimit, WhatWasChosenByAnotherNumberThanTheGpusRunsNowhere) {
    EXPECT_EQ(over_limit_of(OverLimit::kNative, true), OverLimit::kReject);
    EXPECT_EQ(over_limit_of(OverLimit::kUnshare, true), OverLimit::kUnshare);
    EXPECT_EQ(over_limit_of(OverLimit::kReject, true), OverLimit::kReject);
    for (const OverLimit policy : {OverLimit::kReject, OverLimit::kUnshare, OverLimit::kNative})
        EXPECT_EQ(over_limit_of(policy, false), policy);
}

}  // namespace
}  // namespace vuda::limits
