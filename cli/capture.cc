#include "cli/capture.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "cli/run_environment.h"

namespace vuda::cli {
namespace {

constexpr const char* kPath = "PATH=/usr/bin:/bin:/usr/sbin:/sbin";

}  // namespace

Result<std::string> capture(const std::vector<std::string>& arguments, const CaptureLimits& limits) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error(errno, "pipe");
    const UniqueFd from(ends[0]);
    UniqueFd into(ends[1]);
    std::vector<char*> words;
    words.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    std::array<char*, 3> environment = {const_cast<char*>(kPath), const_cast<char*>("LC_ALL=C.UTF-8"), nullptr};

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, into.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, into.get(), STDERR_FILENO);
    pid_t child = 0;
    int failed = ENOENT;
    for (const char* folder : {"/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"}) {
        const std::string program = folder + arguments.front();
        failed = ::posix_spawn(&child, program.c_str(), &actions, nullptr, words.data(), environment.data());
        if (failed == 0) break;
    }
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return errno_error(failed, arguments.front());
    into.reset();

    std::string output;
    const Deadline until = deadline_in(limits.time);
    bool in_time = true;
    for (std::array<char, 4096> chunk;;) {
        const ssize_t got = ::read(from.get(), chunk.data(), chunk.size());
        if (got > 0) {
            output.append(chunk.data(), static_cast<size_t>(got));
            if (output.size() > limits.bytes) output.erase(0, output.size() - limits.bytes);
        } else if (got == 0) {
            break;
        } else if (errno == EAGAIN) {
            in_time = wait_readable(from.get(), until).ok();
            if (!in_time) break;
        } else if (errno != EINTR) {
            break;
        }
    }
    if (!in_time) {
        ::kill(child, SIGKILL);
        output += "\n(ended after " + std::to_string(limits.time.count()) + " ms)\n";
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (in_time && WIFEXITED(status) && WEXITSTATUS(status) != 0)
        output += "(exit status " + std::to_string(WEXITSTATUS(status)) + ")\n";
    return output;
}

}  // namespace vuda::cli
