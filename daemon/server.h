// The daemon, put together: one object to start and stop, in main() and in tests.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/acceptor.h"
#include "daemon/config.h"
#include "daemon/fd_reaper.h"
#include "daemon/handle_protocol.h"
#include "daemon/listener.h"

namespace vuda::daemon {

struct ServerOptions {
    Config config;
    std::vector<PassedSocket> passed;  // from socket activation
    std::string simd;                  // vuda-simd's path; needed when config.sim
    std::string state_dir;             // what is kept over a restart; empty: nothing is
    // Replaced in tests.
    PeerReader peer_reader = read_peer;
    ProtocolLimits protocol_limits;
    int grpc_idle_ms = 300'000;
};

class Server {
 public:
    Server(boost::asio::io_context& loop, ServerOptions options);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    // After stop() has called back, or after a failed start().
    ~Server();

    // Both sockets listen when this returns. With a simulated GPU the service manager hears READY, and `ready` runs,
    // when that one listens too; otherwise at once (on the loop). `failed` runs when the simulated GPU does not come
    // up.
    Status start(std::function<void()> ready = {}, std::function<void(const Error&)> failed = {});

    // Takes over what can change while running, warns of what cannot.
    void reload(const Config& config);

    // Ends sessions and connections, removes the sockets, then calls `done` on the loop.
    void stop(std::function<void()> done);

    const std::string& control_socket() const;
    const std::string& handle_socket() const;
    size_t frame_connections() const;
    size_t grpc_connections() const;
    FdReaper& reaper();

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vuda::daemon
