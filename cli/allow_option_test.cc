#include "cli/allow_option.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>

namespace vuda::cli {
namespace {

using testing::HasSubstr;

TEST(AllowOption, NamesAndNumbersBecomeAListOfNumbers) {
    EXPECT_EQ(*ids_of_users({}), "");
    EXPECT_EQ(*ids_of_users({"root"}), "0");
    EXPECT_EQ(*ids_of_users({"1001", "root", "4294967294", "0"}), "1001,0,4294967294") << "each once";
    EXPECT_EQ(*ids_of_groups({"root", "44"}), "0,44");
    // Whatever their numbers are on this machine.
    if (const passwd* user = getpwnam("nobody")) {
        EXPECT_EQ(*ids_of_users({"nobody"}), std::to_string(user->pw_uid));
    }
    if (const group* found = getgrnam("video")) {
        EXPECT_EQ(*ids_of_groups({"video"}), std::to_string(found->gr_gid));
    }
}

TEST(AllowOption, WhatIsNeitherIsNamed) {
    const auto unknown = ids_of_users({"root", "no-such-user"});
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, Code::kInvalidArgument);
    EXPECT_EQ(unknown.error().text, "--allow-user: 'no-such-user' is no user");
    EXPECT_THAT(ids_of_groups({"no-such-group"}).error().text, HasSubstr("--allow-group: 'no-such-group' is no group"));
    for (const char* bad : {"", " 1", "-1", "+1", "1,2", "1x", "root ", "4294967295", "4294967296", "a:b", "*"}) {
        EXPECT_FALSE(ids_of_users({bad})) << bad;
        EXPECT_FALSE(ids_of_groups({bad})) << bad;
    }
    EXPECT_THAT(ids_of_users({"4294967295"}).error().text, HasSubstr("is no number of a user"));
    EXPECT_EQ(ids_of_users({"a\033[31m"}).error().text.find('\033'), std::string::npos);
}

TEST(AllowOption, Limit) {
    std::vector<std::string> words;
    for (int i = 0; i < 64; ++i) words.push_back(std::to_string(2000 + i));
    EXPECT_TRUE(ids_of_users(words));
    words.emplace_back("2000");
    EXPECT_TRUE(ids_of_users(words)) << "a repetition is not one more";
    words.emplace_back("2064");
    EXPECT_THAT(ids_of_users(words).error().to_string(), HasSubstr("more than 64 users; allow a group"));
}

}  // namespace
}  // namespace vuda::cli
