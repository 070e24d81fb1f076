#include "bench/features/run.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/uuid.h"
#include "bench/common/clock.h"
#include "bench/common/exit_code.h"
#include "bench/common/run_options.h"
#include "bench/common/samples.h"

namespace vuda::bench::features {
namespace {

constexpr int kExitSkipped = 77;

Result<std::string> uuid_of(const Driver& cuda, CuDevice device) {
    Uuid uuid;
    char raw[16] = {};
    VUDA_BENCH_TRY(cuda.check(cuda.device_uuid(raw, device), "ask for the GPU's UUID"));
    std::memcpy(uuid.bytes.data(), raw, sizeof raw);
    return uuid.to_string();
}

Result<CuDevice> find_device(const Driver& cuda, const std::string& which) {
    int count = 0;
    VUDA_BENCH_TRY(cuda.check(cuda.device_count(&count), "count the GPUs"));
    int wanted = which.empty() ? 0 : -1;
    static_cast<void>(std::from_chars(which.data(), which.data() + which.size(), wanted));
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CuDevice device = 0;
        VUDA_BENCH_TRY(cuda.check(cuda.device(&device, ordinal), "open the GPU"));
        const Result<std::string> uuid = uuid_of(cuda, device);
        VUDA_BENCH_TRY(uuid);
        if (which.starts_with("GPU-") ? *uuid == which : ordinal == wanted) return device;
    }
    return Error{Code::kUnavailable, "CUDA finds no GPU" + (which.empty() ? "" : " " + which), ""};
}

Status wait_for_start(const GateOptions& options) {
    StartGate gate(options);
    VUDA_BENCH_TRY(gate.ready());
    for (;;) {
        const Result<bool> started = gate.started();
        VUDA_BENCH_TRY(started);
        if (*started) return {};
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

Status run_rounds(Rig& rig, const FeatureOptions& options, FeatureReport& report) {
    Samples samples;
    const auto begin = Clock::now();
    do {
        rig.checksum = 0;
        const auto start = Clock::now();
        VUDA_BENCH_TRY(report.one->run(rig));
        const double ms = ms_between(start, Clock::now());
        if (report.rounds++ == 0) {
            report.checksum = rig.checksum;
            report.first_ms = ms;
        } else {
            samples.add(ms);
        }
        VUDA_BENCH_TRY(expect(rig.checksum == report.checksum,
                              "round " + std::to_string(report.rounds) + " gave another result than the first"));
    } while (ms_between(begin, Clock::now()) < 1000 * options.seconds);
    report.p50_ms = samples.empty() ? report.first_ms : samples.percentile(50);
    return {};
}

Status run_all(const FeatureOptions& options, FeatureReport& report) {
    const Result<std::unique_ptr<Driver>> loaded = Driver::load(options.rig.libcuda);
    VUDA_BENCH_TRY(loaded);
    const Driver& cuda = **loaded;
    VUDA_BENCH_TRY(cuda.check(cuda.init(0), "start CUDA"));
    const Result<CuDevice> device = find_device(cuda, options.device);
    VUDA_BENCH_TRY(device);
    char name[256] = {};
    VUDA_BENCH_TRY(cuda.check(cuda.device_name(name, sizeof name, *device), "ask for the GPU's name"));
    report.gpu = name;
    const Result<std::string> uuid = uuid_of(cuda, *device);
    VUDA_BENCH_TRY(uuid);
    report.uuid = *uuid;
    int version = 0;
    VUDA_BENCH_TRY(cuda.check(cuda.version(&version), "ask for CUDA's version"));
    report.cuda = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);

    Rig rig(cuda, *device, options.rig);
    if (!options.ipc_handle.empty()) return ipc_other_side(rig, options.ipc_handle);
    VUDA_BENCH_TRY(rig.use_primary());
    VUDA_BENCH_TRY(wait_for_start(options.before));
    const Status status = run_rounds(rig, options, report);
    report.figures = rig.figures;
    // With the context there, so that whoever looks from outside sees what has become of it.
    Status seen = wait_for_start(options.after);
    VUDA_BENCH_TRY(status);
    return seen;
}

Outcome outcome_of(const Error& error) {
    if (error.code == Code::kUnimplemented) return Outcome::kSkipped;
    if (error.code == kWrongResult) return Outcome::kWrong;
    return error.code == kDeviceLost ? Outcome::kLost : Outcome::kFailed;
}

}  // namespace

const char* outcome_name(Outcome outcome) {
    switch (outcome) {
        case Outcome::kPassed: return "passed";
        case Outcome::kSkipped: return "skipped";
        case Outcome::kWrong: return "wrong";
        case Outcome::kFailed: return "failed";
        case Outcome::kLost: return "lost";
    }
    return "";
}

nlohmann::ordered_json FeatureReport::to_json() const {
    nlohmann::ordered_json json;
    json["program"] = "vuda-bench-features";
    json["case"] = one->name;
    json["gpu"] = gpu;
    json["uuid"] = uuid;
    json["driver"] = nvidia_driver_version();
    json["cuda"] = cuda;
    json["outcome"] = outcome_name(outcome);
    char text[24];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
    json["checksum"] = text;
    json["rounds"] = rounds;
    json["first_ms"] = first_ms;
    json["round_p50_ms"] = p50_ms;
    if (!figures.empty()) json["figures"] = figures;
    if (!error.empty()) json["error"] = error;
    return json;
}

int FeatureReport::exit_code() const {
    switch (outcome) {
        case Outcome::kPassed: return kExitOk;
        case Outcome::kSkipped: return kExitSkipped;
        case Outcome::kWrong: return kExitWrongResult;
        case Outcome::kFailed: return kExitFailed;
        case Outcome::kLost: return kExitDeviceLost;
    }
    return kExitFailed;
}

FeatureReport run_feature(const FeatureOptions& options) {
    FeatureReport report;
    report.one = find_case(options.case_name);
    const Status status = run_all(options, report);
    report.outcome = status.ok() ? Outcome::kPassed : outcome_of(status.error());
    if (!status.ok()) report.error = status.error().to_string();
    return report;
}

}  // namespace vuda::bench::features
