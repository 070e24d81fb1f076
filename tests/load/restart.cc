#include <fcntl.h>

#include <thread>

#include "client/report.h"
#include "client/session.h"
#include "tests/load/daemon.h"
#include "tests/load/observer.h"
#include "tests/load/scenarios.h"
#include "tests/load/session.h"

namespace vuda::load {
namespace {

constexpr size_t kObjects = 17;

// What the preload does for the session in a renderer, with /dev/null in place of the GPU's objects.
class Renderer : public client::SessionHost {
 public:
    Result<client::HandleSet> export_host(uint64_t held) override {
        client::HandleSet set;
        set.channels_in_use = 2;
        set.generation = 1;
        if (held == set.generation) return set;
        for (size_t i = 0; i < kObjects; ++i) {
            client::HandleInfo info;
            info.kind = i == 0 ? client::HandleKind::kTsg : client::HandleKind::kControlBuffer;
            if (i > 0) info.va = info.length = i << 20;
            set.items.push_back({info, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))});
        }
        return set;
    }
    void detach_command(const Error&) override {}
    void guard_fd(int, bool) override {}
    void register_failed(const Error&) override {}
};

void render(int line, const std::string& socket, uint32_t number) {
    Renderer host;
    client::Reporter reporter(client::LogLevel::kOff);
    client::Session session({socket, "load", "580.159.04", "renderer"}, host, reporter);
    Uuid gpu;
    gpu.bytes.fill(0x11);
    session.set_registration("life-" + std::to_string(number), gpu);
    while (take_order(line)) {
    }
}

// Milliseconds until vudad has that many names, each with its exported set; negative: not in time.
double wait_names(const Member& prober, uint32_t names) {
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < 60) {
        const std::optional<Counts> counts = probe(prober);
        if (counts && counts->names == names && counts->handles == static_cast<double>(names * kObjects))
            return ms_between(start, Clock::now());
    }
    return -1;
}

}  // namespace

void measure_restart(const Options& options, Figures& figures) {
    const uint32_t lives = options.count == 0 ? 5 : options.count;
    Daemon daemon(options.vudad, wide_limits());
    if (!daemon.ready()) return figures.fail("vudad did not get ready: " + daemon.log_tail());
    std::vector<Member> programs;
    for (uint32_t i = 0; i < options.sessions; ++i)
        programs.push_back(Member::start([&daemon, i](int line) { render(line, daemon.handles(), i); }));
    std::vector<double> back;
    if (wait_names(start_prober(daemon.control()), options.sessions) < 0)
        return figures.fail("not all programs registered: " + daemon.log_tail());
    for (uint32_t life = 0; life < lives; ++life) {
        // A link that was up for as long as the longest back-off begins with the shortest again; one to a daemon that
        // ends again and again does not.
        std::this_thread::sleep_for(client::Backoff::kLast + Milliseconds(100));
        daemon.kill();
        daemon.start();
        if (!daemon.ready()) return figures.fail("vudad did not come back: " + daemon.log_tail());
        const double took = wait_names(start_prober(daemon.control()), options.sessions);
        if (took < 0) return figures.fail("not all names came back: " + daemon.log_tail());
        back.push_back(took);
    }
    figures.add("restart-names-back-p50", percentile(back, 0.5), "ms");
    // The longest back-off of all.
    figures.add("restart-names-back-max", percentile(back, 1), "ms", 2000);
}

}  // namespace vuda::load
