#include "cli/top_command.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "cli/event_feed.h"
#include "cli/query_commands.h"
#include "cli/screen.h"
#include "cli/top_view.h"

namespace vuda::cli {
namespace {

using Clock = TopView::Clock;

// Signals become something to read. Made before gRPC's threads, which inherit the mask.
class Signals {
 public:
    Signals() {
        sigset_t wanted;
        sigemptyset(&wanted);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&wanted, signal);
        pthread_sigmask(SIG_BLOCK, &wanted, &before_);
        fd_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    }
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;
    ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

    int fd() const { return fd_.get(); }
    std::optional<int> next() const {
        signalfd_siginfo info{};
        if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
        return static_cast<int>(info.ssi_signo);
    }

    // Does what the signal does to a program that does not care: stops it, or ends it. Returns after a stop.
    static void obey(int signal) {
        struct sigaction ordinary {};
        ordinary.sa_handler = SIG_DFL;
        sigaction(signal, &ordinary, nullptr);
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signal);
        raise(signal);
        pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
        pthread_sigmask(SIG_BLOCK, &one, nullptr);
    }

 private:
    sigset_t before_{};
    UniqueFd fd_;
};

class Top {
 public:
    Top(const std::string& socket, const TopOptions& options)
        : socket_(socket),
          interval_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval_s))) {}

    // Asks the daemon once.
    Status refresh() {
        if (!client_) {
            Result<DaemonClient> client = DaemonClient::connect(socket_);
            if (!client) return client.error();
            client_ = std::make_unique<DaemonClient>(*std::move(client));
        }
        const auto status = client_->call(&v1::Vuda::Stub::GetStatus, v1::StatusRequest());
        if (!status) return lost(status.error());
        const auto metrics = client_->call(&v1::Vuda::Stub::GetMetrics, v1::MetricsRequest());
        view_.update(*status, metrics ? metrics->text() : "", Clock::now());
        view_.set_trouble("");
        if (follow_ && !feed_) feed_ = std::make_unique<EventFeed>(*client_);
        return {};
    }

    int run(const Signals& signals) {
        follow_ = true;
        if (const Status first = refresh(); !first) return cli::fail(first.error());
        Screen screen(STDIN_FILENO, STDOUT_FILENO);
        screen.enter();
        Clock::time_point due = Clock::now() + interval_;
        bool keys = ::isatty(STDIN_FILENO) == 1;
        for (;;) {
            const Screen::Size size = screen.size();
            screen.draw(view_.lines(size.width, size.height));
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now()).count();
            std::array<pollfd, 3> waits = {pollfd{signals.fd(), POLLIN, 0}, pollfd{keys ? STDIN_FILENO : -1, POLLIN, 0},
                                           pollfd{feed_ ? feed_->fd() : -1, POLLIN, 0}};
            ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
            while (const std::optional<int> signal = signals.next()) {
                if (*signal == SIGWINCH) {
                    screen.forget();
                    continue;
                }
                screen.leave();
                Signals::obey(*signal);
                screen.enter();  // it was a stop, and is over
            }
            bool now = false;
            if (waits[1].revents != 0) {
                std::array<char, 64> pressed;
                const ssize_t got = ::read(STDIN_FILENO, pressed.data(), pressed.size());
                if (got <= 0) keys = false;
                for (ssize_t i = 0; i < got; ++i) {
                    switch (pressed[static_cast<size_t>(i)]) {
                        case 'q': return 0;
                        case ' ': now = true; break;
                        case 's': view_.next_sort(); break;
                        case 'r': view_.turn_order(); break;
                        case 'p': now = !view_.toggle_pause(); break;
                        case '\f': screen.forget(); break;  // ^L
                        default: break;
                    }
                }
            }
            // What happened is shown at once, in the tables too, but not more often than the eye can follow.
            if (take_events()) due = std::min(due, std::max(Clock::now(), refreshed_ + kEventPause));
            if (now || (Clock::now() >= due && !view_.paused())) {
                if (const Status done = refresh(); !done) view_.set_trouble(done.error().to_string());
                refreshed_ = Clock::now();
            }
            if (Clock::now() >= due || now) due = Clock::now() + interval_;
        }
    }

    const TopView& view() const { return view_; }

 private:
    static constexpr std::chrono::milliseconds kEventPause{100};

    bool take_events() {
        if (!feed_) return false;
        const std::vector<v1::Event> events = feed_->take();
        for (const v1::Event& event : events) view_.event(event);
        if (feed_->ended()) feed_.reset();
        return !events.empty();
    }

    Status lost(const Error& error) {
        feed_.reset();
        client_.reset();  // the next question opens a new connection
        return error;
    }

    const std::string socket_;
    const Clock::duration interval_;
    Clock::time_point refreshed_{};
    TopView view_;
    bool follow_ = false;
    std::unique_ptr<DaemonClient> client_;
    std::unique_ptr<EventFeed> feed_;  // uses client_
};

}  // namespace

int top_command(const std::string& socket, const TopOptions& options) {
    if (options.once || ::isatty(STDOUT_FILENO) != 1) {
        Top top(socket, options);
        if (const Status done = top.refresh(); !done) return cli::fail(done.error());
        return print_text(top.view().text());
    }
    const Signals signals;
    Top top(socket, options);
    return top.run(signals);
}

}  // namespace vuda::cli
