#include "shim/preload/replay_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace vuda::shim {
namespace {

using Change = ReplayRule::Change;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMs = 1'000'000;

// A counter that is looked at every 50 ms.
class Counter {
 public:
    Change look(uint64_t more, uint64_t after_ns = 50 * kMs) {
        count_ += more;
        now_ += after_ns;
        return rule.look(count_, now_);
    }
    // How many looks it takes; 0: it does not, within 30.
    unsigned looks_until(Change change, uint64_t more) {
        for (unsigned i = 1; i <= 30; ++i) {
            const Change seen = look(more);
            if (seen == change) return i;
            if (seen != Change::kNone) return 100;
        }
        return 0;
    }
    ReplayRule rule;

 private:
    uint64_t count_ = 1'000'000;  // of programs before
    uint64_t now_ = 77'000 * kMs;
};

TEST(ReplayRule, StuckAfterHalfASecondAndOverAfterAsMuch) {
    Counter counter;
    EXPECT_EQ(counter.look(0), Change::kNone);
    EXPECT_EQ(counter.looks_until(Change::kStuck, 2250), ReplayRule::kLooks);
    EXPECT_EQ(counter.rule.rate(), 45'000u);
    EXPECT_TRUE(counter.rule.stuck());
    EXPECT_EQ(counter.looks_until(Change::kStuck, 2250), 0u) << "it is said once";
    EXPECT_EQ(counter.looks_until(Change::kOver, 0), ReplayRule::kLooks);
    EXPECT_EQ(counter.looks_until(Change::kOver, 0), 0u);
    EXPECT_EQ(counter.looks_until(Change::kStuck, 2250), ReplayRule::kLooks) << "and again";
}

TEST(ReplayRule, TheLimits) {
    Counter below;
    below.look(0);
    EXPECT_EQ(below.looks_until(Change::kStuck, 999), 0u) << "19,980 a second";
    EXPECT_EQ(below.looks_until(Change::kStuck, 1000), ReplayRule::kLooks) << "20,000";
    EXPECT_EQ(below.looks_until(Change::kOver, 50), 0u) << "1,000";
    EXPECT_EQ(below.looks_until(Change::kOver, 49), ReplayRule::kLooks) << "980";
}

// Managed memory: many faults at once, then none.
TEST(ReplayRule, BurstsAreNone) {
    Counter counter;
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(counter.looks_until(Change::kStuck, 0), 0u);
        for (unsigned n = 1; n < ReplayRule::kLooks; ++n) EXPECT_EQ(counter.look(5000), Change::kNone);
    }
    // Nor is a stop of that one for a moment the end.
    EXPECT_EQ(counter.look(0), Change::kNone);
    EXPECT_EQ(counter.looks_until(Change::kStuck, 5000), ReplayRule::kLooks);
    for (unsigned n = 1; n < ReplayRule::kLooks; ++n) EXPECT_EQ(counter.look(0), Change::kNone);
    EXPECT_EQ(counter.look(2250), Change::kNone);
    EXPECT_EQ(counter.looks_until(Change::kOver, 0), ReplayRule::kLooks);
}

// libvuda looks at once when somebody says that a device was lost.
TEST(ReplayRule, LooksInQuickSuccessionDoNotCount) {
    Counter counter;
    counter.look(0);
    for (int i = 0; i < 39; ++i) EXPECT_EQ(counter.look(50, 1 * kMs), Change::kNone);
    EXPECT_EQ(counter.rule.rate(), 0u);
    counter.look(50, 1 * kMs);
    EXPECT_EQ(counter.rule.rate(), 50'000u) << "what was left out is in the next";
}

TEST(ReplayRule, ACounterThatGoesBackBeginsAnew) {
    ReplayRule rule;
    uint64_t now = 0;
    uint64_t count = 0;
    rule.look(count, now);
    for (unsigned i = 1; i < ReplayRule::kLooks; ++i)
        EXPECT_EQ(rule.look(count += 5000, now += 50 * kMs), Change::kNone);
    EXPECT_EQ(rule.look(0, now += 50 * kMs), Change::kNone);
    for (unsigned i = 1; i < ReplayRule::kLooks; ++i) EXPECT_EQ(rule.look(i * 5000ull, now += 50 * kMs), Change::kNone);
    EXPECT_EQ(rule.look(ReplayRule::kLooks * 5000ull, now += 50 * kMs), Change::kStuck);
}

// UVM, as far as the watch asks for it.
struct FakeUvm {
    std::vector<std::string> calls;
    std::set<int> open_fds;
    std::string refused;  // path or call
    rm::UvmToolsEventControl* control = nullptr;
};
FakeUvm& uvm() {
    static FakeUvm fake;
    return fake;
}

int fake_open(const char* path, int flags, mode_t) {
    uvm().calls.push_back(std::string("open ") + path);
    if (uvm().refused == path) return -1;
    EXPECT_EQ(flags, O_RDWR | O_CLOEXEC);
    const int fd = ::open("/dev/null", flags);
    uvm().open_fds.insert(fd);
    return fd;
}

int fake_close(int fd) {
    EXPECT_EQ(uvm().open_fds.erase(fd), 1u);
    uvm().calls.push_back("close");
    return ::close(fd);
}

int fake_ioctl(int fd, unsigned long request, void* arg) {
    EXPECT_TRUE(uvm().open_fds.contains(fd));
    const auto refuse = [](const char* call) { return uvm().refused == call ? 0x40u : 0u; };
    switch (request) {
        case rm::uvm::kInitialize: {
            auto& args = *static_cast<rm::UvmInitializeArgs*>(arg);
            EXPECT_EQ(args.flags, rm::kUvmInitMultiProcess);
            uvm().calls.push_back("initialize");
            args.rmStatus = refuse("initialize");
            return 0;
        }
        case rm::uvm::kToolsInitEventTracker: {
            auto& args = *static_cast<rm::UvmToolsInitEventTrackerArgs*>(arg);
            EXPECT_EQ(args.queueBufferSize, 2u) << "the smallest there is";
            EXPECT_EQ(args.queueBuffer % 4096, 0u);
            EXPECT_EQ(args.controlBuffer % 4096, 0u);
            EXPECT_TRUE(uvm().open_fds.contains(static_cast<int>(args.uvmFd)));
            EXPECT_NE(static_cast<int>(args.uvmFd), fd);
            uvm().control = reinterpret_cast<rm::UvmToolsEventControl*>(args.controlBuffer);
            uvm().calls.push_back("track");
            args.rmStatus = refuse("track");
            return 0;
        }
        case rm::uvm::kToolsEventQueueEnableEvents: {
            auto& args = *static_cast<rm::UvmToolsEnableEventsArgs*>(arg);
            EXPECT_EQ(args.eventTypeFlags, 1u << 4) << "UvmEventTypeGpuFaultReplay";
            uvm().calls.push_back("enable");
            args.rmStatus = refuse("enable");
            return 0;
        }
        default: ADD_FAILURE() << request; return -1;
    }
}

class ReplayWatchTest : public testing::Test {
 protected:
    ReplayWatchTest() { uvm() = {}; }
    ~ReplayWatchTest() override {
        watch_.reset();
        EXPECT_THAT(uvm().open_fds, IsEmpty());
        EXPECT_EQ(marks_->guards(), 0);
    }
    Change look(bool sharing = true) { return watch_->look(sharing, now_ += 50 * kMs); }
    bool gets_stuck() {
        for (unsigned i = 0; i < 12; ++i) {
            uvm().control->dropped[rm::kUvmEventGpuFaultReplay] += 2500;
            if (look() == Change::kStuck) return true;
        }
        return false;
    }

    std::unique_ptr<FdMarks> marks_ = std::make_unique<FdMarks>();
    std::unique_ptr<ReplayWatch> watch_ =
        std::make_unique<ReplayWatch>(marks_.get(), ReplayWatch::Calls{fake_open, fake_ioctl, fake_close});
    uint64_t now_ = 5000 * kMs;
};

TEST_F(ReplayWatchTest, WatchesWhileSomethingIsShared) {
    EXPECT_EQ(look(false), Change::kNone);
    EXPECT_THAT(uvm().calls, IsEmpty()) << "nobody is asked for anything before that";
    look();
    EXPECT_TRUE(watch_->watching());
    EXPECT_THAT(uvm().calls,
                ElementsAre("open /dev/nvidia-uvm", "open /dev/nvidia-uvm-tools", "initialize", "track", "enable"));
    for (const int fd : uvm().open_fds) EXPECT_TRUE(marks_->guarded(fd)) << "a program's close() must not hit it";
    EXPECT_TRUE(gets_stuck());
    EXPECT_EQ(watch_->rate(), 50'000u);
    EXPECT_EQ(look(false), Change::kOver) << "what nobody shares cannot be stuck";
    EXPECT_FALSE(watch_->watching());
    EXPECT_THAT(uvm().open_fds, IsEmpty());
    EXPECT_EQ(look(false), Change::kNone);
    look();
    EXPECT_TRUE(gets_stuck()) << "the next context";
}

TEST_F(ReplayWatchTest, WhatIsInTheQueueCountsToo) {
    look();
    uvm().control->putBehind = 1;
    uvm().control->dropped[rm::kUvmEventGpuFaultReplay] = 2499;
    look();
    EXPECT_EQ(watch_->rate(), 50'000u);
    uvm().control->dropped[rm::kUvmEventGpuFaultReplay + 1] = 1'000'000;  // fault buffer overflows
    look();
    EXPECT_EQ(watch_->rate(), 0u);
}

TEST_F(ReplayWatchTest, WhatIsRefusedIsAskedForOnce) {
    for (const char* what : {"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "initialize", "track", "enable"}) {
        uvm() = {};
        uvm().refused = what;
        EXPECT_EQ(look(), Change::kNone);
        const size_t calls = uvm().calls.size();
        EXPECT_FALSE(watch_->watching()) << what;
        EXPECT_THAT(uvm().open_fds, IsEmpty()) << what;
        EXPECT_EQ(marks_->guards(), 0) << what;
        for (int i = 0; i < 20; ++i) look();
        EXPECT_EQ(uvm().calls.size(), calls) << what;
        // The next context may.
        look(false);
        uvm().refused.clear();
        look();
        EXPECT_TRUE(watch_->watching()) << what;
        look(false);
    }
}

TEST_F(ReplayWatchTest, AfterADeathNothingIsWatchedUntilNothingIsShared) {
    look();
    watch_->give_up();
    EXPECT_THAT(uvm().open_fds, IsEmpty());
    look();
    EXPECT_FALSE(watch_->watching());
    look(false);
    look();
    EXPECT_TRUE(watch_->watching());
}

TEST_F(ReplayWatchTest, ANumberThatIsAnothersByNowIsLeftAlone) {
    look();
    const std::set<int> ours = uvm().open_fds;
    // Closed by means that nobody sees, and opened again by the program.
    const int other = memfd_create("other", MFD_CLOEXEC);
    for (const int fd : ours) ASSERT_EQ(dup2(other, fd), fd);
    look(false);
    for (const int fd : ours) {
        EXPECT_EQ(fcntl(fd, F_GETFD), 0) << "still there";
        ::close(fd);
    }
    ::close(other);
    uvm().open_fds.clear();
}

TEST_F(ReplayWatchTest, AChildOfForkHasNothingOfIt) {
    look();
    const std::set<int> ours = uvm().open_fds;
    const pid_t child = fork();
    if (child == 0) {
        watch_->after_fork_in_child();
        int left = 0;
        for (const int fd : ours) left += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
        unsigned char there = 0;
        // The pages are the parent's only.
        if (mincore(uvm().control, 4096, &there) == 0) left += 10;
        _exit(left);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(gets_stuck()) << "the parent goes on";
}

}  // namespace
}  // namespace vuda::shim
