// Processes that play programs. vudad keeps one session a process and hands tokens to processes, so each has one of its
// own, forked without exec: cheap enough for a thousand. The parent has no threads and no gRPC; who needs them is a
// member, too (observer.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/load/daemon.h"

namespace vuda::load {

// One packet to a member, and one back.
struct Order {
    enum class Kind : uint32_t {
        kOpen,            // a session
        kDrop,            // its end, without a word
        kRegister,        // `name`
        kUnregister,      // `name`
        kAttach,          // to `name`: connect, pull, done
        kAskAttach,       // to `name`, without waiting for the answer
        kRegisterCycles,  // register and unregister `name` for `seconds`, one each `period_s` in the mean
        kAttachCycles,    // attach to `name` and detach, likewise
        kHoldSocket,      // has a child that keeps the connection open
        kFlood,           // asks without reading, for ever
        kNoise,           // garbage and wrong tokens on new connections for `seconds`, without a pause
        kSoak,            // `count` session operations, soak.cc
        kStatus,          // observer: what vudad counts
        kWatch,           // observer: events from here on
        kStallWatch,      // observer: a Watch stream that is never read
    };
    Kind kind = Kind::kOpen;
    uint32_t count = 0;
    double seconds = 0;
    double period_s = 0;
    std::array<char, 72> name{};

    void set_name(const std::string& text) { text.copy(name.data(), name.size() - 1); }
};

struct Answer {
    int code = 0;               // of the last failure, 0: none
    std::vector<double> first;  // milliseconds: register, or attach to its reply
    std::vector<double> whole;  // milliseconds: attach to the end of its turn
    std::array<double, 8> numbers{};
};

class Member {
 public:
    // Runs `body(line)` in a new process, which ends with it. It dies with this one. `stranger`: as another user, where
    // this one is root.
    static Member start(const std::function<void(int line)>& body, bool stranger = false);
    Member(Member&& other) noexcept;
    Member& operator=(Member&& other) noexcept;
    ~Member() { end(); }

    // SIGKILL, reaps.
    void end();

    pid_t pid() const { return pid_; }
    int line() const { return line_.get(); }
    void order(const Order& order) const;
    // nullopt: it has ended, or did not answer within the patience.
    std::optional<Answer> answer(Milliseconds patience = Milliseconds(60'000)) const;
    std::optional<Answer> ask(const Order& what) const {
        order(what);
        return answer();
    }
    // The answer's code; kLost when there is none.
    int result_of(const Order& what) const {
        const std::optional<Answer> got = ask(what);
        return got ? got->code : -1;
    }
    void signal(int number) const;
    void reap();

 private:
    Member() = default;
    pid_t pid_ = -1;
    UniqueFd line_;
};

// Within a member.
std::optional<Order> take_order(int line);  // nullopt: the parent is gone
void give_answer(int line, const Answer& answer);

// A member's whole life: a session that does what it is told. `buffers`: what it exports besides a TSG.
void play(int line, const std::string& socket, const std::string& program, uint32_t buffers = 16);

}  // namespace vuda::load
