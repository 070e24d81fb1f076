// Any bytes on the control socket: the server survives, the connection ends, and a well-behaved client is served
// afterwards.
#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "daemon/grpc_server.h"

namespace {

using namespace vuda;
using namespace vuda::daemon;

struct World {
    boost::asio::io_context loop{1};
    Registry registry{Identity{"fuzz", "/h", v1::FEATURE_SHARE, true}, Settings{}, steady_clock(), random_token,
                      Registry::Hooks{}};
    EventHub hub;
    RateLimiter limiter{steady_clock()};
    RequestRate rate{steady_clock()};
    UniqueFd nobody{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::unique_ptr<GrpcServer> server;

    World() {
        spdlog::set_level(spdlog::level::off);
        server = std::make_unique<GrpcServer>(
            ControlContext{loop, registry, hub, limiter, rate, [] { return v1::DaemonInfo(); },
                           [] { return std::string("#\n"); }, 1},
            nobody.get(), read_peer, GrpcServer::Options{});
        if (!server->start()) __builtin_trap();
        loop.poll();
    }
};

// Runs the loop until `done`; false when that takes too long.
template <typename Done>
bool run_until(World& world, Done done) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
        if (std::chrono::steady_clock::now() > until) return false;
        world.loop.run_one_for(std::chrono::milliseconds(1));
    }
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static World& world = *new World;  // for the process's life: gRPC's threads outlive any order of destruction
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return 0;
    UniqueFd client(ends[0]);
    UniqueFd serving(ends[1]);
    Result<Peer> peer = read_peer(serving.get());
    if (!peer) __builtin_trap();
    world.server->adopt(std::move(serving), *std::move(peer));
    size_t sent = 0;
    run_until(world, [&] {
        char sink[4096];
        while (::recv(client.get(), sink, sizeof sink, 0) > 0) {
        }
        const ssize_t wrote = ::send(client.get(), data + sent, size - sent, MSG_NOSIGNAL);
        if (wrote > 0) sent += static_cast<size_t>(wrote);
        return sent == size || (wrote < 0 && errno != EAGAIN);
    });
    ::shutdown(client.get(), SHUT_WR);
    if (!run_until(world, [] { return world.server->connections() == 0; })) __builtin_trap();
    if (world.registry.session_count() > 64) __builtin_trap();
    return 0;
}
