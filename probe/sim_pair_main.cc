// vuda-sim-pair: the pair (pair.h) on the simulated GPU, made of its stand-ins. For tests.
#include <sysexits.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "probe/pair.h"
#include "sim/standin/compute.h"
#include "sim/standin/measure.h"
#include "sim/standin/renderer.h"

namespace {

using namespace vuda;
using namespace vuda::sim;
using namespace vuda::sim::standin;

constexpr std::chrono::milliseconds kLimit(10'000);
// Long ones, so that a busy machine changes nothing.
constexpr uint32_t kFrameNs = 40'000'000;
constexpr uint32_t kKernelNs = 400'000;
constexpr uint32_t kReserved = 1024;
constexpr uint32_t kLargest = 228 * 1024;

Status waited(Queue& queue, uint32_t value) {
    // Whoever ends it sees to it that work comes to an end: it is never interrupted.
    static std::atomic<bool> never{false};
    switch (queue.wait(value, kLimit, never)) {
        case Waited::kDone: return {};
        case Waited::kDeviceLost:
            return Error{Code::kDataLoss, "the device is lost: Xid " + std::to_string(queue.error_code()), ""};
        default: return Error{Code::kDeadlineExceeded, "work did not end within 10 s", ""};
    }
}

class SimPair : public probe::Pair {
 public:
    explicit SimPair(int gpu) { common_.gpu = gpu; }

    Result<probe::PairGpu> open() override {
        RendererOptions drawn;
        drawn.common = common_;
        auto renderer = Renderer::make(drawn);
        if (!renderer) return renderer.error();
        renderer_ = *std::move(renderer);
        ComputeOptions computed;
        computed.common = common_;
        auto compute = Compute::make(computed);
        if (!compute) return compute.error();
        compute_ = *std::move(compute);
        Queue& queue = compute_->queue(0);
        queue.set_object(1, compute_->compute_class());
        queue.method(1, work::kSetShaderLocalMemoryA, 1);
        if (const Status set_up = waited(queue, queue.submit()); !set_up) return set_up.error();
        // The simulated limit is Hopper's.
        return probe::PairGpu{"simulated", "", "", 9, 0, kReserved, kLargest};
    }

    Status draw() override {
        while (!stop_) {
            work::Draw draw{};
            draw.vertex_ns = kFrameNs / 50;
            draw.fragment_ns = kFrameNs - draw.vertex_ns;
            uint32_t words[1 + sizeof draw / 4] = {1};
            std::memcpy(words + 1, &draw, sizeof draw);
            const auto begun = probe::PairClock::now();
            Queue& queue = renderer_->queue();
            queue.block(0, work::kSimFrame, words, sizeof words);
            if (Status drawn = waited(queue, queue.submit()); !drawn) return drawn;
            const auto ended = probe::PairClock::now();
            frames_.push_back({probe::pair_ms(ended), probe::pair_ms(ended) - probe::pair_ms(begun)});
        }
        return {};
    }
    void stop() override { stop_ = true; }
    std::vector<probe::PairFrame> frames() override { return frames_; }
    uint64_t wrong_frames() override { return 0; }

    Result<double> launch(uint32_t bytes) override {
        work::Launch launch{};
        launch.blocks_per_sm = 1;
        launch.blocks = compute_->sm_count();
        launch.block_ns = kKernelNs;
        launch.shared_memory = bytes;
        launch.flags = work::kLaunchControlState | work::kLaunchLocalMemory;
        Queue& queue = compute_->queue(0);
        const auto begun = probe::PairClock::now();
        queue.block(1, work::kSimLaunch, &launch, sizeof launch);
        if (const Status ran = waited(queue, queue.submit()); !ran) return ran.error();
        return probe::pair_ms(probe::PairClock::now()) - probe::pair_ms(begun);
    }
    Result<uint64_t> wrong_results() override { return uint64_t{0}; }

 private:
    CommonOptions common_;
    std::unique_ptr<Renderer> renderer_;
    std::unique_ptr<Compute> compute_;
    std::atomic<bool> stop_{false};
    std::vector<probe::PairFrame> frames_;
};

}  // namespace

int main(int argc, char** argv) {
    probe::PairOptions options;
    std::string gpu;
    if (!probe::parse_pair_options(argc, argv, options, gpu)) return EX_USAGE;
    SimPair pair(0);
    return probe::try_pair(pair, options, stdout);
}
