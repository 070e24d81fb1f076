#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/load/daemon.h"
#include "tests/load/observer.h"
#include "tests/load/scenarios.h"
#include "tests/load/session.h"

namespace vuda::load {

void measure_stall(const Options& options, Figures& figures) {
    // The rate of requests is limited, as it is out of the box: that keeps one user's flood from being everybody's. Who
    // floods is another user than those who are measured, if this one may play two; else there is no limit, and what
    // helps is that everybody has a turn.
    std::string config = wide_limits();
    if (::getuid() == 0) config.resize(config.rfind("requests_per_s"));
    Daemon daemon(options.vudad, config);
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    Field field(daemon.handles(), options);
    const auto extra = [&](const char* program, bool stranger = false) {
        return Member::start([&daemon, program](int line) { play(line, daemon.handles(), program); }, stranger);
    };
    const Member flooder = extra("flooder", true);
    const Member noise = extra("noise", true);
    const Member stopped = extra("stopped");
    const Member waiter = extra("waiter");
    const Member stalled = start_prober(daemon.control());
    const Member prober = start_prober(daemon.control());
    Order name{Order::Kind::kRegister};
    name.set_name("stopped");
    Order attach{Order::Kind::kAskAttach};
    attach.set_name("stopped");
    Order noisy{Order::Kind::kNoise};
    noisy.seconds = options.seconds;
    if (!field.open() || !flooder.ask({Order::Kind::kOpen}) || !stopped.ask({Order::Kind::kOpen}) ||
        !stopped.ask(name) || !waiter.ask({Order::Kind::kOpen}) || !stalled.ask({Order::Kind::kStallWatch})) {
        return figures.fail("a session was refused: " + daemon.log_tail());
    }
    stopped.signal(SIGSTOP);
    waiter.ask(attach);
    flooder.ask({Order::Kind::kFlood});
    noise.ask(noisy);
    field.begin(options.seconds, options.rate);
    std::vector<double> probes;
    const double before = daemon.cpu_ms();
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < options.seconds) {
        const Clock::time_point asked = Clock::now();
        if (!probe(prober)) return figures.fail("the control socket did not answer");
        probes.push_back(ms_between(asked, Clock::now()));
        std::this_thread::sleep_for(Milliseconds(50));
    }
    const double used = (daemon.cpu_ms() - before) / (1000 * seconds_since(start));
    const Field::Result result = field.collect(options.seconds);
    if (result.failed > 0) figures.fail("sessions beside the flood had errors, code " + std::to_string(result.code));
    figures.add("stall-register-p99", percentile(result.registers, 0.99), "ms", options.limit_ms);
    figures.add("stall-attach-p99", percentile(result.replies, 0.99), "ms", options.limit_ms);
    figures.add("stall-metrics-p99", percentile(probes, 0.99), "ms");
    figures.add("stall-cpu", 100 * used, "% of a core");
    figures.add("stall-rss", daemon.rss_mb(), "MB", 200);
}

}  // namespace vuda::load
