// A terminal that is drawn on as a whole: the other screen, without echo, and given back as it was.
#pragma once

#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace vuda::cli {

class Screen {
 public:
    // `input` may be no terminal: then there are no keys.
    Screen(int input, int output);
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;
    ~Screen() { leave(); }

    // Both do nothing when it is so already.
    void enter();
    void leave();

    struct Size {
        size_t width = 80;
        size_t height = 24;
    };
    Size size() const;

    // Sends what differs from what is shown, in one write: nothing flickers, and little goes through a slow line.
    void draw(const std::vector<std::string>& lines);
    // The next draw sends everything: after a change of size, or when something else wrote there.
    void forget();

 private:
    void put(const std::string& bytes) const;

    int input_;
    int output_;
    bool entered_ = false;
    bool all_ = true;
    std::optional<termios> before_;
    std::vector<std::string> shown_;
};

// What takes the terminal from `before` to `now`; `all`: the terminal's content is not known. No I/O.
std::string screen_update(const std::vector<std::string>& before, const std::vector<std::string>& now, bool all);

}  // namespace vuda::cli
