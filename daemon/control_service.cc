#include "daemon/control_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <deque>
#include <optional>
#include <utility>

#include "daemon/process_watch.h"

namespace vuda::daemon {
namespace {

// What a reader that is slow may leave unread here, besides what gRPC and the socket hold.
constexpr size_t kSessionQueue = 256;
constexpr size_t kEventQueue = 1024;
// A list of so many sessions costs about as much as one request of a session.
constexpr uint32_t kSessionsOfRequest = 16;
// Calls without a stream whose user asks too fast: how many may wait, and how long.
constexpr size_t kWaitingCalls = 256;
constexpr Milliseconds kCallPatience{2000};
constexpr Milliseconds kCallLook{100};

grpc::Status to_grpc(const Error& error) { return {static_cast<grpc::StatusCode>(error.code), error.to_string()}; }
grpc::Status to_grpc(const Status& status) { return status.ok() ? grpc::Status::OK : to_grpc(status.error()); }

template <typename Reply>
Status keep(Result<Reply> made, Reply& out) {
    if (!made) return made.error();
    out = *std::move(made);
    return {};
}

const Error kUnknownCaller{Code::kUnauthenticated, "the connection has ended", ""};
const Error kStopping{Code::kUnavailable, "vudad is stopping", ""};

}  // namespace

void CallerMap::insert(int fd, Peer peer) {
    const std::lock_guard lock(mutex_);
    callers_[fd] = std::make_shared<const Peer>(std::move(peer));
}

void CallerMap::erase(int fd) {
    const std::lock_guard lock(mutex_);
    callers_.erase(fd);
}

std::shared_ptr<const Peer> CallerMap::find(const std::string& grpc_peer) const {
    constexpr std::string_view kPrefix = "fd:";
    int fd = -1;
    if (!grpc_peer.starts_with(kPrefix)) return nullptr;
    const char* end = grpc_peer.data() + grpc_peer.size();
    if (std::from_chars(grpc_peer.data() + kPrefix.size(), end, fd).ptr != end) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = callers_.find(fd);
    return found == callers_.end() ? nullptr : found->second;
}

// A stream's state belongs to the loop; gRPC's threads only post. It keeps itself alive until gRPC's OnDone, and each
// posted step keeps it alive until it has run.
//
// At most one write is in flight; the end waits for it, because gRPC wants no Finish beside a write.
class ControlService::SessionStream final : public grpc::ServerBidiReactor<v1::ClientMessage, v1::ServerMessage>,
                                            public std::enable_shared_from_this<ControlService::SessionStream>,
                                            private SessionSink,
                                            private LoopStream {
 public:
    SessionStream(ControlService& service, grpc::CallbackServerContext* call, std::shared_ptr<const Peer> peer)
        : service_(service), call_(call), peer_(std::move(peer)) {}

    void start() {
        self_ = shared_from_this();
        post([this] {
            service_.streams_.insert(this);
            if (peer_ == nullptr) return end(kUnknownCaller);
            watch_.emplace(service_.context_.loop, *peer_, [this] {
                end({Code::kUnavailable, "the process ended", ""});
                call_->TryCancel();
            });
            StartRead(&incoming_);
        });
    }

 private:
    template <typename Step>
    void post(Step step) {
        boost::asio::post(service_.context_.loop,
                          [self = shared_from_this(), step = std::move(step)]() mutable { step(); });
    }

    void OnReadDone(bool ok) override {
        post([this, ok] {
            if (ending_) return;
            if (!ok) return end({Code::kUnavailable, "the stream was closed", ""}, grpc::Status::OK);
            on_message();
            read_next();
        });
    }

    // Who asks too fast is read more slowly.
    void read_next() {
        if (ending_) return;
        RequestRate& rate = service_.context_.rate;
        const std::optional<TimePoint> later = rate.wait_until(peer_->uid);
        if (!later) {
            rate.charge(peer_->uid, 1);
            return StartRead(&incoming_);
        }
        if (!pace_) pace_.emplace(service_.context_.loop);
        pace_->expires_at(*later);
        pace_->async_wait([self = shared_from_this()](const boost::system::error_code& failed) {
            if (!failed) self->read_next();
        });
    }

    void OnWriteDone(bool ok) override {
        post([this, ok] {
            writing_ = false;
            if (!ok) return end({Code::kUnavailable, "the stream was closed", ""});
            if (!outgoing_.empty()) outgoing_.pop_front();
            write_next();
        });
    }

    void OnDone() override {
        post([this] {
            watch_.reset();
            pace_.reset();
            service_.streams_.erase(this);
            self_.reset();  // the posted step still holds one
        });
    }

    void on_message() {
        Registry& registry = service_.context_.registry;
        if (session_ != 0) return registry.receive(session_, incoming_);
        if (!incoming_.has_hello()) {
            return end({Code::kFailedPrecondition, "the first message of a session must be Hello", ""});
        }
        Result<SessionId> session =
            registry.open_session(*peer_, Transport::kGrpc, incoming_.hello(), incoming_.id(), *this);
        if (!session) return end(session.error());
        session_ = *session;
    }

    void end(const Error& reason) { end(reason, to_grpc(reason)); }
    void end(const Error& reason, grpc::Status status) {
        if (!ending_) ending_ = std::move(status);
        // Not inside a call of the registry: send() and close() come from there and take other ways.
        if (session_ != 0) service_.context_.registry.close_session(std::exchange(session_, 0), reason);
        write_next();
    }

    void write_next() {
        if (writing_ || finished_) return;
        if (!outgoing_.empty() && !call_->IsCancelled()) {
            writing_ = true;
            StartWrite(&outgoing_.front());
        } else if (ending_) {
            finished_ = true;
            Finish(*ending_);
        }
    }

    // SessionSink
    void send(const v1::ServerMessage& message) override {
        if (ending_) return;
        if (outgoing_.size() >= kSessionQueue) {
            if (const auto held = service_.context_.log_limit.admit(peer_->uid, "slow-reader")) {
                spdlog::warn("{} does not read its session; closed ({} more like this)", peer_->describe(), *held);
            }
            const Error slow{Code::kResourceExhausted, "the client does not read its session", ""};
            ending_ = to_grpc(slow);
            call_->TryCancel();  // fails the write that is stuck
            return post([this, slow] { end(slow); });
        }
        outgoing_.push_back(message);
        write_next();
    }
    void close(const Error& reason) override {
        session_ = 0;
        post([this, reason] { end(reason); });
    }

    // LoopStream
    void shut_down() override { end(kStopping); }

    ControlService& service_;
    grpc::CallbackServerContext* const call_;
    const std::shared_ptr<const Peer> peer_;
    std::shared_ptr<SessionStream> self_;
    std::optional<ProcessWatch> watch_;
    std::optional<boost::asio::steady_timer> pace_;
    v1::ClientMessage incoming_;
    std::deque<v1::ServerMessage> outgoing_;  // front is being written while writing_
    SessionId session_ = 0;
    bool writing_ = false;
    bool finished_ = false;
    std::optional<grpc::Status> ending_;
};

class ControlService::WatchStream final : public grpc::ServerWriteReactor<v1::Event>,
                                          public std::enable_shared_from_this<ControlService::WatchStream>,
                                          private LoopStream {
 public:
    WatchStream(ControlService& service, grpc::CallbackServerContext* call, std::shared_ptr<const Peer> peer)
        : service_(service), call_(call), peer_(std::move(peer)) {}

    void start() {
        self_ = shared_from_this();
        post([this] {
            service_.streams_.insert(this);
            ++service_.watchers_;
            if (peer_ == nullptr) return end(to_grpc(kUnknownCaller));
            if (service_.watchers_ > service_.watcher_limit_) {
                return end({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many Watch streams"});
            }
            subscription_ = service_.context_.events.subscribe([this](const v1::Event& event) { push(event); });
            // Tells the client that it misses nothing from here on.
            StartSendInitialMetadata();
        });
    }

 private:
    template <typename Step>
    void post(Step step) {
        boost::asio::post(service_.context_.loop,
                          [self = shared_from_this(), step = std::move(step)]() mutable { step(); });
    }

    void OnWriteDone(bool ok) override {
        post([this, ok] {
            writing_ = false;
            if (!ok) return end(grpc::Status::CANCELLED);
            events_.pop_front();
            write_next();
        });
    }

    // No read is outstanding that would show the client's going.
    void OnCancel() override {
        post([this] { end(grpc::Status::CANCELLED); });
    }

    void OnDone() override {
        post([this] {
            unsubscribe();
            --service_.watchers_;
            service_.streams_.erase(this);
            self_.reset();
        });
    }

    void push(const v1::Event& event) {
        if (ending_) return;
        if (events_.size() >= kEventQueue) {
            // Out of the hub's iteration before anything changes there.
            call_->TryCancel();
            return post([this] { end({grpc::StatusCode::RESOURCE_EXHAUSTED, "the client does not read its events"}); });
        }
        events_.push_back(event);
        write_next();
    }

    void end(grpc::Status status) {
        unsubscribe();
        if (!ending_) ending_ = std::move(status);
        write_next();
    }

    void unsubscribe() {
        if (subscription_ != 0) service_.context_.events.unsubscribe(std::exchange(subscription_, 0));
    }

    void write_next() {
        if (writing_ || finished_) return;
        if (ending_) {
            finished_ = true;
            Finish(*ending_);
        } else if (!events_.empty()) {
            writing_ = true;
            StartWrite(&events_.front());
        }
    }

    void shut_down() override { end(to_grpc(kStopping)); }

    ControlService& service_;
    grpc::CallbackServerContext* const call_;
    const std::shared_ptr<const Peer> peer_;
    std::shared_ptr<WatchStream> self_;
    uint64_t subscription_ = 0;
    std::deque<v1::Event> events_;
    bool writing_ = false;
    bool finished_ = false;
    std::optional<grpc::Status> ending_;
};

// A call without a stream: done at once, unless its user asks too fast.
class ControlService::UnaryCall : public std::enable_shared_from_this<ControlService::UnaryCall> {
 public:
    UnaryCall(ControlService& service, grpc::ServerUnaryReactor* reactor, std::shared_ptr<const Peer> peer,
              std::function<Status(const Peer&)> work, std::function<uint32_t()> weight)
        : service_(service),
          reactor_(reactor),
          peer_(std::move(peer)),
          work_(std::move(work)),
          weight_(std::move(weight)),
          timer_(service.context_.loop) {}

    void step() {
        RequestRate& rate = service_.context_.rate;
        const std::optional<TimePoint> later = rate.wait_until(peer_->uid);
        if (later && !service_.stopping_ && wait(*later)) return;
        if (waiting_) --service_.waiting_calls_;
        if (later) {
            return reactor_->Finish(
                to_grpc(Error{Code::kResourceExhausted, "uid " + std::to_string(peer_->uid) + " asks too often",
                              "ask less often, or raise [limits] requests_per_s in vudad.toml"}));
        }
        const Status done = work_(*peer_);
        rate.charge(peer_->uid, weight_ ? weight_() : 1);
        reactor_->Finish(to_grpc(done));
    }

 private:
    bool wait(TimePoint later) {
        const TimePoint now = std::chrono::steady_clock::now();
        if (!waiting_) {
            if (service_.waiting_calls_ >= kWaitingCalls) return false;
            ++service_.waiting_calls_;
            waiting_ = true;
            patience_ = now + kCallPatience;
        }
        if (now >= patience_) return false;
        // Looks up now and then: the daemon may be stopping.
        timer_.expires_at(std::min(later, now + kCallLook));
        timer_.async_wait([self = shared_from_this()](const boost::system::error_code&) { self->step(); });
        return true;
    }

    ControlService& service_;
    grpc::ServerUnaryReactor* const reactor_;
    const std::shared_ptr<const Peer> peer_;
    const std::function<Status(const Peer&)> work_;
    const std::function<uint32_t()> weight_;
    boost::asio::steady_timer timer_;
    bool waiting_ = false;
    TimePoint patience_{};
};

void ControlService::shut_down_streams() {
    stopping_ = true;
    for (LoopStream* stream : streams_) stream->shut_down();
}

grpc::ServerUnaryReactor* ControlService::on_loop(grpc::CallbackServerContext* call,
                                                  std::function<Status(const Peer&)> work,
                                                  std::function<uint32_t()> weight) {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    std::shared_ptr<const Peer> peer = callers_.find(call->peer());
    if (peer == nullptr) {
        reactor->Finish(to_grpc(kUnknownCaller));
        return reactor;
    }
    // Request and reply live until Finish.
    const auto unary = std::make_shared<UnaryCall>(*this, reactor, std::move(peer), std::move(work), std::move(weight));
    boost::asio::post(context_.loop, [unary] { unary->step(); });
    return reactor;
}

std::function<uint32_t()> ControlService::weight_of_list() const {
    return [this] { return 1 + static_cast<uint32_t>(context_.registry.session_count()) / kSessionsOfRequest; };
}

grpc::ServerUnaryReactor* ControlService::Handshake(grpc::CallbackServerContext* call, const v1::HandshakeRequest*,
                                                    v1::HandshakeReply* reply) {
    return on_loop(call, [this, reply](const Peer&) -> Status {
        const v1::DaemonInfo info = context_.daemon_info();
        // All of them: which ones a tool can use, it knows best.
        reply->set_features(context_.features);
        reply->set_daemon_version(info.version());
        reply->set_handle_socket(info.handle_socket());
        reply->set_simulated(info.simulated());
        reply->set_sim_socket(info.sim_socket());
        return {};
    });
}

grpc::ServerUnaryReactor* ControlService::GetStatus(grpc::CallbackServerContext* call, const v1::StatusRequest*,
                                                    v1::StatusReply* reply) {
    return on_loop(
        call,
        [this, reply](const Peer&) -> Status {
            *reply->mutable_daemon() = context_.daemon_info();
            context_.registry.fill_status(*reply);
            return {};
        },
        weight_of_list());
}

grpc::ServerUnaryReactor* ControlService::Detach(grpc::CallbackServerContext* call, const v1::DetachRequest* request,
                                                 v1::DetachReply*) {
    return on_loop(call,
                   [this, request](const Peer& peer) { return context_.registry.detach(request->session_id(), peer); });
}

grpc::ServerUnaryReactor* ControlService::GetMetrics(grpc::CallbackServerContext* call, const v1::MetricsRequest*,
                                                     v1::MetricsReply* reply) {
    return on_loop(
        call,
        [this, reply](const Peer&) -> Status {
            reply->set_text(context_.metrics());
            return {};
        },
        weight_of_list());
}

grpc::ServerBidiReactor<v1::ClientMessage, v1::ServerMessage>* ControlService::Session(
    grpc::CallbackServerContext* call) {
    const auto stream = std::make_shared<SessionStream>(*this, call, callers_.find(call->peer()));
    stream->start();
    return stream.get();
}

grpc::ServerWriteReactor<v1::Event>* ControlService::Watch(grpc::CallbackServerContext* call, const v1::WatchRequest*) {
    const auto stream = std::make_shared<WatchStream>(*this, call, callers_.find(call->peer()));
    stream->start();
    return stream.get();
}

grpc::ServerUnaryReactor* ControlService::SetMode(grpc::CallbackServerContext* call, const v1::SetModeRequest* request,
                                                  v1::SetModeReply* reply) {
    return on_loop(call, [this, request, reply](const Peer& peer) {
        return keep(context_.registry.set_mode(*request, {peer, peer.program, 0}), *reply);
    });
}

grpc::ServerUnaryReactor* ControlService::SetQuota(grpc::CallbackServerContext* call,
                                                   const v1::SetQuotaRequest* request, v1::SetQuotaReply* reply) {
    return on_loop(call, [this, request, reply](const Peer& peer) {
        return keep(context_.registry.set_quota(*request, {peer, peer.program, 0}), *reply);
    });
}

grpc::ServerUnaryReactor* ControlService::SetSlo(grpc::CallbackServerContext* call, const v1::SetSloRequest* request,
                                                 v1::SetSloReply* reply) {
    return on_loop(call, [this, request, reply](const Peer& peer) {
        return keep(context_.registry.set_slo(*request, {peer, peer.program, 0}), *reply);
    });
}

grpc::ServerUnaryReactor* ControlService::Unquarantine(grpc::CallbackServerContext* call,
                                                       const v1::UnquarantineRequest* request,
                                                       v1::UnquarantineReply* reply) {
    return on_loop(call, [this, request, reply](const Peer& peer) {
        return keep(context_.registry.unquarantine(*request, peer), *reply);
    });
}

}  // namespace vuda::daemon
