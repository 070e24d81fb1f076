#include "daemon/notify.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/frame_io.h"

namespace vuda::daemon {

// Source: sd_notify(3), "Standalone Implementations".
Notify::Notify() {
    const char* address = ::secure_getenv("NOTIFY_SOCKET");
    sockaddr_un name{};
    const size_t size = address == nullptr ? 0 : std::strlen(address);
    if (size < 2 || size >= sizeof name.sun_path || (address[0] != '/' && address[0] != '@')) return;
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, address, size);
    if (address[0] == '@') name.sun_path[0] = '\0';  // abstract: a zero byte, and no other at the end
    UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name),
                         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size)) != 0) {
        spdlog::warn("cannot tell the service manager anything: {}: {}", address, std::strerror(errno));
        return;
    }
    socket_ = std::move(fd);
}

void Notify::send(const std::string& text, bool must_arrive) {
    if (!socket_) return;
    const Deadline until = deadline_in(std::chrono::seconds(1));
    while (::send(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN || !must_arrive || !wait_writable(socket_.get(), until)) return;
    }
}

// One datagram is one change of state: READY and its STATUS go together.
void Notify::ready(const std::string& status) {
    last_status_ = status;
    send("READY=1\nSTATUS=" + status, true);
}

void Notify::status(const std::string& text) {
    if (text == last_status_) return;
    last_status_ = text;
    send("STATUS=" + text, false);
}

void Notify::reloading() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const auto usec =
        static_cast<unsigned long long>(now.tv_sec) * 1000000 + static_cast<unsigned long long>(now.tv_nsec) / 1000;
    send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(usec), true);
}

void Notify::stopping() { send("STOPPING=1\nSTATUS=Stopping", true); }

void Notify::watchdog() { send("WATCHDOG=1", false); }

Watchdog::Watchdog(boost::asio::io_context& loop, Notify& notify, Alive alive)
    : timer_(loop), notify_(notify), alive_(std::move(alive)) {
    uint64_t usec = 0;
    if (::sd_watchdog_enabled(0, &usec) > 0) interval_ = std::chrono::microseconds(usec / 2);
}

void Watchdog::start() {
    if (interval_) tick();
}

void Watchdog::tick() {
    const bool alive = !alive_ || alive_();
    if (alive) notify_.watchdog();
    // What stands still for a moment only must not cost a whole interval: the manager waits for two.
    timer_.expires_after(alive ? *interval_ : *interval_ / 10);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) tick();
    });
}

}  // namespace vuda::daemon
