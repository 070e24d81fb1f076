// A vudad of this build in a folder of its own, and what /proc says about it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace vuda::load {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}
inline double ms_between(Clock::time_point start, Clock::time_point end) {
    return std::chrono::duration<double, std::milli>(end - start).count();
}

class Daemon {
 public:
    // `vudad`: the program. `config`: TOML besides the sockets. Starts it and waits until it says READY.
    Daemon(const std::string& vudad, const std::string& config);
    ~Daemon();  // ends it and removes the folder
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    bool ready() const { return ready_; }
    // When the program was started.
    Clock::time_point started() const { return started_; }
    // From starting the program to READY=1 on the notification socket.
    double ready_ms() const { return ready_ms_; }
    bool running() const;
    // An accident.
    void kill();
    // SIGTERM; its exit status, or 128 + the signal, or -1 when it does not end.
    int stop();
    // Again on the same sockets.
    void start();

    pid_t pid() const { return pid_; }
    std::string control() const { return folder_ + "/vudad.sock"; }
    std::string handles() const { return folder_ + "/handles.sock"; }
    const std::string& folder() const { return folder_; }

    // Processor time of all its threads so far, milliseconds.
    double cpu_ms() const;
    double rss_mb() const;
    size_t fds() const;
    size_t threads() const;
    // Last lines of its log.
    std::string log_tail() const;

 private:
    std::string vudad_;
    std::string folder_;
    pid_t pid_ = -1;
    UniqueFd pidfd_;
    UniqueFd notify_;
    bool ready_ = false;
    Clock::time_point started_;
    double ready_ms_ = 0;
};

// Limits out of the way of a measurement, so that one user can play them all.
std::string wide_limits();

// The first number of /proc/loadavg.
double load_average();

// Soft limit of open files to the hard one: a crew has a line to each of its processes.
void raise_descriptor_limit();

}  // namespace vuda::load
