// A descriptor that libvuda owns inside somebody else's process.
//
// Programs close descriptors that are not theirs (closefrom, close_range, dup2 over them), and the number may then
// belong to a file of the program. So an OwnFd remembers which file it opened and acts on the number only while it is
// still that file. That needs an inode per object; anonymous inodes (eventfd, epoll) share one, so libvuda uses pipes
// and sockets only.
//
// All live OwnFds are in a process-wide table without locks, so that a child of fork can close what it inherited.
#pragma once

#include <sys/types.h>

#include "base/unique_fd.h"

namespace vuda::client {

class OwnFd {
 public:
    OwnFd() = default;
    explicit OwnFd(UniqueFd fd);
    OwnFd(OwnFd&& other) noexcept;
    OwnFd& operator=(OwnFd&& other) noexcept;
    OwnFd(const OwnFd&) = delete;
    OwnFd& operator=(const OwnFd&) = delete;
    ~OwnFd() { reset(); }

    int get() const { return fd_; }
    // The number still names the file that was opened.
    bool intact() const;
    // Closes the file, unless somebody else has done so.
    void reset();

 private:
    int fd_ = -1;
    int slot_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// In a child of fork, before anything else of libvuda: closes every OwnFd of the parent. System calls only; touches no
// lock.
void close_own_fds_in_child();

}  // namespace vuda::client
