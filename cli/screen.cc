#include "cli/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace vuda::cli {
namespace {

// xterm's control sequences, which terminals of today understand. Source: https://invisible-island.net/xterm/ctlseqs/
constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l";
constexpr const char* kLeave = "\x1b[?25h\x1b[?1049l";
constexpr const char* kClear = "\x1b[H\x1b[2J";
constexpr const char* kClearToEnd = "\x1b[K";

}  // namespace

std::string screen_update(const std::vector<std::string>& before, const std::vector<std::string>& now, bool all) {
    std::string bytes = all ? kClear : "";
    const size_t rows = all ? now.size() : std::max(before.size(), now.size());
    for (size_t row = 0; row < rows; ++row) {
        const std::string line = row < now.size() ? now[row] : "";
        const bool same = row < before.size() ? before[row] == line : line.empty();
        if (all ? line.empty() : same) continue;
        bytes += "\x1b[" + std::to_string(row + 1) + ";1H" + line;
        if (!all) bytes += kClearToEnd;
    }
    return bytes;
}

Screen::Screen(int input, int output) : input_(input), output_(output) {}

void Screen::put(const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t wrote = ::write(output_, bytes.data() + done, bytes.size() - done);
        if (wrote >= 0) {
            done += static_cast<size_t>(wrote);
        } else if (errno == EAGAIN) {
            pollfd ready{output_, POLLOUT, 0};
            if (::poll(&ready, 1, 1000) <= 0) return;
        } else if (errno != EINTR) {
            return;  // nobody sees it any more
        }
    }
}

void Screen::enter() {
    if (entered_) return;
    entered_ = true;
    termios now{};
    if (::tcgetattr(input_, &now) == 0) {
        before_ = now;
        // Keys at once and unseen; ^C and ^Z stay signals.
        now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        now.c_cc[VMIN] = 0;
        now.c_cc[VTIME] = 0;
        ::tcsetattr(input_, TCSANOW, &now);
    }
    put(kEnter);
    forget();
}

void Screen::leave() {
    if (!entered_) return;
    entered_ = false;
    put(kLeave);
    if (before_) ::tcsetattr(input_, TCSANOW, &*before_);
}

Screen::Size Screen::size() const {
    winsize size{};
    if (::ioctl(output_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
    return {size.ws_col, size.ws_row};
}

void Screen::draw(const std::vector<std::string>& lines) {
    put(screen_update(shown_, lines, all_));
    shown_ = lines;
    all_ = false;
}

void Screen::forget() { all_ = true; }

}  // namespace vuda::cli
