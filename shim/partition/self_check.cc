#include "shim/partition/self_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "shim/partition/native_scope.h"
#include "shim/partition/probe_ptx.h"

namespace vuda::partition {
namespace {

constexpr int kCaptureRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED: a capture of the program goes on undisturbed
constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
// Odd, so that nothing else in memory looks like it. 2,135 blocks of 99 threads: more than any GPU holds at a time.
constexpr LaunchShape kShape{{61, 7, 5}, {33, 3, 1}};
constexpr uint64_t kCycles = 8000;
// Beside other work an SM may have no room for a while.
constexpr int kRounds = 50;

// UNAVAILABLE: a context that is going away answers so too; the next one may do.
Error cuda_error(const char* what, CuResult result) {
    return Error{Code::kUnavailable, std::string("CUDA refuses to ") + what + " (error " + std::to_string(result) + ")",
                 ""};
}

Error surprise(const std::string& what) {
    return Error{Code::kFailedPrecondition, what, "compute runs unlimited; please report this"};
}

// The probe kernel in one context. Everything is undone in the order that CUDA wants.
class Probe {
 public:
    explicit Probe(const CudaDriver& cuda) : cuda_(cuda) {}
    ~Probe() {
        if (stream_ != nullptr) cuda_.stream_destroy(stream_);
        if (memory_ != 0) cuda_.mem_free(memory_);
        if (module_ != nullptr) {
            NativeErrand quiet;
            const OnErrand errand(quiet);
            cuda_.module_unload(module_);
        }
        CuContext popped = nullptr;
        if (pushed_) cuda_.ctx_pop(&popped);
        if (capture_mode_) cuda_.exchange_capture_mode(&*capture_mode_);
    }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

    Status open(CuContext context) {
        int mode = kCaptureRelaxed;
        if (const CuResult r = cuda_.exchange_capture_mode(&mode); r != 0)
            return cuda_error("set a thread's capture mode", r);
        capture_mode_ = mode;
        if (const CuResult r = cuda_.ctx_push(context); r != 0)
            return cuda_error("make the program's context current", r);
        pushed_ = true;
        {
            NativeErrand quiet;
            const OnErrand errand(quiet);
            if (const CuResult r = cuda_.module_load(&module_, kProbePtx); r != 0)
                return cuda_error("load the probe kernel", r);
        }
        if (const CuResult r = cuda_.module_get_function(&kernel_, module_, "vuda_probe"); r != 0) {
            return cuda_error("find the probe kernel", r);
        }
        if (const CuResult r = cuda_.mem_alloc(&memory_, sizeof counts_); r != 0)
            return cuda_error("allocate 4 KiB", r);
        if (const CuResult r = cuda_.stream_create(&stream_, kStreamNonBlocking); r != 0)
            return cuda_error("make a stream", r);
        return {};
    }

    // Launches it once and leaves the number of blocks on each SM in counts().
    Result<SeenLaunch> run(LaunchHook& hook, const QmdLayout* layout, const std::optional<QmdMask>& mask) {
        uint64_t cycles = kCycles;
        void* parameters[] = {&memory_, &cycles};
        if (const CuResult r = cuda_.memset_async(memory_, 0, counts_.size(), stream_); r != 0)
            return cuda_error("clear memory", r);
        hook.begin_probe(layout, mask);
        const CuResult launched = cuda_.launch(kernel_, kShape.grid[0], kShape.grid[1], kShape.grid[2], kShape.block[0],
                                               kShape.block[1], kShape.block[2], 0, stream_, parameters, nullptr);
        const CuResult copied = cuda_.copy_to_host(counts_.data(), memory_, sizeof counts_, stream_);
        const CuResult waited = cuda_.stream_synchronize(stream_);
        SeenLaunch seen = hook.end_probe();
        named_arguments_ = seen.call && seen.call->function == kernel_ && seen.call->stream == stream_ &&
                           seen.call->parameters == parameters && seen.call->grid[0] == kShape.grid[0] &&
                           seen.call->block[0] == kShape.block[0];
        if (launched != 0) return cuda_error("launch the probe kernel", launched);
        if (copied != 0) return cuda_error("copy 4 KiB", copied);
        if (waited != 0) return cuda_error("run the probe kernel", waited);
        return seen;
    }

    // Whether a launch that is refused as the guard would does nothing, says so, and leaves the stream in order.
    Result<bool> is_refused(LaunchHook& hook, const QmdLayout& layout) {
        uint64_t cycles = kCycles;
        void* parameters[] = {&memory_, &cycles};
        if (const CuResult r = cuda_.memset_async(memory_, 0, counts_.size(), stream_); r != 0)
            return cuda_error("clear memory", r);
        hook.begin_refusal(layout);
        const CuResult launched = cuda_.launch(kernel_, kShape.grid[0], kShape.grid[1], kShape.grid[2], kShape.block[0],
                                               kShape.block[1], kShape.block[2], 0, stream_, parameters, nullptr);
        const CuResult copied = cuda_.copy_to_host(counts_.data(), memory_, sizeof counts_, stream_);
        const CuResult waited = cuda_.stream_synchronize(stream_);
        const SeenLaunch seen = hook.end_probe();
        if (copied != 0) return cuda_error("copy 4 KiB", copied);
        if (waited != 0) return cuda_error("run the probe kernel", waited);
        return seen.emptied && seen.answered && launched == limits::kLaunchOutOfResources &&
               std::all_of(counts_.begin(), counts_.end(), [](uint32_t blocks) { return blocks == 0; });
    }

    const std::array<uint32_t, kMaxSms>& counts() const { return counts_; }
    // CUDA's callbacks told what the newest run was launched with.
    bool named_arguments() const { return named_arguments_; }

 private:
    const CudaDriver& cuda_;
    std::optional<int> capture_mode_;
    bool pushed_ = false;
    CuModule module_ = nullptr;
    CuFunction kernel_ = nullptr;
    CuDevicePtr memory_ = 0;
    CuStream stream_ = nullptr;
    std::array<uint32_t, kMaxSms> counts_{};
    bool named_arguments_ = false;
};

Status judge_parameters(const SeenLaunch& seen, CuContext context) {
    if (!seen.came) return surprise("CUDA does not call back before launches");
    if (seen.context == nullptr)
        return surprise("CUDA's launch callback has parameters of " + std::to_string(seen.bytes) + " bytes");
    if (seen.context != context)
        return surprise("CUDA's launch callback does not name the context where its version should");
    if (seen.layout == nullptr)
        return surprise("CUDA's launch callback does not name a launch descriptor that VUDA knows");
    if (seen.shape != kShape || seen.kind != QmdKind::kGrid) {
        return surprise(
            "what CUDA's launch callback names is not the launch descriptor of the kernel that was launched");
    }
    return {};
}

}  // namespace

Result<Proof> self_check(const CudaDriver& cuda, LaunchHook& hook, const GpuLayout& layout, CuContext context) {
    const Topology& topology = layout.topology;
    std::vector<int> tpc_of_sm(kMaxSms, -1);
    for (size_t t = 0; t < topology.tpcs.size(); ++t) {
        for (const uint32_t sm : topology.tpcs[t].sms) tpc_of_sm[sm] = static_cast<int>(t);
    }

    Probe probe(cuda);
    if (Status opened = probe.open(context); !opened) return opened.error();
    const Result<SeenLaunch> plain = probe.run(hook, nullptr, std::nullopt);
    if (!plain) return plain.error();
    if (Status judged = judge_parameters(*plain, context); !judged) return judged.error();
    Result<MaskMap> map = MaskMap::make(layout, *plain->layout);
    if (!map) return map.error();
    for (size_t sm = 0; sm < kMaxSms; ++sm) {
        if (probe.counts()[sm] != 0 && tpc_of_sm[sm] < 0) {
            return surprise("a kernel ran on SM " + std::to_string(sm) + ", which the resource manager does not list");
        }
    }

    // Two TPCs differ in some bit of their numbers, so in one of these launches one is masked and the other is not:
    // seen with each of its bits, every TPC proves which bit of the mask is its own.
    std::vector<std::array<bool, 2>> seen_with(topology.tpcs.size() * 8);
    const auto seen = [&](size_t tpc, unsigned bit, unsigned value) -> bool& {
        return seen_with[tpc * 8 + bit][value];
    };
    bool complete = false;
    for (int round = 0; round < kRounds && !complete; ++round) {
        complete = true;
        for (unsigned bit = 0; bit < 8 && (size_t{1} << bit) < topology.tpcs.size(); ++bit) {
            for (unsigned value = 0; value < 2; ++value) {
                TpcMask disable{};
                for (size_t t = 0; t < topology.tpcs.size(); ++t) {
                    if ((t >> bit & 1) != value) set(disable, t);
                }
                const Result<SeenLaunch> masked = probe.run(hook, plain->layout, map->translate(disable));
                if (!masked) return masked.error();
                if (Status judged = judge_parameters(*masked, context); !judged) return judged.error();
                for (size_t sm = 0; sm < kMaxSms; ++sm) {
                    if (probe.counts()[sm] == 0) continue;
                    if (tpc_of_sm[sm] < 0 || test(disable, static_cast<size_t>(tpc_of_sm[sm]))) {
                        return surprise("a kernel ran on SM " + std::to_string(sm) + " although its TPC was masked");
                    }
                    seen(static_cast<size_t>(tpc_of_sm[sm]), bit, value) = true;
                }
                for (size_t t = 0; t < topology.tpcs.size(); ++t) {
                    // A renderer that never rests may leave no room on the few TPCs that do graphics.
                    if (topology.tpcs[t].graphics && topology.graphics_limited()) continue;
                    if ((t >> bit & 1) == value && !seen(t, bit, value)) complete = false;
                }
            }
        }
    }
    if (!complete) return surprise("some TPCs ran no block of the probe kernel, so that its mask is not proved");
    const bool waits = plain->wait_entered == context && plain->wait_left == context;
    const Result<bool> refused = probe.is_refused(hook, *plain->layout);
    if (!refused) return refused.error();
    return Proof{plain->layout, *std::move(map), waits, probe.named_arguments(), *refused};
}

}  // namespace vuda::partition
