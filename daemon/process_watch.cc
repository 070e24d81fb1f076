#include "daemon/process_watch.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "daemon/readiness.h"

namespace vuda::daemon {

ProcessWatch::ProcessWatch(boost::asio::io_context& loop, const Peer& peer, std::function<void()> ended)
    : pidfd_(loop), ended_(std::move(ended)) {
    if (!peer.pidfd) return;
    // A duplicate: several connections of one process may watch it, and epoll wants each descriptor once.
    const int fd = ::fcntl(peer.pidfd->get(), F_DUPFD_CLOEXEC, 0);
    boost::system::error_code error;
    if (fd >= 0) pidfd_.assign(fd, error);
    if (fd < 0 || error) {
        if (fd >= 0) ::close(fd);
        // The end of the connection still shows.
        spdlog::warn("cannot watch {} for its end: out of file descriptors?", peer.describe());
        return;
    }
    wait();
}

void ProcessWatch::wait() {
    pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, alive = alive_](const boost::system::error_code& failed) {
                          if (failed || !*alive) return;
                          if (!is_ready(pidfd_.native_handle(), POLLIN)) return wait();
                          // It may destroy this watch.
                          const std::function<void()> ended = std::move(ended_);
                          ended();
                      });
}

}  // namespace vuda::daemon
