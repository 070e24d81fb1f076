#include "tests/e2e/remote_peer.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "tests/e2e/frame_client.h"

namespace vuda::e2e {
namespace {

std::string to_hex(const std::string& bytes) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
        text += kDigits[static_cast<unsigned char>(c) >> 4];
        text += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return text;
}

std::string from_hex(const std::string& text) {
    std::string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    return bytes;
}

// The other process.
class Servant {
 public:
    explicit Servant(std::string socket) : socket_(std::move(socket)) {}

    std::string obey(const std::string& command) {
        const size_t space = command.find(' ');
        const std::string verb = command.substr(0, space);
        const std::string argument = space == std::string::npos ? "" : command.substr(space + 1);
        if (verb == "open") {
            session_.emplace(socket_);
            return text_of(session_->hello("peer"));
        }
        if (verb == "pull") return pull(argument);
        if (verb == "push") return push(argument);
        if (!session_) return "no session";
        if (verb == "register") return text_of(session_->register_name(argument, test_gpu(1)));
        if (verb == "attach") {
            v1::Frame frame;
            *frame.mutable_client() = attach_request(argument, test_gpu(1));
            frame.mutable_client()->set_id(1000);
            return session_->send(frame) ? "ok" : "closed";
        }
        if (verb == "done") {
            v1::ClientMessage message;
            message.mutable_attach_done()->set_state(v1::SHARING_STATE_SHARING);
            message.mutable_attach_done()->set_channels_moved(static_cast<uint32_t>(std::stoul(argument)));
            return text_of(session_->ask(message));
        }
        if (verb == "export-token") {
            const auto message = session_->next_message();
            return message && message->has_export_request() ? to_hex(message->export_request().token()) : "";
        }
        if (verb == "attach-token") {
            const auto message = session_->next_message();
            return message && message->has_attach_reply() ? to_hex(message->attach_reply().token()) : text_of(message);
        }
        return "unknown";
    }

 private:
    static std::string text_of(const std::optional<v1::ServerMessage>& message) {
        if (!message) return "closed";
        return message->has_error() ? message->error().text() : "ok";
    }

    std::string push(const std::string& token) {
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_push();
        bundle.set_token(from_hex(token));
        bundle.set_last(true);
        bundle.set_channels_in_use(2);
        bundle.add_handles()->set_kind(v1::HANDLE_KIND_TSG);
        v1::Handle& buffer = *bundle.add_handles();
        buffer.set_kind(v1::HANDLE_KIND_CONTROL_BUFFER);
        buffer.set_va(0x100000);
        buffer.set_length(0x1000);
        // vudad keeps descriptors and knows nothing of what is behind them.
        const UniqueFd fd(open("/dev/null", O_RDWR | O_CLOEXEC));
        FrameClient pusher(socket_);
        if (!pusher.send(frame, {fd.get(), fd.get()})) return "closed";
        const auto answer = pusher.receive();
        if (answer && answer->has_error()) return answer->error().text();
        return "ok";
    }

    std::string pull(const std::string& token) {
        v1::Frame frame;
        frame.mutable_pull()->set_token(from_hex(token));
        FrameClient puller(socket_);
        if (!puller.send(frame)) return "0";
        const auto answer = puller.receive();
        if (!answer || !answer->has_bundle()) return "0";
        return std::to_string(puller.take_fds(static_cast<size_t>(answer->bundle().handles_size())).size());
    }

    std::string socket_;
    std::optional<FrameClient> session_;
};

}  // namespace

RemotePeer::RemotePeer(const std::string& handle_socket) : RemotePeer(handle_socket, getuid()) {}

RemotePeer::RemotePeer(const std::string& handle_socket, uid_t uid) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    line_.reset(ends[0]);
    const UniqueFd other(ends[1]);
    pid_ = fork();
    if (pid_ != 0) return;
    if (uid != getuid() && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Servant servant(handle_socket);
    std::array<char, 4096> buffer;
    for (;;) {
        const ssize_t got = recv(other.get(), buffer.data(), buffer.size(), 0);
        if (got <= 0) _exit(0);
        std::string answer = servant.obey(std::string(buffer.data(), static_cast<size_t>(got)));
        answer += '\n';  // a packet is never empty
        if (::send(other.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) _exit(0);
    }
}

RemotePeer::~RemotePeer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

std::string RemotePeer::ask(const std::string& command) {
    if (::send(line_.get(), command.data(), command.size(), MSG_NOSIGNAL) < 0) return "gone";
    std::array<char, 4096> buffer;
    const ssize_t got = recv(line_.get(), buffer.data(), buffer.size(), 0);
    return got <= 0 ? "gone" : std::string(buffer.data(), static_cast<size_t>(got) - 1);
}

std::string RemotePeer::open_session() { return ask("open"); }
std::string RemotePeer::register_name(const std::string& name) { return ask("register " + name); }
std::string RemotePeer::start_attach(const std::string& name) { return ask("attach " + name); }
std::string RemotePeer::attach_done(uint32_t channels) { return ask("done " + std::to_string(channels)); }
std::string RemotePeer::export_token() { return ask("export-token"); }
std::string RemotePeer::attach_token() { return ask("attach-token"); }
std::string RemotePeer::push(const std::string& token) { return ask("push " + token); }
size_t RemotePeer::pull(const std::string& token) { return std::stoul("0" + ask("pull " + token)); }

}  // namespace vuda::e2e
