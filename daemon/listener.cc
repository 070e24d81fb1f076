#include "daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/fault_point.h"

namespace vuda::daemon {
namespace {

constexpr int kBacklog = 128;

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());  // check_socket_path left room for the NUL
    return address;
}

std::string directory_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

// strerror alone says "No such file or directory" of a file that was to be made: name what is missing.
Error creation_error(int err, const std::string& what, const std::string& path) {
    Error error = errno_error(err, what);
    const std::string directory = directory_of(path);
    if (err == ENOENT) {
        error.text = "the directory " + directory + " for the socket " + path + " does not exist";
        error.hint = "create it (systemd: RuntimeDirectory=vuda) or choose another path";
    } else if (err == EACCES || err == EROFS || err == EPERM) {
        error.code = Code::kPermissionDenied;
        error.text = "cannot create " + what + ": " + std::strerror(err);
        error.hint = "the directory " + directory + " must be writable for the user vudad runs as";
    }
    return error;
}

// Whoever holds the lock wrote its pid there. For the message only.
std::string lock_holder(int fd) {
    std::array<char, 16> text{};
    const ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
    const long pid = got > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
    return pid > 0 ? "pid " + std::to_string(pid) : "unknown pid";
}

Result<UniqueFd> take_lock(const std::string& path) {
    const std::string file = path + ".lock";
    UniqueFd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
    if (!lock) {
        if (errno == ELOOP) return Error{Code::kFailedPrecondition, file + " is a symbolic link", "remove it"};
        return creation_error(errno, file, path);
    }
    struct stat st {};
    if (::fstat(lock.get(), &st) != 0) return errno_error(errno, "fstat " + file);
    if (!S_ISREG(st.st_mode)) return Error{Code::kFailedPrecondition, file + " is not a regular file", "remove it"};
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return errno_error(errno, "flock " + file);
        return Error{Code::kUnavailable, "another vudad (" + lock_holder(lock.get()) + ") serves " + path,
                     "stop it, or choose other sockets"};
    }
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) {
        return errno_error(errno, "write " + file);
    }
    VUDA_FAULT_POINT(daemon_lock_taken);
    return lock;
}

// With the lock held: what is at `path` now?
Status clear_stale(const std::string& path) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) return errno == ENOENT ? Status() : Status(creation_error(errno, path, path));
    if (!S_ISSOCK(st.st_mode)) {
        return Error{Code::kFailedPrecondition,
                     path + " exists and is " + (S_ISLNK(st.st_mode) ? "a symbolic link" : "not a socket"),
                     "vudad does not remove it; do that yourself"};
    }
    // A socket without its lock: another program's, or left over. Only a refused connection says that nobody listens.
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return errno_error(errno, "socket");
    const sockaddr_un address = address_of(path);
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN) {
        return Error{Code::kUnavailable, "another program listens on " + path, "stop it, or choose other sockets"};
    }
    if (errno != ECONNREFUSED) return errno_error(errno, "probe " + path);
    if (::unlink(path.c_str()) != 0) return creation_error(errno, path, path);
    return {};
}

}  // namespace

Status check_socket_path(const std::string& path) {
    if (path.empty()) return Error{Code::kInvalidArgument, "the socket path is empty", ""};
    if (path.front() == '@' || path.front() == '\0') {
        return Error{Code::kInvalidArgument, "'" + path + "': abstract sockets have no permissions and are refused",
                     "use a path such as /run/vuda/vudad.sock"};
    }
    if (path.find('\0') != std::string::npos) return Error{Code::kInvalidArgument, "the socket path holds a NUL", ""};
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
        return Error{
            Code::kInvalidArgument,
            "the socket path is longer than " + std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes: " + path,
            ""};
    }
    return {};
}

Result<Listener> Listener::bind(const std::string& path, uint32_t mode) {
    if (Status ok = check_socket_path(path); !ok) return ok.error();
    Result<UniqueFd> lock = take_lock(path);
    if (!lock) return lock.error();
    if (Status ok = clear_stale(path); !ok) return ok.error();

    Listener listener;
    listener.path_ = path;
    listener.socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.socket_) return errno_error(errno, "socket");
    // Nobody gets in before chmod has said who may: until listen() a connection is refused anyway.
    ::fchmod(listener.socket_.get(), 0600);
    const sockaddr_un address = address_of(path);
    if (::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return creation_error(errno, path, path);
    }
    VUDA_FAULT_POINT(daemon_socket_bound);
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || ::chmod(path.c_str(), mode) != 0) return errno_error(errno, "chmod " + path);
    listener.device_ = st.st_dev;
    listener.inode_ = st.st_ino;
    listener.lock_ = *std::move(lock);
    if (::listen(listener.socket_.get(), kBacklog) != 0) return errno_error(errno, "listen " + path);
    VUDA_FAULT_POINT(daemon_socket_listening);
    return listener;
}

Result<Listener> Listener::adopt(UniqueFd socket) {
    sockaddr_un address{};
    socklen_t size = sizeof address;
    int listening = 0;
    socklen_t option_size = sizeof listening;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sun_family != AF_UNIX ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &option_size) != 0 || listening == 0) {
        return Error{Code::kInvalidArgument, "the passed descriptor is not a listening Unix socket",
                     "check the .socket unit"};
    }
    int type = 0;
    option_size = sizeof type;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &option_size) != 0 || type != SOCK_STREAM) {
        return Error{Code::kInvalidArgument, "the passed socket is not a stream socket", "use ListenStream="};
    }
    if (size <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0') {
        return Error{Code::kInvalidArgument, "the passed socket has an abstract address",
                     "use a path in ListenStream="};
    }
    const int flags = ::fcntl(socket.get(), F_GETFL);
    if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0) return errno_error(errno, "fcntl");
    Listener listener;
    listener.path_.assign(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
    listener.socket_ = std::move(socket);
    return listener;
}

Listener::~Listener() {
    if (!lock_ || !socket_) return;
    struct stat st {};
    // The lock file stays: removing it would let a third daemon lock a new file while a second one waits on the old.
    if (::lstat(path_.c_str(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_) ::unlink(path_.c_str());
}

Result<std::vector<PassedSocket>> take_passed_sockets() {
    char** names = nullptr;
    const int count = ::sd_listen_fds_with_names(1, &names);
    if (count < 0) return errno_error(-count, "LISTEN_FDS");
    std::vector<PassedSocket> passed;
    for (int i = 0; i < count; ++i) {
        PassedSocket one;
        one.fd = UniqueFd(SD_LISTEN_FDS_START + i);
        one.name = names != nullptr && names[i] != nullptr ? names[i] : "";
        sockaddr_un address{};
        socklen_t size = sizeof address;
        if (::getsockname(one.fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
            address.sun_family == AF_UNIX) {
            one.path.assign(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
        }
        passed.push_back(std::move(one));
    }
    for (int i = 0; names != nullptr && names[i] != nullptr; ++i) std::free(names[i]);
    std::free(names);
    return passed;
}

UniqueFd pick_socket(std::vector<PassedSocket>& passed, const std::string& name, const std::string& path) {
    auto found = std::find_if(passed.begin(), passed.end(), [&](const PassedSocket& one) { return one.name == name; });
    if (found == passed.end()) {
        found = std::find_if(passed.begin(), passed.end(), [&](const PassedSocket& one) { return one.path == path; });
    }
    if (found == passed.end()) return UniqueFd();
    UniqueFd fd = std::move(found->fd);
    passed.erase(found);
    return fd;
}

}  // namespace vuda::daemon
