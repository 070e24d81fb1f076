// vudactl top on a terminal (a pty), with a daemon of a few lines.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "cli/fake_daemon.h"

namespace vuda::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr const char* kOtherScreen = "\x1b[?1049h";
constexpr const char* kFirstScreen = "\x1b[?25h\x1b[?1049l";
constexpr auto kPatience = 30s;

class Terminal {
 public:
    Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {
        if (!master_ || ::grantpt(master_.get()) != 0 || ::unlockpt(master_.get()) != 0) std::abort();
        const char* name = ::ptsname(master_.get());
        slave_ = UniqueFd(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
        resize(24, 80);
        if (!slave_ || ::tcgetattr(slave_.get(), &before_) != 0) std::abort();
    }

    void resize(unsigned short rows, unsigned short columns) const {
        const winsize size{rows, columns, 0, 0};
        ::ioctl(master_.get(), TIOCSWINSZ, &size);
    }

    // Everything that came until `mark` was among what came last; fails the test when it does not come.
    std::string until(const std::string& mark) {
        const Deadline deadline = deadline_in(kPatience);
        while (unread_.find(mark) == unread_.npos) {
            char chunk[4096];
            const ssize_t got = ::read(master_.get(), chunk, sizeof chunk);
            if (got > 0) {
                unread_.append(chunk, static_cast<size_t>(got));
            } else if (!wait_readable(master_.get(), deadline)) {
                ADD_FAILURE() << "'" << mark << "' did not come, but: " << unread_;
                return unread_;
            }
        }
        const size_t end = unread_.find(mark) + mark.size();
        const std::string seen = unread_.substr(0, end);
        unread_.erase(0, end);
        return seen;
    }

    void type(const std::string& keys) const {
        ASSERT_EQ(::write(master_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
    }

    bool as_before() const {
        termios now{};
        return ::tcgetattr(slave_.get(), &now) == 0 && now.c_lflag == before_.c_lflag &&
               now.c_cc[VMIN] == before_.c_cc[VMIN];
    }

    int slave() const { return slave_.get(); }

 private:
    UniqueFd master_;
    UniqueFd slave_;
    termios before_{};
    std::string unread_;
};

class TopCommand : public ::testing::Test {
 protected:
    TopCommand() {
        v1::StatusReply status;
        status.mutable_daemon()->set_version("9.9");
        status.mutable_daemon()->set_simulated(true);
        v1::SessionInfo& session = *status.add_sessions();
        session.set_session_id(7);
        session.mutable_peer()->set_program("infer");
        daemon_.set_status(status);
    }
    ~TopCommand() override {
        if (child_ > 0) {
            ::kill(child_, SIGKILL);
            ::waitpid(child_, nullptr, 0);
        }
    }

    void start(std::vector<std::string> options, int output) {
        std::vector<std::string> words = {VUDA_VUDACTL, "--socket", daemon_.socket(), "top"};
        words.insert(words.end(), options.begin(), options.end());
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, terminal_.slave(), STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        // A group of its own, as a shell does it: one whose parent is in another group is stopped by SIGTSTP.
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        ASSERT_EQ(::posix_spawn(&child_, VUDA_VUDACTL, &actions, &attributes, arguments.data(), environ), 0);
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
    }

    int wait() {
        int status = 0;
        ::waitpid(std::exchange(child_, -1), &status, 0);
        return status;
    }

    FakeDaemon daemon_;
    Terminal terminal_;
    pid_t child_ = -1;
};

TEST_F(TopCommand, ShowsKeysWorkAndTheTerminalIsGivenBack) {
    start({}, terminal_.slave());
    EXPECT_THAT(terminal_.until("q quit"), HasSubstr(kOtherScreen));
    EXPECT_FALSE(terminal_.as_before());
    terminal_.type("s");
    terminal_.until("by program");
    terminal_.type("p");
    terminal_.until("PAUSED");
    terminal_.type("q");
    terminal_.until(kFirstScreen);
    EXPECT_EQ(wait(), 0);
    EXPECT_TRUE(terminal_.as_before());
}

TEST_F(TopCommand, RedrawsOnlyWhatChangedAndEventsShowAtOnce) {
    start({"--interval", "3600"}, terminal_.slave());
    terminal_.until("q quit");
    v1::Event event;
    event.set_kind("attach");
    event.set_name("game");
    daemon_.send(event);
    const std::string update = terminal_.until("attach game");
    EXPECT_THAT(update, Not(HasSubstr("vudad 9.9")));
    EXPECT_THAT(update, Not(HasSubstr("PROGRAM")));
    EXPECT_THAT(update, Not(HasSubstr("\x1b[2J")));
    // Another size is another picture.
    terminal_.resize(30, 60);
    ::kill(child_, SIGWINCH);
    EXPECT_THAT(terminal_.until("q quit"), HasSubstr("\x1b[2J"));
    terminal_.type("q");
    EXPECT_EQ(wait(), 0);
}

TEST_F(TopCommand, SignalsEndItWithTheTerminalGivenBack) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        start({}, terminal_.slave());
        terminal_.until("q quit");
        ::kill(child_, signal);
        terminal_.until(kFirstScreen);
        const int status = wait();
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
        EXPECT_TRUE(terminal_.as_before());
    }
}

TEST_F(TopCommand, StoppedItGivesTheTerminalBackAndComesAgain) {
    start({}, terminal_.slave());
    terminal_.until("q quit");
    ::kill(child_, SIGTSTP);
    terminal_.until(kFirstScreen);
    // Once it has stopped: a continuation that came before would be lost.
    int status = 0;
    ASSERT_EQ(::waitpid(child_, &status, WUNTRACED), child_);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    EXPECT_TRUE(terminal_.as_before());
    ::kill(child_, SIGCONT);
    EXPECT_THAT(terminal_.until("q quit"), HasSubstr(kOtherScreen));
    terminal_.type("q");
    EXPECT_EQ(wait(), 0);
}

TEST_F(TopCommand, OnceIsPlainText) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd from(ends[0]);
    UniqueFd into(ends[1]);
    start({"--once"}, into.get());
    into.reset();
    EXPECT_EQ(wait(), 0);
    char text[4096];
    const ssize_t got = ::read(from.get(), text, sizeof text);
    ASSERT_GT(got, 0);
    const std::string seen(text, static_cast<size_t>(got));
    EXPECT_THAT(seen, HasSubstr("vudad 9.9"));
    EXPECT_THAT(seen, HasSubstr("infer"));
    EXPECT_THAT(seen, Not(HasSubstr("\x1b")));
    EXPECT_TRUE(terminal_.as_before());
}

}  // namespace
}  // namespace vuda::cli
