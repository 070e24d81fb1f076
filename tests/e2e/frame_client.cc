#include "tests/e2e/frame_client.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "tests/e2e/process.h"

namespace vuda::e2e {

FrameClient::FrameClient(const std::string& path) {
    Result<UniqueFd> fd = connect_unix(path, deadline_in(kPatience));
    if (!fd) return;
    fd_ = *std::move(fd);
    reader_.emplace(fd_.get());
}

bool FrameClient::send(const v1::Frame& frame, const std::vector<int>& fds) {
    return send_frame(fd_.get(), frame.SerializeAsString(), fds, deadline_in(kPatience)).ok();
}

bool FrameClient::send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
        if (!wait_writable(fd_.get(), deadline_in(kPatience))) return false;
        const Result<size_t> sent = send_some(fd_.get(), bytes);
        if (!sent) return false;
        bytes.remove_prefix(*sent);
    }
    return true;
}

std::optional<v1::Frame> FrameClient::receive() {
    if (!reader_) return std::nullopt;
    const Result<std::string> body = reader_->read(deadline_in(kPatience));
    v1::Frame frame;
    if (!body || !frame.ParseFromString(*body)) return std::nullopt;
    return frame;
}

std::vector<UniqueFd> FrameClient::take_fds(size_t count) {
    Result<std::vector<UniqueFd>> fds = reader_->take_fds(count);
    return fds ? *std::move(fds) : std::vector<UniqueFd>();
}

bool FrameClient::closed_by_peer() {
    const auto deadline = deadline_in(kPatience);
    std::array<char, 4096> drop;
    for (;;) {
        if (!wait_readable(fd_.get(), deadline)) return false;
        const ssize_t got = recv(fd_.get(), drop.data(), drop.size(), 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    }
}

void FrameClient::shut_down_writing() { shutdown(fd_.get(), SHUT_WR); }

std::optional<v1::ServerMessage> FrameClient::next_message() {
    const std::optional<v1::Frame> frame = receive();
    if (!frame || !frame->has_server()) return std::nullopt;
    return frame->server();
}

std::optional<v1::ServerMessage> FrameClient::ask(const v1::ClientMessage& message) {
    v1::Frame frame;
    *frame.mutable_client() = message;
    frame.mutable_client()->set_id(++last_id_);
    if (!send(frame)) return std::nullopt;
    while (std::optional<v1::ServerMessage> answer = next_message()) {
        if (answer->id() == last_id_ || answer->id() == 0) return answer;
    }
    return std::nullopt;
}

std::optional<v1::ServerMessage> FrameClient::hello(std::string_view program, std::string_view driver) {
    v1::ClientMessage message;
    message.mutable_hello()->set_features(v1::FEATURE_SHARE);
    message.mutable_hello()->set_client_version("test");
    message.mutable_hello()->set_program(std::string(program));
    message.mutable_hello()->set_driver_version(std::string(driver));
    return ask(message);
}

std::optional<v1::ServerMessage> FrameClient::register_name(std::string_view name, const Uuid& gpu) {
    v1::ClientMessage message;
    message.mutable_register_request()->set_name(std::string(name));
    message.mutable_register_request()->set_gpu_uuid(gpu.bytes.data(), gpu.bytes.size());
    return ask(message);
}

v1::ClientMessage attach_request(std::string_view name, const Uuid& gpu, uint32_t channels) {
    v1::ClientMessage message;
    message.mutable_attach_request()->set_name(std::string(name));
    message.mutable_attach_request()->set_gpu_uuid(gpu.bytes.data(), gpu.bytes.size());
    message.mutable_attach_request()->set_channels(channels);
    return message;
}

Uuid test_gpu(uint8_t number) {
    Uuid uuid;
    uuid.bytes.fill(number);
    return uuid;
}

}  // namespace vuda::e2e
