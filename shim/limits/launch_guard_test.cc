#include "shim/limits/launch_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace vuda::limits {
namespace {

using namespace std::chrono_literals;

// A guard as one thread's callbacks use it.
class Guarded {
 public:
    LaunchGuard::Verdict entered() { return guard.entered(LaunchGuard::thread()); }
    int left(bool launches) { return verdict(launches).result; }
    LaunchGuard::Verdict verdict(bool launches) { return guard.left(LaunchGuard::thread(), launches); }
    void withheld(uint32_t bytes) { guard.withheld(LaunchGuard::thread(), bytes); }
    LaunchGuard guard;
};

TEST(LaunchGuard, TheCallThatLaunchedReturnsTheErrorOnce) {
    Guarded guard;
    guard.entered();
    EXPECT_EQ(guard.left(true), 0);
    guard.entered();
    guard.withheld(66'560);
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
    guard.entered();
    EXPECT_EQ(guard.left(true), 0);
    guard.entered();
    EXPECT_EQ(guard.left(false), 0) << "a wait has nothing to add";
    EXPECT_EQ(guard.guard.refusals(), 0u) << "somebody may have run it elsewhere";
    guard.guard.counted(66'560);
    guard.guard.counted(70'000);
    EXPECT_EQ(guard.guard.refusals(), 2u);
    EXPECT_EQ(guard.guard.first_refused_bytes(), 66'560u);
}

TEST(LaunchGuard, WhatNoCallSaidTheNextWaitSays) {
    Guarded guard;
    guard.entered();  // launch
    guard.withheld(100'000);
    const LaunchGuard::Verdict before = guard.entered();  // another call, and the launch's end did not come
    EXPECT_EQ(before.kernels, 1u);
    EXPECT_EQ(before.bytes, 100'000u);
    EXPECT_EQ(guard.left(false), kLaunchFailed);
    EXPECT_EQ(guard.left(true), 0) << "said once";
    EXPECT_EQ(guard.guard.attention(), 0u);
}

TEST(LaunchGuard, ItAsksForAttentionUntilEverythingIsSaid) {
    Guarded guard;
    EXPECT_EQ(guard.guard.attention(), 0u);
    guard.withheld(60'000);
    guard.withheld(60'000);
    EXPECT_EQ(guard.guard.attention(), LaunchGuard::kOne) << "one call says it";
    std::thread([&] {
        guard.withheld(60'000);
        EXPECT_EQ(guard.guard.attention(), 2 * LaunchGuard::kOne);
        EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
    }).join();
    EXPECT_EQ(guard.guard.attention(), LaunchGuard::kOne);
    guard.entered();
    guard.withheld(60'000);
    guard.entered();
    EXPECT_EQ(guard.guard.attention(), LaunchGuard::kOne) << "one wait says both";
    EXPECT_EQ(guard.left(false), kLaunchFailed);
    EXPECT_EQ(guard.guard.attention(), 0u);
}

TEST(LaunchGuard, OutsideOfAnyCallTheNextWaitReturnsIt) {
    Guarded guard;
    guard.withheld(100'000);
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
    Guarded guard;
    guard.entered();
    guard.withheld(100'000);
    std::thread([&] {
        guard.entered();
        EXPECT_EQ(guard.left(true), 0);
    }).join();
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
}

TEST(LaunchGuard, AnEndWithoutABeginningIsNoHarm) {
    Guarded guard;
    EXPECT_EQ(guard.left(true), 0);
    EXPECT_EQ(guard.left(false), 0);
    guard.entered();
    guard.withheld(1);
    EXPECT_EQ(guard.left(true), kLaunchOutOfResources);
}

TEST(LaunchGuard, ACallThatLaunchesSeveralSaysHowManyDidNotRun) {
    Guarded guard;
    guard.entered();
    guard.withheld(60'000);
    guard.withheld(70'000);
    const LaunchGuard::Verdict verdict = guard.verdict(true);
    EXPECT_EQ(verdict.kernels, 2u);
    EXPECT_EQ(verdict.bytes, 70'000u);
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
