#include "daemon/process_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>

namespace vuda::daemon {
namespace {

using namespace std::chrono_literals;

class Child {
 public:
    Child() : pid_(::fork()) {
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) ::pause();
        }
        peer_.process = {pid_, 1};
        peer_.pidfd = std::make_shared<const UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    }
    ~Child() {
        kill();
        ::waitpid(pid_, nullptr, 0);
    }
    void kill() const { ::kill(pid_, SIGKILL); }
    // Left as a zombie.
    void kill_and_wait() const {
        kill();
        siginfo_t info;
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    }
    const Peer& peer() const { return peer_; }

 private:
    pid_t pid_;
    Peer peer_;
};

class ProcessWatchTest : public ::testing::Test {
 protected:
    // Until `done`, ten seconds at most.
    void run_until(const bool& done) {
        const auto end = std::chrono::steady_clock::now() + 10s;
        while (!done && std::chrono::steady_clock::now() < end) {
            loop_.restart();
            loop_.run_one_for(100ms);
        }
    }
    boost::asio::io_context loop_;
};

TEST_F(ProcessWatchTest, TellsOfAZombieOnce) {
    const Child child;
    int calls = 0;
    bool ended = false;
    const ProcessWatch watch(loop_, child.peer(), [&] { ++calls, ended = true; });
    child.kill();  // not reaped before the test is over
    run_until(ended);
    loop_.restart();
    loop_.run_for(20ms);
    EXPECT_EQ(calls, 1);
}

TEST_F(ProcessWatchTest, MayBeDestroyedByItsOwnCall) {
    const Child child;
    bool ended = false;
    std::optional<ProcessWatch> watch;
    watch.emplace(loop_, child.peer(), [&] { watch.reset(), ended = true; });
    child.kill();
    run_until(ended);
    EXPECT_TRUE(ended);
}

// The connection keeps the pidfd open when one watch of it is over and the next begins.
TEST_F(ProcessWatchTest, AgainForTheSameProcess) {
    const Child child;
    std::optional<ProcessWatch> watch;
    for (int i = 0; i < 3; ++i) watch.emplace(loop_, child.peer(), [] { ADD_FAILURE() << "it lives"; });
    bool ended = false;
    watch.reset();
    watch.emplace(loop_, child.peer(), [&] { ended = true; });
    child.kill();
    run_until(ended);
    EXPECT_TRUE(ended);
}

// Two processes end at one moment, and what is done about the first frees the watch of the second and makes one of a
// process that lives: with the state that Asio kept for the second, whose event is in the queue.
TEST_F(ProcessWatchTest, AnEventOfAnotherProcessIsNotItsOwn) {
    const Child first;
    const Child second;
    const Child living;
    std::optional<ProcessWatch> watches[2];
    std::optional<ProcessWatch> of_living;
    bool ended = false;
    bool wrong = false;
    for (int i = 0; i < 2; ++i) {
        watches[i].emplace(loop_, (i == 0 ? first : second).peer(), [&, i] {
            ended = true;
            watches[1 - i].reset();
            of_living.emplace(loop_, living.peer(), [&] { wrong = true; });
        });
    }
    // epoll is asked once, and tells of both.
    first.kill_and_wait();
    second.kill_and_wait();
    run_until(ended);
    ASSERT_TRUE(ended);
    loop_.restart();
    loop_.run_for(50ms);
    EXPECT_FALSE(wrong) << "it lives";
    wrong = false;
    living.kill();
    run_until(wrong);
    EXPECT_TRUE(wrong) << "and is still watched";
}

}  // namespace
}  // namespace vuda::daemon
