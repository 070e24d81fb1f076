#include "tests/load/crew.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "tests/load/session.h"
#include "tests/load/soak.h"

namespace vuda::load {
namespace {

// Samples in one answer; more would not fit into a packet.
constexpr size_t kSamples = 8'000;
constexpr uid_t kNobody = 65534;

struct PacketHead {
    int32_t code;
    uint32_t first;
    uint32_t whole;
    std::array<double, 8> numbers;
};

// Arrivals of many independent programs: exponential pauses.
class Pace {
 public:
    explicit Pace(double period_s) : random_(static_cast<unsigned>(::getpid())), pause_(1 / period_s) {}
    Clock::time_point next() {
        at_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause_(random_)));
        return at_;
    }

 private:
    std::minstd_rand random_;
    std::exponential_distribution<double> pause_;
    Clock::time_point at_ = Clock::now();
};

Answer register_cycles(Session& session, const Order& order, int never) {
    Answer answer;
    Pace pace(order.period_s);
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(order.seconds));
    const std::string name = order.name.data();
    for (Clock::time_point at = pace.next(); at < end; at = pace.next()) {
        // Late is now: what waits because the one before took long is not counted twice.
        session.serve(never, at);
        const Clock::time_point start = Clock::now();
        const int code = session.register_name(name);
        if (answer.first.size() < kSamples) answer.first.push_back(ms_between(start, Clock::now()));
        if (code != 0) answer.code = code;
        session.serve(never, Clock::now() + Milliseconds(20));  // the export ahead
        if (const int left = session.unregister(name); left != 0) answer.code = left;
    }
    return answer;
}

Answer attach_cycles(Session& session, const Order& order, int never) {
    Answer answer;
    Pace pace(order.period_s);
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(order.seconds));
    const std::string name = order.name.data();
    for (Clock::time_point at = pace.next(); at < end; at = pace.next()) {
        session.serve(never, at);
        const Session::Attach attach = session.attach(name);
        if (attach.code != 0) answer.code = attach.code;
        if (answer.first.size() < kSamples && attach.code == 0) {
            answer.first.push_back(attach.reply_ms);
            answer.whole.push_back(attach.whole_ms);
        }
        session.detach();
    }
    return answer;
}

[[noreturn]] void flood(Session& session) {
    // Each of these is answered with an error; nobody reads them.
    v1::ClientMessage message;
    message.set_id(1);
    message.mutable_unregister_request()->set_name("nobody");
    for (;;) {
        while (session.is_open() && session.send(message)) {
        }
        // Cut off, as it should be: again.
        session.open();
    }
}

[[noreturn]] void make_noise(Session& session, double seconds) {
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < seconds) {
        session.garbage();
        session.bad_token();
    }
    for (;;) ::pause();
}

}  // namespace

Member Member::start(const std::function<void(int line)>& body, bool stranger) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    Member member;
    member.line_.reset(ends[0]);
    const pid_t parent = ::getpid();
    member.pid_ = ::fork();
    if (member.pid_ < 0) std::abort();
    if (member.pid_ > 0) {
        ::close(ends[1]);
        return member;
    }
    if (stranger && ::getuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    // Not the others' lines, nor whatever the parent has.
    constexpr int kLine = 3;
    ::dup3(ends[1], kLine, O_CLOEXEC);
    ::close_range(kLine + 1, ~0U, 0);
    body(kLine);
    ::_exit(0);
}

Member::Member(Member&& other) noexcept : pid_(std::exchange(other.pid_, -1)), line_(std::move(other.line_)) {}

Member& Member::operator=(Member&& other) noexcept {
    if (this == &other) return *this;
    end();
    pid_ = std::exchange(other.pid_, -1);
    line_ = std::move(other.line_);
    return *this;
}

void Member::end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    reap();
}

void Member::signal(int number) const { ::kill(pid_, number); }

void Member::reap() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

void Member::order(const Order& order) const { ::send(line_.get(), &order, sizeof order, MSG_NOSIGNAL); }

std::optional<Answer> Member::answer(Milliseconds patience) const {
    pollfd ready{line_.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
    std::vector<char> packet(sizeof(PacketHead) + 2 * kSamples * sizeof(double));
    const ssize_t got = ::recv(line_.get(), packet.data(), packet.size(), 0);
    PacketHead head{};
    if (got < static_cast<ssize_t>(sizeof head)) return std::nullopt;
    std::memcpy(&head, packet.data(), sizeof head);
    Answer answer;
    answer.code = head.code;
    answer.numbers = head.numbers;
    answer.first.resize(head.first);
    answer.whole.resize(head.whole);
    const char* at = packet.data() + sizeof head;
    if (head.first > 0) std::memcpy(answer.first.data(), at, head.first * sizeof(double));
    if (head.whole > 0) std::memcpy(answer.whole.data(), at + head.first * sizeof(double), head.whole * sizeof(double));
    return answer;
}

std::optional<Order> take_order(int line) {
    Order order;
    const ssize_t got = ::recv(line, &order, sizeof order, 0);
    if (got != sizeof order) return std::nullopt;
    return order;
}

void give_answer(int line, const Answer& answer) {
    const PacketHead head{answer.code, static_cast<uint32_t>(answer.first.size()),
                          static_cast<uint32_t>(answer.whole.size()), answer.numbers};
    std::vector<char> packet(sizeof head + (answer.first.size() + answer.whole.size()) * sizeof(double));
    std::memcpy(packet.data(), &head, sizeof head);
    char* at = packet.data() + sizeof head;
    if (!answer.first.empty()) std::memcpy(at, answer.first.data(), answer.first.size() * sizeof(double));
    at += answer.first.size() * sizeof(double);
    if (!answer.whole.empty()) std::memcpy(at, answer.whole.data(), answer.whole.size() * sizeof(double));
    ::send(line, packet.data(), packet.size(), MSG_NOSIGNAL);
}

void play(int line, const std::string& socket, const std::string& program, uint32_t buffers) {
    Session session(socket, program, buffers);
    // poll() passes over it: for pauses in which only vudad is listened to.
    constexpr int kNoLine = -1;
    for (;;) {
        if (session.is_open()) {
            while (session.serve(line, Clock::now() + std::chrono::hours(1)) == kLate) {
            }
        }
        const std::optional<Order> order = take_order(line);
        if (!order) return;
        const std::string name = order->name.data();
        Answer answer;
        switch (order->kind) {
            case Order::Kind::kOpen: answer.code = session.open(); break;
            case Order::Kind::kDrop: session.drop(); break;
            case Order::Kind::kRegister: answer.code = session.register_name(name); break;
            case Order::Kind::kUnregister: answer.code = session.unregister(name); break;
            case Order::Kind::kAttach: {
                const Session::Attach attach = session.attach(name);
                answer.code = attach.code;
                answer.numbers = {attach.reply_ms, attach.whole_ms, static_cast<double>(attach.handles)};
                break;
            }
            case Order::Kind::kAskAttach: session.ask_attach(name); break;
            case Order::Kind::kRegisterCycles: answer = register_cycles(session, *order, kNoLine); break;
            case Order::Kind::kAttachCycles: answer = attach_cycles(session, *order, kNoLine); break;
            case Order::Kind::kHoldSocket:
                if (::fork() == 0) {
                    // Outlives this process, and goes when the line is cut.
                    pollfd cut{line, 0, 0};
                    ::poll(&cut, 1, -1);
                    ::_exit(0);
                }
                break;
            case Order::Kind::kFlood: give_answer(line, {}); flood(session);
            case Order::Kind::kNoise: give_answer(line, {}); make_noise(session, order->seconds);
            case Order::Kind::kSoak: answer = soak_some(session, *order); break;
            default: answer.code = kLost;
        }
        give_answer(line, answer);
    }
}

}  // namespace vuda::load
