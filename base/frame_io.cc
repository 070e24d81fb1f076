#include "base/frame_io.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>

namespace vuda {
namespace {

// Milliseconds for poll, rounded up so that it does not spin through the last one.
int poll_timeout(Deadline deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, INT_MAX));
}

Status wait_for(int socket, short events, Deadline deadline) {
    for (;;) {
        pollfd entry{socket, events, 0};
        const int ready = ::poll(&entry, 1, poll_timeout(deadline));
        if (ready > 0) {
            if (entry.revents & POLLNVAL) return errno_error(EBADF, "poll");
            return {};  // POLLHUP and POLLERR count: the next call on the socket says which
        }
        if (ready < 0 && errno != EINTR) return errno_error(errno, "poll");
        if (std::chrono::steady_clock::now() >= deadline) {
            return Error{Code::kDeadlineExceeded, "the peer did not answer in time", ""};
        }
    }
}

}  // namespace

Status append_frame(std::string& out, std::string_view body) {
    if (body.empty()) return Error{Code::kInvalidArgument, "empty frame", ""};
    if (body.size() > kFrameLimit) {
        return Error{Code::kResourceExhausted,
                     "frame of " + std::to_string(body.size()) + " bytes, limit is " + std::to_string(kFrameLimit), ""};
    }
    const auto size = static_cast<uint32_t>(body.size());
    for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift & 0xff);
    out += body;
    return {};
}

void FrameDecoder::feed(std::string_view bytes) {
    if (broken_) return;
    if (taken_ == buffer_.size()) {
        buffer_.clear();
        taken_ = 0;
    } else if (taken_ > kFrameLimit) {
        buffer_.erase(0, taken_);
        taken_ = 0;
    }
    buffer_ += bytes;
}

Result<std::optional<std::string>> FrameDecoder::next() {
    if (broken_) return *broken_;
    if (buffered() < kFrameHeaderSize) return std::optional<std::string>{};
    uint32_t size = 0;
    for (size_t i = 0; i < kFrameHeaderSize; ++i) {
        size |= static_cast<uint32_t>(static_cast<unsigned char>(buffer_[taken_ + i])) << 8 * i;
    }
    if (size == 0 || size > limit_) {
        broken_ = Error{Code::kDataLoss,
                        "frame length " + std::to_string(size) + " is outside 1.." + std::to_string(limit_), ""};
        buffer_ = {};
        taken_ = 0;
        return *broken_;
    }
    if (buffered() - kFrameHeaderSize < size) return std::optional<std::string>{};
    std::optional<std::string> body(std::in_place, buffer_, taken_ + kFrameHeaderSize, size);
    taken_ += kFrameHeaderSize + size;
    return body;
}

Result<Received> receive_some(int socket, std::span<char> buffer, std::vector<UniqueFd>& fds,
                              std::vector<UniqueFd>* refused) {
    // Room for more than a frame may carry: a set over our limit is then seen and refused, not cut by the kernel.
    constexpr size_t kRoom = kFrameFdLimit + 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kRoom * sizeof(int))];
    iovec data{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got;
    do {
        got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return Received{};
        if (errno == ECONNRESET) return Received{Received::Kind::kEnd, 0};
        return errno_error(errno, "recvmsg");
    }

    std::vector<UniqueFd> arrived;
    for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(item) + i * sizeof fd, sizeof fd);
            arrived.emplace_back(fd);
        }
    }
    const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    const bool too_many = arrived.size() > kFrameFdLimit;
    if (refused != nullptr && (truncated || too_many || got == 0)) {
        std::move(arrived.begin(), arrived.end(), std::back_inserter(*refused));
    }
    if (too_many) {  // what went beyond our room was cut off, too
        return Error{Code::kInvalidArgument,
                     "the peer sent more than " + std::to_string(kFrameFdLimit) + " file descriptors with one frame",
                     ""};
    }
    if (got == 0) return Received{Received::Kind::kEnd, 0};
    const Received received{Received::Kind::kData, static_cast<size_t>(got), truncated};
    if (!truncated)
        fds.insert(fds.end(), std::make_move_iterator(arrived.begin()), std::make_move_iterator(arrived.end()));
    return received;
}

Error fds_lost_error() { return errno_error(EMFILE, "file descriptors were lost on receipt"); }

Result<size_t> send_some(int socket, std::string_view bytes, std::span<const int> fds) {
    if (fds.size() > kFrameFdLimit) {
        return Error{Code::kInvalidArgument, "more than " + std::to_string(kFrameFdLimit) + " file descriptors", ""};
    }
    alignas(cmsghdr) char control[CMSG_SPACE(kFrameFdLimit * sizeof(int))] = {};
    iovec data{const_cast<char*>(bytes.data()), bytes.size()};  // sendmsg only reads it
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* item = CMSG_FIRSTHDR(&message);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(item), fds.data(), fds.size_bytes());
    }
    ssize_t sent;
    do {
        sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno == EPIPE || errno == ECONNRESET) return Error{Code::kUnavailable, "the peer closed the connection", ""};
    return errno_error(errno, "sendmsg");
}

Status wait_readable(int socket, Deadline deadline) { return wait_for(socket, POLLIN, deadline); }
Status wait_writable(int socket, Deadline deadline) { return wait_for(socket, POLLOUT, deadline); }

Status send_frame(int socket, std::string_view body, std::span<const int> fds, Deadline deadline) {
    std::string bytes;
    if (Status framed = append_frame(bytes, body); !framed) return framed;
    std::string_view left = bytes;
    while (!left.empty()) {
        Result<size_t> sent = send_some(socket, left, left.size() == bytes.size() ? fds : std::span<const int>{});
        if (!sent) return sent.error();
        if (*sent == 0) {
            if (Status ready = wait_writable(socket, deadline); !ready) return ready;
            continue;
        }
        left.remove_prefix(*sent);
    }
    return {};
}

Result<std::string> FrameReader::read(Deadline deadline) {
    for (;;) {
        Result<std::optional<std::string>> frame = decoder_.next();
        if (!frame) return frame.error();
        if (frame->has_value()) return std::move(**frame);

        char buffer[4096];
        std::vector<UniqueFd> arrived;
        Result<Received> got = receive_some(socket_, buffer, arrived);
        if (!got) return got.error();
        switch (got->kind) {
            case Received::Kind::kEnd:
                if (decoder_.buffered() != 0) return Error{Code::kDataLoss, "the peer stopped inside a frame", ""};
                return Error{Code::kUnavailable, "the peer closed the connection", ""};
            case Received::Kind::kWouldBlock:
                if (Status ready = wait_readable(socket_, deadline); !ready) return ready.error();
                break;
            case Received::Kind::kData:
                if (got->fds_lost) return fds_lost_error();
                decoder_.feed({buffer, got->bytes});
                for (UniqueFd& fd : arrived) fds_.push_back(std::move(fd));
                // A frame of one byte may carry a full set: without this a peer could pile up descriptors ahead of any
                // frame.
                if (fds_.size() > 2 * kFrameFdLimit) {
                    return Error{Code::kResourceExhausted, "the peer sent file descriptors that it did not announce",
                                 ""};
                }
                break;
        }
    }
}

Result<std::vector<UniqueFd>> FrameReader::take_fds(size_t count) {
    if (count > fds_.size()) {
        return Error{
            Code::kDataLoss,
            "the peer announced " + std::to_string(count) + " file descriptors and sent " + std::to_string(fds_.size()),
            ""};
    }
    std::vector<UniqueFd> out;
    out.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        out.push_back(std::move(fds_.front()));
        fds_.pop_front();
    }
    return out;
}

Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        return Error{Code::kInvalidArgument,
                     "socket path '" + path.substr(0, 128) + "' must have 1 to " +
                         std::to_string(sizeof address.sun_path - 1) + " bytes",
                     ""};
    }
    std::memcpy(address.sun_path, path.data(), path.size());

    struct stat status;
    if (::lstat(path.c_str(), &status) != 0) return errno_error(errno, path);
    if (S_ISLNK(status.st_mode)) {
        return Error{Code::kFailedPrecondition, path + " is a symbolic link, not a socket",
                     "use the socket's own path"};
    }
    if (!S_ISSOCK(status.st_mode)) return Error{Code::kFailedPrecondition, path + " is not a socket", ""};

    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return errno_error(errno, "socket");
    // connect on a Unix socket waits only for room in the listener's backlog, as long as SO_SNDTIMEO says.
    const auto left = std::max<std::chrono::microseconds>(
        std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::steady_clock::now()),
        std::chrono::microseconds(1));
    timeval limit{};
    limit.tv_sec = static_cast<time_t>(left.count() / 1000000);
    limit.tv_usec = static_cast<suseconds_t>(left.count() % 1000000);
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return errno_error(errno, "setsockopt");
    int rc;
    do {
        rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } while (rc != 0 && errno == EINTR && std::chrono::steady_clock::now() < deadline);
    if (rc != 0) return errno_error(errno, path);

    const int flags = ::fcntl(fd.get(), F_GETFL);
    if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) return errno_error(errno, "fcntl");
    return fd;
}

}  // namespace vuda
