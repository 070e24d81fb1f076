#include "daemon/frame_server.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "base/fault_point.h"
#include "base/frame_io.h"
#include "daemon/process_watch.h"

namespace vuda::daemon {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// Accepting one and finding out whose it is costs as much as this many requests.
constexpr uint32_t kRequestsOfConnection = 4;

// What a puller that does not read can keep in flight: the kernel counts descriptors in transit against this daemon's
// limit of open files.
constexpr int kSendBuffer = 16 * 1024;

}  // namespace

class FrameConnection : public std::enable_shared_from_this<FrameConnection> {
 public:
    FrameConnection(FrameServer& server, UniqueFd socket, const Peer& peer, ConnectionSlot slot)
        : server_(server),
          slot_(std::move(slot)),
          socket_(server.loop_),
          timer_(server.loop_),
          pace_(server.loop_),
          uid_(peer.uid),
          protocol_(server.context_, peer, [this] { schedule(); }),
          watch_(server.loop_, peer, [this] {
              ended({Code::kUnavailable, "the process ended", ""});
          }) {
        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
        error_code failed;
        socket_.assign(socket.get(), failed);
        if (!failed) socket.release();
    }

    void start() {
        if (!socket_.is_open()) return ended({Code::kResourceExhausted, "out of file descriptors", ""});
        schedule();
        wait_input();
    }

    void stop() {
        protocol_.disconnected({Code::kUnavailable, "vudad is stopping", ""});
        close();
    }

 private:
    void wait_input() {
        if (reading_ || input_ended_ || !socket_.is_open() || !protocol_.wants_input()) return;
        reading_ = true;
        // Too fast: what it sends stays in its socket for a while, and then the sender waits.
        if (const std::optional<TimePoint> later = server_.rate_.wait_until(uid_)) {
            pace_.expires_at(*later);
            pace_.async_wait([this, self = shared_from_this()](const error_code& failed) {
                reading_ = false;
                if (!failed && !closed_) wait_input();
            });
            return;
        }
        if (protocol_.has_more()) {
            boost::asio::post(server_.loop_, [this, self = shared_from_this()] {
                reading_ = false;
                if (closed_) return;
                protocol_.go_on();
                server_.rate_.charge(uid_, protocol_.take_requests());
                schedule();
                wait_input();
            });
            return;
        }
        socket_.async_wait(stream_descriptor::wait_read, [this, self = shared_from_this()](const error_code& failed) {
            reading_ = false;
            if (failed || !socket_.is_open()) return;
            read_once();
            wait_input();
        });
    }

    // One read per wake-up: a connection that floods takes turns with the others.
    void read_once() {
        std::array<char, 64 * 1024> buffer;
        std::vector<UniqueFd> fds;
        std::vector<UniqueFd> refused;
        Received got;
        if (protocol_.wants_fds()) {
            Result<Received> received = receive_some(socket_.native_handle(), buffer, fds, &refused);
            server_.context_.reaper.close(std::move(refused));
            if (!received) {
                protocol_.input_error(received.error());
                return;
            }
            got = *received;
        } else {
            const ssize_t bytes = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (bytes > 0) got = {Received::Kind::kData, static_cast<size_t>(bytes), false};
            if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) got.kind = Received::Kind::kEnd;
        }
        switch (got.kind) {
            case Received::Kind::kWouldBlock: return;
            case Received::Kind::kData:
                protocol_.input({buffer.data(), got.bytes}, std::move(fds), got.fds_lost);
                server_.rate_.charge(uid_, protocol_.take_requests());
                break;
            case Received::Kind::kEnd:
                input_ended_ = true;
                protocol_.end_of_input();
                break;
        }
        schedule();
    }

    void flush() {
        protocol_.settle();
        while (HandleProtocol::Output* out = protocol_.output()) {
            if (!socket_.is_open()) return;
            const std::vector<int> fds = out->sent == 0 ? out->fds() : std::vector<int>();
            const Result<size_t> sent =
                send_some(socket_.native_handle(), std::string_view(out->bytes).substr(out->sent), fds);
            if (!sent) return ended(sent.error());
            if (!fds.empty()) VUDA_FAULT_POINT(daemon_fds_sent);
            if (*sent == 0) {
                wait_output();
                break;
            }
            out->sent += *sent;
            if (out->sent == out->bytes.size()) protocol_.output_sent();
        }
        if (protocol_.finished()) return close();
        arm_timer();
    }

    void wait_output() {
        if (writing_) return;
        writing_ = true;
        socket_.async_wait(stream_descriptor::wait_write, [this, self = shared_from_this()](const error_code& failed) {
            writing_ = false;
            if (!failed && !closed_) flush();
        });
    }

    // Not at once: the protocol calls this from the middle of its own and the registry's work.
    void schedule() {
        if (scheduled_ || closed_) return;
        const std::weak_ptr<FrameConnection> weak = weak_from_this();
        scheduled_ = true;
        boost::asio::post(server_.loop_, [weak] {
            const std::shared_ptr<FrameConnection> self = weak.lock();
            if (!self) return;
            self->scheduled_ = false;
            if (!self->closed_) self->flush();
        });
    }

    void arm_timer() {
        const std::optional<TimePoint> deadline = protocol_.deadline();
        if (deadline == armed_) return;
        armed_ = deadline;
        timer_.cancel();
        if (!deadline) return;
        timer_.expires_at(*deadline);
        timer_.async_wait([this, self = shared_from_this()](const error_code& failed) {
            if (failed || closed_) return;
            armed_.reset();
            protocol_.expire();
            schedule();
        });
    }

    void ended(const Error& reason) {
        protocol_.disconnected(reason);
        close();
    }

    void close() {
        if (std::exchange(closed_, true)) return;
        protocol_.settle();
        error_code ignored;
        timer_.cancel();
        pace_.cancel();
        socket_.close(ignored);
        // Dropped from a fresh stack frame: callers still use this object.
        boost::asio::post(server_.loop_, [&server = server_, self = shared_from_this()] { server.open_.erase(self); });
    }

    FrameServer& server_;
    ConnectionSlot slot_;
    stream_descriptor socket_;
    boost::asio::steady_timer timer_;
    boost::asio::steady_timer pace_;
    std::optional<TimePoint> armed_;
    const uid_t uid_;
    HandleProtocol protocol_;
    ProcessWatch watch_;
    bool reading_ = false;
    bool writing_ = false;
    bool scheduled_ = false;
    bool input_ended_ = false;
    bool closed_ = false;
};

FrameServer::FrameServer(boost::asio::io_context& loop, int listening_socket, ProtocolContext& context,
                         PeerReader reader, RateLimiter& log_limit, RequestRate& rate)
    : loop_(loop),
      context_(context),
      rate_(rate),
      acceptor_(loop, listening_socket, "handle", std::move(reader), log_limit,
                [this](UniqueFd socket, const Peer& peer, ConnectionSlot slot) {
                    rate_.charge(peer.uid, kRequestsOfConnection);
                    auto connection =
                        std::make_shared<FrameConnection>(*this, std::move(socket), peer, std::move(slot));
                    open_.insert(connection);
                    connection->start();
                }) {}

FrameServer::~FrameServer() = default;

void FrameServer::stop() {
    acceptor_.stop();
    // stop() posts; the set does not change under the iteration.
    for (const auto& connection : open_) connection->stop();
}

}  // namespace vuda::daemon
