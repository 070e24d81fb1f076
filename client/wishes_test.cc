#include "client/wishes.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "client/names.h"
#include "vuda/vuda.h"

namespace vuda::client {
namespace {

class WishesTest : public testing::Test {
 protected:
    void SetUp() override { clear(); }
    void TearDown() override { clear(); }

    Wishes wishes_;

 private:
    static void clear() {
        for (const char* name : {"VUDA_REGISTER", "VUDA_ATTACH", "VUDA_RESERVE", "VUDA_SHARE", "VUDA_REQUIRE",
                                 "VUDA_ALLOW_UIDS", "VUDA_ALLOW_GIDS", "VUDA_OVER_LIMIT"})
            unsetenv(name);
    }
};

TEST_F(WishesTest, NothingByDefault) {
    const vuda_private_wishes got = wishes_.get();
    EXPECT_STREQ(got.register_name, "");
    EXPECT_STREQ(got.attach_name, "");
    EXPECT_EQ(got.reserve, VUDA_ALL_CHANNELS);
    EXPECT_EQ(got.share_in_process, 0);
    EXPECT_EQ(got.require, 0);
}

TEST_F(WishesTest, TheProgramWinsOverTheEnvironment) {
    setenv("VUDA_REGISTER", "env-name", 1);
    setenv("VUDA_ATTACH", "env-host", 1);
    setenv("VUDA_RESERVE", "4", 1);
    setenv("VUDA_SHARE", "1", 1);
    setenv("VUDA_REQUIRE", "1", 1);
    vuda_private_wishes got = wishes_.get();
    EXPECT_STREQ(got.register_name, "env-name");
    EXPECT_STREQ(got.attach_name, "env-host");
    EXPECT_EQ(got.reserve, 4u);
    EXPECT_EQ(got.share_in_process, 1);
    EXPECT_EQ(got.require, 1);

    wishes_.set_register("mine");
    wishes_.set_reserve(2);
    got = wishes_.get();
    EXPECT_STREQ(got.register_name, "mine");
    EXPECT_STREQ(got.attach_name, "env-host");
    EXPECT_EQ(got.reserve, 2u);

    wishes_.clear();
    got = wishes_.get();
    EXPECT_STREQ(got.register_name, "");
    EXPECT_STREQ(got.attach_name, "");
    EXPECT_EQ(got.share_in_process, 0);
    EXPECT_EQ(got.require, 1);  // how failures are taken is the operator's choice

    wishes_.set_attach("later");
    EXPECT_STREQ(wishes_.get().attach_name, "later");
}

TEST_F(WishesTest, WhatBecomesOfKernelsThatAreTooLarge) {
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kNative);
    setenv("VUDA_OVER_LIMIT", "unshare", 1);
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kUnshare);
    wishes_.set_over_limit(limits::OverLimit::kReject);
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kReject) << "the program's word goes first";
    wishes_.clear();
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kNative);
}

TEST_F(WishesTest, OutOfItsOwnTsg) {
    setenv("VUDA_SHARE", "1", 1);
    wishes_.set_reserve(4);
    EXPECT_EQ(wishes_.get().share_in_process, 1);
    wishes_.keep_apart();
    EXPECT_EQ(wishes_.get().share_in_process, 0);
    EXPECT_EQ(wishes_.get().reserve, 4u);
}

TEST_F(WishesTest, APolicyThatIsNone) {
    setenv("VUDA_OVER_LIMIT", "", 1);
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kNative) << "said nothing";
    setenv("VUDA_OVER_LIMIT", "nativ", 1);
    const Result<limits::OverLimit> wrong = wishes_.over_limit();
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code, Code::kInvalidArgument);
    EXPECT_NE(wrong.error().text.find("VUDA_OVER_LIMIT='nativ'"), std::string::npos) << wrong.error().text;
    wishes_.set_over_limit(limits::OverLimit::kReject);
    EXPECT_EQ(*wishes_.over_limit(), limits::OverLimit::kReject);
}

TEST_F(WishesTest, WhoElseMayAttach) {
    EXPECT_EQ(*wishes_.allowed(), AllowList{});
    setenv("VUDA_ALLOW_UIDS", "1000,1001", 1);
    setenv("VUDA_ALLOW_GIDS", "44", 1);
    EXPECT_EQ(*wishes_.allowed(), (AllowList{{1000, 1001}, {44}}));
    wishes_.set_allowed(AllowList{{}, {7}});
    EXPECT_EQ(*wishes_.allowed(), (AllowList{{}, {7}})) << "not in addition to the environment's";
    wishes_.set_allowed(AllowList{});
    EXPECT_EQ(*wishes_.allowed(), AllowList{});
    wishes_.set_allowed(std::nullopt);
    EXPECT_EQ(*wishes_.allowed(), (AllowList{{1000, 1001}, {44}}));

    setenv("VUDA_ALLOW_GIDS", "render", 1);
    EXPECT_FALSE(wishes_.allowed());
    wishes_.set_allowed(AllowList{{9}, {}});
    EXPECT_TRUE(wishes_.allowed());
    wishes_.clear();
    EXPECT_EQ(*wishes_.allowed(), AllowList{});
}

TEST_F(WishesTest, ReserveAloneSharesInTheProcess) {
    wishes_.set_reserve(3);
    EXPECT_EQ(wishes_.get().share_in_process, 1);
    wishes_.set_attach("host");
    EXPECT_EQ(wishes_.get().share_in_process, 0);
    EXPECT_EQ(wishes_.get().reserve, 3u);
}

TEST_F(WishesTest, ATooLongNameIsNeverCutIntoAnotherName) {
    setenv("VUDA_ATTACH", std::string(65, 'a').c_str(), 1);
    EXPECT_FALSE(valid_name(wishes_.get().attach_name));
    EXPECT_STRNE(wishes_.get().attach_name, "");
    setenv("VUDA_ATTACH", std::string(64, 'a').c_str(), 1);
    EXPECT_TRUE(valid_name(wishes_.get().attach_name));
}

TEST_F(WishesTest, ReserveText) {
    EXPECT_EQ(parse_reserve("all"), VUDA_ALL_CHANNELS);
    EXPECT_EQ(parse_reserve("1"), 1u);
    EXPECT_EQ(parse_reserve("128"), 128u);
    for (const char* bad : {"", "0", "129", "-1", "4294967295", "99999999999", "3x", " 3", "ALL"}) {
        EXPECT_FALSE(parse_reserve(bad)) << bad;
    }
    setenv("VUDA_RESERVE", "many", 1);
    EXPECT_EQ(wishes_.get().reserve, VUDA_ALL_CHANNELS);
}

TEST(Names, Rule) {
    EXPECT_TRUE(valid_name("a"));
    EXPECT_TRUE(valid_name("Game_1.x-y"));
    EXPECT_TRUE(valid_name(std::string(64, 'z')));
    for (const std::string bad : {"", ".a", "-a", "a b", "a/b", "a\n", "\xc3\xa4"})
        EXPECT_FALSE(valid_name(bad)) << bad;
    EXPECT_FALSE(valid_name(std::string(65, 'z')));
    EXPECT_EQ(plain_text("a\x1b[31m\xc3\xa4", 6), "a?[31m");
}

}  // namespace
}  // namespace vuda::client
