#include "cli/partition_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/query_commands.h"

namespace vuda::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StatusReply split_status() {
    v1::StatusReply status;
    v1::TsgInfo& tsg = *status.add_tsgs();
    tsg.set_name("game");
    v1::PartitionInfo& partition = *tsg.mutable_partition();
    partition.set_mode(v1::MODE_INTER_SM);
    partition.set_quota_tpcs(3);
    partition.set_applied_tpcs(2);
    partition.add_levels(2);
    partition.add_levels(3);
    partition.set_generation(7);
    partition.set_note("3 is no level");
    for (uint32_t i = 0; i < 5; ++i) {
        v1::Tpc& tpc = *partition.mutable_topology()->add_tpcs();
        tpc.set_gpc(i % 2);
        tpc.set_graphics(i != 2);
        tpc.add_sms(2 * i);
        tpc.add_sms(2 * i + 1);
    }
    return status;
}

TEST(PartitionText, OneLineATsg) {
    EXPECT_EQ(partition_text(split_status()),
              "SPLIT OF  MODE      QUOTA  COMPUTE TPCS  LEVELS  GPU                                  NOTE\n"
              "game      inter-sm      3           2/5  2,3     2 GPCs, 5 TPCs, graphics on 0-1,3-4  3 is no level\n");
}

TEST(PartitionText, NothingKnown) {
    v1::StatusReply status;
    status.add_tsgs()->set_name("old");
    EXPECT_EQ(partition_text(status), "");
    status.mutable_tsgs(0)->mutable_partition()->set_mode(v1::MODE_INTRA_SM);
    const std::string text = partition_text(status);
    EXPECT_THAT(text, HasSubstr("intra-sm"));
    EXPECT_THAT(text, HasSubstr("unknown"));
    EXPECT_THAT(text, HasSubstr(" all "));
}

TEST(PartitionJson, SchemaAsDocumented) {
    const v1::StatusReply status = split_status();
    const Json json = partition_json(status.tsgs(0));
    EXPECT_EQ(json.dump(),
              R"({"mode":"inter-sm","automatic":false,"quota_tpcs":3,"quota_percent":null,"applied_tpcs":2,)"
              R"("compute_percent":null,"frame_us":null,"levels":[2,3],)"
              R"("topology":{"gpcs":2,"tpcs":5,"graphics_tpcs":[0,1,3,4],"tpc":[)"
              R"({"gpc":0,"graphics":true,"sms":[0,1]},{"gpc":1,"graphics":true,"sms":[2,3]},)"
              R"({"gpc":0,"graphics":false,"sms":[4,5]},{"gpc":1,"graphics":true,"sms":[6,7]},)"
              R"({"gpc":0,"graphics":true,"sms":[8,9]}]},"generation":7,"note":"3 is no level"})");
    v1::TsgInfo silent;
    EXPECT_EQ(partition_json(silent), nullptr);
    silent.mutable_partition();
    EXPECT_EQ(partition_json(silent)["topology"], nullptr);
    EXPECT_EQ(partition_json(silent)["quota_tpcs"], nullptr);
    v1::TsgInfo turning;
    v1::PartitionInfo& turns = *turning.mutable_partition();
    turns.set_mode(v1::MODE_SLICED);
    turns.set_quota_percent(40);
    turns.set_compute_percent(40);
    turns.set_frame_us(16670);
    const Json json_of_turns = partition_json(turning);
    EXPECT_EQ(json_of_turns["mode"], "sliced");
    EXPECT_EQ(json_of_turns["quota_percent"], 40);
    EXPECT_EQ(json_of_turns["compute_percent"], 40);
    EXPECT_EQ(json_of_turns["frame_us"], 16670);
    EXPECT_EQ(quota_text(turns), "40%");
    EXPECT_EQ(partition_json(silent)["mode"], "unknown");
}

TEST(PartitionText, Ranges) {
    const auto text = [](std::vector<uint32_t> numbers) { return ranges_text(numbers); };
    EXPECT_EQ(text({}), "");
    EXPECT_EQ(text({5}), "5");
    EXPECT_EQ(text({0, 1, 2, 4, 7, 8}), "0-2,4,7-8");
}

}  // namespace
}  // namespace vuda::cli
