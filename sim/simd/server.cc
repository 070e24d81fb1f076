#include "sim/simd/server.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

namespace vuda::sim {

namespace {

// Without a send(2) the doorbell page is looked at this often.
constexpr TimeNs kPollNs = 1'000'000;
// Virtual time: how long a released program gets to submit its next work before time moves on without it.
constexpr int kSettleMs = 2;
// What an H200 did while a bad access of a program that shared was never done with (docs/faults.md): 40,000 to 60,000 a
// second. Wall-clock time, whatever the GPU's is: who looks at the counter has no other.
constexpr TimeNs kReplayNs = 1'000'000'000 / 50'000;
constexpr TimeNs kReplayEveryNs = 5'000'000;

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return Error{Code::kInvalidArgument, "socket path '" + path + "' is empty or too long", "at most 107 bytes"};
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

std::string process_name(pid_t pid) {
    std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(comm, name);
    return name.empty() ? "unknown" : name;
}

void raise_fd_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool add(int epoll, int fd, uint32_t events, uint64_t data) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void wake_futex(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace

Result<std::unique_ptr<Server>> Server::make(ServerOptions options) {
    raise_fd_limit();
    std::unique_ptr<Server> server(new Server(std::move(options)));
    auto rm = ResourceManager::make(server->options_.simulated);
    if (!rm) return rm.error();
    server->rm_ = std::move(*rm);
    for (const std::string& name : server->options_.broken_rules) {
        const auto rule = find_rule(name);
        if (!rule)
            return Error{Code::kInvalidArgument, "there is no rule '" + name + "'",
                         "vuda-simd --list-rules prints them"};
        server->rm_->rules().set(*rule, false);
    }
    for (const std::string& text : server->options_.injections) {
        if (!server->rm_->inject(text))
            return Error{Code::kInvalidArgument, "cannot inject '" + text + "'", "e.g. alloc:9067=0x1a@1"};
    }
    if (!server->options_.quiet)
        server->rm_->log().set_sink(
            [](const std::string& line) { std::fprintf(stderr, "vuda-simd: %s\n", line.c_str()); });
    for (size_t i = 0; i < server->rm_->gpu_count(); i++) server->rm_->gpu(i).set_wake(wake_futex);

    auto address = address_of(server->options_.socket);
    if (!address) return address.error();
    const auto* raw = reinterpret_cast<const sockaddr*>(&*address);
    UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), raw, sizeof *address) == 0)
        return Error{Code::kAlreadyExists, "another simulator listens on " + server->options_.socket, {}};
    if (errno == ECONNREFUSED) (void)unlink(server->options_.socket.c_str());
    server->listener_.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (bind(server->listener_.get(), raw, sizeof *address) != 0 || listen(server->listener_.get(), 128) != 0)
        return errno_error(errno, "cannot listen on " + server->options_.socket);
    server->bound_ = true;
    // Like /dev/nvidia*: for everybody who can reach it.
    (void)chmod(server->options_.socket.c_str(), 0666);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    server->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    server->files_epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    server->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    server->signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!server->epoll_.valid() || !server->files_epoll_.valid() || !server->timer_.valid() ||
        !server->signals_.valid())
        return errno_error(errno, "cannot make the event loop");
    for (const int fd :
         {server->listener_.get(), server->files_epoll_.get(), server->timer_.get(), server->signals_.get()}) {
        if (!add(server->epoll_.get(), fd, EPOLLIN, static_cast<uint64_t>(fd)))
            return errno_error(errno, "cannot watch a descriptor");
    }
    server->buffer_.resize(protocol::kMaxPacket);
    // Names of files must not collide with those of another server in this network namespace.
    uint64_t random = 0;
    if (getentropy(&random, sizeof random) != 0) random = static_cast<uint64_t>(getpid());
    server->instance_ = std::to_string(random);
    return server;
}

Server::~Server() {
    if (bound_) (void)unlink(options_.socket.c_str());
}

TimeNs Server::wall() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

UniqueFd Server::publish(FileId file, FileKind kind, int minor) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return {};
    UniqueFd ours(pair[0]);
    UniqueFd theirs(pair[1]);
    (void)fcntl(ours.get(), F_SETFL, O_NONBLOCK);
    const int shown = kind == FileKind::kGpu ? minor : kind == FileKind::kControl ? 255 : 0;
    const std::string name = std::string(protocol::kNamePrefix) + instance_ + ":" +
                             std::to_string(static_cast<uint32_t>(kind)) + ":" + std::to_string(shown) + ":" +
                             std::to_string(file);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof address.sun_path) return {};
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(ours.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return {};
    if (!add(files_epoll_.get(), ours.get(), EPOLLIN | EPOLLRDHUP, file)) return {};
    files_[file] = {std::move(ours), kind == FileKind::kGpu ? minor : -1};
    return theirs;
}

std::optional<std::string> Server::status() {
    std::string text = "xids=" + std::to_string(rm_->log().xids()) + "\n";
    for (size_t i = 0; i < rm_->gpu_count(); i++) {
        const Gpu& gpu = rm_->gpu(i);
        text += "gpu" + std::to_string(i) + " name=\"" + gpu.identity().name +
                "\" uuid=" + gpu.identity().uuid.to_string() + " simulated_ns=" + std::to_string(gpu.now()) +
                " wedged=" + (gpu.wedged() ? "1" : "0") +
                " kernels=" + std::to_string(gpu.engine().stats().kernel_ends) +
                " frames=" + std::to_string(gpu.engine().stats().frame_ends) +
                " switches=" + std::to_string(gpu.engine().stats().slice_switches) + " timeslices_us=";
        const char* separator = "";
        for (const TimeNs slice : gpu.engine().timeslices()) {
            text += std::exchange(separator, ",") + std::to_string(slice / 1000);
        }
        text += '\n';
    }
    return text;
}

void Server::accept_all() {
    for (;;) {
        UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) return;
        ucred peer{};
        socklen_t length = sizeof peer;
        if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) continue;
        const int fd = socket.get();
        if (!add(epoll_.get(), fd, EPOLLIN | EPOLLRDHUP, static_cast<uint64_t>(fd))) continue;
        Connection& connection = connections_[fd];
        connection.socket = std::move(socket);
        connection.session = std::make_unique<Session>(*rm_, *this, Caller{peer.pid, peer.uid, process_name(peer.pid)});
    }
}

void Server::drain_files() {
    std::array<epoll_event, 64> events;
    for (;;) {
        const int count = epoll_wait(files_epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        if (count <= 0) return;
        for (int i = 0; i < count; i++) {
            const FileId id = events[static_cast<size_t>(i)].data.u64;
            const auto it = files_.find(id);
            if (it == files_.end()) continue;
            bool over = false;
            for (;;) {
                uint32_t token = 0;
                const ssize_t got = recv(it->second.end.get(), &token, sizeof token, 0);
                if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) over = true;
                if (got <= 0) break;
                if (got != sizeof token) continue;  // not a token: ignored, as a stray write is
                const File* file = rm_->file(id);
                const int gpu =
                    file != nullptr && file->mapping.memory != nullptr ? file->mapping.memory->gpu : it->second.gpu;
                if (gpu >= 0) rm_->doorbell(static_cast<size_t>(gpu), token);
                settling_ = false;
            }
            if (!over) continue;
            (void)epoll_ctl(files_epoll_.get(), EPOLL_CTL_DEL, it->second.end.get(), nullptr);
            files_.erase(it);
            rm_->close(id);
        }
    }
}

bool Server::serve(Connection& connection) {
    for (;;) {
        const ssize_t got = recv(connection.socket.get(), buffer_.data(), buffer_.size(), MSG_TRUNC);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        if (got == 0 || static_cast<size_t>(got) > buffer_.size()) return false;
        drain_files();
        catch_up();
        auto answer = connection.session->handle(std::span<const uint8_t>(buffer_.data(), static_cast<size_t>(got)));
        if (!answer) return false;
        iovec part{answer->bytes.data(), answer->bytes.size()};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        const int fd = answer->owned.valid() ? answer->owned.get() : answer->fd;
        if (fd >= 0) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            cmsghdr* head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof fd);
            std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
        }
        // One answer to one question: a peer that does not read it is broken.
        if (sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return false;
    }
}

void Server::count_replays() {
    const TimeNs now = wall();
    if (!rm_->any_stuck()) {
        replayed_ns_ = now;
        return;
    }
    const TimeNs replays = (now - replayed_ns_) / kReplayNs;
    replayed_ns_ += replays * kReplayNs;
    if (replays > 0) rm_->count_replays(static_cast<uint64_t>(replays));
}

void Server::catch_up() {
    count_replays();
    if (options_.virtual_time) return;
    const TimeNs now = wall();
    for (size_t i = 0; i < rm_->gpu_count(); i++) (void)rm_->gpu(i).run_until(now);
}

void Server::arm_timer() {
    if (options_.virtual_time && !doorbell_mapped_ && !rm_->any_stuck()) return;
    const TimeNs now = wall();
    TimeNs next = kNever;
    if (!options_.virtual_time) {
        for (size_t i = 0; i < rm_->gpu_count(); i++) next = std::min(next, rm_->gpu(i).next_event());
    }
    if (doorbell_mapped_ && !files_.empty()) next = std::min(next, now + kPollNs);
    if (rm_->any_stuck()) next = std::min(next, now + kReplayEveryNs);
    itimerspec when{};
    if (next != kNever) {
        const TimeNs delay = std::max<TimeNs>(next - now, 1);
        when.it_value.tv_sec = static_cast<time_t>(delay / 1'000'000'000);
        when.it_value.tv_nsec = static_cast<long>(delay % 1'000'000'000);
    }
    (void)timerfd_settime(timer_.get(), 0, &when, nullptr);
}

int Server::wait_ms() {
    if (!options_.virtual_time) return -1;
    for (size_t i = 0; i < rm_->gpu_count(); i++) {
        if (rm_->gpu(i).next_event() != kNever) return settling_ ? kSettleMs : 0;
    }
    return -1;
}

Status Server::run(int stop_fd) {
    if (stop_fd >= 0 && !add(epoll_.get(), stop_fd, EPOLLIN, static_cast<uint64_t>(stop_fd)))
        return errno_error(errno, "cannot watch the stop descriptor");
    std::array<epoll_event, 64> events;
    for (;;) {
        arm_timer();
        const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
        if (count < 0 && errno != EINTR) return errno_error(errno, "epoll_wait");
        catch_up();
        if (count == 0 && options_.virtual_time) {
            // Nobody has anything to say: the next thing that happens is the model's.
            settling_ = false;
            for (size_t i = 0; i < rm_->gpu_count(); i++) {
                Gpu& gpu = rm_->gpu(i);
                if (gpu.next_event() != kNever && gpu.run_until(gpu.next_event()) > 0) settling_ = true;
            }
            continue;
        }
        for (int i = 0; i < count; i++) {
            const int fd = static_cast<int>(events[static_cast<size_t>(i)].data.u64);
            if (fd == stop_fd || fd == signals_.get()) {
                signalfd_siginfo info;
                if (fd == stop_fd || read(signals_.get(), &info, sizeof info) > 0) return {};
            } else if (fd == listener_.get()) {
                accept_all();
            } else if (fd == files_epoll_.get()) {
                drain_files();
            } else if (fd == timer_.get()) {
                uint64_t ticks = 0;
                (void)!read(timer_.get(), &ticks, sizeof ticks);
                if (doorbell_mapped_) rm_->poll_channels();
            } else if (const auto it = connections_.find(fd); it != connections_.end()) {
                if (!serve(it->second)) connections_.erase(it);
            }
        }
    }
}

}  // namespace vuda::sim
