#include "cli/query_commands.h"

#include <gtest/gtest.h>

#include "cli/fake_daemon.h"
#include "cli/status_view.h"

namespace vuda::cli {
namespace {

TEST(QueryCommands, StatusAndErrorsHaveTheirExitCodes) {
    const FakeDaemon daemon;
    testing::internal::CaptureStdout();
    EXPECT_EQ(status_command(daemon.socket(), true), 0);
    EXPECT_EQ(Json::parse(testing::internal::GetCapturedStdout())["daemon"]["version"], "9.9");

    testing::internal::CaptureStdout();
    EXPECT_EQ(status_command(daemon.socket() + ".none", true), 69);
    EXPECT_EQ(Json::parse(testing::internal::GetCapturedStdout())["error"]["code"], "UNAVAILABLE");

    testing::internal::CaptureStderr();
    EXPECT_EQ(quota_command(daemon.socket(), {}), 69);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "vudactl: no partitioner in this daemon\n");
}

TEST(QueryCommands, WatchPrintsEventsUntilTheDaemonEnds) {
    FakeDaemon daemon;
    v1::Event event;
    event.set_kind("attach");
    event.set_name("game");
    daemon.send(event);
    daemon.end_watch();
    testing::internal::CaptureStdout();
    EXPECT_EQ(watch_command(daemon.socket(), true), 0);
    EXPECT_EQ(Json::parse(testing::internal::GetCapturedStdout())["name"], "game");
}

TEST(QueryCommands, DriverListNamesEveryRow) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(driver_list_command(true), 0);
    const Json json = Json::parse(testing::internal::GetCapturedStdout());
    EXPECT_EQ(json["schema"], 1);
    EXPECT_FALSE(json["drivers"].empty());
    testing::internal::CaptureStdout();
    EXPECT_EQ(driver_list_command(false), 0);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("580.159.04"), text.npos);
    EXPECT_NE(text.find("supported"), text.npos);
}

TEST(QueryCommands, QuotaAndModeWords) {
    EXPECT_EQ(parse_quota("game", "24")->tpcs(), 24u);
    EXPECT_TRUE(parse_quota("game", "auto")->automatic());
    EXPECT_TRUE(parse_quota("game", "none")->none());
    EXPECT_EQ(parse_quota("game", "none")->name(), "game");
    for (const char* bad :
         {"", "0", "-1", "-0", "+8", "1.5", "24x", "0x18", "1e1", "nan", "inf", "AUTO", " 8", "99999999999"}) {
        EXPECT_EQ(parse_quota("game", bad).error().code, Code::kInvalidArgument) << bad;
    }
    EXPECT_EQ(*parse_mode("inter-sm"), v1::MODE_INTER_SM);
    EXPECT_EQ(*parse_mode("intra-sm"), v1::MODE_INTRA_SM);
    EXPECT_EQ(*parse_mode("sliced"), v1::MODE_SLICED);
    EXPECT_FALSE(parse_mode("").ok());
}

}  // namespace
}  // namespace vuda::cli
