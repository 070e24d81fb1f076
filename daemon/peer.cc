#include "daemon/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "daemon/text.h"

namespace vuda::daemon {
namespace {

// Not in Debian 12's headers. Source: linux/include/uapi/asm-generic/socket.h, linux/magic.h.
constexpr int kSoPeerPidfd = 77;
constexpr long kPidFsMagic = 0x50494446;

// A file of /proc/PID, at most `limit` bytes. These are made by the kernel on the spot and never block.
Result<std::string> read_proc(pid_t pid, const char* file, size_t limit) {
    const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return errno_error(errno, "open " + path);
    std::string out(limit, '\0');
    const ssize_t got = ::read(fd.get(), out.data(), out.size());
    if (got < 0) return errno_error(errno, "read " + path);
    out.resize(static_cast<size_t>(got));
    return out;
}

// The path that was executed; empty when the kernel does not say. A file that was replaced meanwhile is the same
// program.
std::string executable(pid_t pid) {
    std::string out(4096, '\0');
    const ssize_t size = ::readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), out.data(), out.size());
    out.resize(size > 0 ? static_cast<size_t>(size) : 0);
    constexpr std::string_view kDeleted = " (deleted)";
    if (out.ends_with(kDeleted)) out.resize(out.size() - kDeleted.size());
    return out;
}

// The pid that was read about was the peer's all the time.
bool alive(int pidfd) {
    pollfd entry{pidfd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 0;
}

// Field 22 of /proc/PID/stat. Field 2, the program's name, may hold spaces and parentheses: count from the last ')'.
Result<uint64_t> start_time(pid_t pid) {
    Result<std::string> stat = read_proc(pid, "stat", 4096);
    if (!stat) return stat.error();
    const std::string_view text = *stat;
    size_t pos = text.rfind(')');
    for (int field = 2; field < 22 && pos != std::string_view::npos; ++field) pos = text.find(' ', pos + 1);
    if (pos == std::string_view::npos) return Error{Code::kInternal, "/proc/PID/stat has an unknown form", ""};
    return std::strtoull(stat->c_str() + pos + 1, nullptr, 10);
}

Result<UniqueFd> open_pidfd(int socket, pid_t pid) {
    int fd = -1;
    socklen_t size = sizeof fd;
    if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &size) == 0) return UniqueFd(fd);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return errno_error(errno, "SO_PEERPIDFD");
    if (errno != ENOPROTOOPT) {
        return Error{Code::kUnavailable, "the connecting process has already ended", ""};
    }
    if (pid == 0) {
        return Error{Code::kFailedPrecondition, "the peer lives in a PID namespace that vudad cannot see",
                     "Linux 6.5 or newer is needed for this"};
    }
    fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return errno_error(errno, "pidfd_open");
    return UniqueFd(fd);
}

std::vector<gid_t> peer_groups(int socket) {
    std::vector<gid_t> groups(32);
    for (;;) {
        auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
        const int rc = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
        if (rc != 0 && errno != ERANGE) return {};
        groups.resize(size / sizeof(gid_t));
        if (rc == 0) return groups;
    }
}

}  // namespace

std::string Peer::describe() const {
    return "pid " + std::to_string(process.pid) + " (" + program + "), uid " + std::to_string(uid);
}

Result<ProcessKey> process_key(pid_t pid, int pidfd) {
    struct statfs fs {};
    struct stat st {};
    if (::fstatfs(pidfd, &fs) == 0 && fs.f_type == kPidFsMagic && ::fstat(pidfd, &st) == 0) {
        return ProcessKey{pid, st.st_ino};
    }
    Result<uint64_t> started = start_time(pid);
    if (!started) return started.error();
    return ProcessKey{pid, *started};
}

Result<Peer> read_peer(int socket) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
        return errno_error(errno, "SO_PEERCRED");
    }
    Result<UniqueFd> pidfd = open_pidfd(socket, credentials.pid);
    if (!pidfd) return pidfd.error();
    Result<ProcessKey> key = process_key(credentials.pid, pidfd->get());
    if (!key) return key.error();

    Peer peer;
    peer.process = *key;
    peer.uid = credentials.uid;
    peer.gid = credentials.gid;
    peer.groups = peer_groups(socket);
    Result<std::string> comm = read_proc(credentials.pid, "comm", kProgramLimit);
    if (comm && !comm->empty() && comm->back() == '\n') comm->pop_back();
    peer.program = comm ? clean_text(*comm, kProgramLimit) : "?";
    peer.exe = executable(credentials.pid);
    if (!alive(pidfd->get())) peer.exe.clear();
    peer.pidfd = std::make_shared<const UniqueFd>(*std::move(pidfd));
    return peer;
}

}  // namespace vuda::daemon
