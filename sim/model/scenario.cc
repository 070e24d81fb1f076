#include "sim/model/scenario.h"

#include <algorithm>
#include <queue>

namespace vuda::sim {
namespace {

constexpr uint64_t kFrameCookie = 1;
constexpr uint64_t kKernelCookie = 2;

struct Due {
    TimeNs time;
    uint64_t cookie;
    bool operator>(const Due& other) const { return time > other.time; }
};

// From the first to the last end, so that a window which cuts a long frame does not round the rate.
struct Rate {
    uint64_t count = 0;
    TimeNs first = 0, last = 0;

    void add(TimeNs end) {
        if (count++ == 0) first = end;
        last = end;
    }
    double per_second() const {
        return last > first ? 1e9 * static_cast<double>(count - 1) / static_cast<double>(last - first) : 0.0;
    }
};

// Smallest value such that at least `share` of the values are not above it.
double percentile_ms(std::vector<TimeNs>& values, double share) {
    if (values.empty()) return 0;
    const auto rank = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
    return static_cast<double>(values[rank]) / 1e6;
}

}  // namespace

Result<ScenarioResult> run_scenario(const Scenario& scenario) {
    Result<Engine> made = Engine::make(scenario.gpu);
    if (!made) return made.error();
    Engine engine = *std::move(made);

    ChannelId graphics{}, compute{};
    TsgId shared{};
    if (scenario.renderer) {
        shared = engine.create_tsg(scenario.graphics_timeslice_ns);
        Result<ChannelId> channel = engine.create_channel(shared, {.kind = ChannelKind::kGraphics});
        if (!channel) return channel.error();
        graphics = *channel;
        if (scenario.sharing == Sharing::kInterSm) {
            if (Status set = engine.set_mode(shared, ScgMode::kInterSm); !set) return set.error();
            if (Status set = engine.set_quota(shared, scenario.quota); !set) return set.error();
        }
    }
    if (scenario.compute) {
        const bool own = !scenario.renderer || scenario.sharing == Sharing::kTimeSliced;
        const TsgId tsg = own ? engine.create_tsg(scenario.compute_timeslice_ns) : shared;
        Result<ChannelId> channel =
            engine.create_channel(tsg, {.kind = ChannelKind::kCompute, .veid = 1, .runqueue = 1});
        if (!channel) return channel.error();
        compute = *channel;
    }

    std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
    for (int i = 0; scenario.renderer && i < scenario.renderer->in_flight; ++i) due.push({0, kFrameCookie});
    for (int i = 0; scenario.compute && i < scenario.compute->in_flight; ++i) due.push({0, kKernelCookie});

    ScenarioResult result;
    std::vector<TimeNs> latencies;
    std::vector<Completion> done;
    const TimeNs until = scenario.warm_up_ns + scenario.duration_ns;
    Rate frames, kernels;
    bool stopped = false;
    while (!stopped) {
        const TimeNs next_due = due.empty() ? kNever : due.top().time;
        const TimeNs next = std::min(next_due, engine.next_event_time());
        if (next > until) break;
        engine.advance_to(next);
        while (!due.empty() && due.top().time <= next) {
            const uint64_t cookie = due.top().cookie;
            due.pop();
            const Status sent = cookie == kFrameCookie ? engine.submit(graphics, scenario.renderer->frame, cookie)
                                                       : engine.submit(compute, scenario.compute->kernel, cookie);
            if (!sent) {
                if (engine.stats().faults == 0) return sent.error();
                stopped = true;
                break;
            }
        }
        engine.take_completions(done);
        for (const Completion& completion : done) {
            if (completion.status != WorkStatus::kDone) {
                stopped = true;
                continue;
            }
            const bool frame = completion.cookie == kFrameCookie;
            const TimeNs gap = frame ? scenario.renderer->gap_ns : scenario.compute->gap_ns;
            due.push({completion.end + gap, completion.cookie});
            if (completion.end <= scenario.warm_up_ns) continue;
            if (frame) {
                frames.add(completion.end);
            } else {
                kernels.add(completion.end);
                latencies.push_back(completion.end - completion.submitted + gap);
                result.compute_sms |= completion.sms;
            }
        }
    }
    result.frames_per_s = frames.per_second();
    result.kernels_per_s = kernels.per_second();
    result.latency_p50_ms = percentile_ms(latencies, 0.50);
    result.latency_p99_ms = percentile_ms(latencies, 0.99);
    result.stats = engine.stats();
    result.faults = result.stats.faults;
    return result;
}

}  // namespace vuda::sim
