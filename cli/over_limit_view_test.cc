#include "cli/over_limit_view.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

v1::SessionInfo& compute(v1::StatusReply& status) {
    v1::SessionInfo& session = *status.add_sessions();
    session.set_session_id(7);
    session.set_shared_memory_limit(49'152);
    session.set_over_limit(v1::OVER_LIMIT_NATIVE);
    return session;
}

TEST(OverLimitView, NothingToSay) {
    v1::StatusReply status;
    EXPECT_EQ(over_limit_text(status), "");
    compute(status);
    EXPECT_EQ(over_limit_text(status), "") << "the default, and no such kernel";
    status.add_sessions()->set_session_id(8);
    EXPECT_EQ(over_limit_text(status), "") << "a program that never said";
}

TEST(OverLimitView, WhatBecameOfThem) {
    v1::StatusReply status;
    compute(status).set_launches_native(12);
    EXPECT_EQ(over_limit_text(status),
              "session 7, kernels too large to share (over 49152 bytes a block): 12 ran native, 0 refused, policy "
              "native\n");
    status.mutable_sessions(0)->set_launches_native(0);
    status.mutable_sessions(0)->set_launches_refused(3);
    status.mutable_sessions(0)->set_native_reason("no second TSG\nhere");
    EXPECT_EQ(over_limit_text(status),
              "session 7, kernels too large to share (over 49152 bytes a block): 3 refused, policy native: no second "
              "TSG?here\n");
}

TEST(OverLimitView, AChoiceIsShown) {
    v1::StatusReply status;
    compute(status).set_over_limit(v1::OVER_LIMIT_UNSHARE);
    status.mutable_sessions(0)->set_shared_memory_limit(0);
    EXPECT_EQ(over_limit_text(status), "session 7, kernels too large to share: 0 refused, policy unshare\n");
}

TEST(OverLimitView, WhoRunsUnsharedForAWhile) {
    v1::StatusReply status;
    EXPECT_EQ(unfit_text(status), "");
    v1::Unfit& one = *status.add_unfit();
    one.set_name("game");
    one.set_program("/usr/bin/python3");
    one.set_uid(1000);
    one.set_bytes(65'536);
    one.set_limit(49'152);
    one.set_times(2);
    one.set_age_ms(12'000);
    one.set_left_ms(588'001);
    one.set_fitted(true);
    EXPECT_EQ(unfit_text(status),
              "UNSHARED FROM  PROGRAM                     WANTS, BYTES A BLOCK  CAN SHARE  WHEN      TIMES  MAY COME "
              "BACK\n"
              "game           /usr/bin/python3, uid 1000                 65536      49152  12 s ago      2  in 9 min "
              "49 s\n");
    const Json json = unfit_json(one);
    EXPECT_EQ(json["name"], "game");
    EXPECT_EQ(json["program"], "/usr/bin/python3");
    EXPECT_EQ(json["uid"], 1000);
    EXPECT_EQ(json["bytes"], 65'536);
    EXPECT_EQ(json["limit"], 49'152);
    EXPECT_EQ(json["fitted"], true);
    EXPECT_EQ(json["times"], 2);
    EXPECT_EQ(json["age_ms"], 12'000);
    EXPECT_EQ(json["left_ms"], 588'001);
    EXPECT_EQ(status_json(status)["unfit"].size(), 1u);
    EXPECT_NE(status_text(status).find("UNSHARED FROM"), std::string::npos);
}

TEST(OverLimitView, OfAnOlderLibrary) {
    v1::StatusReply status;
    compute(status).set_over_limit(v1::OVER_LIMIT_UNSPECIFIED);
    status.mutable_sessions(0)->set_launches_refused(1);
    EXPECT_EQ(over_limit_text(status), "session 7, kernels too large to share (over 49152 bytes a block): 1 refused\n");
    EXPECT_EQ(over_limit_name(v1::OVER_LIMIT_UNSPECIFIED), "");
    EXPECT_EQ(over_limit_name(v1::OVER_LIMIT_REJECT), "reject");
}

}  // namespace
}  // namespace vuda::cli
