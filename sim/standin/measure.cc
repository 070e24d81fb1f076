#include "sim/standin/measure.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/unique_fd.h"
#include "rm/abi.h"

namespace vuda::sim::standin {

std::atomic<bool> g_stop{false};

namespace {

void stop(int) { g_stop.store(true, std::memory_order_relaxed); }

}  // namespace

void watch_signals() {
    struct sigaction action {};
    action.sa_handler = stop;
    (void)sigaction(SIGTERM, &action, nullptr);
    (void)sigaction(SIGINT, &action, nullptr);
}

double Samples::percentile(double p) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    // Nearest rank: the smallest sample that at least that share of all samples does not exceed.
    const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(sorted.size())));
    const size_t at = std::clamp<size_t>(rank, 1, sorted.size()) - 1;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(at), sorted.end());
    return sorted[at];
}

void Json::key(const char* name) {
    if (!body_.empty()) body_ += ",";
    body_ += std::string("\"") + name + "\":";
}

Json& Json::text(const char* name, const std::string& value) {
    key(name);
    body_ += "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') body_ += '\\';
        body_ += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    body_ += "\"";
    return *this;
}

Json& Json::number(const char* name, double value) {
    key(name);
    char text[64];
    std::snprintf(text, sizeof text, "%.4f", std::isfinite(value) ? value : 0.0);
    body_ += text;
    return *this;
}

Json& Json::integer(const char* name, int64_t value) {
    key(name);
    body_ += std::to_string(value);
    return *this;
}

Json& Json::flag(const char* name, bool value) {
    key(name);
    body_ += value ? "true" : "false";
    return *this;
}

Json& Json::trace(const char* name, const Trace& value) {
    key(name);
    body_ += value.json();
    return *this;
}

std::string Trace::json() const {
    std::string text = "[";
    char entry[64];
    for (const Entry& one : entries_) {
        std::snprintf(entry, sizeof entry, "%s[%.3f,%.3f]", text.size() > 1 ? "," : "",
                      static_cast<double>(one.end_ns) / 1e6, one.ms);
        text += entry;
    }
    return text + "]";
}

void Pacer::wait() {
    if (per_second_ <= 0) return;
    due_ += std::chrono::nanoseconds(static_cast<int64_t>(1e9 / per_second_));
    due_ = std::max(due_, Clock::now());
    std::this_thread::sleep_until(due_);
}

void Checksum::add(uint64_t value) {
    for (int i = 0; i < 8; i++) {
        state_ ^= (value >> (8 * i)) & 0xff;
        state_ *= 0x100000001b3;
    }
}

std::string Checksum::hex() const {
    char text[24];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(state_));
    return text;
}

Window::Window(const std::string& start_file, double seconds, uint64_t units, double linger_seconds)
    : start_file_(start_file),
      limit_seconds_(seconds),
      limit_units_(units),
      linger_seconds_(linger_seconds),
      started_(start_file.empty()) {}

bool Window::go_on(uint64_t done) {
    const auto now = Clock::now();
    if (!started_) {
        if (access(start_file_.c_str(), F_OK) != 0) return true;
        started_ = true;
        start_ = now;
    }
    if (!measured_) {
        const double passed = std::chrono::duration<double>(now - start_).count();
        if (limit_units_ != 0 ? done < limit_units_ : passed < limit_seconds_) return true;
        measured_ = true;
        end_ = now;
    }
    return std::chrono::duration<double>(now - end_).count() < linger_seconds_;
}

double Window::seconds() const {
    return std::chrono::duration<double>((measured_ ? end_ : Clock::now()) - start_).count();
}

void touch(const std::string& path) {
    if (path.empty()) return;
    UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void append_line(const std::string& path, const std::string& line) {
    UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const std::string text = line + "\n";
    if (file.valid()) (void)!write(file.get(), text.data(), text.size());
}

bool fork_and_use_device() {
    const pid_t child = fork();
    if (child == 0) {
        UniqueFd file(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
        rm::AllocArgs root{};
        root.hClass = rm::cls::kRootClient;
        const bool good = file.valid() &&
                          ioctl(file.get(), rm::rm_request(rm::escape::kAlloc, sizeof root), &root) == 0 &&
                          root.status == rm::nv::kOk && root.hObjectNew != 0;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    pid_t waited;
    do waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    return child > 0 && waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void close_descriptors(int first) { (void)syscall(SYS_close_range, first, ~0u, 0); }

void execute_again(char** argv) {
    std::vector<char*> rest;
    for (char** at = argv; *at != nullptr; at++) {
        if (std::strcmp(*at, "--exec-self") != 0) rest.push_back(*at);
    }
    rest.push_back(nullptr);
    (void)execv("/proc/self/exe", rest.data());
}

}  // namespace vuda::sim::standin
