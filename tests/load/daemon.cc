#include "tests/load/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace vuda::load {
namespace {

constexpr int kPatienceMs = 30'000;

std::string slurp(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

UniqueFd notify_socket(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    ::unlink(path.c_str());
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return fd;
}

size_t entries(const std::string& path) {
    std::error_code error;
    size_t count = 0;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) ++count;
    return count;
}

}  // namespace

Daemon::Daemon(const std::string& vudad, const std::string& config) : vudad_(vudad) {
    char name[] = "/tmp/vuda-load-XXXXXX";
    if (::mkdtemp(name) == nullptr) return;
    folder_ = name;
    ::chmod(name, 0755);  // for strangers
    std::ofstream(folder_ + "/vudad.toml")
        << "[socket]\ncontrol = \"" << control() << "\"\nhandles = \"" << handles() << "\"\n"
        << config;
    notify_ = notify_socket(folder_ + "/notify.sock");
    start();
}

Daemon::~Daemon() {
    if (running()) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void Daemon::start() {
    ready_ = false;
    const std::string notify = folder_ + "/notify.sock";
    const std::string config = folder_ + "/vudad.toml";
    const std::string log = folder_ + "/log";
    const pid_t parent = ::getpid();
    started_ = Clock::now();
    pid_ = ::fork();
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (out >= 0) ::dup2(out, 2), ::dup2(out, 1);
        ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
        ::setenv("NOTIFY_SOCKET", notify.c_str(), 1);
        ::unsetenv("JOURNAL_STREAM");
        ::unsetenv("STATE_DIRECTORY");
        ::execl(vudad_.c_str(), "vudad", "--config", config.c_str(), static_cast<char*>(nullptr));
        ::_exit(127);
    }
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    const Clock::time_point deadline = started_ + Milliseconds(kPatienceMs);
    while (!ready_ && Clock::now() < deadline) {
        pollfd fds[2] = {{notify_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}};
        if (::poll(fds, 2, kPatienceMs) <= 0) break;
        if (fds[0].revents == 0) break;  // it has ended
        std::array<char, 1024> text;
        const ssize_t got = ::recv(notify_.get(), text.data(), text.size(), 0);
        if (got > 0 &&
            std::string_view(text.data(), static_cast<size_t>(got)).find("READY=1") != std::string_view::npos)
            ready_ = true;
    }
    ready_ms_ = ms_between(started_, Clock::now());
}

bool Daemon::running() const {
    pollfd end{pidfd_.get(), POLLIN, 0};
    return pid_ > 0 && pidfd_ && ::poll(&end, 1, 0) == 0;
}

void Daemon::kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

int Daemon::stop() {
    if (pid_ <= 0) return -1;
    ::kill(pid_, SIGTERM);
    pollfd end{pidfd_.get(), POLLIN, 0};
    if (::poll(&end, 1, kPatienceMs) != 1) return -1;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    // What it said on its way out is none of the next one's READY.
    std::array<char, 1024> drop;
    while (::recv(notify_.get(), drop.data(), drop.size(), MSG_DONTWAIT) > 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

double Daemon::cpu_ms() const {
    clockid_t clock{};
    timespec time{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double Daemon::rss_mb() const {
    const std::string status = slurp("/proc/" + std::to_string(pid_) + "/status");
    const size_t at = status.find("VmRSS:");
    return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + 6, nullptr) / 1024;
}

size_t Daemon::fds() const { return entries("/proc/" + std::to_string(pid_) + "/fd"); }
size_t Daemon::threads() const { return entries("/proc/" + std::to_string(pid_) + "/task"); }

std::string Daemon::log_tail() const {
    const std::string log = slurp(folder_ + "/log");
    return log.size() > 2000 ? log.substr(log.size() - 2000) : log;
}

std::string wide_limits() {
    return "[limits]\nprograms_per_tsg = 128\nsame_addresses = true\nconnections = 16384\nconnections_per_uid = "
           "16384\nsessions_per_uid = "
           "16384\nnames_per_uid = "
           "1024\nhandles_per_uid = 65536\nrequests_per_s = 0\n";
}

double load_average() { return std::strtod(slurp("/proc/loadavg").c_str(), nullptr); }

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace vuda::load
