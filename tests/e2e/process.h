// Child processes of a test: outputs captured, every wait bounded, nothing left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace vuda::e2e {

// For what must happen; a loaded machine with two cores gets there well before.
inline constexpr std::chrono::seconds kPatience{30};

using Clock = std::chrono::steady_clock;

struct Command {
    std::vector<std::string> argv;           // argv[0]: path
    std::map<std::string, std::string> env;  // on top of a minimal environment; "" removes
    uid_t uid = static_cast<uid_t>(-1);      // run as this user; needs root
};

class Process {
 public:
    // Starts the program in a process group of its own. It dies with the test program.
    explicit Process(const Command& command);
    // SIGKILL to the group, then reaps.
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    pid_t pid() const { return pid_; }
    const std::string& out() const { return out_; }
    const std::string& err() const { return err_; }

    // Until `text` is in stdout (stderr). False: the program ended or time is up without it.
    bool wait_out(std::string_view text, std::chrono::milliseconds patience = kPatience);
    bool wait_err(std::string_view text, std::chrono::milliseconds patience = kPatience);

    // Until the program ends. Its exit status; 128 + N for signal N; -1 when time is up.
    int wait(std::chrono::milliseconds patience = kPatience);
    bool running();

    void signal(int number) const;
    // Writes to its stdin; false when it is closed.
    bool write_line(std::string_view line);

 private:
    bool pump(std::chrono::milliseconds patience, const std::function<bool()>& done);
    bool drain(UniqueFd& from, std::string& to);

    pid_t pid_ = -1;
    UniqueFd pidfd_;
    UniqueFd in_;
    UniqueFd out_fd_;
    UniqueFd err_fd_;
    std::string out_;
    std::string err_;
    int status_ = -1;
    bool reaped_ = false;
};

struct Finished {
    int status = -1;
    std::string out;
    std::string err;
    std::chrono::milliseconds took{};
};

// Starts, waits, collects.
Finished run(const Command& command, std::chrono::milliseconds patience = kPatience);

// Lines of `text` that are not empty.
std::vector<std::string> lines(std::string_view text);

// Calls `condition` until it is true, for what can only be looked at (a process table, a daemon's status).
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience = kPatience);

// Open descriptors of a process, by target ("socket:[1]" as "socket"), for counts before and after.
size_t open_fds(pid_t pid);

}  // namespace vuda::e2e
