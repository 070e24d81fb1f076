// vuda-sim-bench: how many scheduling events a second of CPU time the timing model handles.  Prints JSON.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "sim/model/engine.h"

namespace vuda::sim {
namespace {

struct Load {
    const char* name;
    const char* gpu;
    int renderers;         // each with a TSG of its own
    int shared_compute;    // compute channels in the first renderer's TSG
    int separate_compute;  // compute programs with a TSG of their own
    std::optional<int> quota;
};

struct Measured {
    Stats stats;
    TimeNs virtual_ns = 0;
    double cpu_seconds = 0;
};

double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Each channel keeps two works queued: frames of two draws (1 ms), kernels of three waves (60 us).
Measured measure(const Load& load, uint64_t events) {
    Result<Engine> made = Engine::make(load.gpu);
    if (!made) std::abort();
    Engine& engine = *made;
    const auto waves = static_cast<uint32_t>(3 * engine.topology().sm_count());
    const Frame frame{{Draw{.vertex_ns = 100'000, .fragment_ns = 400'000}, Draw{.fragment_ns = 500'000}}};
    const Kernel kernel{.blocks = waves, .block_ns = 20'000, .bandwidth = 0.5};

    const auto submit = [&](ChannelId channel, bool graphics) {
        const Work work = graphics ? Work(frame) : Work(kernel);
        if (!engine.submit(channel, work, graphics ? 1 : 0)) std::abort();
    };
    const auto open = [&](TsgId tsg, ChannelKind kind) {
        const Result<ChannelId> channel = engine.create_channel(tsg, {.kind = kind});
        if (!channel) std::abort();
        for (int i = 0; i < 2; ++i) submit(*channel, kind == ChannelKind::kGraphics);
    };
    for (int i = 0; i < load.renderers; ++i) {
        const TsgId tsg = engine.create_tsg();
        open(tsg, ChannelKind::kGraphics);
        for (int c = 0; i == 0 && c < load.shared_compute; ++c) open(tsg, ChannelKind::kCompute);
        if (load.quota && (!engine.set_mode(tsg, ScgMode::kInterSm) || !engine.set_quota(tsg, load.quota)))
            std::abort();
    }
    for (int i = 0; i < load.separate_compute; ++i) open(engine.create_tsg(), ChannelKind::kCompute);

    std::vector<Completion> done;
    const double start = cpu_now();
    while (engine.stats().scheduling_events() < events) {
        engine.advance_to(engine.next_event_time());
        engine.take_completions(done);
        for (const Completion& completion : done) submit(completion.channel, completion.cookie == 1);
    }
    return {engine.stats(), engine.now(), cpu_now() - start};
}

}  // namespace
}  // namespace vuda::sim

int main(int argc, char** argv) {
    using namespace vuda::sim;
    const uint64_t events = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
    if (argc > 2 || events == 0) {
        std::fputs("usage: vuda-sim-bench [scheduling events per load, default 200000]\n", stderr);
        return 64;
    }
    const std::vector<Load> loads = {
        {"time slicing, renderer and compute", "h200", 1, 0, 1, {}},
        {"one TSG, renderer and compute", "h200", 1, 1, 0, {}},
        {"one TSG, renderer and 8 compute channels", "rtx4090", 1, 8, 0, {}},
        {"inter-SM q = 22, renderer and 4 compute channels", "rtx4090", 1, 4, 0, 22},
        {"16 TSGs", "rtx4090", 4, 2, 12, {}},
    };
    std::puts(
        "{\n  \"simulated\": true,\n  \"unit\": \"scheduling events per second of CPU time, one core\",\n  \"loads\": "
        "[");
    for (size_t i = 0; i < loads.size(); ++i) {
        const Measured run = measure(loads[i], events);
        const auto count = static_cast<double>(run.stats.scheduling_events());
        std::printf(
            "    {\"load\": \"%s\", \"gpu\": \"%s\", \"events\": %.0f, \"waves\": %llu, \"virtual_s\": %.3f, "
            "\"cpu_s\": %.3f, "
            "\"events_per_s\": %.0f}%s\n",
            loads[i].name, loads[i].gpu, count, static_cast<unsigned long long>(run.stats.waves),
            static_cast<double>(run.virtual_ns) / 1e9, run.cpu_seconds, count / run.cpu_seconds,
            i + 1 < loads.size() ? "," : "");
    }
    std::puts("  ]\n}");
    return 0;
}
