#include "client/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace vuda::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 10s;

UniqueFd listen_at(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), 64) != 0) {
        std::abort();
    }
    return fd;
}

void send_body(int socket, const std::string& body, std::span<const int> fds = {}) {
    // A test may have closed the other end on purpose.
    (void)send_frame(socket, body, fds, deadline_in(kPatience)).ok();
}

}  // namespace

FakeDaemon::FakeDaemon(std::string path) : path_(std::move(path)), listener_(listen_at(path_)) {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    wake_read_ = UniqueFd(fds[0]);
    wake_write_ = UniqueFd(fds[1]);
    thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
    post([this] { stopping_ = true; });
    thread_.join();
    ::unlink(path_.c_str());
}

void FakeDaemon::script(const std::function<void(Script&)>& change) {
    const std::lock_guard lock(mutex_);
    change(script_);
}

bool FakeDaemon::wait_for(const std::function<bool(const Record&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return condition(record_); });
}

FakeDaemon::Record FakeDaemon::record() {
    const std::lock_guard lock(mutex_);
    return record_;
}

void FakeDaemon::post(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    const char byte = 0;
    if (::write(wake_write_.get(), &byte, 1) != 1) std::abort();
}

void FakeDaemon::send(const v1::ServerMessage& message) {
    v1::Frame frame;
    *frame.mutable_server() = message;
    std::string bytes;
    if (!append_frame(bytes, frame.SerializeAsString())) std::abort();
    send_raw(bytes);
}

void FakeDaemon::send_raw(const std::string& bytes, int fd) {
    post([this, bytes, fd] {
        for (Connection& connection : connections_) {
            if (!connection.session) continue;
            const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
            (void)send_some(connection.socket.get(), bytes, fds).ok();
        }
    });
}

void FakeDaemon::drop_sessions() {
    post([this] {
        for (Connection& connection : connections_) connection.over = connection.over || connection.session;
    });
}

void FakeDaemon::run() {
    for (;;) {
        std::vector<pollfd> entries{{wake_read_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        for (const Connection& connection : connections_) entries.push_back({connection.socket.get(), POLLIN, 0});
        ::poll(entries.data(), entries.size(), -1);
        if (entries[0].revents != 0) {
            std::array<char, 64> buffer;
            while (::read(wake_read_.get(), buffer.data(), buffer.size()) > 0) {
            }
        }
        size_t at = 2;
        for (Connection& connection : connections_) {
            if (entries[at++].revents != 0 && !read(connection)) connection.over = true;
        }
        if (entries[1].revents != 0) {
            UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (fd) connections_.emplace_back().socket = std::move(fd);
        }
        const std::lock_guard lock(mutex_);
        for (const auto& job : std::exchange(jobs_, {})) job();
        size_t ended = 0;
        for (const Connection& connection : connections_) ended += connection.over && connection.session;
        connections_.remove_if([](const Connection& connection) { return connection.over; });
        record_.sessions -= ended;  // only now: who waits for the end of a session finds its socket closed
        changed_.notify_all();
        if (stopping_) return;
    }
}

bool FakeDaemon::read(Connection& connection) {
    std::array<char, 4096> buffer;
    std::vector<UniqueFd> fds;
    Result<Received> got = receive_some(connection.socket.get(), buffer, fds);
    if (!got || got->kind == Received::Kind::kEnd) return false;
    if (got->kind == Received::Kind::kWouldBlock) return true;
    for (UniqueFd& fd : fds) connection.fds.push_back(std::move(fd));
    connection.decoder.feed({buffer.data(), got->bytes});
    for (;;) {
        auto frame = connection.decoder.next();
        if (!frame) return false;
        if (!frame->has_value()) return !connection.over;
        const std::lock_guard lock(mutex_);
        on_frame(connection, **frame);
    }
}

void FakeDaemon::on_frame(Connection& connection, const std::string& body) {
    v1::Frame frame;
    if (!frame.ParseFromString(body)) {
        ++record_.bad_frames;
        connection.over = true;
        return;
    }
    switch (frame.body_case()) {
        case v1::Frame::kClient: return on_client(connection, frame.client());
        case v1::Frame::kPush: return on_push(connection, frame.push());
        case v1::Frame::kPull: return on_pull(connection, frame.pull());
        default: ++record_.bad_frames;
    }
}

void FakeDaemon::reply(Connection& connection, uint64_t id, v1::ServerMessage message, std::span<const int> fds) {
    message.set_id(id);
    v1::Frame frame;
    *frame.mutable_server() = std::move(message);
    send_body(connection.socket.get(), frame.SerializeAsString(), fds);
}

void FakeDaemon::on_client(Connection& connection, const v1::ClientMessage& message) {
    v1::ServerMessage answer;
    switch (message.body_case()) {
        case v1::ClientMessage::kHello:
            record_.hellos.push_back(message.hello());
            connection.session = true;
            ++record_.sessions;
            if (!script_.hello_raw.empty()) {
                (void)send_some(connection.socket.get(), script_.hello_raw).ok();
                return;
            }
            if (!script_.greet) return;
            if (script_.hello_error) {
                *answer.mutable_error() = *script_.hello_error;
            } else {
                answer.mutable_hello_reply()->set_features(script_.features);
                answer.mutable_hello_reply()->set_daemon_version("0.0-fake");
                answer.mutable_hello_reply()->set_session_id(record_.hellos.size());
                answer.mutable_hello_reply()->set_page_bytes(script_.page_bytes);
                answer.mutable_hello_reply()->set_va_slot(script_.va_slot);
            }
            return reply(connection, message.id(), answer,
                         {&script_.page_fd, script_.page_fd >= 0 ? size_t{1} : size_t{0}});
        case v1::ClientMessage::kPong: ++record_.pongs; return;
        case v1::ClientMessage::kMirrorDone: record_.mirrored.push_back(message.mirror_done()); return;
        case v1::ClientMessage::kSubcontexts: record_.subcontexts.push_back(message.subcontexts()); return;
        case v1::ClientMessage::kMirrorUpdate:
            record_.mirrors.push_back(message.mirror_update());
            record_.mirror_fds.push_back(connection.fds.size());
            record_.last_mirror = message.id();
            connection.fds.clear();
            if (!script_.answer_mirrors) return;
            if (script_.mirror_error) {
                *answer.mutable_error() = *script_.mirror_error;
            } else {
                answer.mutable_mirror_update_reply()->set_mirrored(1);
            }
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kFault:
            record_.faults.push_back(message.fault());
            answer.mutable_fault_reply();
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kDoesNotFit:
            record_.unfits.push_back(message.does_not_fit());
            if (!script_.answer_unfit) return;
            answer.mutable_does_not_fit_reply()->set_held_ms(script_.held_ms);
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kPartitionReport: record_.partitions.push_back(message.partition_report()); return;
        case v1::ClientMessage::kSetMode:
            record_.modes.push_back(message.set_mode());
            if (script_.partition_error) {
                *answer.mutable_error() = *script_.partition_error;
            } else {
                answer.mutable_set_mode_reply()->set_note("mode noted");
            }
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kSetQuota:
            record_.quotas.push_back(message.set_quota());
            if (script_.partition_error) {
                *answer.mutable_error() = *script_.partition_error;
            } else {
                answer.mutable_set_quota_reply()->set_note("quota noted");
            }
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kSetTargets:
            record_.targets.push_back(message.set_targets());
            if (script_.partition_error) {
                *answer.mutable_error() = *script_.partition_error;
            } else {
                answer.mutable_set_targets_reply()->set_note("targets noted");
            }
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kRegisterRequest:
            record_.registers.push_back(message.register_request());
            if (script_.register_error) {
                *answer.mutable_error() = *script_.register_error;
            } else {
                answer.mutable_register_reply();
            }
            reply(connection, message.id(), answer);
            if (script_.export_on_register) {
                answer.mutable_export_request()->set_token("fedcba9876543210");
                reply(connection, 0, answer);
            }
            return;
        case v1::ClientMessage::kUnregisterRequest:
            record_.unregisters.push_back(message.unregister_request().name());
            answer.mutable_unregister_reply();
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kAttachRequest:
            record_.attaches.push_back(message.attach_request());
            if (script_.close_on_attach) {
                connection.over = true;
                return;
            }
            if (!script_.answer_attach) return;
            if (script_.attach_error) {
                *answer.mutable_error() = *script_.attach_error;
            } else {
                answer.mutable_attach_reply()->set_token(script_.attach_token);
                answer.mutable_attach_reply()->set_handles(script_.handles);
            }
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kAttachDone:
            record_.dones.push_back(message.attach_done());
            answer.mutable_attach_done_reply();
            return reply(connection, message.id(), answer);
        case v1::ClientMessage::kDetachNotice: ++record_.notices; return;
        case v1::ClientMessage::kStateReport: record_.reports.push_back(message.state_report()); return;
        case v1::ClientMessage::kExportRefused: record_.refusals.push_back(message.export_refused()); return;
        case v1::ClientMessage::kExportCurrent: record_.current.push_back(message.export_current().token()); return;
        default: ++record_.bad_frames;
    }
}

void FakeDaemon::on_push(Connection& connection, const v1::HandleBundle& bundle) {
    if (record_.push_complete) {
        record_.pushed.clear();
        record_.pushed_fds = record_.push_frames = 0;
        record_.push_complete = false;
    }
    for (const v1::Handle& handle : bundle.handles()) record_.pushed.push_back(handle);
    record_.pushed_fds += connection.fds.size();
    connection.fds.clear();
    ++record_.push_frames;
    record_.pushed_channels = bundle.channels_in_use();
    record_.pushed_generation = bundle.generation();
    record_.push_complete = bundle.last();
    record_.pushes += bundle.last() ? 1 : 0;
    connection.over = bundle.last();
}

void FakeDaemon::on_pull(Connection& connection, const v1::HandlePull& pull) {
    if (!script_.answer_pull) return;
    if (!script_.pull_raw.empty()) {
        (void)send_some(connection.socket.get(), script_.pull_raw).ok();
        connection.over = true;
        return;
    }
    if (script_.pull_error) {
        v1::Frame frame;
        *frame.mutable_error() = *script_.pull_error;
        return send_body(connection.socket.get(), frame.SerializeAsString());
    }
    const UniqueFd tsg(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    const UniqueFd buffer(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (uint32_t first = 0; first < script_.handles; first += kFrameFdLimit) {
        const auto count = std::min<uint32_t>(kFrameFdLimit, script_.handles - first);
        v1::Frame frame;
        v1::HandleBundle& bundle = *frame.mutable_bundle();
        bundle.set_token(pull.token());
        bundle.set_last(first + count == script_.handles);
        bundle.set_channels_in_use(5);
        std::vector<int> fds;
        for (uint32_t i = first; i < first + count; ++i) {
            v1::Handle& handle = *bundle.add_handles();
            handle.set_kind(i == 0 ? v1::HANDLE_KIND_TSG : v1::HANDLE_KIND_CONTROL_BUFFER);
            if (i > 0) {
                handle.set_va(0x200000000 + i * 0x10000);
                handle.set_length(0x10000);
            }
            fds.push_back(i == 0 ? tsg.get() : buffer.get());
        }
        if (bundle.last()) {
            if (script_.change_bundle) script_.change_bundle(bundle);
            for (int i = 0; i < script_.extra_fds; ++i) fds.push_back(buffer.get());
            for (int i = 0; i > script_.extra_fds; --i) fds.pop_back();
        }
        send_body(connection.socket.get(), frame.SerializeAsString(), fds);
    }
}

}  // namespace vuda::client
