// For tests: a simulator server of the test's own, and programs that run against it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace vuda::sim {

// Directory that is removed with everything in it.
class TempDir {
 public:
    TempDir() {
        char name[] = "/tmp/vuda-sim-test-XXXXXX";
        if (const char* made = mkdtemp(name)) path_ = made;
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() {
        if (!path_.empty()) (void)!std::system(("rm -rf " + path_).c_str());
    }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

// A child process with its stdout in a pipe; killed and reaped with the object.
class Child {
 public:
    // `environment`: additions, "NAME=value". `keep`: descriptors that the program inherits.
    static Child start(std::vector<std::string> command, const std::vector<std::string>& environment,
                       const std::vector<int>& keep = {}) {
        Child child;
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) != 0) return child;
        child.out_.reset(pipe_fds[0]);
        UniqueFd write_end(pipe_fds[1]);
        std::vector<char*> words;
        for (std::string& word : command) words.push_back(word.data());
        words.push_back(nullptr);
        child.pid_ = fork();
        if (child.pid_ == 0) {
            for (const std::string& variable : environment) {
                const size_t equal = variable.find('=');
                setenv(variable.substr(0, equal).c_str(), variable.c_str() + equal + 1, 1);
            }
            for (const int fd : keep) (void)fcntl(fd, F_SETFD, 0);
            (void)dup2(write_end.get(), STDOUT_FILENO);
            execv(words[0], words.data());
            _exit(127);
        }
        return child;
    }
    Child() = default;
    Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), out_(std::move(other.out_)) {}
    Child& operator=(Child&& other) noexcept {
        std::swap(pid_, other.pid_);
        std::swap(out_, other.out_);
        return *this;
    }
    ~Child() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        (void)waitpid(pid_, nullptr, 0);
    }

    pid_t pid() const { return pid_; }
    void signal(int number) const { kill(pid_, number); }
    // Everything it prints until it closes stdout.
    std::string output() {
        std::string text;
        char buffer[4096];
        for (;;) {
            const ssize_t got = read(out_.get(), buffer, sizeof buffer);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return text;
            text.append(buffer, static_cast<size_t>(got));
        }
    }
    // Exit status, or 128 + signal.
    int wait() {
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

 private:
    pid_t pid_ = -1;
    UniqueFd out_;
};

inline bool wait_for_file(const std::string& path, std::chrono::seconds limit = std::chrono::seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (access(path.c_str(), F_OK) != 0) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

// Value of `"name":...` in a JSON line, without quotes; empty when it is not there.
inline std::string json_value(const std::string& line, const std::string& name) {
    const std::string key = "\"" + name + "\":";
    const size_t at = line.find(key);
    if (at == std::string::npos) return {};
    size_t begin = at + key.size();
    const bool quoted = line[begin] == '"';
    if (quoted) begin++;
    const size_t end = line.find_first_of(quoted ? "\"" : ",}", begin);
    return line.substr(begin, end - begin);
}

// vuda-simd with a socket in `dir`, ready when made.
class SimServer {
 public:
    SimServer(const TempDir& dir, const std::string& bin, const std::string& lib, std::vector<std::string> options = {})
        : socket_(dir / "sim.sock"), bin_(bin), lib_(lib) {
        int ready[2];
        if (pipe2(ready, O_CLOEXEC) != 0) return;
        UniqueFd read_end(ready[0]);
        UniqueFd write_end(ready[1]);
        std::vector<std::string> command = {
            bin + "/vuda-simd", "--socket", socket_, "--ready-fd", std::to_string(write_end.get()), "--quiet"};
        command.insert(command.end(), options.begin(), options.end());
        server_ = Child::start(command, {}, {write_end.get()});
        write_end.reset();
        char line[8];
        ready_ = read(read_end.get(), line, sizeof line) > 0;
    }

    bool ready() const { return ready_; }
    const std::string& socket() const { return socket_; }
    std::string ctl(std::vector<std::string> words) {
        std::vector<std::string> command = {bin_ + "/vuda-simctl", "--socket", socket_};
        command.insert(command.end(), words.begin(), words.end());
        Child child = Child::start(command, {});
        std::string text = child.output();
        return child.wait() == 0 ? text : "failed: " + text;
    }
    // "clients=0 ..." as text; waits until what died has been noticed.
    bool empties() {
        for (int i = 0; i < 200; i++) {
            if (ctl({"counts"}) == "clients=0 objects=0 tsgs=0 channels=0 memories=0 files=0\n") return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return false;
    }
    // Starts a program of the build with the simulator preloaded.
    Child start(const std::string& program, std::vector<std::string> arguments) {
        std::vector<std::string> command = {bin_ + "/" + program};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return Child::start(command, environment());
    }
    std::vector<std::string> environment() const {
        // Sanitizer runtimes want to be first; the preload comes before them by design.
        return {"VUDA_SIM_SOCKET=" + socket_, "LD_PRELOAD=" + lib_ + "/libvuda_sim.so",
                "ASAN_OPTIONS=verify_asan_link_order=0"};
    }
    Child& child() { return server_; }

 private:
    std::string socket_;
    std::string bin_;
    std::string lib_;
    Child server_;
    bool ready_ = false;
};

}  // namespace vuda::sim
