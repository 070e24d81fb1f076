// vuda.v1.Vuda on gRPC's callback API. Private to the gRPC half of the daemon (compiles slowly: include it nowhere
// else).
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "daemon/control_context.h"
#include "daemon/peer.h"
#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::daemon {

// Connection number -> who is at the other end. Used by the loop and by gRPC's threads.
class CallerMap {
 public:
    void insert(int fd, Peer peer);
    void erase(int fd);
    // `grpc_peer` is ServerContext::peer(), "fd:N". Null when the connection has ended.
    std::shared_ptr<const Peer> find(const std::string& grpc_peer) const;

 private:
    mutable std::mutex mutex_;
    std::map<int, std::shared_ptr<const Peer>> callers_;
};

// A stream that lives on the loop.
class LoopStream {
 public:
    // Ends the stream with UNAVAILABLE.
    virtual void shut_down() = 0;

 protected:
    ~LoopStream() = default;
};

class ControlService final : public v1::Vuda::CallbackService {
 public:
    ControlService(ControlContext& context, CallerMap& callers, size_t watcher_limit)
        : context_(context), callers_(callers), watcher_limit_(watcher_limit) {}

    // Loop thread.
    void shut_down_streams();

    grpc::ServerUnaryReactor* Handshake(grpc::CallbackServerContext*, const v1::HandshakeRequest*,
                                        v1::HandshakeReply*) override;
    grpc::ServerBidiReactor<v1::ClientMessage, v1::ServerMessage>* Session(grpc::CallbackServerContext*) override;
    grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*, const v1::StatusRequest*,
                                        v1::StatusReply*) override;
    grpc::ServerUnaryReactor* Detach(grpc::CallbackServerContext*, const v1::DetachRequest*, v1::DetachReply*) override;
    grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext*, const v1::MetricsRequest*,
                                         v1::MetricsReply*) override;
    grpc::ServerWriteReactor<v1::Event>* Watch(grpc::CallbackServerContext*, const v1::WatchRequest*) override;
    grpc::ServerUnaryReactor* SetMode(grpc::CallbackServerContext*, const v1::SetModeRequest*,
                                      v1::SetModeReply*) override;
    grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext*, const v1::SetQuotaRequest*,
                                       v1::SetQuotaReply*) override;
    grpc::ServerUnaryReactor* SetSlo(grpc::CallbackServerContext*, const v1::SetSloRequest*, v1::SetSloReply*) override;
    grpc::ServerUnaryReactor* Unquarantine(grpc::CallbackServerContext*, const v1::UnquarantineRequest*,
                                           v1::UnquarantineReply*) override;

 private:
    class SessionStream;
    class WatchStream;
    class UnaryCall;

    // `weight` says, when the work is done, how many requests it is worth against the limit of a user's rate.
    grpc::ServerUnaryReactor* on_loop(grpc::CallbackServerContext* call, std::function<Status(const Peer&)> work,
                                      std::function<uint32_t()> weight = {});
    std::function<uint32_t()> weight_of_list() const;

    ControlContext& context_;
    CallerMap& callers_;
    const size_t watcher_limit_;
    std::set<LoopStream*> streams_;  // loop thread
    size_t watchers_ = 0;            // loop thread
    size_t waiting_calls_ = 0;       // loop thread
    bool stopping_ = false;          // loop thread
};

}  // namespace vuda::daemon
