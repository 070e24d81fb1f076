// The model beside what was measured: the controlled-sharing paper's RTX 4090 and an H200.
#pragma once

#include <string>
#include <vector>

#include "sim/model/scenario.h"

namespace vuda::sim {

struct CalibrationRow {
    std::string gpu;
    std::string situation;
    std::string quantity;  // with its unit
    std::string source;    // figure of the paper, or "H200 run"
    double measured = 0;
    double simulated = 0;
    double tolerance = 0;  // largest |simulated - measured| that a test lets pass
    int digits = 1;        // after the point, when printed
    bool fitted = false;   // a parameter was chosen to meet this very figure

    bool within() const;
};

// One quota of figure 11, rates as per cent of each program alone.
struct SweepRow {
    int quota = 0;
    double vertex_graphics = 0, vertex_compute = 0;
    double fragment_graphics = 0, fragment_compute = 0;
};

// One level of a GPU on which only masks steer compute (H200), rates as per cent of each program alone.
struct MaskRow {
    int quota = 0;
    double graphics = 0, compute = 0;
    double proportional = 0;  // the quota's share of all TPCs
};

struct Calibration {
    std::vector<CalibrationRow> rows;
    std::vector<SweepRow> sweep;  // quotas 1 to 53
    std::vector<MaskRow> masks;
};

// The workloads that stand for the measured ones.
RendererSpec vertex_bound_scene();    // RTX 4090, 25 ms a frame
RendererSpec fragment_bound_scene();  // likewise
ComputeSpec synthetic_cuda();         // RTX 4090, runs without a pause
RendererSpec h200_renderer(TimeNs frame_ns, TimeNs gap_ns);
ComputeSpec h200_fma();  // 0.72 ms, synchronises after each kernel
// 8 blocks an SM, bound by its throughput; `waves` rounds on a full GPU take 0.72 ms.
ComputeSpec h200_grid(uint32_t blocks, int waves = 1);

// Runs everything; takes a second or two of real time.
Calibration calibrate();

std::string to_markdown(const Calibration& calibration);
std::string to_json(const Calibration& calibration);

}  // namespace vuda::sim
