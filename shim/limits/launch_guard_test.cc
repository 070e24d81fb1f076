#include "shim/limits/launch_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace vuda::limits {
namespace {

using namespace std::chrono_literals;

TEST(LaunchGuard, TheCallThatLaunchedReturnsTheErrorOnce) {
    LaunchGuard guard;
    guard.entered();
    EXPECT_EQ(guard.left(true), 0);
    guard.entered();
    guard.refused(66'560);
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
    guard.entered();
    EXPECT_EQ(guard.left(true), 0);
    guard.entered();
    EXPECT_EQ(guard.left(false), 0) << "a wait has nothing to add";
    EXPECT_EQ(guard.refusals(), 1u);
    EXPECT_EQ(guard.first_refused_bytes(), 66'560u);
}

TEST(LaunchGuard, ACallInACallbackOfAnotherDoesNotTakeItsError) {
    LaunchGuard guard;
    guard.entered();  // launch
    guard.refused(100'000);
    guard.entered();  // a query inside a callback
    EXPECT_EQ(guard.left(false), 0);
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
}

TEST(LaunchGuard, OutsideOfAnyCallTheNextWaitReturnsIt) {
    LaunchGuard guard;
    guard.refused(100'000);
    guard.entered();
    EXPECT_EQ(guard.left(true), 0) << "not this launch's fault";
    std::thread([&] {
        guard.entered();
        EXPECT_EQ(guard.left(false), kLaunchFailed);
    }).join();
    guard.entered();
    EXPECT_EQ(guard.left(false), 0);
}

TEST(LaunchGuard, ThreadsKeepTheirErrorsApart) {
    LaunchGuard guard;
    guard.entered();
    guard.refused(100'000);
    std::thread([&] {
        guard.entered();
        EXPECT_EQ(guard.left(true), 0);
    }).join();
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
}

TEST(LaunchGuard, AnEndWithoutABeginningIsNoHarm) {
    LaunchGuard guard;
    EXPECT_EQ(guard.left(true), 0);
    EXPECT_EQ(guard.left(false), 0);
    guard.entered();
    guard.refused(1);
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
}

TEST(LaunchGuard, ALaunchWaitsUntilItsContextIsDecidedOn) {
    LaunchGuard guard;
    std::atomic<bool> decided{false};
    std::atomic<int> offers{0};
    std::thread launching([&] { guard.wait_until([&] { return decided.load(); }, [&] { ++offers; }); });
    while (offers == 0) std::this_thread::yield();
    guard.changed();
    while (offers < 2) std::this_thread::yield();
    decided = true;
    guard.changed();
    launching.join();
}

TEST(LaunchGuard, ALaunchThatIsLetGoDoesNotWait) {
    LaunchGuard guard;
    std::atomic<int> offers{0};
    std::thread launching([&] { guard.wait_until([] { return false; }, [&] { ++offers; }); });
    while (offers == 0) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    guard.let_go();
    launching.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, LaunchGuard::kLongestWait / 2);
}

}  // namespace
}  // namespace vuda::limits
