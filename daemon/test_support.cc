#include "daemon/test_support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

namespace vuda::daemon {

TempDir::TempDir() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr && std::strlen(base) < 60 ? base : "/tmp") + "/vudad-test-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
}

TempDir::~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

size_t open_fd_count() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
        if (target != "anon_inode:[eventfd]" && target != "anon_inode:[eventpoll]") ++count;
    }
    return count;
}

UniqueFd memfd(const std::string& content) {
    UniqueFd fd(::memfd_create("vuda-test", MFD_CLOEXEC));
    if (!fd || ::pwrite(fd.get(), content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
        std::abort();
    return fd;
}

std::string memfd_content(int fd) {
    std::array<char, 64> text;
    const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
    return std::string(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
}

Result<Peer> test_peer_reader(int socket) {
    Result<Peer> peer = read_peer(socket);
    sockaddr_un address{};
    socklen_t size = sizeof address;
    long pid = 0;
    unsigned uid = 0;
    if (peer && ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        size > offsetof(sockaddr_un, sun_path) + 1 &&
        std::sscanf(address.sun_path + 1, "vudad-test %ld %u", &pid, &uid) == 2) {
        peer->process = {static_cast<pid_t>(pid), static_cast<uint64_t>(pid)};
        peer->uid = uid;
        peer->gid = uid;
        peer->groups.clear();
    }
    return peer;
}

Result<UniqueFd> connect_as(const std::string& path, const Role& role) {
    if (role.pid == 0) return connect_unix(path, deadline_in(kPatience));
    static std::atomic<int> unique = 0;
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "vudad-test %ld %u in %ld at %d",
                      static_cast<long>(role.pid), role.uid, static_cast<long>(::getpid()), ++unique);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return errno_error(errno, "bind");
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return errno_error(errno, "connect");
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    return socket;
}

Result<v1::HelloReply> FrameClient::open(const std::string& driver) {
    close();
    Result<UniqueFd> socket = connect_as(path_, role_);
    if (!socket) return socket.error();
    socket_ = *std::move(socket);
    reader_.emplace(socket_.get());
    kept_.clear();
    v1::ClientMessage message;
    message.mutable_hello()->set_features(features_);
    message.mutable_hello()->set_client_version("0.1.0");
    message.mutable_hello()->set_driver_version(driver);
    message.mutable_hello()->set_program(program_);
    Result<v1::ServerMessage> reply = call(std::move(message));
    if (!reply) return reply.error();
    if (!reply->has_hello_reply()) {
        return Error{static_cast<Code>(reply->error().code()), reply->error().text(), reply->error().hint()};
    }
    session_ = reply->hello_reply().session_id();
    return reply->hello_reply();
}

Status FrameClient::send(v1::ClientMessage message) {
    v1::Frame frame;
    *frame.mutable_client() = std::move(message);
    return send_frame(socket_.get(), frame.SerializeAsString(), {}, deadline_in(kPatience));
}

Result<v1::ServerMessage> FrameClient::receive(std::chrono::milliseconds patience) {
    if (!kept_.empty()) {
        v1::ServerMessage message = kept_.front();
        kept_.erase(kept_.begin());
        return message;
    }
    Result<std::string> body = reader_->read(deadline_in(patience));
    if (!body) return body.error();
    v1::Frame frame;
    if (!frame.ParseFromString(*body)) return Error{Code::kDataLoss, "not a frame", ""};
    // Before the session exists an error is a frame of its own.
    if (frame.has_error()) {
        v1::ServerMessage message;
        *message.mutable_error() = frame.error();
        return message;
    }
    return frame.server();
}

Result<v1::ServerMessage> FrameClient::call(v1::ClientMessage message) {
    message.set_id(++last_id_);
    if (Status sent = send(std::move(message)); !sent) return sent.error();
    std::vector<v1::ServerMessage> others = std::exchange(kept_, {});
    for (;;) {
        Result<v1::ServerMessage> next = receive();
        if (next && next->id() != last_id_ && !next->has_error()) {
            others.push_back(*std::move(next));
            continue;
        }
        kept_ = std::move(others);
        return next;
    }
}

Result<v1::ServerMessage> FrameClient::register_name(const std::string& name) {
    v1::ClientMessage message;
    message.mutable_register_request()->set_name(name);
    message.mutable_register_request()->set_gpu_uuid(kTestGpu);
    return call(std::move(message));
}

uint64_t FrameClient::send_attach(const std::string& name, uint32_t channels, uint32_t deadline_ms) {
    v1::ClientMessage message;
    message.set_id(++last_id_);
    v1::AttachRequest& request = *message.mutable_attach_request();
    request.set_name(name);
    request.set_gpu_uuid(kTestGpu);
    request.set_channels(channels);
    request.set_deadline_ms(deadline_ms);
    (void)send(std::move(message));
    return last_id_;
}

Result<v1::ServerMessage> FrameClient::attach(const std::string& name, uint32_t channels, uint32_t deadline_ms) {
    send_attach(name, channels, deadline_ms);
    return receive();
}

Result<v1::ServerMessage> FrameClient::done(uint32_t moved) {
    v1::ClientMessage message;
    v1::AttachDone& done = *message.mutable_attach_done();
    done.set_state(moved > 0 ? v1::SHARING_STATE_SHARING : v1::SHARING_STATE_UNSHARED);
    done.set_channels_moved(moved);
    done.set_veid(63);
    return call(std::move(message));
}

Result<std::string> FrameClient::export_token() {
    Result<v1::ServerMessage> message = receive();
    if (!message) return message.error();
    if (!message->has_export_request())
        return Error{Code::kInternal, "not an ExportRequest: " + message->ShortDebugString(), ""};
    return message->export_request().token();
}

Status FrameClient::push(const std::string& token, size_t buffers, const std::string& prefix) {
    Result<UniqueFd> socket = connect_as(path_, role_);
    if (!socket) return socket.error();
    const size_t total = buffers + 1;
    for (size_t first = 0; first < total; first += kFrameFdLimit) {
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_push();
        bundle.set_token(token);
        bundle.set_channels_in_use(2);
        std::vector<UniqueFd> files;
        std::vector<int> fds;
        for (size_t i = first; i < std::min(total, first + kFrameFdLimit); ++i) {
            v1::Handle& handle = *bundle.add_handles();
            handle.set_kind(i == 0 ? v1::HANDLE_KIND_TSG : v1::HANDLE_KIND_CONTROL_BUFFER);
            if (i > 0) {
                handle.set_va(0x1000 * i);
                handle.set_length(0x1000);
            }
            files.push_back(memfd(prefix + std::to_string(i)));
            fds.push_back(files.back().get());
        }
        bundle.set_last(first + kFrameFdLimit >= total);
        if (Status sent = send_frame(socket->get(), frame.SerializeAsString(), fds, deadline_in(kPatience)); !sent)
            return sent;
    }
    FrameReader reader(socket->get());
    Result<std::string> answer = reader.read(deadline_in(kPatience));
    if (!answer) return answer.error().code == Code::kUnavailable ? Status() : Status(answer.error());
    v1::Frame frame;
    frame.ParseFromString(*answer);
    return Error{static_cast<Code>(frame.error().code()), frame.error().text(), ""};
}

Result<FrameClient::Pulled> FrameClient::pull(const std::string& token) {
    Result<UniqueFd> socket = connect_as(path_, role_);
    if (!socket) return socket.error();
    v1::Frame frame;
    frame.mutable_pull()->set_token(token);
    if (Status sent = send_frame(socket->get(), frame.SerializeAsString(), {}, deadline_in(kPatience)); !sent)
        return sent.error();
    FrameReader reader(socket->get());
    Pulled pulled;
    for (;;) {
        Result<std::string> body = reader.read(deadline_in(kPatience));
        if (!body) return body.error();
        if (!frame.ParseFromString(*body)) return Error{Code::kDataLoss, "not a frame", ""};
        if (frame.has_error()) return Error{static_cast<Code>(frame.error().code()), frame.error().text(), ""};
        Result<std::vector<UniqueFd>> fds = reader.take_fds(static_cast<size_t>(frame.bundle().handles_size()));
        if (!fds) return fds.error();
        for (const v1::Handle& handle : frame.bundle().handles()) pulled.handles.push_back(handle);
        for (UniqueFd& fd : *fds) pulled.fds.push_back(std::move(fd));
        if (frame.bundle().last()) return pulled;
    }
}

}  // namespace vuda::daemon
