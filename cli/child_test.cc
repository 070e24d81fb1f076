#include "cli/child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "cli/test_dir.h"

namespace vuda::cli {
namespace {

Environment minimal() { return {"PATH=/usr/bin:/bin", "MARK=here"}; }

int run(const std::vector<std::string>& arguments, Error* error = nullptr) {
    Error ignored;
    SignalRelay relay;
    const Result<std::string> path = resolve_program(arguments[0], minimal());
    if (!path) return -1;
    return relay.run(*path, arguments, minimal(), error != nullptr ? error : &ignored);
}

int sh(const std::string& script) { return run({"sh", "-c", script}); }

TEST(Child, ExitStatusIsTheProgramsOwn) {
    EXPECT_EQ(run({"true"}), 0);
    EXPECT_EQ(sh("exit 7"), 7);
    EXPECT_EQ(sh("exit 255"), 255);
    EXPECT_EQ(sh("kill -TERM $$"), 128 + SIGTERM);
    EXPECT_EQ(sh("kill -KILL $$"), 128 + SIGKILL);
}

TEST(Child, EnvironmentAndArgumentsArriveUnchanged) {
    EXPECT_EQ(sh("test \"$MARK\" = here"), 0);
    EXPECT_EQ(run({"sh", "-c", "test \"$1\" = 'a b' && test $# -eq 2", "name", "a b", ""}), 0);
}

TEST(Child, SignalsAreUnblockedInTheProgram) {
    EXPECT_EQ(sh("grep -q '^SigBlk:.*0000000000000000$' /proc/self/status"), 0);
    EXPECT_EQ(sh("ls /proc/self/fd | wc -l | grep -qx '[1-4]' || ls -l /proc/self/fd >&2"), 0);
}

TEST(Child, NotFoundAndNotExecutable) {
    const TestDir dir;
    EXPECT_EQ(resolve_program("surely-no-such-program", minimal()).error().code, Code::kNotFound);
    EXPECT_EQ(resolve_program("", minimal()).error().code, Code::kNotFound);
    EXPECT_EQ(resolve_program(dir.path("none"), minimal()).error().code, Code::kNotFound);
    const std::string plain = dir.write("plain", "text");
    EXPECT_EQ(resolve_program(plain, minimal()).error().code, Code::kPermissionDenied);
    EXPECT_EQ(resolve_program(dir.root().string(), minimal()).error().code, Code::kPermissionDenied);
    EXPECT_EQ(resolve_program("plain", {"PATH=" + dir.root().string()}).error().code, Code::kPermissionDenied);

    const std::string dangling = dir.write("dangling", "#!/no/such/interpreter\n");
    chmod(dangling.c_str(), 0755);
    Error error;
    EXPECT_EQ(run({dangling}, &error), kExitNotFound);
    EXPECT_EQ(error.code, Code::kNotFound);
}

TEST(Child, PathSearchPrefersTheFirstExecutable) {
    const TestDir dir;
    dir.write("a/tool", "exit 1");  // not executable
    chmod(dir.write("b/tool", "exit 2").c_str(), 0755);
    chmod(dir.write("c/tool", "exit 3").c_str(), 0755);
    const Environment env = {"PATH=" + dir.path("a") + ":" + dir.path("b") + ":" + dir.path("c")};
    const Result<std::string> path = resolve_program("tool", env);
    ASSERT_TRUE(path.ok());
    EXPECT_EQ(*path, dir.path("b/tool"));
    // No "#!": the shell runs it.
    EXPECT_EQ(run({*path}), 2);
}

// Runs `body` in a process of its own and talks to it through a pipe: signals of a test must not hit the test program.
class Wrapped {
 public:
    explicit Wrapped(const std::string& script) {
        int ends[2];
        if (pipe(ends) != 0) std::abort();
        out_.reset(ends[0]);
        pid_ = fork();
        if (pid_ == 0) {
            // A group of its own, as a shell would give its job.
            setpgid(0, 0);
            dup2(ends[1], STDOUT_FILENO);
            close(ends[0]);
            close(ends[1]);
            _exit(sh(script));
        }
        close(ends[1]);
    }
    ~Wrapped() {
        kill(-pid_, SIGKILL);
        if (!reaped_) waitpid(pid_, nullptr, 0);
    }
    Wrapped(const Wrapped&) = delete;
    Wrapped& operator=(const Wrapped&) = delete;

    // Next line the program prints; "" after 20 s or at the end.
    std::string line() {
        std::string text;
        for (;;) {
            pollfd wait{out_.get(), POLLIN, 0};
            char c = 0;
            if (poll(&wait, 1, 20000) <= 0 || read(out_.get(), &c, 1) != 1) return "";
            if (c == '\n') return text;
            text += c;
        }
    }
    void send(int signal) const { kill(pid_, signal); }
    void send_group(int signal) const { kill(-pid_, signal); }
    pid_t pid() const { return pid_; }
    int status(int options = 0) {
        int status = 0;
        EXPECT_EQ(waitpid(pid_, &status, options), pid_);
        if (WIFEXITED(status) || WIFSIGNALED(status)) reaped_ = true;
        return status;
    }

 private:
    pid_t pid_ = 0;
    UniqueFd out_;
    bool reaped_ = false;
};

TEST(Child, SignalsReachTheProgram) {
    for (const auto& [name, number] : {std::pair{"INT", SIGINT},
                                       {"TERM", SIGTERM},
                                       {"HUP", SIGHUP},
                                       {"QUIT", SIGQUIT},
                                       {"USR1", SIGUSR1},
                                       {"USR2", SIGUSR2}}) {
        Wrapped wrapped(std::string("trap 'echo got; exit 9' ") + name + "; echo ready; while :; do sleep 0.05; done");
        ASSERT_EQ(wrapped.line(), "ready") << name;
        wrapped.send(number);
        EXPECT_EQ(wrapped.line(), "got") << name;
        const int status = wrapped.status();
        ASSERT_TRUE(WIFEXITED(status)) << name;
        EXPECT_EQ(WEXITSTATUS(status), 9) << name;
    }
}

TEST(Child, UnhandledSignalGives128PlusNumber) {
    Wrapped wrapped("echo ready; exec sleep 60");
    ASSERT_EQ(wrapped.line(), "ready");
    wrapped.send(SIGTERM);
    const int status = wrapped.status();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(Child, StopsAndContinuesWithTheProgram) {
    Wrapped wrapped("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done");
    ASSERT_EQ(wrapped.line(), "ready");
    wrapped.send(SIGTSTP);  // from a process: forwarded; the program stops, and the wrapper with it
    int status = wrapped.status(WUNTRACED);
    ASSERT_TRUE(WIFSTOPPED(status));
    wrapped.send(SIGCONT);
    status = wrapped.status(WCONTINUED);
    ASSERT_TRUE(WIFCONTINUED(status));
    wrapped.send(SIGTERM);
    status = wrapped.status();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 4);
}

TEST(Child, ProgramDiesWithItsWrapper) {
    Wrapped wrapped("echo $$; exec sleep 60");
    ASSERT_NE(wrapped.line(), "");
    wrapped.send(SIGKILL);
    wrapped.status();
    // The pipe's last writer is the program: end of file says that it is gone.
    EXPECT_EQ(wrapped.line(), "");
}

TEST(Child, SignalBeforeTheStartMeansNoStart) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        SignalRelay relay;
        raise(SIGTERM);
        Error error;
        _exit(relay.run("/bin/false", {"false"}, {}, &error));
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

}  // namespace
}  // namespace vuda::cli
