#include "daemon/grpc_server.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/control_service.h"
#include "daemon/readiness.h"

namespace vuda::daemon {
namespace {

using boost::asio::posix::stream_descriptor;

// HTTP/2's greeting and gRPC's state for a connection cost as much as this many requests.
constexpr uint32_t kRequestsOfControlConnection = 8;

// Numbers for gRPC's connections come from the upper half of the descriptor table and only ever rise, so that "fd:N" of
// a call that is still running never comes to mean a younger connection. At the top they start again: by then N's first
// bearer is half a table of connections ago, and the kernel gives out free numbers only.
class RisingNumbers {
 public:
    RisingNumbers() {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        base_ = next_ = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536) / 2);
    }

    Result<UniqueFd> renumber(const UniqueFd& fd) {
        UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, next_));
        // EINVAL: beyond the limit; EMFILE: none free up there.
        if (!moved && (errno == EINVAL || errno == EMFILE) && next_ != base_)
            moved.reset(::fcntl(fd.get(), F_DUPFD_CLOEXEC, base_));
        if (!moved) return errno_error(errno, "F_DUPFD_CLOEXEC");
        next_ = moved.get() + 1;
        return moved;
    }

 private:
    int base_ = 0;
    int next_ = 0;
};

}  // namespace

struct GrpcServer::Impl {
    // gRPC owns one descriptor of each connection and closes it when it likes; this is another of the same connection,
    // which shows when both ends are done with it.
    struct Connection {
        Connection(boost::asio::io_context& loop, ConnectionSlot counted) : socket(loop), slot(std::move(counted)) {}
        stream_descriptor socket;
        ConnectionSlot slot;
    };

    Impl(ControlContext control, int listening_socket, PeerReader reader, Options chosen)
        : context(std::move(control)),
          options(chosen),
          service(context, callers, options.watchers),
          acceptor(context.loop, listening_socket, "control", std::move(reader), context.log_limit,
                   [this](UniqueFd socket, Peer peer, ConnectionSlot slot) {
                       context.rate.charge(peer.uid, kRequestsOfControlConnection);
                       serve(std::move(socket), std::move(peer), std::move(slot));
                   }) {}

    void serve(UniqueFd socket, Peer peer, ConnectionSlot slot) {
        if (!server) return;
        Result<UniqueFd> numbered = numbers.renumber(socket);
        if (!numbered) {
            if (const auto held = context.log_limit.admit(0, "control-descriptors")) {
                spdlog::error("cannot serve {}: {} ({} more like this)", peer.describe(), numbered.error().to_string(),
                              *held);
            }
            return;
        }
        auto connection = std::make_unique<Connection>(context.loop, std::move(slot));
        boost::system::error_code failed;
        connection->socket.assign(socket.get(), failed);
        if (failed) return;
        socket.release();
        const int number = numbered->release();
        callers.insert(number, std::move(peer));
        connections[number] = std::move(connection);
        wait_end(number);
        grpc::AddInsecureChannelFromFd(server.get(), number);
    }

    void wait_end(int number) {
        connections.at(number)->socket.async_wait(stream_descriptor::wait_error,
                                                  [this, number](const boost::system::error_code& error) {
                                                      if (error) return;  // stop() clears the map itself
                                                      const auto found = connections.find(number);
                                                      if (found == connections.end()) return;
                                                      if (!is_ready(found->second->socket.native_handle(), 0))
                                                          return wait_end(number);
                                                      callers.erase(number);
                                                      connections.erase(number);
                                                  });
    }

    ControlContext context;
    const Options options;
    CallerMap callers;
    ControlService service;
    std::unique_ptr<grpc::Server> server;
    RisingNumbers numbers;
    std::map<int, std::unique_ptr<Connection>> connections;
    std::shared_ptr<ConnectionCount> adopted = std::make_shared<ConnectionCount>();
    Acceptor acceptor;
    std::thread stopper;
};

GrpcServer::GrpcServer(ControlContext context, int listening_socket, PeerReader reader, Options options)
    : impl_(std::make_unique<Impl>(std::move(context), listening_socket, std::move(reader), options)) {}

GrpcServer::~GrpcServer() {
    if (impl_->stopper.joinable()) impl_->stopper.join();
}

Status GrpcServer::start() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&impl_->service);
    builder.SetMaxReceiveMessageSize(impl_->options.message_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, impl_->options.idle_ms);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, impl_->options.streams);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 * 1024);
    impl_->server = builder.BuildAndStart();
    if (!impl_->server) return Error{Code::kInternal, "gRPC did not start", ""};
    impl_->acceptor.start();
    return {};
}

void GrpcServer::stop(std::function<void()> done) {
    impl_->acceptor.stop();
    impl_->service.shut_down_streams();
    // Shutdown waits for calls that wait for the loop: not on the loop, then. The guard keeps the loop running until it
    // is over.
    impl_->stopper = std::thread(
        [this, done = std::move(done), guard = boost::asio::make_work_guard(impl_->context.loop)]() mutable {
            impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
            boost::asio::post(impl_->context.loop, [this, done = std::move(done)] {
                impl_->stopper.join();
                impl_->connections.clear();
                impl_->server.reset();
                done();
            });
        });
}

void GrpcServer::set_limits(const ConnectionLimits& limits) { impl_->acceptor.set_limits(limits); }
size_t GrpcServer::connections() const { return impl_->connections.size(); }

void GrpcServer::adopt(UniqueFd socket, Peer peer) {
    ConnectionSlot slot(impl_->adopted, peer.uid);
    impl_->serve(std::move(socket), std::move(peer), std::move(slot));
}

}  // namespace vuda::daemon
