#include "client/allow_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string numbers(size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + std::to_string(1000 + i);
    return text;
}

TEST(AllowList, Ids) {
    EXPECT_THAT(*parse_ids("V", ""), IsEmpty());
    EXPECT_THAT(*parse_ids("V", "0"), ElementsAre(0u));
    EXPECT_THAT(*parse_ids("V", "1000,44,4294967294"), ElementsAre(1000u, 44u, 4294967294u));
    EXPECT_EQ(parse_ids("V", numbers(kAllowLimit))->size(), kAllowLimit);
}

TEST(AllowList, WhatIsNoListIsAnErrorThatShowsIt) {
    for (const char* bad : {",", "1,", ",1", "1,,2", " 1", "1 ", "1, 2", "1;2", "+1", "-1", "0x10", "alice", "1000x",
                            "*", "4294967295", "4294967296", "99999999999999999999", "1\n", "\xff"}) {
        const auto ids = parse_ids("VUDA_ALLOW_UIDS", bad);
        ASSERT_FALSE(ids) << bad;
        EXPECT_EQ(ids.error().code, Code::kInvalidArgument);
        EXPECT_THAT(ids.error().text, HasSubstr("VUDA_ALLOW_UIDS='"));
        EXPECT_EQ(ids.error().text.find('\n'), std::string::npos);
    }
    const auto many = parse_ids("VUDA_ALLOW_UIDS", numbers(kAllowLimit + 1));
    ASSERT_FALSE(many);
    EXPECT_THAT(many.error().to_string(), HasSubstr("more than 64 ids; allow a group instead"));
}

TEST(AllowList, AMistakeInOneListVoidsBoth) {
    EXPECT_FALSE(parse_allow_list("1000", "render"));
    EXPECT_FALSE(parse_allow_list("alice", "44"));
    const auto both = parse_allow_list("1000,1001", "44");
    ASSERT_TRUE(both);
    EXPECT_EQ(*both, (AllowList{{1000, 1001}, {44}}));
}

TEST(AllowList, Limits) {
    AllowList list;
    EXPECT_TRUE(check_allow_list(list));
    list.uids.assign(kAllowLimit, 7);
    list.gids.assign(kAllowLimit, 7);
    EXPECT_TRUE(check_allow_list(list));
    list.gids.push_back(7);
    EXPECT_THAT(check_allow_list(list).error().text, HasSubstr("the list of groups has more than 64 ids"));
    list = {{UINT32_MAX}, {}};
    EXPECT_THAT(check_allow_list(list).error().text, HasSubstr("nobody's id"));
}

}  // namespace
}  // namespace vuda::client
