#include "tests/load/observer.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "vuda/v1/vuda.grpc.pb.h"

namespace vuda::load {
namespace {

std::unique_ptr<v1::Vuda::Stub> connect(const std::string& socket) {
    return v1::Vuda::NewStub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
}

double value_of(const std::string& metrics, const std::string& series) {
    const size_t at = metrics.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::strtod(metrics.c_str() + at + series.size() + 2, nullptr);
}

void probe_for_ever(int line, const std::string& socket) {
    const auto stub = connect(socket);
    grpc::ClientContext stalled;
    std::unique_ptr<grpc::ClientReader<v1::Event>> unread;
    while (const std::optional<Order> order = take_order(line)) {
        Answer answer;
        if (order->kind == Order::Kind::kStallWatch) {
            unread = stub->Watch(&stalled, {});
            unread->WaitForInitialMetadata();
        } else {
            grpc::ClientContext context;
            context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
            v1::MetricsReply reply;
            answer.code = stub->GetMetrics(&context, {}, &reply).error_code();
            const std::string& text = reply.text();
            answer.numbers = {value_of(text, "vuda_sessions"),
                              value_of(text, "vuda_tsgs"),
                              value_of(text, "vuda_handles"),
                              value_of(text, "vuda_attach_waiting"),
                              value_of(text, "vuda_connections{socket=\"handles\"}"),
                              value_of(text, "vuda_connections{socket=\"control\"}"),
                              value_of(text, "vuda_reaper_backlog")};
        }
        give_answer(line, answer);
    }
    ::_exit(0);  // a stream may be open; nothing here needs an orderly end
}

void watch_for_ever(int line, const std::string& socket) {
    if (!take_order(line)) return;
    const auto stub = connect(socket);
    grpc::ClientContext context;
    const auto stream = stub->Watch(&context, {});
    stream->WaitForInitialMetadata();
    give_answer(line, {});
    v1::Event event;
    while (stream->Read(&event)) {
        Seen seen;
        seen.at_ns = Clock::now().time_since_epoch().count();
        if (event.kind() != "unregister" && event.kind() != "owner-silent") continue;
        event.kind().copy(seen.kind.data(), seen.kind.size() - 1);
        event.name().copy(seen.name.data(), seen.name.size() - 1);
        if (::send(line, &seen, sizeof seen, MSG_NOSIGNAL) < 0) break;
    }
    ::_exit(0);
}

}  // namespace

Member start_prober(const std::string& control_socket) {
    return Member::start([control_socket](int line) { probe_for_ever(line, control_socket); });
}

std::optional<Counts> probe(const Member& prober) {
    const std::optional<Answer> answer = prober.ask({Order::Kind::kStatus});
    if (!answer || answer->code != 0) return std::nullopt;
    const auto& n = answer->numbers;
    return Counts{n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
}

Member start_watcher(const std::string& control_socket) {
    return Member::start([control_socket](int line) { watch_for_ever(line, control_socket); });
}

std::optional<Seen> wait_event(const Member& watcher, const std::string& kind, const std::string& name,
                               Milliseconds patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    for (;;) {
        const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
        pollfd ready{watcher.line(), POLLIN, 0};
        if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) != 1) return std::nullopt;
        Seen seen;
        if (::recv(watcher.line(), &seen, sizeof seen, 0) != sizeof seen) return std::nullopt;
        if (kind == seen.kind.data() && name == seen.name.data()) return seen;
    }
}

}  // namespace vuda::load
