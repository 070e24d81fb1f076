// Serves the handle socket: moves bytes and descriptors between connections and HandleProtocol.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <set>

#include "daemon/acceptor.h"
#include "daemon/handle_protocol.h"
#include "daemon/request_rate.h"

namespace vuda::daemon {

class FrameConnection;

class FrameServer {
 public:
    FrameServer(boost::asio::io_context& loop, int listening_socket, ProtocolContext& context, PeerReader reader,
                RateLimiter& log_limit, RequestRate& rate);
    ~FrameServer();

    void start() { acceptor_.start(); }
    // Ends every connection; processes see theirs closed and come back to the next daemon.
    void stop();
    void set_limits(const ConnectionLimits& limits) { acceptor_.set_limits(limits); }
    size_t connections() const { return acceptor_.connections(); }

 private:
    friend class FrameConnection;

    boost::asio::io_context& loop_;
    ProtocolContext& context_;
    RequestRate& rate_;
    std::set<std::shared_ptr<FrameConnection>> open_;
    Acceptor acceptor_;
};

}  // namespace vuda::daemon
