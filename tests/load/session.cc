#include "tests/load/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace vuda::load {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);
constexpr uint32_t kHandlesPerFrame = 64;

int poll_ms(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

}  // namespace

Session::Session(std::string socket, std::string program, uint32_t buffers)
    : path_(std::move(socket)),
      program_(std::move(program)),
      buffers_(buffers),
      object_(::open("/dev/null", O_RDWR | O_CLOEXEC)) {}

void Session::drop() {
    socket_.reset();
    decoder_ = FrameDecoder();
    generation_ = 0;
}

int Session::open() {
    drop();
    Result<UniqueFd> fd = connect_unix(path_, deadline_in(kPatience));
    if (!fd) return kLost;
    socket_ = *std::move(fd);
    v1::ClientMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_features(v1::FEATURE_SHARE | v1::FEATURE_EXPORT_REFRESH | v1::FEATURE_SHARED_PAGE | v1::FEATURE_QUOTA |
                       v1::FEATURE_HEARTBEAT);
    hello.set_client_version("load");
    hello.set_driver_version("580.159.04");
    hello.set_program(program_);
    return call(message);
}

bool Session::send(const v1::ClientMessage& message) {
    if (!socket_) return false;
    v1::Frame frame;
    *frame.mutable_client() = message;
    if (send_frame(socket_.get(), frame.SerializeAsString(), {}, deadline_in(kPatience))) return true;
    drop();
    return false;
}

// One read; false when the connection has ended. A page's descriptor, the only one that comes here, is closed.
bool Session::read_some() {
    std::array<char, 16 * 1024> buffer;
    std::vector<UniqueFd> fds;
    const Result<Received> got = receive_some(socket_.get(), buffer, fds);
    if (!got || got->kind == Received::Kind::kEnd) {
        drop();
        return false;
    }
    if (got->kind == Received::Kind::kData) decoder_.feed({buffer.data(), got->bytes});
    return true;
}

std::optional<v1::ServerMessage> Session::next() {
    Result<std::optional<std::string>> body = decoder_.next();
    if (!body || !body->has_value()) return std::nullopt;
    v1::Frame frame;
    if (!frame.ParseFromString(**body)) return std::nullopt;
    if (frame.has_error()) {
        v1::ServerMessage message;
        *message.mutable_error() = frame.error();
        return message;
    }
    return frame.server();
}

void Session::obey(const v1::ServerMessage& message) {
    if (message.has_export_request()) return export_handles(message.export_request());
    if (!message.has_ping()) return;
    ++pings_;
    v1::ClientMessage pong;
    pong.mutable_pong();
    send(pong);
}

int Session::wait_answer(uint64_t id, Clock::time_point deadline, v1::ServerMessage* out) {
    while (socket_) {
        while (std::optional<v1::ServerMessage> message = next()) {
            const bool session_error = message->id() == 0 && message->has_error();
            if (message->id() == id || session_error) {
                const int code = message->has_error() ? static_cast<int>(message->error().code()) : 0;
                if (out != nullptr) *out = *std::move(message);
                if (session_error) drop();
                return code;
            }
            obey(*message);
            if (!socket_) return kLost;
        }
        pollfd ready{socket_.get(), POLLIN, 0};
        const int got = ::poll(&ready, 1, poll_ms(deadline));
        if (got == 0 && Clock::now() >= deadline) return kLate;
        if (got > 0 && !read_some()) return kLost;
    }
    return kLost;
}

int Session::call(v1::ClientMessage& message) {
    message.set_id(++last_id_);
    return send(message) ? wait_answer(last_id_, Clock::now() + kPatience, nullptr) : kLost;
}

int Session::serve(int other, Clock::time_point deadline) {
    for (;;) {
        if (!socket_) return kLost;
        while (std::optional<v1::ServerMessage> message = next()) {
            obey(*message);
            if (!socket_) return kLost;
        }
        pollfd ready[2] = {{socket_.get(), POLLIN, 0}, {other, POLLIN, 0}};
        const int got = ::poll(ready, 2, poll_ms(deadline));
        if (got > 0 && ready[0].revents != 0 && !read_some()) return kLost;
        if (got > 0 && ready[1].revents != 0) return 0;
        if (Clock::now() >= deadline) return kLate;
    }
}

int Session::register_name(const std::string& name) {
    v1::ClientMessage message;
    message.mutable_register_request()->set_name(name);
    message.mutable_register_request()->set_gpu_uuid(kGpu);
    return call(message);
}

int Session::unregister(const std::string& name) {
    v1::ClientMessage message;
    message.mutable_unregister_request()->set_name(name);
    generation_ = 0;
    return call(message);
}

void Session::export_handles(const v1::ExportRequest& request) {
    ++exports_;
    if (generation_ != 0 && request.held() == generation_) {
        v1::ClientMessage message;
        message.mutable_export_current()->set_token(request.token());
        send(message);
        return;
    }
    Result<UniqueFd> fd = connect_unix(path_, deadline_in(kPatience));
    if (!fd) return;
    ++generation_;
    const std::vector<int> objects(kHandlesPerFrame, object_.get());
    for (uint32_t sent = 0; sent <= buffers_;) {
        const uint32_t count = std::min(kHandlesPerFrame, buffers_ + 1 - sent);
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_push();
        bundle.set_token(request.token());
        for (uint32_t i = sent; i < sent + count; ++i) {
            v1::Handle& handle = *bundle.add_handles();
            handle.set_kind(i == 0 ? v1::HANDLE_KIND_TSG : v1::HANDLE_KIND_CONTROL_BUFFER);
            if (i == 0) continue;
            handle.set_va(uint64_t{i} << 20);
            handle.set_length(0x1000);
        }
        sent += count;
        if (sent > buffers_) {
            bundle.set_last(true);
            bundle.set_channels_in_use(2);
            bundle.set_generation(generation_);
        }
        if (!send_frame(fd->get(), frame.SerializeAsString(), std::span(objects).first(count), deadline_in(kPatience)))
            return;
    }
}

uint32_t Session::pull(const std::string& token) {
    Result<UniqueFd> fd = connect_unix(path_, deadline_in(kPatience));
    if (!fd) return 0;
    v1::Frame frame;
    frame.mutable_pull()->set_token(token);
    if (!send_frame(fd->get(), frame.SerializeAsString(), {}, deadline_in(kPatience))) return 0;
    FrameReader reader(fd->get());
    uint32_t handles = 0;
    for (;;) {
        const Result<std::string> body = reader.read(deadline_in(kPatience));
        v1::Frame answer;
        if (!body || !answer.ParseFromString(*body) || !answer.has_bundle()) return 0;
        const auto count = static_cast<uint32_t>(answer.bundle().handles_size());
        if (!reader.take_fds(count)) return 0;
        handles += count;
        if (answer.bundle().last()) return handles;
    }
}

void Session::ask_attach(const std::string& name) {
    v1::ClientMessage message;
    message.set_id(++last_id_);
    message.mutable_attach_request()->set_name(name);
    message.mutable_attach_request()->set_gpu_uuid(kGpu);
    message.mutable_attach_request()->set_channels(1);
    send(message);
}

Session::Attach Session::attach(const std::string& name, uint32_t channels) {
    Attach out;
    v1::ClientMessage message;
    message.set_id(++last_id_);
    v1::AttachRequest& request = *message.mutable_attach_request();
    request.set_name(name);
    request.set_gpu_uuid(kGpu);
    request.set_channels(channels);
    const Clock::time_point start = Clock::now();
    if (!send(message)) return out;
    v1::ServerMessage answer;
    out.code = wait_answer(last_id_, Clock::now() + kPatience, &answer);
    out.reply_ms = ms_between(start, Clock::now());
    if (out.code != 0) return out;
    out.handles = pull(answer.attach_reply().token());
    v1::ClientMessage done;
    v1::AttachDone& outcome = *done.mutable_attach_done();
    outcome.set_state(out.handles > 0 ? v1::SHARING_STATE_SHARING : v1::SHARING_STATE_UNSHARED);
    outcome.set_channels_moved(channels);
    outcome.set_attach_us(100);
    const int finished = call(done);
    if (finished != 0) out.code = finished;
    out.whole_ms = ms_between(start, Clock::now());
    return out;
}

void Session::detach() {
    v1::ClientMessage message;
    message.mutable_detach_notice();
    send(message);
}

int Session::set_quota(uint32_t tpcs) {
    v1::ClientMessage message;
    message.mutable_set_quota()->set_tpcs(tpcs);
    return call(message);
}

int Session::set_mode(v1::Mode mode) {
    v1::ClientMessage message;
    message.mutable_set_mode()->set_mode(mode);
    return call(message);
}

void Session::report(v1::SharingState state) {
    v1::ClientMessage message;
    message.mutable_state_report()->set_state(state);
    send(message);
}

void Session::report_partition() {
    v1::ClientMessage message;
    v1::PartitionReport& report = *message.mutable_partition_report();
    report.set_backend(v1::BACKEND_QMD_MASK);
    for (uint32_t i = 0; i < 16; ++i) {
        v1::Tpc& tpc = *report.mutable_topology()->add_tpcs();
        tpc.set_gpc(i / 8);
        tpc.set_graphics(true);
        tpc.add_sms(2 * i);
        tpc.add_sms(2 * i + 1);
    }
    send(message);
}

int Session::bad_token() {
    Result<UniqueFd> fd = connect_unix(path_, deadline_in(kPatience));
    if (!fd) return kLost;
    v1::Frame frame;
    frame.mutable_pull()->set_token(std::string(16, 'x'));
    if (!send_frame(fd->get(), frame.SerializeAsString(), {}, deadline_in(kPatience))) return kLost;
    FrameReader reader(fd->get());
    const Result<std::string> body = reader.read(deadline_in(kPatience));
    v1::Frame answer;
    if (!body || !answer.ParseFromString(*body) || !answer.has_error()) return kLost;
    return static_cast<int>(answer.error().code());
}

void Session::garbage() {
    const Result<UniqueFd> fd = connect_unix(path_, deadline_in(kPatience));
    if (!fd) return;
    static constexpr std::string_view kNoise = "\xff\xff\xff\xff this is no frame";
    static_cast<void>(send_some(fd->get(), kNoise));
}

}  // namespace vuda::load
