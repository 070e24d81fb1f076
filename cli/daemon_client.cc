#include "cli/daemon_client.h"

#include <fcntl.h>
#include <grp.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"

#ifndef VUDA_VERSION
#error "VUDA_VERSION comes from the build"
#endif

namespace vuda::cli {
namespace {

std::string socket_group(const std::string& path) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return {};
    char buffer[4096];
    struct group entry {};
    struct group* found = nullptr;
    if (getgrgid_r(info.st_gid, &entry, buffer, sizeof buffer, &found) != 0 || found == nullptr) return {};
    return found->gr_name;
}

// Whatever keeps the tool from the daemon is "unavailable" (69) to a script; the text tells people which it is.
Error unreachable(int err, const std::string& path) {
    const std::string at = "cannot reach vudad at " + path + ": ";
    switch (err) {
        case ENOENT:
            return {Code::kUnavailable, at + "no such socket",
                    "start the daemon (systemctl start vudad) or name its socket with --socket"};
        case ECONNREFUSED:
            return {Code::kUnavailable, at + "nobody listens there",
                    "the daemon has ended: see journalctl -u vudad, then systemctl restart vudad"};
        case EACCES:
        case EPERM: {
            const std::string group = socket_group(path);
            return {Code::kUnavailable, at + "permission denied",
                    group.empty()
                        ? "check the modes of the socket and its folder"
                        : "become a member of group " + group + " (usermod -aG " + group + " $USER) and log in again"};
        }
        case ENOTSOCK:
        case EPROTOTYPE:
            return {Code::kUnavailable, at + "not a stream socket", "name the daemon's socket with --socket"};
        case EAGAIN: return {Code::kUnavailable, at + "its queue of connections is full", "try again"};
        case ENAMETOOLONG:
            return {Code::kUnavailable, at + "the path is too long for a Unix socket",
                    "use a path of at most 107 bytes"};
        default: return {Code::kUnavailable, at + std::strerror(err), ""};
    }
}

}  // namespace

std::string absolute_socket(const std::string& path) {
    std::string plain = path.starts_with("unix:") ? path.substr(5) : path;
    std::error_code failed;
    const std::filesystem::path absolute = std::filesystem::absolute(plain, failed);
    return failed ? plain : absolute.lexically_normal().string();
}

DaemonClient::DaemonClient(std::string socket, std::chrono::milliseconds deadline, std::unique_ptr<v1::Vuda::Stub> stub)
    : socket_(std::move(socket)), deadline_(deadline), stub_(std::move(stub)) {}

Result<DaemonClient> DaemonClient::connect(const std::string& socket, std::chrono::milliseconds deadline) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket.empty() || socket.size() >= sizeof address.sun_path) return unreachable(ENAMETOOLONG, socket);
    std::memcpy(address.sun_path, socket.c_str(), socket.size());

    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return errno_error(errno, "socket");
    // A Unix socket connects at once or fails at once.
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return unreachable(errno, socket);

    // gRPC's own log lines tell users of a tool nothing that the error does not.
    setenv("GRPC_VERBOSITY", "NONE", 0);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // The channel owns the descriptor from here on.
    auto channel = grpc::CreateCustomInsecureChannelFromFd("vudad", fd.release(), arguments);
    DaemonClient client(socket, deadline, v1::Vuda::NewStub(channel));

    v1::HandshakeRequest hello;
    hello.set_features(v1::FEATURE_SHARE);
    hello.set_client_version(VUDA_VERSION);
    Result<v1::HandshakeReply> reply = client.call(&v1::Vuda::Stub::Handshake, hello);
    if (!reply) {
        const Error& error = reply.error();
        return Error{Code::kUnavailable, "vudad at " + socket + " does not answer: " + error.text,
                     error.hint.empty() ? "is this really vudad's socket?" : error.hint};
    }
    client.handshake_ = *std::move(reply);
    return client;
}

Error DaemonClient::to_error(const grpc::Status& status) const {
    Error error;
    const int code = status.error_code();
    error.code = code >= 0 && code <= 16 ? static_cast<Code>(code) : Code::kUnknown;
    error.text = status.error_message();
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
        error.text = "no answer within " + std::to_string(deadline_.count()) + " ms";
        error.hint = "the daemon may hang: see journalctl -u vudad";
    }
    if (error.text.empty()) error.text = std::string(code_name(error.code));
    for (char& c : error.text) {
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    }
    return error;
}

}  // namespace vuda::cli
