#include "trace/sink.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace vuda::trace {
namespace {

// Straight to the kernel: the C library's functions are hooked, by this recorder and by others.
int raw_open(const char* path, int flags) {
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY, 0644));
}
void raw_close(int fd) { ::syscall(SYS_close, fd); }

constexpr int kMaxFilesPerPid = 100;

}  // namespace

bool Sink::write_to(int fd, std::string_view text) {
    while (!text.empty()) {
        const long n = ::syscall(SYS_write, fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            failed_ = true;  // a full disk: stop, the program goes on
            return false;
        }
        text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

bool Sink::start(std::string_view header) {
    const pid_t pid = ::getpid();
    for (int i = -1; i < kMaxFilesPerPid; ++i) {
        file_ = path_;
        if (i >= 0) file_ += '.' + std::to_string(pid);
        if (i >= 1) file_ += '.' + std::to_string(i);
        const int fd = raw_open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) break;
        owner_ = pid;
        const bool ok = write_to(fd, header);
        raw_close(fd);
        return ok;
    }
    failed_ = true;
    return false;
}

bool Sink::append(std::string_view text) {
    if (failed_ || owner_ == 0) return false;
    const int fd = raw_open(file_.c_str(), O_WRONLY | O_APPEND);
    if (fd < 0) {
        failed_ = errno != EMFILE && errno != ENFILE;
        return false;
    }
    const bool ok = write_to(fd, text);
    raw_close(fd);
    return ok;
}

}  // namespace vuda::trace
