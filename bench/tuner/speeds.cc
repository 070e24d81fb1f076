#include "bench/tuner/speeds.h"

#include <optional>

#include "bench/tuner/must.h"
#include "sim/model/engine.h"

namespace vuda::tuner::eval {
namespace {

constexpr sim::TimeNs kWarmUp = 200'000'000;
constexpr sim::TimeNs kDuration = 1'500'000'000;

struct Rates {
    double frames = 0, kernels = 0;
};

enum class Side : uint8_t { kGraphics, kCompute, kBoth };

// Renderer and compute each keep their queue filled, in one TSG.
Rates run(const Workload& workload, Side side, sim::ScgMode mode, std::optional<uint32_t> level) {
    sim::Engine engine = must(sim::Engine::make(workload.gpu));
    const sim::Topology& topology = engine.topology();
    const sim::TsgId tsg = engine.create_tsg();
    const sim::ChannelId graphics = must(engine.create_channel(tsg, {.kind = sim::ChannelKind::kGraphics}));
    const sim::ChannelId compute =
        must(engine.create_channel(tsg, {.kind = sim::ChannelKind::kCompute, .veid = 1, .runqueue = 1}));
    sim::Kernel kernel = workload.kernel;
    if (topology.scg() == sim::ScgControl::kNone) {
        if (level) kernel.disabled_tpcs = topology.all_tpcs() & ~topology.compute_tpcs(static_cast<int>(*level));
    } else {
        must(engine.set_mode(tsg, level ? sim::ScgMode::kInterSm : mode));
        if (level) must(engine.set_quota(tsg, static_cast<int>(*level)));
    }
    const auto submit = [&](bool frame) {
        must(engine.submit(frame ? graphics : compute, frame ? sim::Work(workload.renderer.frame) : sim::Work(kernel),
                           frame ? 1 : 0));
    };
    if (side != Side::kCompute) submit(true);
    for (int i = 0; side != Side::kGraphics && i < 2; ++i) submit(false);
    // From the first to the last end, so that the edges of the time measured round nothing.
    struct Ends {
        int64_t count = -1;
        sim::TimeNs first = 0, last = 0;
        double per_second() const {
            return last > first ? 1e9 * static_cast<double>(count) / static_cast<double>(last - first) : 0;
        }
    } frames, kernels;
    std::vector<sim::Completion> done;
    while (engine.next_event_time() <= kWarmUp + kDuration) {
        engine.advance_to(engine.next_event_time());
        engine.take_completions(done);
        for (const sim::Completion& completion : done) {
            submit(completion.cookie == 1);
            if (completion.end < kWarmUp) continue;
            Ends& ends = completion.cookie == 1 ? frames : kernels;
            if (ends.count++ < 0) ends.first = completion.end;
            ends.last = completion.end;
        }
    }
    return {frames.per_second(), kernels.per_second()};
}

}  // namespace

TimeNs frame_ns(const sim::Frame& frame) {
    TimeNs sum = 0;
    for (const sim::Draw& draw : frame.draws) sum += draw.vertex_ns + draw.fragment_ns;
    return sum;
}

sim::Frame scaled(const sim::Frame& frame, double factor) {
    sim::Frame out = frame;
    for (sim::Draw& draw : out.draws) {
        draw.vertex_ns = static_cast<TimeNs>(static_cast<double>(draw.vertex_ns) * factor);
        draw.fragment_ns = static_cast<TimeNs>(static_cast<double>(draw.fragment_ns) * factor);
    }
    return out;
}

Speeds measure_speeds(const Workload& workload) {
    const sim::Topology topology = must(sim::Topology::preset(workload.gpu));
    Speeds speeds;
    speeds.ladder.tpcs = workload.ladder;
    if (speeds.ladder.tpcs.empty()) {
        for (const int quota : topology.balanced_quotas()) speeds.ladder.tpcs.push_back(static_cast<uint32_t>(quota));
    }
    speeds.ladder.total_tpcs = static_cast<uint32_t>(topology.tpc_count());
    const sim::ScgMode shared = sim::ScgMode::kIntraSm;
    const double frames = run(workload, Side::kGraphics, shared, {}).frames;
    const double kernels = run(workload, Side::kCompute, shared, {}).kernels;
    const auto at = [&](sim::ScgMode mode, std::optional<uint32_t> level) {
        const Rates both = run(workload, Side::kBoth, mode, level);
        return LevelSpeed{both.frames / frames, both.kernels / kernels,
                          run(workload, Side::kCompute, mode, level).kernels / kernels};
    };
    for (const uint32_t level : speeds.ladder.tpcs) speeds.levels.push_back(at(sim::ScgMode::kInterSm, level));
    speeds.unpartitioned = at(topology.default_mode(), {});
    speeds.kernel_ns = 1e9 / kernels;
    return speeds;
}

}  // namespace vuda::tuner::eval
