#include "daemon/acceptor.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fault_point.h"

namespace vuda::daemon {

ConnectionSlot::ConnectionSlot(std::shared_ptr<ConnectionCount> count, uid_t uid)
    : count_(std::move(count)), uid_(uid) {
    ++count_->per_uid_[uid_];
    ++count_->total_;
}

ConnectionSlot::~ConnectionSlot() {
    if (!count_) return;
    const auto found = count_->per_uid_.find(uid_);
    if (--found->second == 0) count_->per_uid_.erase(found);
    --count_->total_;
}

bool ConnectionSlot::within(const ConnectionLimits& limits) const {
    return count_->total_ <= limits.total && count_->per_uid_.at(uid_) <= limits.per_uid;
}

Acceptor::Acceptor(boost::asio::io_context& loop, int socket, const char* name, PeerReader reader,
                   RateLimiter& log_limit, OnConnection handler)
    : socket_(loop),
      pause_(loop),
      name_(name),
      reader_(std::move(reader)),
      log_limit_(log_limit),
      handler_(std::move(handler)) {
    const int copy = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
    boost::system::error_code error;
    if (copy >= 0) socket_.assign(copy, error);
    if (copy < 0 || error)
        spdlog::error("cannot serve the {} socket: {}", name_, copy < 0 ? std::strerror(errno) : error.message());
}

void Acceptor::stop() {
    boost::system::error_code ignored;
    socket_.close(ignored);
    pause_.cancel();
}

void Acceptor::wait() {
    if (!socket_.is_open()) return;
    socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                           if (!error) accept_some();
                       });
}

void Acceptor::out_of(const Error& error) {
    if (const auto held = log_limit_.admit(0, "accept")) {
        spdlog::error("no new connections on the {} socket: {} ({} more like this)", name_, error.to_string(), *held);
    }
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait([this](const boost::system::error_code& failed) {
        if (!failed) wait();
    });
}

void Acceptor::accept_some() {
    // A few at a time, so that a storm of connections leaves the loop time for those that are open.
    for (int i = 0; i < 16; ++i) {
        UniqueFd connection(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!connection) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) break;
            if (errno == EINTR || errno == ECONNABORTED) continue;
            return out_of(errno_error(errno, "accept"));
        }
        Result<Peer> peer = reader_(connection.get());
        if (!peer) {
            if (peer.error().code == Code::kResourceExhausted) return out_of(peer.error());
            if (const auto held = log_limit_.admit(0, "peer")) {
                spdlog::warn("a connection to the {} socket was refused: {} ({} more like this)", name_,
                             peer.error().to_string(), *held);
            }
            continue;
        }
        ConnectionSlot slot(count_, peer->uid);
        if (!slot.within(limits_)) {
            if (const auto held = log_limit_.admit(peer->uid, "connections")) {
                spdlog::warn("{}: too many connections to the {} socket ({} more like this)", peer->describe(), name_,
                             *held);
            }
            continue;
        }
        VUDA_FAULT_POINT(daemon_connection_accepted);
        handler_(std::move(connection), *std::move(peer), std::move(slot));
    }
    wait();
}

}  // namespace vuda::daemon
