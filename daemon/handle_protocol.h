// One connection of the handle socket, above bytes and below the registry: what its frames mean and what goes back.
// Does no I/O, so that tests and the fuzzer drive it without a network. docs/wire-protocol.md describes it from the
// outside.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "daemon/clock.h"
#include "daemon/fd_reaper.h"
#include "daemon/handle_set.h"
#include "daemon/peer.h"
#include "daemon/rate_limiter.h"
#include "daemon/registry.h"

namespace vuda::daemon {

struct ProtocolLimits {
    Milliseconds first_frame{5000};      // from connecting to the end of the first frame
    Milliseconds transfer{10000};        // a whole push or pull
    Milliseconds linger{1000};           // to take the last words after the end was decided
    size_t output_bytes = 256 * 1024;    // queued for a session that does not read; above it the session ends
    size_t reaper_backlog = 16384;       // descriptors that hang in close(); above it no push is taken
    size_t message_bytes = kFrameLimit;  // largest frame that is taken
    size_t frames_per_turn = 16;         // then the loop has others to look after
};

// What all connections share. Outlives them.
struct ProtocolContext {
    Registry& registry;
    FdReaper& reaper;
    RateLimiter& log_limit;
    Clock clock;
    ProtocolLimits limits;
    uint64_t& protocol_errors;  // counter
};

class HandleProtocol final : private SessionSink {
 public:
    // One frame on its way out, and what it announces.
    struct Output {
        std::string bytes;
        std::vector<HeldPtr> handles;
        std::shared_ptr<const UniqueFd> page;  // instead of handles: the session page
        size_t sent = 0;                       // bytes the socket took; descriptors go with the first

        std::vector<int> fds() const;
    };

    // `changed` is called when there is new output or the end came nearer; it must not call back at once.
    HandleProtocol(ProtocolContext& context, Peer peer, std::function<void()> changed);
    HandleProtocol(const HandleProtocol&) = delete;
    HandleProtocol& operator=(const HandleProtocol&) = delete;
    ~HandleProtocol();  // as disconnected()

    // True while descriptors may come. At other times read without a control buffer: the kernel then drops what is
    // sent, at no cost to us.
    bool wants_fds() const { return phase_ == Phase::kOpening || phase_ == Phase::kPush || session_fds_; }
    // False once the end is decided: read no more.
    bool wants_input() const { return phase_ != Phase::kEnding; }

    // Takes what was read, and acts on the first frames_per_turn frames of it. While has_more(), call go_on() for the
    // next ones, in turn with other connections, and read nothing. `fds_lost`: see Received.
    void input(std::string_view bytes, std::vector<UniqueFd> fds, bool fds_lost = false);
    bool has_more() const { return more_ && wants_input(); }
    void go_on();
    // Frames acted on since the last call.
    uint32_t take_requests() { return std::exchange(requests_, 0); }
    // Reading failed in a way that is the peer's doing (too many descriptors).
    void input_error(const Error& error);
    // The peer shut its sending side: the end of a session or push, not of a pull that is on its way to it.
    void end_of_input();
    // The peer is gone.
    void disconnected(const Error& reason);
    // Does what could not be done from inside a call of the registry. Call it after `changed`.
    void settle();

    // Next frame to send; null when there is none. Call output_sent() when all of it is out.
    Output* output();
    void output_sent();
    // Nothing more to read or to send: close the socket.
    bool finished() const { return phase_ == Phase::kEnding && output_.empty(); }

    // When to call expire(); nullopt while the registry's own deadlines are all there is.
    std::optional<TimePoint> deadline() const { return deadline_; }
    void expire();

    const Peer& peer() const { return peer_; }

 private:
    enum class Phase { kOpening, kSession, kPush, kPull, kEnding };

    void on_frame(const std::string& body);
    void on_first_frame(const v1::Frame& frame);
    void on_push(const v1::HandleBundle& bundle);
    void on_client(const v1::ClientMessage& message);
    std::unique_ptr<SessionPage> make_page(const v1::Hello& hello);
    void begin_pull(const v1::HandlePull& pull);
    void queue_bundle();
    void enqueue(const v1::Frame& frame);
    // The peer broke the rules: it is told, the log is told once in a while, and the connection ends.
    void offend(const char* cause, const Error& error);
    void fail(const Error& error);
    void end();
    std::vector<UniqueFd> take_fds(size_t count);

    // SessionSink
    void send(const v1::ServerMessage& message) override { send_with(message, {}); }
    void send_with(const v1::ServerMessage& message, std::vector<HeldPtr> handles) override;
    void close(const Error& reason) override;

    ProtocolContext& context_;
    Peer peer_;
    std::function<void()> changed_;
    Phase phase_ = Phase::kOpening;
    FrameDecoder decoder_;
    bool more_ = false;
    uint32_t requests_ = 0;
    std::deque<UniqueFd> fds_;
    bool fds_lost_ = false;
    std::deque<Output> output_;
    size_t output_bytes_ = 0;
    std::optional<TimePoint> deadline_;

    SessionId session_ = 0;
    bool session_fds_ = false;              // its messages may bring descriptors: MirrorUpdate
    std::shared_ptr<const UniqueFd> page_;  // until HelloReply took it
    std::optional<PushTicket> push_;
    std::string push_token_;
    std::shared_ptr<HandleSet> pushed_;
    PullTicket pull_;
    std::string pull_token_;
    size_t pulled_ = 0;
};

}  // namespace vuda::daemon
