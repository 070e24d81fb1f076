#include "cli/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace vuda::cli {
namespace {

constexpr std::array kRelayed = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};

sigset_t taken_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kRelayed) sigaddset(&set, signal);
    sigaddset(&set, SIGCHLD);
    return set;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
    result.push_back(nullptr);
    return result;
}

Error start_error(int err, const std::string& name) {
    Error error = errno_error(err, "cannot run " + name);
    if (err == ENOENT) error.code = Code::kNotFound;
    return error;
}

// A signal that ends a program and came while there was none yet: whoever sent it wants an end. 0: none.
int pending_end() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        struct sigaction now {};
        if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, signal);
    }
    const timespec at_once{};
    const int signal = sigtimedwait(&set, nullptr, &at_once);
    return signal > 0 ? signal : 0;
}

int start_status(int err) { return err == ENOENT ? kExitNotFound : kExitNotExecutable; }

}  // namespace

Result<std::string> resolve_program(const std::string& name, const Environment& env) {
    if (name.empty()) return start_error(ENOENT, "''");
    if (name.find('/') != std::string::npos) {
        if (access(name.c_str(), F_OK) != 0) return start_error(errno == ENOTDIR ? ENOENT : errno, name);
        struct stat info {};
        if (stat(name.c_str(), &info) != 0) return start_error(errno, name);
        if (S_ISDIR(info.st_mode) || access(name.c_str(), X_OK) != 0) return start_error(EACCES, name);
        return name;
    }
    const std::string path = get_env(env, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    int failure = ENOENT;
    for (size_t start = 0; start <= path.size();) {
        const size_t end = std::min(path.find(':', start), path.size());
        // An empty element is the current folder (execvp(3)).
        const std::string candidate = end == start ? "./" + name : path.substr(start, end - start) + "/" + name;
        start = end + 1;
        struct stat info {};
        if (stat(candidate.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
        if (access(candidate.c_str(), X_OK) == 0) return candidate;
        failure = EACCES;
    }
    return start_error(failure, name);
}

SignalRelay::SignalRelay() {
    const sigset_t set = taken_signals();
    pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
    // A parent that ignores SIGCHLD would make wait() lose the status.
    struct sigaction fallback {};
    fallback.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &fallback, &old_chld_);
    signals_.reset(signalfd(-1, &set, SFD_CLOEXEC));
}

SignalRelay::~SignalRelay() {
    sigaction(SIGCHLD, &old_chld_, nullptr);
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

int SignalRelay::run(const std::string& path, const std::vector<std::string>& arguments, const Environment& env,
                     Error* exec_error, const std::function<void(pid_t)>& started) {
    std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(env);
    // For files without "#!", as execvp(3) does it.
    std::vector<char*> shell_argv = {const_cast<char*>("/bin/sh"), const_cast<char*>(path.c_str())};
    shell_argv.insert(shell_argv.end(), argv.begin() + 1, argv.end());

    int ends[2], gate[2];
    if (!signals_ || pipe2(ends, O_CLOEXEC) != 0) {
        *exec_error = errno_error(errno, "cannot run " + path);
        return kExitNotExecutable;
    }
    UniqueFd failure_in(ends[0]), failure_out(ends[1]);
    if (pipe2(gate, O_CLOEXEC) != 0) {
        *exec_error = errno_error(errno, "cannot run " + path);
        return kExitNotExecutable;
    }
    UniqueFd gate_in(gate[0]), gate_out(gate[1]);
    if (const int signal = pending_end()) return 128 + signal;
    const pid_t parent = getpid();
    // No atfork handlers: the child calls nothing but system calls before exec, and gRPC's handlers would take locks.
    child_ = _Fork();
    if (child_ < 0) {
        child_ = 0;
        *exec_error = errno_error(errno, "cannot run " + path);
        return kExitNotExecutable;
    }
    if (child_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(kExitNotExecutable);
        sigaction(SIGCHLD, &old_chld_, nullptr);
        sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
        // End of file on the gate: `started` has returned.
        close(gate_out.get());
        char nothing = 0;
        while (read(gate_in.get(), &nothing, 1) < 0 && errno == EINTR) {
        }
        execve(path.c_str(), argv.data(), envp.data());
        if (errno == ENOEXEC) execve("/bin/sh", shell_argv.data(), envp.data());
        const int err = errno;
        const ssize_t sent = write(failure_out.get(), &err, sizeof err);
        _exit(sent == sizeof err ? start_status(err) : kExitNotExecutable);
    }
    failure_out.reset();
    if (started) started(child_);
    gate_out.reset();

    int status = 0;
    while (!reap(&status)) {
        if (take_signal()) continue;
        while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
        }
        break;
    }
    int err = 0;
    if (read(failure_in.get(), &err, sizeof err) == sizeof err) {
        *exec_error = start_error(err, path);
        return start_status(err);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Waits for one signal and acts on it. False: signals cannot be read any more.
bool SignalRelay::take_signal() {
    signalfd_siginfo info{};
    const ssize_t got = read(signals_.get(), &info, sizeof info);
    if (got < 0 && errno == EINTR) return true;
    if (got != sizeof info) return false;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) return true;
    // The kernel sends Ctrl-C and its like to every process of the foreground group: sending it again would make it
    // two.
    const bool from_terminal = info.ssi_code == SI_KERNEL;
    if (!from_terminal || signal == SIGCONT) kill(child_, signal);
    return true;
}

// True when the program has ended.
bool SignalRelay::reap(int* status) {
    for (;;) {
        const pid_t pid = waitpid(child_, status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return true;
        if (pid == 0) return false;
        if (!WIFSTOPPED(*status)) return true;
        // Stop along on job control, so that the shell sees its job stopped. Someone else's SIGSTOP to the program
        // alone is that person's business: we could not tell when it is undone.
        const int signal = WSTOPSIG(*status);
        if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) raise(SIGSTOP);
    }
}

}  // namespace vuda::cli
