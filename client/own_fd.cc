#include "client/own_fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace vuda::client {
namespace {

// fd < 0: free (-1) or being filled (-2). The rest is written before fd becomes valid.
struct Slot {
    std::atomic<int> fd{-1};
    std::atomic<dev_t> device{0};
    std::atomic<ino_t> inode{0};
};

// Session, wake-up pipe and one connection for each thread that attaches; when it is full an fd is merely not closed in
// a child.
constinit std::array<Slot, 64> g_slots;

int claim_slot(int fd, dev_t device, ino_t inode) {
    for (size_t i = 0; i < g_slots.size(); ++i) {
        int expected = -1;
        if (!g_slots[i].fd.compare_exchange_strong(expected, -2)) continue;
        g_slots[i].device = device;
        g_slots[i].inode = inode;
        g_slots[i].fd = fd;
        return static_cast<int>(i);
    }
    return -1;
}

}  // namespace

OwnFd::OwnFd(UniqueFd fd) {
    struct stat status;
    if (!fd || ::fstat(fd.get(), &status) != 0) return;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    fd_ = fd.release();
    slot_ = claim_slot(fd_, device_, inode_);
}

OwnFd::OwnFd(OwnFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      slot_(std::exchange(other.slot_, -1)),
      device_(other.device_),
      inode_(other.inode_) {}

OwnFd& OwnFd::operator=(OwnFd&& other) noexcept {
    if (this != &other) {
        reset();
        fd_ = std::exchange(other.fd_, -1);
        slot_ = std::exchange(other.slot_, -1);
        device_ = other.device_;
        inode_ = other.inode_;
    }
    return *this;
}

bool OwnFd::intact() const {
    struct stat status;
    return fd_ >= 0 && ::fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void OwnFd::reset() {
    if (fd_ < 0) return;
    const int saved = errno;
    if (slot_ >= 0) g_slots[static_cast<size_t>(slot_)].fd = -1;
    if (intact()) ::close(fd_);
    fd_ = slot_ = -1;
    errno = saved;
}

void close_own_fds_in_child() {
    for (Slot& slot : g_slots) {
        const int fd = slot.fd.exchange(-1);
        if (fd < 0) continue;
        // System calls directly: close and fstat may be hooked, and the hooks' locks may be held by a thread that this
        // child does not have.
        struct stat status;
        if (::syscall(SYS_fstat, fd, &status) == 0 && status.st_dev == slot.device && status.st_ino == slot.inode) {
            ::syscall(SYS_close, fd);
        }
    }
}

}  // namespace vuda::client
