#include "cli/slo_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

using ::testing::HasSubstr;

v1::StatusReply tuned() {
    v1::StatusReply status;
    v1::TsgInfo& tsg = *status.add_tsgs();
    tsg.set_name("game");
    tsg.mutable_partition()->set_automatic(true);
    v1::SloInfo& slo = *tsg.mutable_slo();
    slo.set_regime("both");
    slo.set_automatic(true);
    slo.set_level_tpcs(33);
    slo.set_last_change("compute TPCs 53 -> 33: because\x1b");
    v1::SloTarget& frame = *slo.add_targets();
    frame.set_kind(v1::SLO_KIND_FRAME);
    frame.set_state(v1::SLO_STATE_MEETING);
    frame.set_bound(16.67);
    frame.set_allowed_miss(0.01);
    frame.set_attained(12.43);
    frame.set_miss(0.002);
    frame.set_margin(0.2543);
    frame.set_samples(600);
    v1::SloTarget& floor = *slo.add_targets();
    floor.set_kind(v1::SLO_KIND_THROUGHPUT);
    floor.set_session_id(7);
    floor.set_state(v1::SLO_STATE_NO_DATA);
    floor.set_bound(500);
    return status;
}

TEST(SloText, OneLineATarget) {
    EXPECT_EQ(slo_text(tuned()),
              "TARGET OF  WHO        BOUND      MAY MISS  ATTAINED  MISSED  MARGIN  STATE\n"
              "game       frames     16.67 ms   1%        12.43 ms  0.2%    25.4%   meeting\n"
              "game       session 7  >= 500 /s  -         -         -       -       no data\n");
    EXPECT_EQ(slo_text(v1::StatusReply()), "");
}

TEST(SloText, OfOneTsgWithTheReason) {
    v1::TsgInfo tsg = tuned().tsgs(0);
    EXPECT_THAT(slo_text(tsg), HasSubstr("game: compute has 33 TPCs\nlast change: compute TPCs 53 -> 33: because?\n"));
    tsg.mutable_slo()->set_infeasible(true);
    tsg.mutable_slo()->set_holding(true);
    EXPECT_THAT(slo_text(tsg),
                HasSubstr("33 TPCs, the best compromise: no level holds all targets; waits for samples"));
    tsg.mutable_slo()->set_automatic(false);
    tsg.mutable_partition()->set_automatic(false);
    tsg.mutable_partition()->set_quota_tpcs(24);
    EXPECT_THAT(slo_text(tsg), HasSubstr("game: the quota is fixed at 24 TPCs; vudactl quota game auto"));
    tsg.clear_partition();
    EXPECT_THAT(slo_text(tsg), HasSubstr("game: nothing is tuned\n"));
    tsg.clear_slo();
    EXPECT_EQ(slo_text(tsg), "game: no targets\n");
}

TEST(SloText, SharesWhereThereAreSeveral) {
    v1::TsgInfo tsg = tuned().tsgs(0);
    v1::SloShare& one = *tsg.mutable_slo()->add_shares();
    one.set_session_id(7);
    one.set_weight(2);
    one.set_tpcs(22);
    EXPECT_THAT(slo_text(tsg), testing::Not(HasSubstr("weight"))) << "the only one has all";
    v1::SloShare& other = *tsg.mutable_slo()->add_shares();
    other.set_session_id(8);
    other.set_weight(1);
    other.set_tpcs(33);
    other.set_idle(true);
    EXPECT_THAT(slo_text(tsg),
                HasSubstr("session 7: 22 TPCs, weight 2\nsession 8: idle, may use all, weight 1\nlast change"));
    EXPECT_EQ(slo_json(tsg)["shares"][0]["tpcs"], 22);
    EXPECT_EQ(slo_json(tsg)["shares"][1]["idle"], true);
}

TEST(SloJson, HasTheNumbers) {
    const v1::StatusReply status = tuned();
    const Json json = status_json(status)["tsgs"][0]["slo"];
    EXPECT_EQ(json["level_tpcs"], 33);
    EXPECT_EQ(json["targets"][0]["kind"], "frame");
    EXPECT_EQ(json["targets"][0]["session"], nullptr);
    EXPECT_EQ(json["targets"][0]["attained"], 12.43);
    EXPECT_EQ(json["targets"][1]["attained"], nullptr);
    EXPECT_EQ(json["targets"][1]["state"], "no data");
    EXPECT_EQ(slo_json(v1::TsgInfo()), nullptr);
}

TEST(SloStates, MissedWhereNothingIsTuned) {
    EXPECT_EQ(slo_state_name(v1::SLO_STATE_INFEASIBLE, true), "infeasible");
    EXPECT_EQ(slo_state_name(v1::SLO_STATE_INFEASIBLE, false), "missed");
    EXPECT_EQ(slo_state_name(v1::SLO_STATE_MEETING, false), "meeting");
    EXPECT_EQ(slo_state_name(static_cast<v1::SloState>(99), true), "unknown");
}

TEST(SloFractions, PlainOrPercent) {
    EXPECT_DOUBLE_EQ(*parse_fraction("0.01"), 0.01);
    EXPECT_DOUBLE_EQ(*parse_fraction("1%"), 0.01);
    EXPECT_DOUBLE_EQ(*parse_fraction("0"), 0);
    EXPECT_DOUBLE_EQ(*parse_fraction("100%"), 1);
    for (const char* bad : {"", "%", "2", "-0.1", "101%", "nan", "inf", "1 %", "1%%", "0,5", "x", " 1%"})
        EXPECT_FALSE(parse_fraction(bad).ok()) << bad;
}

TEST(SloEvents, FieldsAndNoPeer) {
    v1::Event event;
    event.set_monotonic_us(12'000'042);
    event.set_kind("tuner-level");
    event.set_name("game");
    event.mutable_reason()->set_text("compute TPCs 53 -> 33: because");
    (*event.mutable_fields())["VUDA_OLD_TPCS"] = "53";
    EXPECT_EQ(event_text(event), "12.000042 tuner-level game: compute TPCs 53 -> 33: because\n");
    EXPECT_EQ(event_json(event)["fields"]["VUDA_OLD_TPCS"], "53");
    EXPECT_EQ(event_json(event)["peer"], nullptr);
}

}  // namespace
}  // namespace vuda::cli
