#include "tests/e2e/process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace vuda::e2e {
namespace {

[[noreturn]] void die(const char* what) {
    std::perror(what);
    std::abort();
}

// Sanitizer settings and coverage paths must reach the programs; nothing else of the caller's environment may change a
// test.
std::vector<std::string> environment(const std::map<std::string, std::string>& extra) {
    std::map<std::string, std::string> all;
    for (const char* name :
         {"PATH", "HOME", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"}) {
        if (const char* value = std::getenv(name)) all[name] = value;
    }
    for (const auto& [name, value] : extra) all[name] = value;
    std::vector<std::string> result;
    result.reserve(all.size());
    for (const auto& [name, value] : all) {
        if (value.empty()) continue;
        std::string& entry = result.emplace_back(name);
        entry += '=';
        entry += value;
    }
    return result;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
    result.push_back(nullptr);
    return result;
}

struct Pipe {
    UniqueFd read, write;
    Pipe() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) die("pipe2");
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
};

}  // namespace

Process::Process(const Command& command) {
    ::signal(SIGPIPE, SIG_IGN);
    Pipe in, out, err;
    const std::vector<std::string> env = environment(command.env);
    const std::vector<char*> argv = pointers(command.argv);
    const std::vector<char*> envp = pointers(env);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) die("fork");
    if (pid_ == 0) {
        setpgid(0, 0);
        if (command.uid != static_cast<uid_t>(-1)) {
            if (setgroups(0, nullptr) != 0 || setgid(command.uid) != 0 || setuid(command.uid) != 0) _exit(125);
        }
        // After setuid, which clears it.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(125);
        dup2(in.read.get(), STDIN_FILENO);
        dup2(out.write.get(), STDOUT_FILENO);
        dup2(err.write.get(), STDERR_FILENO);
        // The test program ignores it (see write_line).
        ::signal(SIGPIPE, SIG_DFL);
        execve(argv[0], argv.data(), envp.data());
        _exit(127);
    }
    setpgid(pid_, pid_);
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    if (!pidfd_) die("pidfd_open");
    in_ = std::move(in.write);
    out_fd_ = std::move(out.read);
    err_fd_ = std::move(err.read);
    fcntl(out_fd_.get(), F_SETFL, O_NONBLOCK);
    fcntl(err_fd_.get(), F_SETFL, O_NONBLOCK);
}

Process::~Process() {
    kill(-pid_, SIGKILL);
    if (!reaped_) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
}

bool Process::drain(UniqueFd& from, std::string& to) {
    std::array<char, 4096> buffer;
    while (from) {
        const ssize_t got = read(from.get(), buffer.data(), buffer.size());
        if (got > 0) {
            to.append(buffer.data(), static_cast<size_t>(got));
        } else if (got == 0) {
            from.reset();
        } else {
            return errno == EAGAIN;
        }
    }
    return false;
}

bool Process::pump(std::chrono::milliseconds patience, const std::function<bool()>& done) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
        if (!reaped_) {
            int status = 0;
            if (waitpid(pid_, &status, WNOHANG) == pid_) {
                reaped_ = true;
                status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            }
        }
        // After the end: what it wrote before is there now.
        drain(out_fd_, out_);
        drain(err_fd_, err_);
        if (done()) return true;
        if (reaped_) return false;
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return false;
        std::array<pollfd, 3> fds = {
            pollfd{pidfd_.get(), POLLIN, 0}, {out_fd_.get(), POLLIN, 0}, {err_fd_.get(), POLLIN, 0}};
        poll(fds.data(), fds.size(), static_cast<int>(left));
    }
}

bool Process::wait_out(std::string_view text, std::chrono::milliseconds patience) {
    return pump(patience, [&] { return out_.find(text) != std::string::npos; });
}

bool Process::wait_err(std::string_view text, std::chrono::milliseconds patience) {
    return pump(patience, [&] { return err_.find(text) != std::string::npos; });
}

int Process::wait(std::chrono::milliseconds patience) {
    pump(patience, [&] { return reaped_; });
    return reaped_ ? status_ : -1;
}

bool Process::running() {
    pump(std::chrono::milliseconds(0), [&] { return reaped_; });
    return !reaped_;
}

void Process::signal(int number) const {
    if (!reaped_) kill(pid_, number);
}

bool Process::write_line(std::string_view line) {
    std::string text(line);
    text += '\n';
    return write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

Finished run(const Command& command, std::chrono::milliseconds patience) {
    const auto start = Clock::now();
    Process process(command);
    Finished finished;
    finished.status = process.wait(patience);
    finished.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    finished.out = process.out();
    finished.err = process.err();
    return finished;
}

std::vector<std::string> lines(std::string_view text) {
    std::vector<std::string> result;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        if (end > 0) result.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return result;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    while (!condition()) {
        if (Clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

size_t open_fds(pid_t pid) {
    std::error_code failed;
    size_t count = 0;
    for (std::filesystem::directory_iterator it("/proc/" + std::to_string(pid) + "/fd", failed), end;
         !failed && it != end; it.increment(failed)) {
        ++count;
    }
    return count;
}

}  // namespace vuda::e2e
