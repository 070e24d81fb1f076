// vuda-probe-pair: the pair (pair.h) with NVIDIA's own drivers. Not for use by hand: vuda-probe starts it.
#include <signal.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/common/stop_signal.h"
#include "bench/common/try.h"
#include "bench/compute/session.h"
#include "bench/render/renderer.h"
#include "probe/pair.h"

namespace {

using namespace vuda;

// CUdevice_attribute
enum : int { kMajor = 75, kMinor = 76, kLargestOptIn = 97, kReservedShared = 111 };

// Frames are 20 times as long as kernels (limit_plan.h).
constexpr double kFrameMs = 10;
constexpr double kKernelMs = 0.4;
constexpr double kShortestMs = 1e-3;
constexpr double kMostIterations = 1 << 23;  // of the kernel's loop

bench::RenderOptions render_options() {
    bench::RenderOptions options;
    options.target_frame_ms = kFrameMs;
    options.report_trace = true;
    return options;
}

bench::RunOptions run_options(const std::string& gpu) {
    bench::RunOptions options;
    options.seconds = 0;  // until told to stop
    options.device = gpu;
    return options;
}

class GpuPair : public probe::Pair {
 public:
    explicit GpuPair(const std::string& gpu) : gpu_name_(gpu), renderer_(render_options(), run_options(gpu)) {}

    Result<probe::PairGpu> open() override {
        VUDA_BENCH_TRY(renderer_.prepare());
        auto api = bench::CudaApi::load();
        VUDA_BENCH_TRY(api);
        auto cuda = bench::open_cuda_gpu(*api, gpu_name_);
        VUDA_BENCH_TRY(cuda);
        cuda_ = *std::move(cuda);
        probe::PairGpu gpu{cuda_.name, bench::nvidia_driver_version(), cuda_.cuda_version};
        int reserved = 0, largest = 0;
        VUDA_BENCH_TRY(ask(kMajor, gpu.capability_major));
        VUDA_BENCH_TRY(ask(kMinor, gpu.capability_minor));
        VUDA_BENCH_TRY(ask(kReservedShared, reserved));
        VUDA_BENCH_TRY(ask(kLargestOptIn, largest));
        reserved_ = static_cast<uint32_t>(reserved);
        gpu.reserved = reserved_;
        gpu.largest = static_cast<uint32_t>(largest) + reserved_;
        VUDA_BENCH_TRY(calibrate());
        return gpu;
    }

    Status draw() override { return renderer_.run(gate_); }
    void stop() override { kill(getpid(), SIGTERM); }
    std::vector<probe::PairFrame> frames() override {
        std::vector<probe::PairFrame> frames;
        for (const auto& entry : renderer_.report().trace.to_json()) frames.push_back({entry[0], entry[1]});
        return frames;
    }
    uint64_t wrong_frames() override { return renderer_.report().checksum_errors; }

    Result<double> launch(uint32_t bytes) override {
        auto session = session_for(bytes);
        VUDA_BENCH_TRY(session);
        return (*session)->launch();
    }
    Result<uint64_t> wrong_results() override {
        uint64_t wrong = 0;
        for (const auto& [bytes, session] : sessions_) {
            auto found = session->check_results();
            VUDA_BENCH_TRY(found);
            wrong += *found;
        }
        return wrong;
    }

 private:
    Status ask(int attribute, int& value) {
        return cuda_.api->check(cuda_.api->device_get_attribute(&value, attribute, cuda_.device),
                                "ask for a property of the GPU");
    }

    Result<bench::Session*> session_for(uint32_t bytes) {
        std::unique_ptr<bench::Session>& session = sessions_[bytes];
        if (!session) {
            bench::ComputeOptions options;
            options.blocks = static_cast<uint32_t>(std::max(1, cuda_.multiprocessors));
            options.iterations = iterations_;
            options.shared_bytes = bytes > reserved_ ? bytes - reserved_ : 0;
            auto opened = bench::Session::open(cuda_, options);
            VUDA_BENCH_TRY(opened);
            session = *std::move(opened);
        }
        return session.get();
    }

    // While nothing is drawn.
    Status calibrate() {
        auto session = session_for(reserved_);
        VUDA_BENCH_TRY(session);
        for (int round = 0; round < 6; ++round) {
            bench::Samples times;
            for (int i = 0; i < 5; ++i) {
                auto ms = (*session)->launch();
                VUDA_BENCH_TRY(ms);
                times.add(*ms);
            }
            const double factor = std::clamp(kKernelMs / std::max(times.median(), kShortestMs), 0.1, 10.0);
            if (factor > 0.8 && factor < 1.25) break;
            iterations_ = static_cast<uint32_t>(std::clamp(iterations_ * factor, 1.0, kMostIterations));
            (*session)->set_iterations(iterations_);
        }
        return {};
    }

    const std::string gpu_name_;
    bench::StartGate gate_{bench::GateOptions{}};
    bench::Renderer renderer_;
    bench::CudaGpu cuda_;
    uint32_t reserved_ = 0;
    uint32_t iterations_ = 20000;
    std::map<uint32_t, std::unique_ptr<bench::Session>> sessions_;
};

}  // namespace

int main(int argc, char** argv) {
    probe::PairOptions options;
    std::string gpu;
    if (!probe::parse_pair_options(argc, argv, options, gpu)) return EX_USAGE;
    bench::install_stop_signals();
    // Never destroyed: after a fault the drivers' own clean-up may take long, and the kernel does it anyway.
    auto* pair = std::make_unique<GpuPair>(gpu).release();
    const int status = probe::try_pair(*pair, options, stdout);
    _exit(status);
}
