#include "daemon/notify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cstdlib>
#include <thread>

#include "daemon/fake_notify.h"
#include "daemon/test_support.h"

namespace vuda::daemon {
namespace {

using ::testing::ContainsRegex;
using namespace std::chrono_literals;

class NotifyTest : public ::testing::TestWithParam<bool> {
 protected:
    ~NotifyTest() override {
        ::unsetenv("NOTIFY_SOCKET");
        ::unsetenv("WATCHDOG_USEC");
        ::unsetenv("WATCHDOG_PID");
    }
    TempDir dir_;
    FakeNotify manager_{GetParam() ? "@" + dir_.path() : dir_.file("n")};
    const int set_ = ::setenv("NOTIFY_SOCKET", manager_.address().c_str(), 1);
    Notify notify_;  // reads the variable
};

TEST_P(NotifyTest, SaysWhereItStands) {
    notify_.ready("0 sessions");
    EXPECT_EQ(manager_.next(), "READY=1\nSTATUS=0 sessions");
    notify_.status("0 sessions");  // no news
    notify_.status("1 sessions");
    EXPECT_EQ(manager_.next(), "STATUS=1 sessions");
    notify_.reloading();
    EXPECT_THAT(manager_.next().value_or(""), ContainsRegex("^RELOADING=1\nMONOTONIC_USEC=[0-9]+$"));
    notify_.stopping();
    EXPECT_EQ(manager_.next(), "STOPPING=1\nSTATUS=Stopping");
}

TEST_P(NotifyTest, ManagerThatDoesNotReadHoldsNothingUp) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) notify_.status(std::to_string(i) + " sessions");
    for (int i = 0; i < 1000; ++i) notify_.watchdog();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    notify_.stopping();  // gives up
    EXPECT_EQ(manager_.next(), "STATUS=0 sessions");
}

TEST_P(NotifyTest, WatchdogPingsFromTheLoopAndOnlyWhileItRuns) {
    ::setenv("WATCHDOG_USEC", "200000", 1);
    ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
    boost::asio::io_context loop(1);
    Watchdog watchdog(loop, notify_);
    watchdog.start();
    EXPECT_EQ(manager_.next(), "WATCHDOG=1");
    // A loop that stalls for three intervals says nothing, although a timer is due.
    EXPECT_EQ(manager_.next(600ms), std::nullopt);
    loop.run_one();
    EXPECT_EQ(manager_.next(), "WATCHDOG=1");
    watchdog.stop();
    loop.run();
    EXPECT_EQ(manager_.next(0ms), std::nullopt);
}

TEST_P(NotifyTest, NoPingWhileWhatItWatchesStandsStill) {
    ::setenv("WATCHDOG_USEC", "20000", 1);
    ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
    boost::asio::io_context loop(1);
    bool alive = true;
    Watchdog watchdog(loop, notify_, [&] { return alive; });
    watchdog.start();
    EXPECT_EQ(manager_.next(), "WATCHDOG=1");
    alive = false;
    loop.run_one();
    loop.run_one();
    EXPECT_EQ(manager_.next(0ms), std::nullopt);
    alive = true;
    loop.run_one();
    EXPECT_EQ(manager_.next(), "WATCHDOG=1");
    watchdog.stop();
    loop.run();
}

TEST_P(NotifyTest, WatchdogMakesUpForAMomentOfStandstill) {
    ::setenv("WATCHDOG_USEC", "20000000", 1);
    ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
    boost::asio::io_context loop(1);
    int asked = 0;
    Watchdog watchdog(loop, notify_, [&] { return ++asked > 1; });
    const auto begin = std::chrono::steady_clock::now();
    watchdog.start();
    EXPECT_EQ(manager_.next(0ms), std::nullopt);
    loop.run_one();  // after a tenth of the 10 s from ping to ping
    EXPECT_EQ(manager_.next(), "WATCHDOG=1");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
    watchdog.stop();
    loop.run();
}

TEST_P(NotifyTest, NoWatchdogUnlessAsked) {
    boost::asio::io_context loop(1);
    Watchdog watchdog(loop, notify_);
    watchdog.start();
    loop.run();
    EXPECT_EQ(manager_.next(0ms), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(PathAndAbstract, NotifyTest, ::testing::Bool());

}  // namespace
}  // namespace vuda::daemon
