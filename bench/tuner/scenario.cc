#include "bench/tuner/scenario.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner::eval {
namespace {

// A frame of `ms` alone: `vertex` of it vertex-bound, the rest fragment-bound, which needs `need` of the graphics TPCs.
sim::Frame frame_of(double ms, double vertex, double need, double bandwidth) {
    sim::Draw draw;
    draw.vertex_ns = static_cast<TimeNs>(1e6 * ms * vertex);
    draw.fragment_ns = static_cast<TimeNs>(1e6 * ms * (1 - vertex));
    draw.fragment_sm_need = need;
    draw.fragment_bandwidth = bandwidth;
    return {{draw}};
}

// 12 rounds of blocks on all SMs: 1.44 ms alone, or as given.
sim::Kernel kernel_for(int sms, double bandwidth, double ms = 1.44) {
    return {.blocks = static_cast<uint32_t>(12 * sms),
            .block_ns = static_cast<TimeNs>(1e6 * ms / 12),
            .bandwidth = bandwidth};
}

constexpr TimeNs k60Hz = 16'666'667;
constexpr TimeNs k90Hz = 11'111'111;

// Each seed its own size of both loads, within 5 %.
LoadPoint base(sim::Random& random) { return {0, 0.95 + 0.1 * random.uniform(), 0.95 + 0.1 * random.uniform()}; }

History steady(const Scenario&, sim::Random& random) { return {.loads = {base(random)}}; }

// Light, heavy, light; changes at the scenario's steps.
History step_load(const Scenario& scenario, sim::Random& random) {
    LoadPoint point = base(random);
    const double heavy = point.graphics * (1.35 + 0.1 * random.uniform());
    History history{.loads = {point}};
    history.loads.push_back({scenario.steps[0], heavy, point.compute});
    history.loads.push_back({scenario.steps[1], point.graphics, point.compute});
    return history;
}

History compute_step(const Scenario& scenario, sim::Random& random) {
    const LoadPoint point = base(random);
    History history{.loads = {point}};
    history.loads.push_back({scenario.steps[0], point.graphics, point.compute * (1.4 + 0.1 * random.uniform())});
    history.loads.push_back({scenario.steps[1], point.graphics, point.compute});
    return history;
}

History ramp(const Scenario& scenario, sim::Random& random) {
    const LoadPoint point = base(random);
    History history;
    for (TimeNs at = 0; at < scenario.duration; at += 100 * kMs) {
        const double turn = static_cast<double>(at) / static_cast<double>(scenario.duration);
        const double rise = turn < 0.5 ? 2 * turn : 2 - 2 * turn;
        history.loads.push_back({at, point.graphics * (0.8 + 0.7 * rise), point.compute});
    }
    return history;
}

History bursts(const Scenario& scenario, sim::Random& random) {
    const LoadPoint point = base(random);
    History history{.loads = {point}};
    TimeNs at = 3 * kSecond;
    while (at < scenario.duration) {
        const auto length = static_cast<TimeNs>((0.15 + 0.35 * random.uniform()) * kSecond);
        history.loads.push_back({at, point.graphics * 1.4, point.compute});
        history.loads.push_back({at + length, point.graphics, point.compute});
        at += length + static_cast<TimeNs>((3 + 7 * random.uniform()) * kSecond);
    }
    return history;
}

History periodic(const Scenario& scenario, sim::Random& random) {
    const LoadPoint point = base(random);
    const auto half = static_cast<TimeNs>((1.5 + 2 * random.uniform()) * kSecond);
    History history;
    bool heavy = random.below(2) == 0;
    for (TimeNs at = 0; at < scenario.duration; at += half, heavy = !heavy)
        history.loads.push_back({at, point.graphics * (heavy ? 1.4 : 1.0), point.compute});
    return history;
}

History lost_samples(const Scenario& scenario, sim::Random& random) {
    History history = step_load(scenario, random);
    history.lost = 0.5;
    for (int i = 0; i < 4; ++i) {
        const auto at = static_cast<TimeNs>(random.uniform() * static_cast<double>(scenario.duration));
        // None within the two seconds after a step: nobody can react to what nobody sees.
        const bool near = std::any_of(scenario.steps.begin(), scenario.steps.end(),
                                      [&](TimeNs step) { return at > step - 2 * kSecond && at < step + 2 * kSecond; });
        if (!near && at > 2 * kSecond) history.blackouts.emplace_back(at, at + static_cast<TimeNs>(1.5 * kSecond));
    }
    return history;
}

History clock_jumps(const Scenario& scenario, sim::Random& random) {
    History history = step_load(scenario, random);
    history.jumps = {{7 * kSecond, -5 * kSecond},
                     {15 * kSecond, 40 * kMs},
                     {23 * kSecond, -3600 * kSecond},
                     {31 * kSecond, 86'400 * kSecond},
                     {47 * kSecond, -20 * kMs}};
    return history;
}

// The second process leaves at the first step and comes back at the second.
History attach_detach(const Scenario& scenario, sim::Random& random) {
    History history = steady(scenario, random);
    history.attendance = {{scenario.steps[0], 1, false}, {scenario.steps[1], 1, true}};
    return history;
}

const std::vector<TimeNs> kThirds = {20 * kSecond, 40 * kSecond};

// 60 Hz, 60 % of the budget used, a quarter of it vertex-bound; inference without a pause in steps of 8.6 ms.
Workload gaming() {
    Workload workload;
    workload.gpu = "rtx4090";
    workload.renderer = {frame_of(10.0, 0.25, 0.6, 0.5), k60Hz};
    workload.kernel = kernel_for(128, 0.5);
    workload.clients = {{.kernels = 6}};
    workload.graphics = {16.67, 0.01};
    return workload;
}

// Section 7.3: physics and rendering as fast as they go, no target.
Workload embodied(const char* gpu, int sms) {
    Workload workload;
    workload.gpu = gpu;
    workload.renderer = {frame_of(8.0, 0.3, 0.5, 0.6), 0};
    workload.kernel = kernel_for(sms, 0.6);
    workload.clients = {{.kernels = 4}};
    return workload;
}

// Section 7.4: SegFormer beside a 60 Hz renderer on an Orin; half of the TPCs give about 29 ms.
Workload driving() {
    Workload workload;
    workload.gpu = "orin";
    workload.renderer = {frame_of(6.0, 0.2, 0.5, 0.4), k60Hz};
    workload.kernel = kernel_for(16, 0.4);
    workload.clients = {{.kernels = 10, .target = {.latency_ms = 33.33, .latency_miss = 0.01}}};
    return workload;
}

// Section 7.5: rendering uses 70 % of the budget; four streams of llama.cpp as one client with long steps.
Workload llama(const char* gpu, int sms) {
    Workload workload;
    workload.gpu = gpu;
    workload.renderer = {frame_of(11.7, 0.15, 0.5, 0.5), k60Hz};
    workload.kernel = kernel_for(sms, 0.5);
    workload.clients = {{.kernels = 24}};
    workload.graphics = {16.67, 0.01};
    return workload;
}

// Section 7.6: 90 Hz stereo of 5.8 ms with a 9 ms budget, perception at 60 Hz with a deadline, `ms` alone.
Workload vr(double ms) {
    Workload workload;
    workload.gpu = "rtx4090";
    workload.renderer = {frame_of(5.8, 0.15, 0.5, 0.4), k90Hz};
    workload.kernel = kernel_for(128, 0.3, ms / 5);
    workload.clients = {
        {.kernels = 5, .period = k60Hz, .target = {.latency_ms = 16.67, .latency_miss = 0.05}, .noise = 0.03}};
    workload.graphics = {9.0, 0.01};
    return workload;
}

// A light renderer, and inference 30 times a second with a deadline: 11.5 ms alone.
Workload deadlines() {
    Workload workload;
    workload.gpu = "rtx4090";
    workload.renderer = {frame_of(5.0, 0.15, 0.5, 0.4), k60Hz};
    workload.kernel = kernel_for(128, 0.3);
    workload.clients = {{.kernels = 8, .period = 2 * k60Hz, .target = {.latency_ms = 33.33, .latency_miss = 0.01}}};
    workload.graphics = {16.67, 0.01};
    return workload;
}

// Figure 11: vertex-bound, quotas in uneven steps, of which only a few leave graphics balanced.
Workload figure11() {
    Workload workload;
    workload.gpu = "rtx4090";
    workload.renderer = {frame_of(25.0, 1.0, 1.0, 0), 0};
    workload.kernel = kernel_for(128, 1.0);
    workload.clients = {{.kernels = 6}};
    workload.ladder = {1, 4, 8, 10, 11, 12, 16, 20, 22, 23, 28, 33, 34, 40, 44, 46, 48, 53};
    workload.graphics = {38.0, 0.01};  // 66 % of the rate alone: only q = 11 gives it (76 %)
    return workload;
}

Workload h200_gaming() {
    Workload workload;
    workload.gpu = "h200";
    workload.renderer = {frame_of(11.7, 0, 1, 0), k60Hz};
    workload.kernel = kernel_for(132, 0);
    workload.clients = {{.kernels = 6}};
    workload.graphics = {16.67, 0.01};
    return workload;
}

Workload h200_dual() {
    Workload workload = h200_gaming();
    workload.renderer = {frame_of(7.0, 0, 1, 0), k90Hz};
    workload.clients = {{.kernels = 6, .period = k60Hz, .target = {.latency_ms = 16.67, .latency_miss = 0.01}}};
    workload.graphics = {11.11, 0.01};
    return workload;
}

Workload two_clients() {
    Workload workload = gaming();
    workload.clients = {{.kernels = 4, .weight = 2}, {.kernels = 4, .weight = 1}};
    return workload;
}

Workload floor_and_frames() {
    Workload workload = gaming();
    workload.clients = {{.kernels = 6, .target = {.throughput = 30}}};
    return workload;
}

// Frames hold up to a third of the TPCs, the deadline needs two thirds.
Workload conflict() {
    Workload workload = gaming();
    workload.kernel = kernel_for(128, 0.5, 2);
    workload.clients = {{.kernels = 5, .period = k60Hz, .target = {.latency_ms = 16.67, .latency_miss = 0.01}}};
    return workload;
}

}  // namespace

std::vector<Scenario> scenarios() {
    const auto noisy = [](Workload workload) {
        workload.frame_noise = 0.10;
        workload.spikes = 0.004;
        workload.clients[0].noise = 0.15;
        return workload;
    };
    return {
        {.name = "steady",
         .text = "60 Hz renderer at 60 % of its budget, compute without a pause, two minutes",
         .workload = gaming(),
         .duration = 120 * kSecond,
         .make = steady},
        {.name = "step-load",
         .text = "graphics work times 1.4 from second 20 to 40",
         .workload = gaming(),
         .steps = kThirds,
         .make = step_load},
        {.name = "compute-step",
         .text = "both targets; compute work times 1.45 from second 20 to 40",
         .workload = deadlines(),
         .steps = kThirds,
         .make = compute_step},
        {.name = "ramp",
         .text = "graphics work from 0.8 to 1.5 and back in a minute",
         .workload = gaming(),
         .stationary = false,
         .make = ramp},
        {.name = "bursts",
         .text = "graphics work times 1.4 for 0.15 to 0.5 s every 3 to 10 s",
         .workload = gaming(),
         .stationary = false,
         .make = bursts},
        {.name = "periodic",
         .text = "graphics work alternates between 1 and 1.4 every 1.5 to 3.5 s",
         .workload = gaming(),
         .stationary = false,
         .make = periodic},
        {.name = "noise",
         .text = "frames +/- 20 %, 0.4 % of them 1.6 times as long; steps +/- 30 %",
         .workload = noisy(gaming()),
         .duration = 120 * kSecond,
         .make = steady},
        {.name = "lost-samples",
         .text = "step-load with half of the samples lost and gaps of 1.5 s",
         .workload = gaming(),
         .steps = kThirds,
         .make = lost_samples},
        {.name = "clock-jumps",
         .text = "step-load with the clock jumping by -5 s, -1 h, +1 day, -20 ms",
         .workload = gaming(),
         .steps = kThirds,
         .make = clock_jumps},
        {.name = "attach-detach",
         .text = "two processes, weights 2 and 1; the second is away from second 20 to 40",
         .workload = two_clients(),
         .steps = kThirds,
         .make = attach_detach},
        {.name = "floor",
         .text = "frame target and a floor of 30 steps/s, from the lowest level",
         .workload = floor_and_frames(),
         .worst_is_top = false,
         .make = steady},
        {.name = "vertex-bound",
         .text = "figure 11: only one of 18 uneven quotas holds the frame target",
         .workload = figure11(),
         .make = steady},
        {.name = "infeasible",
         .text = "the deadline needs two thirds of the TPCs, frames leave one third",
         .workload = conflict(),
         .make = steady},
        {.name = "embodied",
         .text = "section 7.3, RTX 4090: no target",
         .workload = embodied("rtx4090", 128),
         .worst_is_top = false,
         .make = steady},
        {.name = "embodied-a800",
         .text = "section 7.3, A800: no target",
         .workload = embodied("a800", 108),
         .worst_is_top = false,
         .make = steady},
        {.name = "driving",
         .text = "section 7.4, Orin: latency target only",
         .workload = driving(),
         .worst_is_top = false,
         .make = steady},
        {.name = "gaming-4090",
         .text = "section 7.5, RTX 4090: frame target only, 70 % of the budget",
         .workload = llama("rtx4090", 128),
         .make = steady},
        {.name = "gaming-a800", .text = "section 7.5, A800: likewise", .workload = llama("a800", 108), .make = steady},
        {.name = "vr-nominal",
         .text = "section 7.6, RTX 4090: both targets, perception of 6.4 ms",
         .workload = vr(6.4),
         .worst_is_top = false,
         .make = steady},
        {.name = "vr-heavy",
         .text = "section 7.6, RTX 4090: both targets, perception of 8.1 ms",
         .workload = vr(8.1),
         .worst_is_top = false,
         .make = steady},
        {.name = "h200-gaming",
         .text = "H200: 60 Hz at 70 % of the budget, compute without a pause",
         .workload = h200_gaming(),
         .worst_is_top = false,
         .make = steady},
        {.name = "h200-dual",
         .text = "H200: 90 Hz and 60 Hz compute with a deadline",
         .workload = h200_dual(),
         .worst_is_top = false,
         .make = steady},
    };
}

}  // namespace vuda::tuner::eval
