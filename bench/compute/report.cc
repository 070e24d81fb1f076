#include "bench/compute/report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"
#include "bench/common/run_options.h"

namespace vuda::bench {
namespace {

double in_steps_of_us(double ms) { return std::round(ms * 1e3) / 1e3; }

void add_holes(const Holes& holes, nlohmann::ordered_json& json) {
    json["timed_launches"] = holes.launches;
    json["timed_ms"] = in_steps_of_us(holes.ms);
    json["usual_gap_ms"] = in_steps_of_us(holes.usual_gap_ms);
    json["usual_kernel_ms"] = in_steps_of_us(holes.usual_kernel_ms);
    json["holes"] = nlohmann::ordered_json::array();
    for (const Hole& hole : holes.holes)
        json["holes"].push_back({in_steps_of_us(hole.begin_ms), in_steps_of_us(hole.ms)});
}

}  // namespace

bool ComputeReport::device_lost() const { return error && error->code == kDeviceLost; }

int ComputeReport::exit_code() const {
    if (error) return bench::exit_code(*error);
    return result_errors == 0 ? kExitOk : kExitWrongResult;
}

nlohmann::ordered_json ComputeReport::to_json() {
    nlohmann::ordered_json json;
    json["program"] = "vuda-bench-compute";
    json["gpu"] = gpu;
    json["uuid"] = uuid.to_string();
    json["driver"] = nvidia_driver_version();
    json["cuda"] = cuda;
    json["load"] = load_name(options.load);
    json["blocks"] = options.blocks;
    json["threads"] = options.threads;
    json["iterations"] = options.iterations;
    json["smem"] = options.shared_bytes;
    json["init_ms"] = init_ms;
    json["context_ms"] = context_ms.median();
    json["kernels"] = latency_ms.size();
    json["rate"] = seconds > 0 ? static_cast<double>(latency_ms.size()) / seconds : 0.0;
    json["latency_p50_ms"] = latency_ms.percentile(50);
    json["latency_p99_ms"] = latency_ms.percentile(99);
    json["latency_max_ms"] = latency_ms.max();
    json["launches"] = launches;
    json["result_errors"] = result_errors;
    if (options.cycles > 0) {
        json["cycles"] = cycles;
        json["context_max_ms"] = context_ms.max();
    }
    if (options.launch_cost > 0) {
        json["launch_p50_ns"] = launch_ns.percentile(50);
        json["launch_p99_ns"] = launch_ns.percentile(99);
        if (!watched_ns.empty()) {
            json["watched_p50_ns"] = watched_ns.percentile(50);
            json["watched_p99_ns"] = watched_ns.percentile(99);
        }
    }
    if (options.quota_changes > 0) {
        json["quota_call_p50_us"] = quota_changes.call_us.percentile(50);
        json["quota_call_p99_us"] = quota_changes.call_us.percentile(99);
        json["quota_applied_p50_us"] = quota_changes.applied_us.percentile(50);
        json["quota_applied_p99_us"] = quota_changes.applied_us.percentile(99);
    }
    if (options.fps > 0) {
        json["fps_target"] = options.fps;
        json["late_launches"] = late_launches;
    }
    if (options.mark_steps) json["marked"] = marked;
    if (options.report_trace) json["trace"] = trace.to_json();
    if (options.report_sms) json["sms"] = sms;
    if (options.report_holes) add_holes(holes, json);
    json["device_lost"] = device_lost();
    json["seconds"] = seconds;
    if (error) json["error"] = error->to_string();
    return json;
}

std::string ComputeReport::to_text() {
    char line[512];
    std::snprintf(
        line, sizeof line,
        "%s, %s: %zu kernels in %.2f s = %.1f a second; latency p50 %.3f ms, p99 %.3f ms, max %.3f ms; context made in "
        "%.1f ms; %llu launches checked, %llu wrong results",
        gpu.c_str(), load_name(options.load), latency_ms.size(), seconds,
        seconds > 0 ? static_cast<double>(latency_ms.size()) / seconds : 0.0, latency_ms.percentile(50),
        latency_ms.percentile(99), latency_ms.max(), context_ms.median(), static_cast<unsigned long long>(launches),
        static_cast<unsigned long long>(result_errors));
    return line;
}

}  // namespace vuda::bench
