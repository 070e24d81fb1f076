// Accepts connections on a listening Unix socket and finds out who each one is.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "base/unique_fd.h"
#include "daemon/peer.h"
#include "daemon/rate_limiter.h"

namespace vuda::daemon {

// Connections that one socket may have open, in all and for one user.
struct ConnectionLimits {
    uint32_t total = 2048;
    uint32_t per_uid = 512;
};

// Counts a connection for as long as it lives.
class ConnectionCount {
 public:
    size_t total() const { return total_; }

 private:
    friend class ConnectionSlot;
    std::map<uid_t, uint32_t> per_uid_;
    size_t total_ = 0;
};

class ConnectionSlot {
 public:
    ConnectionSlot(std::shared_ptr<ConnectionCount> count, uid_t uid);
    ConnectionSlot(ConnectionSlot&&) = default;
    ConnectionSlot& operator=(ConnectionSlot&&) = delete;
    ~ConnectionSlot();
    // False: over a limit, close the connection.
    bool within(const ConnectionLimits& limits) const;

 private:
    std::shared_ptr<ConnectionCount> count_;
    uid_t uid_;
};

using PeerReader = std::function<Result<Peer>(int socket)>;

class Acceptor {
 public:
    using OnConnection = std::function<void(UniqueFd socket, Peer peer, ConnectionSlot slot)>;

    // `socket` listens already; it is duplicated, so the owner may go on holding it.
    Acceptor(boost::asio::io_context& loop, int socket, const char* name, PeerReader reader, RateLimiter& log_limit,
             OnConnection handler);

    void start() { wait(); }
    void stop();
    void set_limits(const ConnectionLimits& limits) { limits_ = limits; }
    size_t connections() const { return count_->total(); }

 private:
    void wait();
    void accept_some();
    // Something that every connection needs has run out: the others stay in the backlog, and would wake us at once.
    void out_of(const Error& error);

    boost::asio::posix::stream_descriptor socket_;
    boost::asio::steady_timer pause_;
    const char* name_;
    PeerReader reader_;
    RateLimiter& log_limit_;
    OnConnection handler_;
    ConnectionLimits limits_;
    std::shared_ptr<ConnectionCount> count_ = std::make_shared<ConnectionCount>();
};

}  // namespace vuda::daemon
