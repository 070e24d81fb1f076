// A listening Unix socket in the file system, whose path no other vudad serves.
//
// Ownership is decided by flock on "PATH.lock", held for life: the kernel drops it however the holder ends, so what a
// killed daemon leaves behind is never in doubt. Only a socket is ever unlinked, and only when nobody listens on it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace vuda::daemon {

class Listener {
 public:
    // Errors: INVALID_ARGUMENT (abstract address, too long), UNAVAILABLE (served by another process: its pid is in the
    // text), FAILED_PRECONDITION (something that is no socket is in the way), PERMISSION_DENIED, NOT_FOUND (directory).
    static Result<Listener> bind(const std::string& path, uint32_t mode);

    // A socket that a service manager made. It is neither locked nor unlinked.
    static Result<Listener> adopt(UniqueFd socket);

    Listener(Listener&&) noexcept = default;
    Listener& operator=(Listener&&) = delete;
    // Removes the socket, if it is still this one.
    ~Listener();

    int fd() const { return socket_.get(); }
    const std::string& path() const { return path_; }

 private:
    Listener() = default;

    std::string path_;
    UniqueFd socket_;
    UniqueFd lock_;  // valid: this process made the socket
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// Path or INVALID_ARGUMENT: empty, abstract ('@' or NUL first), or longer than sun_path holds.
Status check_socket_path(const std::string& path);

// A socket passed by socket activation.
struct PassedSocket {
    UniqueFd fd;
    std::string name;  // FileDescriptorName= of the .socket unit
    std::string path;  // where it is bound; empty when it is no Unix socket
};

// Takes what LISTEN_FDS offers this process, and clears those variables so that no child misreads them. Empty: no
// activation.
Result<std::vector<PassedSocket>> take_passed_sockets();

// The passed socket that is called `name` or bound to `path`, taken out of the list; an invalid fd when there is none.
UniqueFd pick_socket(std::vector<PassedSocket>& passed, const std::string& name, const std::string& path);

}  // namespace vuda::daemon
