// What one renderer run found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/common/samples.h"
#include "bench/common/trace.h"
#include "bench/render/device.h"
#include "bench/render/options.h"

namespace vuda::bench {

struct RenderReport {
    RenderOptions options;  // with the iterations that were used
    GpuInfo gpu;
    Samples frame_ms;             // from one frame's completion to the next one's
    std::vector<double> frames;   // with --report-frames: frame_ms in order
    Samples latency_ms;           // from the start of recording a frame to its completion
    Samples gpu_ms;               // on the GPU, drawing and copying; empty where it has no timestamps
    Trace trace;                  // with --report-trace: latency_ms with the moment of completion
    uint64_t late_frames = 0;     // paced frames that completed after their successor was due
    double seconds = 0;           // measured time
    uint64_t drawn_frames = 0;    // submitted ones, after the reference
    uint64_t checked_frames = 0;  // compared ones, those before and after measuring included
    uint64_t checksum_errors = 0;
    std::string checksum;
    std::optional<Error> error;  // why the run ended early

    bool device_lost() const;
    int exit_code() const;
    nlohmann::ordered_json to_json();
    std::string to_text();
};

}  // namespace vuda::bench
