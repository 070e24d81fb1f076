#include <thread>

#include "tests/load/daemon.h"
#include "tests/load/scenarios.h"

namespace vuda::load {

void measure_start(const Options& options, Figures& figures) {
    const uint32_t runs = options.count == 0 ? 20 : options.count;
    std::vector<double> ready;
    for (uint32_t i = 0; i < runs; ++i) {
        Daemon daemon(options.vudad, "");
        if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
        ready.push_back(daemon.ready_ms());
        if (const int status = daemon.stop(); status != 0)
            return figures.fail("vudad ended with status " + std::to_string(status));
    }
    figures.add("ready-p50", percentile(ready, 0.5), "ms");
    figures.add("ready-max", percentile(ready, 1), "ms", 200);

    Daemon daemon(options.vudad, "");
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    // What happens once after READY is no idling. This is a measurement of time, not a wait for anything.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const double before = daemon.cpu_ms();
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    const double used = daemon.cpu_ms() - before;
    figures.add("idle-cpu", 100 * used / (1000 * seconds_since(start)), "% of a core", 0.1);
    figures.add("idle-rss", daemon.rss_mb(), "MB", 40);
    figures.add("idle-fds", static_cast<double>(daemon.fds()), "descriptors");
    figures.add("idle-threads", static_cast<double>(daemon.threads()), "threads");
    if (!daemon.running()) figures.fail("vudad ended while it was idle");
}

}  // namespace vuda::load
