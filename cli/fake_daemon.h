// A vudad of a few lines for tests of vudactl.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cli/test_dir.h"
#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::cli {

class FakeDaemon final : public v1::Vuda::Service {
 public:
    FakeDaemon() {
        status_.mutable_daemon()->set_version("9.9");
        status_.mutable_daemon()->set_driver_verdict(v1::DRIVER_VERDICT_SUPPORTED);
        grpc::ServerBuilder builder;
        builder.AddListeningPort("unix:" + socket(), grpc::InsecureServerCredentials());
        builder.RegisterService(this);
        server_ = builder.BuildAndStart();
    }
    ~FakeDaemon() override {
        end_watch();
        server_->Shutdown(std::chrono::system_clock::now());
    }

    std::string socket() const { return dir_.path("d.sock"); }

    void set_status(const v1::StatusReply& status) {
        const std::lock_guard lock(mutex_);
        status_ = status;
    }
    void send(const v1::Event& event) {
        const std::lock_guard lock(mutex_);
        events_.push_back(event);
        changed_.notify_all();
    }
    void end_watch() {
        const std::lock_guard lock(mutex_);
        watch_ended_ = true;
        changed_.notify_all();
    }

    grpc::Status Handshake(grpc::ServerContext*, const v1::HandshakeRequest*, v1::HandshakeReply* reply) override {
        reply->set_daemon_version("9.9");
        reply->set_handle_socket(dir_.path("handles.sock"));
        return grpc::Status::OK;
    }
    grpc::Status GetStatus(grpc::ServerContext*, const v1::StatusRequest*, v1::StatusReply* reply) override {
        const std::lock_guard lock(mutex_);
        *reply = status_;
        return grpc::Status::OK;
    }
    grpc::Status GetMetrics(grpc::ServerContext*, const v1::MetricsRequest*, v1::MetricsReply* reply) override {
        reply->set_text("vuda_tsgs 0\n");
        return grpc::Status::OK;
    }
    grpc::Status SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest*, v1::SetQuotaReply*) override {
        return {grpc::StatusCode::UNIMPLEMENTED, "no partitioner in this daemon"};
    }
    grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest*,
                       grpc::ServerWriter<v1::Event>* writer) override {
        writer->SendInitialMetadata();
        std::unique_lock lock(mutex_);
        for (size_t next = 0; !context->IsCancelled();) {
            if (next < events_.size()) {
                writer->Write(events_[next++]);
            } else if (watch_ended_) {
                break;
            } else {
                // A cancelled call wakes nobody: look again now and then.
                changed_.wait_for(lock, std::chrono::milliseconds(20));
            }
        }
        return grpc::Status::OK;
    }

 private:
    TestDir dir_;
    std::mutex mutex_;
    std::condition_variable changed_;
    v1::StatusReply status_;
    std::vector<v1::Event> events_;
    bool watch_ended_ = false;
    std::unique_ptr<grpc::Server> server_;
};

}  // namespace vuda::cli
