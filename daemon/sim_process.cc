#include "daemon/sim_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <climits>
#include <utility>

#include "daemon/readiness.h"

namespace vuda::daemon {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

constexpr int kReadyNumber = 3;  // the simulator's descriptor 3

std::string describe_exit(int status) {
    if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
    return "exited with status " + std::to_string(WEXITSTATUS(status));
}

Result<pid_t> spawn(const SimOptions& options, int ready_fd) {
    const std::string number = std::to_string(kReadyNumber);
    std::array<const char*, 8> arguments = {options.program.c_str(), "--socket", options.socket.c_str(), "--ready-fd",
                                            number.c_str(),          "--preset", options.preset.c_str(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ready_fd, kReadyNumber);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    // The daemon's blocked or ignored signals are not the simulator's.
    sigset_t none;
    sigset_t usual;
    ::sigemptyset(&none);
    ::sigemptyset(&usual);
    ::sigaddset(&usual, SIGPIPE);
    ::sigaddset(&usual, SIGTERM);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t pid = -1;
    const int rc = ::posix_spawn(&pid, options.program.c_str(), &actions, &attributes,
                                 const_cast<char**>(arguments.data()), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) return errno_error(rc, "start " + options.program);
    return pid;
}

}  // namespace

SimProcess::SimProcess(boost::asio::io_context& loop, SimOptions options)
    : loop_(loop),
      options_(std::move(options)),
      pidfd_(loop),
      ready_(loop),
      timer_(loop),
      pause_(options_.first_pause) {}

SimProcess::~SimProcess() {
    *alive_ = false;
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    pollfd entry{pidfd_.is_open() ? pidfd_.native_handle() : -1, POLLIN, 0};
    if (::poll(&entry, 1, 1000) <= 0) ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
}

void SimProcess::start(std::function<void(Status)> started) {
    started_ = std::move(started);
    launch();
}

void SimProcess::report(Status status) {
    timer_.cancel();
    if (!started_) return;
    boost::asio::post(loop_, [started = std::exchange(started_, {}), status = std::move(status)] { started(status); });
}

void SimProcess::launch() {
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return report(errno_error(errno, "pipe"));
    UniqueFd reader(pipe_fds[0]);
    UniqueFd writer(pipe_fds[1]);
    // dup2 onto itself would leave close-on-exec set, and the simulator without its end.
    if (writer.get() == kReadyNumber) writer.reset(::fcntl(writer.get(), F_DUPFD_CLOEXEC, kReadyNumber + 1));
    const Result<pid_t> child = spawn(options_, writer.get());
    if (!child) return report(child.error());
    pid_ = *child;
    // Not reaped yet, so the pid cannot be another process's.
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    error_code failed;
    if (pidfd) pidfd_.assign(pidfd.get(), failed);
    if (!pidfd || failed) return report(errno_error(errno, "pidfd_open"));
    pidfd.release();
    wait_exit();
    ready_.assign(reader.release(), failed);
    if (started_) {
        timer_.expires_after(options_.start_limit);
        timer_.async_wait([this, alive = alive_](const error_code& error) {
            if (!error && *alive) {
                report(Error{Code::kDeadlineExceeded,
                             "vuda-simd was not ready within " + std::to_string(options_.start_limit.count()) + " ms",
                             ""});
            }
        });
    }
    read_ready();
}

void SimProcess::wait_exit() {
    pidfd_.async_wait(stream_descriptor::wait_read, [this, alive = alive_](const error_code& error) {
        if (error || !*alive) return;
        // exited() waits for it.
        if (!is_ready(pidfd_.native_handle(), POLLIN)) return wait_exit();
        exited();
    });
}

void SimProcess::read_ready() {
    ready_.async_read_some(
        boost::asio::buffer(&ready_byte_, 1), [this, alive = alive_](const error_code& error, size_t) {
            if (!*alive || error == boost::asio::error::operation_aborted) return;
            error_code ignored;
            ready_.close(ignored);
            if (error) return;  // the end of the process says more
            spdlog::info("simulated GPU '{}' (vuda-simd, pid {}) on {}", options_.preset, pid_, options_.socket);
            report({});
        });
}

void SimProcess::exited() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    error_code ignored;
    pidfd_.close(ignored);
    ready_.close(ignored);
    const std::string how = "vuda-simd " + describe_exit(status);
    if (started_) return report(Error{Code::kUnavailable, how + " before it was ready", "its own message is above"});
    spdlog::error("{}; what ran on the simulated GPU is lost; starting it again in {} ms", how, pause_.count());
    timer_.expires_after(pause_);
    pause_ = std::min(pause_ * 2, std::chrono::milliseconds(8000));
    timer_.async_wait([this, alive = alive_](const error_code& error) {
        if (!error && *alive) launch();
    });
}

Result<std::string> find_simd() {
    std::array<char, PATH_MAX> self;
    const ssize_t size = ::readlink("/proc/self/exe", self.data(), self.size());
    std::string folder(self.data(), size > 0 ? static_cast<size_t>(size) : 0);
    folder.resize(folder.rfind('/') + 1);
    // Beside this executable (a build tree); bindir seen from sbindir, also when the prefix was moved; libexecdir.
    const std::string beside = folder + "vuda-simd";
    const std::string installed = folder + "../bin/vuda-simd";
    const std::string libexec = VUDA_LIBEXEC_DIR "/vuda-simd";
    for (const std::string& path : {beside, installed, libexec}) {
        if (::access(path.c_str(), X_OK) == 0) return path;
    }
    return Error{Code::kNotFound, "vuda-simd is none of " + beside + ", " + installed + " and " + libexec,
                 "build or install the simulator"};
}

}  // namespace vuda::daemon
