#include "cli/metrics_text.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

TEST(MetricsText, ReadsSamplesAndSkipsTheRest) {
    const auto samples = parse_metrics(
        "# HELP a Things.\n# TYPE a gauge\na 1\nb{x=\"1\",y=\"q\\\"\\\\\\n\"} 2.5e-3\n\nnonsense\nc{open=\"1 "
        "3\nd{x=\"1\"}4\ne nine\nf 7");
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_EQ(samples[0].name, "a");
    EXPECT_EQ(samples[0].value, 1);
    EXPECT_EQ(samples[1].label("x"), "1");
    EXPECT_EQ(samples[1].label("y"), "q\"\\\n");
    EXPECT_EQ(samples[1].label("z"), "");
    EXPECT_DOUBLE_EQ(samples[1].value, 0.0025);
    EXPECT_EQ(samples[2].name, "f");
}

TEST(MetricsText, BrokenLabelsEndTheLineOnly) {
    for (const char* bad : {"a{", "a{x", "a{x=", "a{x=\"", "a{x=\"\\", "a{x=\"1\"", "a{x=\"1\",", "a{}", "a ", " 1"})
        EXPECT_TRUE(parse_metrics(bad).empty()) << bad;
    EXPECT_EQ(parse_metrics("a{} 1").size(), 1u);
}

}  // namespace
}  // namespace vuda::cli
