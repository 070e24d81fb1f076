// Serves the control socket: own accept, so that the kernel says who calls; gRPC from there on.
//
// gRPC 1.51 does not tell a Unix peer's uid. A connection that was handed over by descriptor, however, shows as peer
// "fd:N", and N leads to the credentials that were read when it was accepted.
#pragma once

#include <functional>
#include <memory>

#include "daemon/acceptor.h"
#include "daemon/control_context.h"

namespace vuda::daemon {

class GrpcServer {
 public:
    struct Options {
        int idle_ms = 300'000;          // a connection without a call is closed after this
        int message_bytes = 64 * 1024;  // largest request
        int streams = 64;               // concurrent calls on one connection
        size_t watchers = 64;           // Watch streams in all
    };

    GrpcServer(ControlContext context, int listening_socket, PeerReader reader, Options options);
    GrpcServer(const GrpcServer&) = delete;
    GrpcServer& operator=(const GrpcServer&) = delete;
    // After stop() has called back.
    ~GrpcServer();

    Status start();
    // Ends all calls and connections. `done` runs on the loop, which must go on running until then.
    void stop(std::function<void()> done);
    void set_limits(const ConnectionLimits& limits);
    size_t connections() const;

    // Serves a connection that was made elsewhere, for tests and the fuzzer.
    void adopt(UniqueFd socket, Peer peer);

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vuda::daemon
