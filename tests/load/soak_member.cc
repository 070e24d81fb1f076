#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>

#include "tests/load/soak.h"
#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::load {
namespace {

constexpr unsigned kNamesOfOwner = 4;

// Counts operations, and answers that the protocol does not allow for them.
class Tally {
 public:
    void operation(const char* what, int code, std::initializer_list<int> allowed) {
        ++done_;
        for (const int good : allowed) {
            if (code == good) return;
        }
        std::fprintf(stderr, "%s: answered with code %d\n", what, code);
        ++wrong_;
        last_wrong_ = code;
    }
    void operation() { ++done_; }
    double done() const { return done_; }
    Answer answer() const {
        Answer out;
        out.numbers = {done_, wrong_, static_cast<double>(last_wrong_)};
        return out;
    }

 private:
    double done_ = 0;
    double wrong_ = 0;
    int last_wrong_ = 0;
};

std::string name_of(unsigned owner, unsigned number) {
    return "soak-" + std::to_string(owner) + "-" + std::to_string(number);
}

std::minstd_rand& dice() {
    static std::minstd_rand random(static_cast<unsigned>(::getpid()));
    return random;
}
unsigned throw_of(unsigned sides) { return static_cast<unsigned>(dice()() % sides); }

// Another connection of the same process takes the session over; then that one is dropped, too.
void replace(const std::string& socket, Tally& tally) {
    Session second(socket, "soak");
    tally.operation("second greeting", second.open(), {0});
    tally.operation();
}

void own(Session& session, unsigned number, Tally& tally) {
    constexpr int kNobody = -1;
    session.serve(kNobody, Clock::now());  // what attachers ask
    if (!session.is_open()) return tally.operation("greeting", session.open(), {0, kLost});
    const unsigned thrown = throw_of(100);
    const std::string name = name_of(number, throw_of(kNamesOfOwner));
    // kLost: a connection that was replaced, and whose end is read now.
    if (thrown < 40) return tally.operation("register", session.register_name(name), {0, 9, kLost});
    if (thrown < 60) return tally.operation("unregister", session.unregister(name), {0, 5, kLost});
    if (thrown < 70) return tally.operation("quota", session.set_quota(1 + throw_of(16)), {0, 5, 9, kLost});
    if (thrown < 76) return tally.operation("mode", session.set_mode(v1::MODE_INTRA_SM), {0, 5, 9, kLost});
    if (thrown < 84) return session.report_partition(), tally.operation();
    if (thrown < 90) return session.report(v1::SHARING_STATE_IDLE), tally.operation();
    if (thrown < 91) return session.report(v1::SHARING_STATE_FAULTED), tally.operation();
    if (thrown < 97) return session.drop(), tally.operation();
    return tally.operation("token", session.bad_token(), {16});
}

void attach(Session& session, unsigned owners, const std::string& socket, Tally& tally, double& shared) {
    constexpr int kNobody = -1;
    session.serve(kNobody, Clock::now());
    if (!session.is_open()) return tally.operation("greeting", session.open(), {0, kLost});
    const unsigned thrown = throw_of(100);
    const std::string name = name_of(throw_of(owners), throw_of(kNamesOfOwner));
    if (thrown < 60) {
        const Session::Attach one = session.attach(name, 1 + throw_of(8));
        if (one.code == 0 && one.handles > 0) ++shared;
        // CANCELLED, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED (replaced),
        // UNAVAILABLE.
        return tally.operation("attach", one.code, {0, 1, 4, 5, 8, 9, 10, 14, kLost});
    }
    if (thrown < 80) return session.detach(), tally.operation();
    if (thrown < 85) return session.set_quota(4), tally.operation();
    if (thrown < 90) return session.report_partition(), tally.operation();
    if (thrown < 94) return session.drop(), tally.operation();
    if (thrown < 96) return session.ask_attach(name), session.drop(), tally.operation();
    if (thrown < 97) return session.garbage(), tally.operation();
    if (thrown < 98) return replace(socket, tally);
    return tally.operation("token", session.bad_token(), {16});
}

}  // namespace

Answer soak_some(Session& session, const Order& order) {
    Tally tally;
    double shared = 0;
    const std::string role = order.name.data();
    const auto number = static_cast<unsigned>(std::strtoul(role.c_str() + role.find('-') + 1, nullptr, 10));
    const bool owner = role.starts_with("owner");
    while (tally.done() < order.count) {
        if (owner) {
            own(session, number, tally);
        } else {
            attach(session, static_cast<unsigned>(order.period_s), session.path(), tally, shared);
        }
    }
    Answer answer = tally.answer();
    answer.numbers[3] = shared;
    answer.numbers[4] = static_cast<double>(session.pings());
    return answer;
}

void soak_grpc(int line, const std::string& control_socket) {
    const auto stub =
        v1::Vuda::NewStub(grpc::CreateChannel("unix:" + control_socket, grpc::InsecureChannelCredentials()));
    // A channel looks for a daemon that was away with a back-off of its own; a soak has one all the time.
    while (const std::optional<Order> order = take_order(line)) {
        Tally tally;
        while (tally.done() < order->count) {
            grpc::ClientContext context;
            context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
            const unsigned thrown = throw_of(100);
            if (thrown < 30) {
                // A whole session: greeting, a name, its end.
                const auto stream = stub->Session(&context);
                v1::ClientMessage hello;
                hello.set_id(1);
                hello.mutable_hello()->set_program("soak");
                v1::ServerMessage answer;
                const bool greeted = stream->Write(hello) && stream->Read(&answer);
                v1::ClientMessage wish;
                wish.set_id(2);
                wish.mutable_register_request()->set_name("soak-grpc");
                wish.mutable_register_request()->set_gpu_uuid(kGpu);
                const bool registered = greeted && stream->Write(wish) && stream->Read(&answer);
                if (registered && throw_of(2) == 0) {
                    context.TryCancel();
                } else {
                    stream->WritesDone();
                }
                while (stream->Read(&answer)) {
                }
                const grpc::Status end = stream->Finish();
                tally.operation("gRPC greeting", greeted ? 0 : end.error_code(), {0});
                tally.operation("gRPC register", registered ? 0 : end.error_code(), {0});
                if (!registered) std::fprintf(stderr, "%s\n", end.error_message().c_str());
                tally.operation();
            } else if (thrown < 50) {
                v1::StatusReply status;
                tally.operation("status", stub->GetStatus(&context, {}, &status).error_code(), {0});
            } else if (thrown < 60) {
                v1::MetricsReply metrics;
                tally.operation("metrics", stub->GetMetrics(&context, {}, &metrics).error_code(), {0});
            } else if (thrown < 85) {
                v1::SetQuotaRequest request;
                request.set_name(name_of(throw_of(2), throw_of(kNamesOfOwner)));
                request.set_tpcs(1 + throw_of(16));
                v1::SetQuotaReply reply;
                // INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION.
                tally.operation("gRPC quota", stub->SetQuota(&context, request, &reply).error_code(), {0, 3, 5, 9});
            } else if (thrown < 95) {
                v1::DetachRequest request;
                request.set_session_id(throw_of(1000));
                v1::DetachReply reply;
                tally.operation("gRPC detach", stub->Detach(&context, request, &reply).error_code(), {0, 5});
            } else {
                const auto stream = stub->Watch(&context, {});
                stream->WaitForInitialMetadata();
                context.TryCancel();
                v1::Event event;
                while (stream->Read(&event)) {
                }
                stream->Finish();
                tally.operation();
            }
        }
        give_answer(line, tally.answer());
    }
}

}  // namespace vuda::load
