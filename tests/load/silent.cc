#include <csignal>

#include "tests/load/daemon.h"
#include "tests/load/observer.h"
#include "tests/load/scenarios.h"
#include "tests/load/session.h"

namespace vuda::load {
namespace {

constexpr int kHeartbeatMs = 500;
constexpr int kReleaseMs = 2000;

}  // namespace

void measure_silent(const Options& options, Figures& figures) {
    const uint32_t owners = options.count == 0 ? 8 : options.count;
    Daemon daemon(options.vudad, wide_limits() + "[liveness]\nheartbeat_ms = " + std::to_string(kHeartbeatMs) +
                                     "\nrelease_ms = " + std::to_string(kReleaseMs) + "\n");
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    const Member watcher = start_watcher(daemon.control());
    if (!watcher.ask({Order::Kind::kWatch})) return figures.fail("Watch failed");
    std::vector<double> noticed;
    std::vector<double> refused;
    std::vector<double> released;
    for (uint32_t i = 0; i < owners; ++i) {
        const auto start = [&](const char* program) {
            return Member::start([&daemon, program](int line) { play(line, daemon.handles(), program); });
        };
        const Member owner = start("owner");
        const Member attacher = start("attacher");
        const Member heir = start("heir");
        const std::string name = "silent-" + std::to_string(i);
        Order wish{Order::Kind::kRegister};
        wish.set_name(name);
        Order attach{Order::Kind::kAttach};
        attach.set_name(name);
        for (const Member* member : {&owner, &attacher, &heir}) {
            if (member->result_of({Order::Kind::kOpen}) != 0) return figures.fail("a session was refused");
        }
        if (owner.result_of(wish) != 0) return figures.fail("register was refused");
        if (attacher.result_of(attach) != 0) return figures.fail("attach was refused");
        owner.signal(SIGSTOP);
        const Clock::time_point stopped = Clock::now();
        const auto since = [&](const Seen& seen) {
            return static_cast<double>(seen.at_ns - stopped.time_since_epoch().count()) / 1e6;
        };
        const std::optional<Seen> silent = wait_event(watcher, "owner-silent", name, Milliseconds(20'000));
        if (!silent) return figures.fail("nobody noticed that the owner of " + name + " is stopped");
        noticed.push_back(since(*silent));
        // From here on nobody waits for it.
        const std::optional<Answer> second = attacher.ask(attach);
        if (!second || second->code != 14)
            return figures.fail("an attach to a silent owner's name was not UNAVAILABLE");
        refused.push_back(second->numbers[0]);
        const std::optional<Seen> gone = wait_event(watcher, "unregister", name, Milliseconds(20'000));
        if (!gone) return figures.fail("the name of a stopped owner was not released");
        released.push_back(since(*gone));
        if (heir.result_of(wish) != 0) return figures.fail("the name is still taken");
        owner.signal(SIGCONT);
        // It finds its session ended, comes back, and hears that the name is taken.
        if (owner.result_of({Order::Kind::kOpen}) != 0 || owner.result_of(wish) != 6)
            return figures.fail("the owner that was stopped did not come back");
    }
    figures.add("silent-noticed-max", percentile(noticed, 1), "ms", 2 * kHeartbeatMs + 50);
    figures.add("silent-refused-max", percentile(refused, 1), "ms", 50);
    figures.add("silent-released-max", percentile(released, 1), "ms", kReleaseMs + kHeartbeatMs + 50);
}

}  // namespace vuda::load
