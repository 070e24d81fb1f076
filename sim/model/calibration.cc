#include "sim/model/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace vuda::sim {
namespace {

// All scenarios are fixed; a failure is a defect of this program, not an input to handle.
ScenarioResult must_run(const Scenario& scenario) {
    Result<ScenarioResult> result = run_scenario(scenario);
    if (!result) {
        std::fprintf(stderr, "calibration scenario failed: %s\n", result.error().to_string().c_str());
        std::abort();
    }
    return *std::move(result);
}

Scenario scenario_4090(const RendererSpec& scene, Sharing sharing, int quota = 0) {
    Scenario scenario;
    scenario.gpu = "rtx4090";
    scenario.renderer = scene;
    scenario.compute = synthetic_cuda();
    scenario.sharing = sharing;
    scenario.quota = quota;
    return scenario;
}

struct Percent {
    double graphics, compute;
    double sum() const { return graphics + compute; }
};

// Rates of one scene under several kinds of sharing, as per cent of running alone.
class Scene {
 public:
    explicit Scene(RendererSpec scene) : scene_(std::move(scene)) {
        Scenario alone = scenario_4090(scene_, Sharing::kTimeSliced);
        alone.compute.reset();
        graphics_alone_ = must_run(alone).frames_per_s;
        alone = scenario_4090(scene_, Sharing::kTimeSliced);
        alone.renderer.reset();
        compute_alone_ = must_run(alone).kernels_per_s;
    }

    Percent run(Sharing sharing, int quota = 0) const {
        const ScenarioResult result = must_run(scenario_4090(scene_, sharing, quota));
        return {100 * result.frames_per_s / graphics_alone_, 100 * result.kernels_per_s / compute_alone_};
    }

 private:
    RendererSpec scene_;
    double graphics_alone_ = 0;
    double compute_alone_ = 0;
};

constexpr const char* k4090 = "RTX 4090";
constexpr const char* kH200 = "H200";
constexpr bool kFitted = true;

void add_4090(Calibration& out) {
    const Scene vertex(vertex_bound_scene());
    const Scene fragment(fragment_bound_scene());
    const Topology topology = *Topology::preset("rtx4090");

    const auto add = [&](std::string situation, std::string quantity, std::string source, double measured,
                         double simulated, double tolerance, bool fitted, int digits = 1) {
        out.rows.push_back({k4090, std::move(situation), std::move(quantity), std::move(source), measured, simulated,
                            tolerance, digits, fitted});
    };
    const Percent vertex_sliced = vertex.run(Sharing::kTimeSliced);
    const Percent fragment_sliced = fragment.run(Sharing::kTimeSliced);
    add("time slicing, vertex-bound", "graphics, % of alone", "fig. 10", 92, vertex_sliced.graphics, 1, kFitted);
    add("time slicing, vertex-bound", "CUDA, % of alone", "fig. 10", 8, vertex_sliced.compute, 1, kFitted);
    add("time slicing, fragment-bound", "graphics, % of alone", "fig. 10", 92, fragment_sliced.graphics, 1, false);
    add("time slicing, fragment-bound", "CUDA, % of alone", "fig. 10", 8, fragment_sliced.compute, 1, false);

    const Percent vertex_shared = vertex.run(Sharing::kOneTsg);
    const Percent fragment_shared = fragment.run(Sharing::kOneTsg);
    add("redirect only, vertex-bound", "graphics, % of alone", "fig. 10", 55, vertex_shared.graphics, 2, kFitted);
    add("redirect only, vertex-bound", "CUDA, % of alone", "fig. 10", 39, vertex_shared.compute, 2, kFitted);
    add("redirect only, vertex-bound", "CUDA, times of time slicing", "fig. 10", 4.9,
        vertex_shared.compute / vertex_sliced.compute, 0.3, false);
    add("redirect only, fragment-bound", "graphics, % of alone", "fig. 10", 71, fragment_shared.graphics, 2, kFitted);
    add("redirect only, fragment-bound", "CUDA, % of alone", "fig. 10", 28, fragment_shared.compute, 2, kFitted);
    add("redirect only, fragment-bound", "CUDA, times of time slicing", "fig. 10", 3.5,
        fragment_shared.compute / fragment_sliced.compute, 0.3, false);

    Percent vertex_at[54] = {}, fragment_at[54] = {};
    double vertex_min = 1e9, vertex_max = 0, fragment_min = 1e9, fragment_max = 0;
    for (int quota = 1; quota <= topology.max_compute_quota(); ++quota) {
        const Percent v = vertex_at[quota] = vertex.run(Sharing::kInterSm, quota);
        const Percent f = fragment_at[quota] = fragment.run(Sharing::kInterSm, quota);
        vertex_min = std::min(vertex_min, v.sum());
        vertex_max = std::max(vertex_max, v.sum());
        fragment_min = std::min(fragment_min, f.sum());
        fragment_max = std::max(fragment_max, f.sum());
        out.sweep.push_back({quota, v.graphics, v.compute, f.graphics, f.compute});
    }
    add("inter-SM, q = 8, vertex-bound", "graphics, % of alone", "fig. 10", 60, vertex_at[8].graphics, 2, kFitted);
    add("inter-SM, q = 8, fragment-bound", "graphics, % of alone", "fig. 10", 82, fragment_at[8].graphics, 3, kFitted);
    add("inter-SM, q = 46, vertex-bound", "CUDA, % of alone", "fig. 10", 71, vertex_at[46].compute, 2, false);
    add("inter-SM, q = 46, fragment-bound", "CUDA, % of alone", "fig. 10", 36, fragment_at[46].compute, 2, kFitted);
    add("inter-SM, q = 53, vertex-bound", "CUDA, % of alone", "fig. 11", 80, vertex_at[53].compute, 2, false);
    add("inter-SM, q = 53, fragment-bound", "CUDA, % of alone", "fig. 11", 36, fragment_at[53].compute, 2, false);
    add("inter-SM, q = 1, vertex-bound", "CUDA, % of alone", "fig. 11", 5, vertex_at[1].compute, 4, false);
    add("inter-SM, q = 8, fragment-bound", "frame time, ms", "fig. 12", 29.7, 2500 / fragment_at[8].graphics, 1.0,
        false);
    add("inter-SM, q = 48, fragment-bound", "frame time, ms", "fig. 12", 40.5, 2500 / fragment_at[48].graphics, 1.5,
        false);
    add("sweep of q, vertex-bound", "smallest sum of rates", "fig. 11", 0.59, vertex_min / 100, 0.05, false, 2);
    add("sweep of q, vertex-bound", "largest sum of rates", "fig. 11", 0.99, vertex_max / 100, 0.03, kFitted, 2);
    add("sweep of q, fragment-bound", "smallest sum of rates", "fig. 11", 0.88, fragment_min / 100, 0.10, false, 2);
    add("sweep of q, fragment-bound", "largest sum of rates", "fig. 11", 1.01, fragment_max / 100, 0.05, false, 2);
}

void add_h200(Calibration& out) {
    const RendererSpec slow = h200_renderer(19'600'000, 360'000);
    const RendererSpec fast = h200_renderer(10'000'000, 160'000);
    const auto run = [](std::optional<RendererSpec> renderer, std::optional<ComputeSpec> compute, Sharing sharing) {
        Scenario scenario;
        scenario.gpu = "h200";
        scenario.renderer = std::move(renderer);
        scenario.compute = std::move(compute);
        scenario.sharing = sharing;
        scenario.duration_ns = 10'000'000'000;
        return must_run(scenario);
    };
    const auto add = [&](std::string situation, std::string quantity, double measured, double simulated,
                         double tolerance, bool fitted, int digits) {
        out.rows.push_back({kH200, std::move(situation), std::move(quantity), "H200 run", measured, simulated,
                            tolerance, digits, fitted});
    };

    const ScenarioResult renderer = run(slow, {}, Sharing::kTimeSliced);
    const ScenarioResult cuda = run({}, h200_fma(), Sharing::kTimeSliced);
    add("alone, 19.6 ms frames", "frames/s", 50.1, renderer.frames_per_s, 0.3, kFitted, 1);
    add("alone, 0.72 ms kernels", "kernels/s", 1389, cuda.kernels_per_s, 15, kFitted, 0);
    add("alone, 0.72 ms kernels", "latency p50, ms", 0.72, cuda.latency_p50_ms, 0.02, kFitted, 2);
    add("alone, 0.72 ms kernels", "latency p99, ms", 0.73, cuda.latency_p99_ms, 0.02, false, 2);

    const ScenarioResult sliced = run(slow, h200_fma(), Sharing::kTimeSliced);
    add("time slicing, 19.6 ms frames", "frames/s", 46.1, sliced.frames_per_s, 0.5, kFitted, 1);
    add("time slicing, 19.6 ms frames", "kernels/s", 92.7, sliced.kernels_per_s, 2, false, 1);
    add("time slicing, 19.6 ms frames", "latency p50, ms", 1.02, sliced.latency_p50_ms, 0.05, kFitted, 2);
    add("time slicing, 19.6 ms frames", "latency p99, ms", 20.7, sliced.latency_p99_ms, 0.4, false, 1);

    const ScenarioResult shared = run(slow, h200_fma(), Sharing::kOneTsg);
    add("one TSG, 19.6 ms frames", "frames/s", 49.8, shared.frames_per_s, 0.4, false, 1);
    add("one TSG, 19.6 ms frames", "kernels/s", 1201, shared.kernels_per_s, 25, kFitted, 0);
    add("one TSG, 19.6 ms frames", "latency p50, ms", 0.83, shared.latency_p50_ms, 0.02, false, 2);
    add("one TSG, 19.6 ms frames", "latency p99, ms", 0.84, shared.latency_p99_ms, 0.02, false, 2);

    const ScenarioResult fast_alone = run(fast, {}, Sharing::kTimeSliced);
    const ScenarioResult fast_sliced = run(fast, h200_fma(), Sharing::kTimeSliced);
    const ScenarioResult fast_shared = run(fast, h200_fma(), Sharing::kOneTsg);
    add("alone, 10 ms frames", "frames/s", 98.4, fast_alone.frames_per_s, 1, kFitted, 1);
    add("time slicing, 10 ms frames", "kernels/s", 168, fast_sliced.kernels_per_s, 6, false, 0);
    add("one TSG, 10 ms frames", "kernels/s", 1180, fast_shared.kernels_per_s, 25, false, 0);
    add("one TSG, 10 ms frames", "frames/s", 97, fast_shared.frames_per_s, 1, false, 1);

    ComputeSpec short_kernel = h200_fma();  // GELU as a stand-in for a kernel far shorter than the gap between frames
    short_kernel.kernel.block_ns = 44'000;
    short_kernel.kernel.blocks = 128;
    add("time slicing, 10 ms frames, 0.05 ms kernels", "kernels/s", 194,
        run(fast, short_kernel, Sharing::kTimeSliced).kernels_per_s, 12, false, 0);

    Scenario slices;
    slices.gpu = "h200";
    slices.renderer = slow;
    slices.compute = h200_fma();
    slices.graphics_timeslice_ns = 500'000;
    slices.compute_timeslice_ns = 8'000'000;
    slices.duration_ns = 10'000'000'000;
    add("time slices 0.5 / 8 ms instead of 1.024 / 2.048", "kernels/s, change in %", 0,
        100 * (must_run(slices).kernels_per_s / sliced.kernels_per_s - 1), 1, false, 1);

    ComputeSpec away = h200_fma();
    away.kernel.disabled_tpcs = TpcSet(0xff);  // TPCs 0 to 7, among them the two that run graphics
    const ScenarioResult isolated = run(fast, away, Sharing::kOneTsg);
    add("one TSG, mask takes TPCs 0-7", "kernels/s", 1199, isolated.kernels_per_s, 25, false, 0);
    add("one TSG, mask takes TPCs 0-7", "latency p99, ms", 0.85, isolated.latency_p99_ms, 0.02, false, 2);
    add("one TSG, mask takes TPCs 0-7", "frames/s (98.4 alone)", 98.5, isolated.frames_per_s, 1, false, 1);
    away.kernel.disabled_tpcs = TpcSet(0xff00);
    const ScenarioResult stuck = run(fast, away, Sharing::kOneTsg);
    add("one TSG, mask takes others than the graphics TPCs", "latency p99, ms", 10.7, stuck.latency_p99_ms, 0.8, false,
        1);

    // Grids of one wave: on all 132 SMs, and on the 128 that cannot do graphics. corun-all-sms.json and corun.json.
    // That renderer copies each image to the host, in which time no draw holds the graphics TPCs.
    const RendererSpec read_back = h200_renderer(9'680'000, 330'000);
    const ScenarioResult read_back_alone = run(read_back, {}, Sharing::kTimeSliced);
    for (const uint32_t blocks : {1056u, 1024u}) {
        const std::string grid = std::to_string(blocks) + " blocks";
        ComputeSpec one_wave = h200_grid(blocks);
        const ScenarioResult alone = run({}, one_wave, Sharing::kTimeSliced);
        const auto percent = [&](const std::string& situation, const ScenarioResult& result, double renderer_percent,
                                 double compute_percent, double p99_times, double tolerance, bool fitted) {
            add(situation, "frames/s, % of alone", renderer_percent,
                100 * result.frames_per_s / read_back_alone.frames_per_s, tolerance, fitted, 1);
            add(situation, "kernels/s, % of alone", compute_percent, 100 * result.kernels_per_s / alone.kernels_per_s,
                tolerance, fitted, 1);
            add(situation, "latency p99, times alone", p99_times, result.latency_p99_ms / alone.latency_p99_ms, 0.03,
                false, 2);
        };
        if (blocks == 1056) {
            percent("one TSG, " + grid, run(read_back, one_wave, Sharing::kOneTsg), 96.0, 89.3, 1.12, 1.5, kFitted);
        } else {
            percent("one TSG, " + grid, run(read_back, one_wave, Sharing::kOneTsg), 99.3, 100.1, 1.00, 1.5, false);
        }
    }

    // The same renderer beside a grid of many waves that is kept to each level in turn.
    const Topology topology = *Topology::preset("h200");
    ComputeSpec many = h200_grid(8 * 8 * 132, 8);
    const double many_alone = run({}, many, Sharing::kTimeSliced).kernels_per_s;
    for (const int quota : topology.balanced_quotas()) {
        many.kernel.disabled_tpcs = topology.all_tpcs() & ~topology.compute_tpcs(quota);
        const ScenarioResult result = run(read_back, many, Sharing::kOneTsg);
        out.masks.push_back({quota, 100 * result.frames_per_s / read_back_alone.frames_per_s,
                             100 * result.kernels_per_s / many_alone, 100.0 * quota / topology.tpc_count()});
    }

    ComputeSpec serial = h200_fma();  // longer blocks: 660 kernels/s beside the renderer
    serial.kernel.block_ns = 215'600;
    serial.kernel.shared_memory = 48'128;
    add("one TSG, 48,128 bytes of shared memory", "kernels/s", 660, run(fast, serial, Sharing::kOneTsg).kernels_per_s,
        15, kFitted, 0);
    serial.kernel.shared_memory = 49'152;
    add("one TSG, 49,152 bytes of shared memory", "kernels/s", 113, run(fast, serial, Sharing::kOneTsg).kernels_per_s,
        20, false, 0);
    serial.kernel.shared_memory = 50'176;
    add("one TSG, 50,176 bytes of shared memory", "faults", 1,
        static_cast<double>(run(fast, serial, Sharing::kOneTsg).faults), 0, false, 0);
}

std::string number(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    // A small negative value must not print as "-0.0".
    if (std::strtod(text, nullptr) == 0) std::snprintf(text, sizeof text, "%.*f", digits, 0.0);
    return text;
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }  // no text here needs escapes

}  // namespace

bool CalibrationRow::within() const { return std::abs(simulated - measured) <= tolerance + 1e-9; }

RendererSpec vertex_bound_scene() { return {.frame = {{Draw{.vertex_ns = 25'000'000}}}, .in_flight = 2, .gap_ns = 0}; }

RendererSpec fragment_bound_scene() {
    Draw draw;
    draw.fragment_ns = 25'000'000;
    draw.fragment_sm_need = 0.27;
    draw.fragment_bandwidth = 1.0;
    return {.frame = {{draw}}, .in_flight = 2, .gap_ns = 0};
}

ComputeSpec synthetic_cuda() {
    // 12 waves on 128 SMs.
    return {.kernel = {.blocks = 12 * 128, .block_ns = 120'000, .bandwidth = 1.0}, .in_flight = 2, .gap_ns = 0};
}

RendererSpec h200_renderer(TimeNs frame_ns, TimeNs gap_ns) {
    // A short draw, a semaphore wait that yields, the long draw: what explains two kernels a frame under time slicing.
    const TimeNs head_ns = 20'000;
    Draw head;
    head.fragment_ns = head_ns;
    head.yield_after = true;
    Draw body;
    body.fragment_ns = frame_ns - head_ns;
    return {.frame = {{head, body}}, .in_flight = 1, .gap_ns = gap_ns};
}

ComputeSpec h200_fma() {
    // 6 waves on 132 SMs, 7 on the 128 that are left beside graphics: 0.72 ms becomes 0.84 ms, as the measured grid
    // does with a short second round.
    return {.kernel = {.blocks = 6 * 132, .block_ns = 119'000}, .in_flight = 1, .gap_ns = 6'000};
}

ComputeSpec h200_grid(uint32_t blocks, int waves) {
    // 8 blocks of 256 threads fill an SM. What does not fit on 128 SMs runs in a second round, with an SM to itself and
    // so eight times as fast: 0.72 ms becomes 0.81 ms.
    return {.kernel = {.blocks = blocks, .block_ns = 711'000 / waves, .blocks_per_sm = 8, .sm_bound = 1.0},
            .in_flight = 1,
            .gap_ns = 6'000};
}

Calibration calibrate() {
    Calibration calibration;
    add_4090(calibration);
    add_h200(calibration);
    return calibration;
}

std::string to_markdown(const Calibration& calibration) {
    std::string out =
        "| GPU | situation | quantity | source | measured | simulated | allowed +/- |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n";
    for (const CalibrationRow& row : calibration.rows) {
        out += "| " + row.gpu + " | " + row.situation + " | " + row.quantity + " | " + row.source + " | " +
               number(row.measured, row.digits) + " | " + number(row.simulated, row.digits) +
               (row.fitted ? " (fitted)" : "") + " | " + number(row.tolerance, row.tolerance < 0.1 ? 2 : 1) +
               (row.within() ? "" : " **exceeded**") + " |\n";
    }
    out +=
        "\nSimulated quota sweep, RTX 4090 preset, rates in % of each program alone:\n\n"
        "| q | vertex-bound: graphics | CUDA | sum | fragment-bound: graphics | CUDA | sum |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n";
    constexpr std::array kShown = {1, 4, 8, 10, 11, 12, 16, 20, 22, 23, 28, 33, 34, 40, 44, 46, 48, 53};
    for (const SweepRow& row : calibration.sweep) {
        if (std::find(kShown.begin(), kShown.end(), row.quota) == kShown.end()) continue;
        out += "| " + std::to_string(row.quota) + " | " + number(row.vertex_graphics, 1) + " | " +
               number(row.vertex_compute, 1) + " | " + number(row.vertex_graphics + row.vertex_compute, 1) + " | " +
               number(row.fragment_graphics, 1) + " | " + number(row.fragment_compute, 1) + " | " +
               number(row.fragment_graphics + row.fragment_compute, 1) + " |\n";
    }
    out +=
        "\nSimulated levels of the H200 preset (launch masks, mode inter-SM), rates in % of each program alone:\n\n"
        "| TPCs for compute | graphics | CUDA | TPCs of 66, % |\n"
        "| --- | --- | --- | --- |\n";
    for (const MaskRow& row : calibration.masks) {
        out += "| " + std::to_string(row.quota) + " | " + number(row.graphics, 1) + " | " + number(row.compute, 1) +
               " | " + number(row.proportional, 1) + " |\n";
    }
    return out;
}

std::string to_json(const Calibration& calibration) {
    std::string out = "{\n  \"simulated\": true,\n  \"rows\": [";
    const char* separator = "\n";
    for (const CalibrationRow& row : calibration.rows) {
        out += separator;
        out += "    {\"gpu\": " + quoted(row.gpu) + ", \"situation\": " + quoted(row.situation) +
               ", \"quantity\": " + quoted(row.quantity) + ", \"source\": " + quoted(row.source) +
               ", \"measured\": " + number(row.measured, 3) + ", \"simulated\": " + number(row.simulated, 3) +
               ", \"tolerance\": " + number(row.tolerance, 3) + ", \"fitted\": " + (row.fitted ? "true" : "false") +
               ", \"within\": " + (row.within() ? "true" : "false") + "}";
        separator = ",\n";
    }
    out += "\n  ],\n  \"sweep\": [";
    separator = "\n";
    for (const SweepRow& row : calibration.sweep) {
        out += separator;
        out += "    {\"quota\": " + std::to_string(row.quota) +
               ", \"vertex_graphics\": " + number(row.vertex_graphics, 2) +
               ", \"vertex_compute\": " + number(row.vertex_compute, 2) +
               ", \"fragment_graphics\": " + number(row.fragment_graphics, 2) +
               ", \"fragment_compute\": " + number(row.fragment_compute, 2) + "}";
        separator = ",\n";
    }
    out += "\n  ],\n  \"masks\": [";
    separator = "\n";
    for (const MaskRow& row : calibration.masks) {
        out += separator;
        out += "    {\"quota\": " + std::to_string(row.quota) + ", \"graphics\": " + number(row.graphics, 2) +
               ", \"compute\": " + number(row.compute, 2) + ", \"proportional\": " + number(row.proportional, 2) + "}";
        separator = ",\n";
    }
    out += "\n  ]\n}\n";
    return out;
}

}  // namespace vuda::sim
