// vudactl's connection to vudad.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::cli {

// Longest wait for one answer.
inline constexpr std::chrono::milliseconds kCallDeadline{2000};

// One connection, made by hand: gRPC's own connector hides why it failed (no socket, nobody listening, no permission)
// and keeps trying; a tool wants the reason at once.
class DaemonClient {
 public:
    // Connects and shakes hands. Errors: UNAVAILABLE, with a hint that fits the cause. `socket` is a path.
    static Result<DaemonClient> connect(const std::string& socket, std::chrono::milliseconds deadline = kCallDeadline);

    const v1::HandshakeReply& handshake() const { return handshake_; }

    // A unary call with the deadline; errors carry the daemon's code and text.
    template <typename Request, typename Reply>
    using Method = grpc::Status (v1::Vuda::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

    template <typename Request, typename Reply>
    Result<Reply> call(Method<Request, Reply> method, const Request& request) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + deadline_);
        Reply reply;
        const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
        if (!status.ok()) return to_error(status);
        return reply;
    }

    v1::Vuda::Stub& stub() { return *stub_; }
    Error to_error(const grpc::Status& status) const;

 private:
    DaemonClient(std::string socket, std::chrono::milliseconds deadline, std::unique_ptr<v1::Vuda::Stub> stub);

    std::string socket_;
    std::chrono::milliseconds deadline_;
    std::unique_ptr<v1::Vuda::Stub> stub_;
    v1::HandshakeReply handshake_;
};

// `path` without "unix:" in front, made absolute.
std::string absolute_socket(const std::string& path);

}  // namespace vuda::cli
