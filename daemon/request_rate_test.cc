#include "daemon/request_rate.h"

#include <gtest/gtest.h>

namespace vuda::daemon {
namespace {

using namespace std::chrono_literals;

class RequestRateTest : public ::testing::Test {
 protected:
    TimePoint now_{1000s};
    RequestRate rate_{[this] { return now_; }};
};

TEST_F(RequestRateTest, WithoutALimitNobodyWaits) {
    rate_.charge(1, 1'000'000);
    EXPECT_FALSE(rate_.wait_until(1));
    EXPECT_EQ(rate_.users(), 0u);
}

TEST_F(RequestRateTest, ASecondsWorthAtOnceThenThePace) {
    rate_.set_limit(100);
    for (int i = 0; i < 100; ++i) {
        ASSERT_FALSE(rate_.wait_until(1)) << i;
        rate_.charge(1, 1);
    }
    const std::optional<TimePoint> later = rate_.wait_until(1);
    ASSERT_TRUE(later);
    EXPECT_EQ(*later - now_, 10ms);
    EXPECT_EQ(rate_.waits(), 1u);
    now_ = *later;
    EXPECT_FALSE(rate_.wait_until(1));
    rate_.charge(1, 1);
    EXPECT_TRUE(rate_.wait_until(1));
}

TEST_F(RequestRateTest, WhoTookMoreThanThereWasWaitsLonger) {
    rate_.set_limit(100);
    rate_.charge(1, 150);
    const std::optional<TimePoint> later = rate_.wait_until(1);
    ASSERT_TRUE(later);
    EXPECT_EQ(*later - now_, 510ms);
    now_ += 509ms;
    EXPECT_TRUE(rate_.wait_until(1));
    now_ += 2s;
    EXPECT_FALSE(rate_.wait_until(1));
}

TEST_F(RequestRateTest, UsersDoNotPayForOneAnother) {
    rate_.set_limit(10);
    rate_.charge(1, 100);
    EXPECT_TRUE(rate_.wait_until(1));
    EXPECT_FALSE(rate_.wait_until(2));
}

TEST_F(RequestRateTest, ThePauseIsNeverAnInstant) {
    rate_.set_limit(1'000'000);
    rate_.charge(1, 1'000'000);
    const std::optional<TimePoint> later = rate_.wait_until(1);
    ASSERT_TRUE(later);
    EXPECT_EQ(*later - now_, 1ms);
}

TEST_F(RequestRateTest, UsersWhoOweNothingAreForgotten) {
    rate_.set_limit(10);
    for (uid_t uid = 0; uid < 10'000; ++uid) {
        rate_.charge(uid, 1);
        now_ += 10ms;
    }
    EXPECT_LT(rate_.users(), 300u);
}

TEST_F(RequestRateTest, AReloadLiftsTheLimit) {
    rate_.set_limit(1);
    rate_.charge(1, 1000);
    EXPECT_TRUE(rate_.wait_until(1));
    rate_.set_limit(0);
    EXPECT_FALSE(rate_.wait_until(1));
}

}  // namespace
}  // namespace vuda::daemon
