#include <csignal>
#include <thread>

#include "tests/load/daemon.h"
#include "tests/load/observer.h"
#include "tests/load/scenarios.h"
#include "tests/load/session.h"

namespace vuda::load {
namespace {

struct Way {
    const char* name;
    bool stop = false;  // SIGSTOP before SIGKILL
    bool reap = true;   // else the parent leaves a zombie
    bool held = false;  // another process keeps the connection open
};

constexpr Way kWays[] = {{"killed"}, {"stopped", true}, {"zombie", false, false}, {"socket-held", false, true, true}};

}  // namespace

void measure_death(const Options& options, Figures& figures) {
    const uint32_t each = options.count == 0 ? 100 : options.count;
    Daemon daemon(options.vudad, wide_limits());
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    Field field(daemon.handles(), options);
    const Member watcher = start_watcher(daemon.control());
    if (!field.open() || !watcher.ask({Order::Kind::kWatch})) return figures.fail("a session was refused");
    // Long enough for all deaths, with the pauses between them.
    const double seconds = each * std::size(kWays) * 0.03 + 1;
    field.begin(seconds, options.rate);

    std::vector<double> all;
    std::vector<Member> zombies;
    for (const Way& way : kWays) {
        std::vector<double> times;
        for (uint32_t i = 0; i < each; ++i) {
            Member victim = Member::start([&daemon](int line) { play(line, daemon.handles(), "victim"); });
            const std::string name = std::string("victim-") + way.name + "-" + std::to_string(i);
            Order wish{Order::Kind::kRegister};
            wish.set_name(name);
            if (!victim.ask({Order::Kind::kOpen}) || victim.result_of(wish) != 0)
                return figures.fail(name + " could not register");
            if (way.held && !victim.ask({Order::Kind::kHoldSocket})) return figures.fail(name + " did not fork");
            if (way.stop) victim.signal(SIGSTOP);
            const Clock::time_point killed = Clock::now();
            victim.signal(SIGKILL);
            if (way.reap) victim.reap();
            const std::optional<Seen> seen = wait_event(watcher, "unregister", name, Milliseconds(20'000));
            if (!seen) return figures.fail("the name of " + name + " was not released");
            times.push_back(static_cast<double>(seen->at_ns - killed.time_since_epoch().count()) / 1e6);
            if (!way.reap) zombies.push_back(std::move(victim));
        }
        figures.add(std::string("release-p99-") + way.name, percentile(times, 0.99), "ms", 50);
        all.insert(all.end(), times.begin(), times.end());
    }
    figures.add("release-p50", percentile(all, 0.5), "ms");
    figures.add("release-max", percentile(all, 1), "ms");
    const Field::Result rest = field.collect(seconds);
    if (rest.failed > 0) figures.fail("sessions beside the deaths had errors, code " + std::to_string(rest.code));
}

}  // namespace vuda::load
