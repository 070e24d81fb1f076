#include "daemon/grpc_test_client.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::daemon {

struct GrpcTestClient::Impl {
    std::unique_ptr<v1::Vuda::Stub> stub;

    struct Call {
        grpc::ClientContext context;
        Call() { context.set_deadline(std::chrono::system_clock::now() + kPatience); }
    };
};

GrpcTestClient::GrpcTestClient(const std::string& path, Role role) : impl_(std::make_unique<Impl>()) {
    Result<UniqueFd> socket = connect_as(path, role);
    EXPECT_TRUE(socket.ok()) << socket.error().to_string();
    ::fcntl(socket->get(), F_SETFL, ::fcntl(socket->get(), F_GETFL) | O_NONBLOCK);
    impl_->stub = v1::Vuda::NewStub(grpc::CreateInsecureChannelFromFd("vudad", socket->release()));
}

GrpcTestClient::~GrpcTestClient() = default;

v1::StatusReply GrpcTestClient::status() {
    Impl::Call call;
    v1::StatusReply reply;
    const grpc::Status status = impl_->stub->GetStatus(&call.context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
}

std::string GrpcTestClient::metrics() {
    Impl::Call call;
    v1::MetricsReply reply;
    const grpc::Status status = impl_->stub->GetMetrics(&call.context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.text();
}

int GrpcTestClient::detach(uint64_t session) {
    Impl::Call call;
    v1::DetachRequest request;
    request.set_session_id(session);
    v1::DetachReply reply;
    return impl_->stub->Detach(&call.context, request, &reply).error_code();
}

Result<v1::SetQuotaReply> GrpcTestClient::set_quota(const v1::SetQuotaRequest& request) {
    Impl::Call call;
    v1::SetQuotaReply reply;
    const grpc::Status status = impl_->stub->SetQuota(&call.context, request, &reply);
    if (!status.ok()) return Error{static_cast<Code>(status.error_code()), status.error_message(), ""};
    return reply;
}

Result<v1::SetModeReply> GrpcTestClient::set_mode(const std::string& name, v1::Mode mode) {
    Impl::Call call;
    v1::SetModeRequest request;
    request.set_name(name);
    request.set_mode(mode);
    v1::SetModeReply reply;
    const grpc::Status status = impl_->stub->SetMode(&call.context, request, &reply);
    if (!status.ok()) return Error{static_cast<Code>(status.error_code()), status.error_message(), ""};
    return reply;
}

Result<v1::SetSloReply> GrpcTestClient::set_slo(const v1::SetSloRequest& request) {
    Impl::Call call;
    v1::SetSloReply reply;
    const grpc::Status status = impl_->stub->SetSlo(&call.context, request, &reply);
    if (!status.ok()) return Error{static_cast<Code>(status.error_code()), status.error_message(), ""};
    return reply;
}

struct GrpcTestSession::Impl {
    GrpcTestClient::Impl::Call call;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ClientMessage, v1::ServerMessage>> stream;
    bool finished = false;
};

GrpcTestSession::GrpcTestSession(GrpcTestClient& client) : impl_(std::make_unique<Impl>()) {
    impl_->stream = client.impl_->stub->Session(&impl_->call.context);
}

GrpcTestSession::~GrpcTestSession() {
    impl_->call.context.TryCancel();
    if (!impl_->finished) finish();
}

bool GrpcTestSession::write(const v1::ClientMessage& message) { return impl_->stream->Write(message); }

std::optional<v1::ServerMessage> GrpcTestSession::read() {
    v1::ServerMessage message;
    if (!impl_->stream->Read(&message)) return std::nullopt;
    return message;
}

int GrpcTestSession::finish() {
    impl_->finished = true;
    impl_->stream->WritesDone();
    while (read()) {
    }
    return impl_->stream->Finish().error_code();
}

struct GrpcTestWatch::Impl {
    GrpcTestClient::Impl::Call call;
    std::unique_ptr<grpc::ClientReader<v1::Event>> stream;
};

GrpcTestWatch::GrpcTestWatch(GrpcTestClient& client) : impl_(std::make_unique<Impl>()) {
    impl_->stream = client.impl_->stub->Watch(&impl_->call.context, {});
    impl_->stream->WaitForInitialMetadata();
}

GrpcTestWatch::~GrpcTestWatch() {
    impl_->call.context.TryCancel();
    while (next()) {
    }
    (void)impl_->stream->Finish();
}

std::optional<v1::Event> GrpcTestWatch::next() {
    v1::Event event;
    if (!impl_->stream->Read(&event)) return std::nullopt;
    return event;
}

}  // namespace vuda::daemon
