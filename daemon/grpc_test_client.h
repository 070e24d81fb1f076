// gRPC clients for tests, kept out of the test sources because grpcpp compiles slowly.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/test_support.h"
#include "vuda/v1/control.pb.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

// Every call has a deadline of kPatience and fails the test when it does not work as expected.
class GrpcTestClient {
 public:
    explicit GrpcTestClient(const std::string& path, Role role = {});
    ~GrpcTestClient();

    v1::StatusReply status();
    std::string metrics();
    int detach(uint64_t session);  // status code
    Result<v1::SetQuotaReply> set_quota(const v1::SetQuotaRequest& request);
    Result<v1::SetModeReply> set_mode(const std::string& name, v1::Mode mode);
    Result<v1::SetSloReply> set_slo(const v1::SetSloRequest& request);

 private:
    friend class GrpcTestSession;
    friend class GrpcTestWatch;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class GrpcTestSession {
 public:
    explicit GrpcTestSession(GrpcTestClient& client);
    ~GrpcTestSession();
    bool write(const v1::ClientMessage& message);
    std::optional<v1::ServerMessage> read();
    int finish();  // half-closes; the stream's status code

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Sees everything that happens after its construction.
class GrpcTestWatch {
 public:
    explicit GrpcTestWatch(GrpcTestClient& client);
    ~GrpcTestWatch();
    std::optional<v1::Event> next();

 private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vuda::daemon
