// Runs a program in the foreground on behalf of the user: to the outside it behaves as if the program itself had been
// started.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/run_environment.h"

namespace vuda::cli {

inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Finds `name` as execvp(3) would, in the PATH of `env`. Errors: NOT_FOUND, PERMISSION_DENIED (found, not executable).
Result<std::string> resolve_program(const std::string& name, const Environment& env);

// Takes the signals that are to reach the program, from now until the end. Make it before any thread, so that no thread
// takes a signal instead.
class SignalRelay {
 public:
    SignalRelay();
    ~SignalRelay();
    SignalRelay(const SignalRelay&) = delete;
    SignalRelay& operator=(const SignalRelay&) = delete;

    // Starts `path` and waits for its end. Signals sent to this process go on to the program; those that a terminal
    // sends to the whole foreground group have reached it already. When the program is stopped by job control, so is
    // this process. The program dies with this process. `started` is called with its pid, before the program can have
    // done anything that matters to the caller: it waits for it. Returns the exit status to end with: the program's
    // own, 128 + signal number if a signal ended it, 126 or 127 (with `exec_error` filled) if it could not be started.
    int run(const std::string& path, const std::vector<std::string>& arguments, const Environment& env,
            Error* exec_error, const std::function<void(pid_t)>& started = {});

 private:
    bool take_signal();
    bool reap(int* status);

    sigset_t old_mask_{};
    struct sigaction old_chld_ {};
    UniqueFd signals_;
    pid_t child_ = 0;
};

}  // namespace vuda::cli
