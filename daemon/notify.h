// Tells the service manager where the daemon stands (sd_notify), and that it still serves (watchdog).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace vuda::daemon {

// All of these do nothing without NOTIFY_SOCKET. libsystemd's sd_notify waits for as long as the manager does not read,
// and the serving loop must not: news is dropped when there is no room for it, and what the manager has to know waits a
// second at most.
class Notify {
 public:
    Notify();
    void ready(const std::string& status);
    void status(const std::string& text);
    void reloading();
    void stopping();
    void watchdog();

 private:
    void send(const std::string& text, bool must_arrive);

    UniqueFd socket_;
    std::string last_status_;
};

// Pings from the loop that serves, at half the interval that the manager set: a loop that hangs sends none.
//
// `alive` is asked before each ping; while it says no, none is sent, and it is asked ten times as often. For work
// beside the loop that must not stand still unnoticed. Not given: the loop alone counts.
class Watchdog {
 public:
    using Alive = std::function<bool()>;
    Watchdog(boost::asio::io_context& loop, Notify& notify, Alive alive = {});
    void start();
    void stop() { timer_.cancel(); }

 private:
    void tick();

    boost::asio::steady_timer timer_;
    Notify& notify_;
    Alive alive_;
    std::optional<std::chrono::microseconds> interval_;
};

}  // namespace vuda::daemon
