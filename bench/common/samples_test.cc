#include "bench/common/samples.h"

#include <gtest/gtest.h>

namespace vuda::bench {
namespace {

TEST(Samples, NearestRankPercentiles) {
    Samples samples;
    EXPECT_EQ(samples.percentile(99), 0);
    for (int i = 100; i >= 1; --i) samples.add(i);
    EXPECT_EQ(samples.percentile(0), 1);
    EXPECT_EQ(samples.median(), 50);
    EXPECT_EQ(samples.percentile(99), 99);
    EXPECT_EQ(samples.max(), 100);
    samples.add(1000);  // 101 samples: rank ceil(0.99 * 101) = 100
    EXPECT_EQ(samples.percentile(99), 100);
    EXPECT_EQ(samples.max(), 1000);
}

TEST(Samples, OneSampleIsEveryPercentile) {
    Samples samples;
    samples.add(3.5);
    for (const double p : {0.0, 50.0, 99.0, 100.0}) EXPECT_EQ(samples.percentile(p), 3.5) << p;
}

}  // namespace
}  // namespace vuda::bench
