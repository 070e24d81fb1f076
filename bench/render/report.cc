#include "bench/render/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/exit_code.h"

namespace vuda::bench {

bool RenderReport::device_lost() const { return error && error->code == kDeviceLost; }

int RenderReport::exit_code() const {
    if (error) return bench::exit_code(*error);
    return checksum_errors == 0 ? kExitOk : kExitWrongResult;
}

nlohmann::ordered_json RenderReport::to_json() {
    nlohmann::ordered_json json;
    json["program"] = "vuda-bench-render";
    json["gpu"] = gpu.name;
    json["uuid"] = gpu.uuid.to_string();
    json["driver"] = gpu.driver;
    json["width"] = options.width;
    json["height"] = options.height;
    json["load"] = options.load == RenderLoad::kVertex ? "vertex" : "fragment";
    json["iterations"] = options.iterations;
    json["draws"] = options.draws;
    json["fps_target"] = options.fps;
    json["frames_in_flight"] = options.frames_in_flight;
    json["frames"] = frame_ms.size();
    json["fps"] = seconds > 0 ? static_cast<double>(frame_ms.size()) / seconds : 0.0;
    json["frame_p50_ms"] = frame_ms.percentile(50);
    json["frame_p99_ms"] = frame_ms.percentile(99);
    json["frame_max_ms"] = frame_ms.max();
    json["latency_p50_ms"] = latency_ms.percentile(50);
    json["latency_p99_ms"] = latency_ms.percentile(99);
    if (!gpu_ms.empty()) {
        json["gpu_p50_ms"] = gpu_ms.percentile(50);
        json["gpu_p99_ms"] = gpu_ms.percentile(99);
        json["gpu_max_ms"] = gpu_ms.max();
    }
    if (options.report_frames) json["frame_ms"] = frames;
    if (options.report_trace) json["trace"] = trace.to_json();
    json["late_frames"] = late_frames;
    json["checksum"] = checksum;
    json["drawn_frames"] = drawn_frames;
    json["checked_frames"] = checked_frames;
    json["checksum_errors"] = checksum_errors;
    json["device_lost"] = device_lost();
    json["seconds"] = seconds;
    if (error) json["error"] = error->to_string();
    return json;
}

std::string RenderReport::to_text() {
    char line[512];
    std::snprintf(
        line, sizeof line,
        "%s, %ux%u: %zu frames in %.2f s = %.1f fps; frame p50 %.3f ms, p99 %.3f ms; GPU p50 %.3f ms, p99 %.3f ms; "
        "%llu frames checked, %llu wrong",
        gpu.name.c_str(), options.width, options.height, frame_ms.size(), seconds,
        seconds > 0 ? static_cast<double>(frame_ms.size()) / seconds : 0.0, frame_ms.percentile(50),
        frame_ms.percentile(99), gpu_ms.percentile(50), gpu_ms.percentile(99),
        static_cast<unsigned long long>(checked_frames), static_cast<unsigned long long>(checksum_errors));
    return line;
}

}  // namespace vuda::bench
