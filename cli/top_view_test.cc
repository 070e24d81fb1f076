#include "cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace vuda::cli {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::ResultOf;
using namespace std::chrono_literals;

constexpr const char* kMetrics =
    "vuda_session_sample_rate{session=\"1\",name=\"game\",kind=\"interval\"} 99\n"
    "vuda_session_sample_rate{session=\"1\",name=\"game\",kind=\"frame\"} 59.94\n"
    "vuda_session_sample_seconds{session=\"1\",name=\"game\",kind=\"frame\",quantile=\"0.5\"} 0.0161\n"
    "vuda_session_sample_seconds{session=\"1\",name=\"game\",kind=\"frame\",quantile=\"0.99\"} 0.0203\n"
    "vuda_session_sample_rate{session=\"2\",name=\"game\",kind=\"step\"} 1387\n"
    "vuda_session_sample_seconds{session=\"2\",name=\"game\",kind=\"step\",quantile=\"0.99\"} 0.00073\n";

v1::StatusReply status(uint64_t launches) {
    v1::StatusReply out;
    out.mutable_daemon()->set_version("0.1.0");
    out.mutable_daemon()->set_uptime_ms(61000);
    out.mutable_daemon()->set_simulated(true);
    v1::TsgInfo& tsg = *out.add_tsgs();
    tsg.set_name("game");
    tsg.mutable_owner()->set_program("renderer");
    tsg.mutable_owner()->set_pid(100);
    tsg.set_channels(10);
    tsg.add_attached_sessions(2);
    tsg.mutable_partition()->set_mode(v1::MODE_INTER_SM);
    tsg.mutable_partition()->set_applied_tpcs(64);
    const auto add = [&out](uint64_t id, const char* program, v1::SharingState state) {
        v1::SessionInfo& session = *out.add_sessions();
        session.set_session_id(id);
        session.mutable_peer()->set_program(program);
        session.mutable_peer()->set_pid(static_cast<uint32_t>(100 * id));
        session.set_state(state);
        session.set_name("game");
        return &session;
    };
    add(1, "renderer", v1::SHARING_STATE_REGISTERED);
    add(2, "infer", v1::SHARING_STATE_SHARING)->set_launches(launches);
    return out;
}

size_t width_of(const std::string& line) { return line.size(); }  // the lines here are ASCII

TEST(TopView, ShowsSplitRatesAndLatencies) {
    TopView view;
    const TopView::Clock::time_point start{};
    view.update(status(1000), kMetrics, start + 1s);
    EXPECT_THAT(view.text(),
                HasSubstr("vudad 0.1.0, up 1 min 1 s, GPU simulated\n1 TSGs, 2 programs, 1 sharing; by session\n"));
    EXPECT_THAT(view.text(),
                HasSubstr("game             renderer       100       10/128        1 inter-sm  none  64 TPC\n"));
    EXPECT_THAT(view.text(),
                HasSubstr("   1 renderer       100     registered game          59.9   16.1   20.3        -\n"));
    EXPECT_THAT(view.text(),
                HasSubstr("   2 infer          200     sharing    game          1387      -   0.73        -\n"));
    view.update(status(4000), kMetrics, start + 3s);
    EXPECT_THAT(view.text(),
                HasSubstr("   2 infer          200     sharing    game          1387      -   0.73     1500\n"));
}

TEST(TopView, FitsEightyColumnsAndTheHeight) {
    TopView view;
    v1::StatusReply crowd = status(0);
    for (uint64_t id = 3; id < 100; ++id) {
        v1::SessionInfo& session = *crowd.add_sessions();
        session.set_session_id(id);
        session.set_name(std::string(64, 'n'));
        session.mutable_peer()->set_program(std::string(64, 'p'));
        session.mutable_peer()->set_pid(4194304);
        session.set_state(v1::SHARING_STATE_REGISTERED);
    }
    crowd.mutable_tsgs(0)->set_name(std::string(64, 'n'));
    crowd.mutable_tsgs(0)->mutable_owner()->set_program(std::string(64, 'p'));
    view.update(crowd, kMetrics, {});
    for (const size_t height : {1u, 2u, 3u, 5u, 24u, 200u}) {
        const std::vector<std::string> lines = view.lines(80, height);
        EXPECT_LE(lines.size(), height);
        EXPECT_THAT(lines, Each(ResultOf(width_of, Le(80u))));
    }
    EXPECT_THAT(view.lines(80, 24)[22], HasSubstr("more lines"));
    // Nothing needs more than 80.
    EXPECT_EQ(view.lines(80, 200), view.lines(1000, 200));
    EXPECT_THAT(view.lines(10, 24), Each(ResultOf(width_of, Le(10u))));
}

TEST(TopView, ShowsTargetsBetweenTheTables) {
    TopView view;
    v1::StatusReply tuned = status(0);
    v1::SloInfo& slo = *tuned.mutable_tsgs(0)->mutable_slo();
    slo.set_automatic(true);
    v1::SloTarget& target = *slo.add_targets();
    target.set_kind(v1::SLO_KIND_FRAME);
    target.set_state(v1::SLO_STATE_INFEASIBLE);
    target.set_bound(16.67);
    target.set_attained(19.2);
    target.set_miss(0.12);
    target.set_margin(-0.152);
    target.set_samples(600);
    view.update(tuned, kMetrics, {});
    EXPECT_THAT(view.text(),
                HasSubstr("game             frames       16.67 ms     19.2 ms         12% -15.2% infeasible\n"));
    EXPECT_THAT(view.text(), testing::Not(HasSubstr("  game: ")));
    slo.set_last_change(
        "compute TPCs 44 -> 33: 3 of 5 frames over 16.67 ms (1% may be), median 19.2 ms, 14.1 ms expected\x1b");
    view.update(tuned, kMetrics, {});
    EXPECT_THAT(view.text(), HasSubstr("infeasible\n  game: compute TPCs 44 -> 33: 3 of 5 frames over 16.67 ms"));
    EXPECT_THAT(view.text(), testing::Not(HasSubstr("\x1b")));
    EXPECT_THAT(view.lines(80, 40), Each(ResultOf(width_of, Le(80u))));
}

TEST(TopView, SortsAndTurns) {
    TopView view;
    view.update(status(0), kMetrics, {});
    const auto first = [&view] {
        const std::string text = view.text();
        return text.find(" 1 renderer ") < text.find(" 2 infer ") ? "renderer" : "infer";
    };
    EXPECT_STREQ(first(), "renderer");
    view.next_sort();  // program
    EXPECT_STREQ(first(), "infer");
    view.turn_order();
    EXPECT_STREQ(first(), "renderer");
    view.next_sort();  // state: registered before sharing
    EXPECT_STREQ(first(), "renderer");
    view.next_sort();  // name: equal, so the order stays
    EXPECT_STREQ(first(), "renderer");
    view.next_sort();  // rate, most first
    EXPECT_STREQ(first(), "infer");
    view.next_sort();  // p99, most first
    EXPECT_STREQ(first(), "renderer");
    view.next_sort();
    view.next_sort();
    EXPECT_THAT(view.text(), HasSubstr("by session\n"));
}

TEST(TopView, ShowsNewestEventsWhereThereIsRoom) {
    TopView view;
    view.update(status(0), "", {});
    for (int i = 0; i < 100; ++i) {
        v1::Event event;
        event.set_kind("attach");
        event.set_session_id(static_cast<uint64_t>(i));
        view.event(event);
    }
    const std::vector<std::string> lines = view.lines(80, 16);
    ASSERT_EQ(lines.size(), 16u);
    EXPECT_THAT(lines[14], HasSubstr("session 99"));
    EXPECT_THAT(lines[15], HasSubstr("q quit"));
}

TEST(TopView, TroubleIsSaidAndTheTablesStay) {
    TopView view;
    EXPECT_THAT(view.text(), HasSubstr("waiting for vudad"));
    view.update(status(0), "", {});
    view.set_trouble("vudad does\x1b not answer");
    EXPECT_THAT(view.text(), HasSubstr("vudad does? not answer"));
    EXPECT_THAT(view.text(), HasSubstr("infer"));
    view.set_trouble("");
    EXPECT_THAT(view.text(), Not(HasSubstr("answer")));
}

TEST(TopView, CutsBetweenCharacters) {
    EXPECT_EQ(cut_to_width("a\xc3\xa4"
                           "b",
                           2),
              "a\xc3\xa4");
    EXPECT_EQ(cut_to_width("a\xc3\xa4"
                           "b",
                           1),
              "a");
    EXPECT_EQ(cut_to_width("ab", 0), "");
    EXPECT_EQ(cut_to_width("ab", 9), "ab");
}

}  // namespace
}  // namespace vuda::cli
