// How fast the multiprocessors' clock really runs, with and without tensor cores at work. A figure, and no part of the
// result: it tells what of a renderer's loss beside such a program the clock takes.
#include <numeric>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr unsigned kClockThreads = 32;     // a warp on each multiprocessor is enough
constexpr unsigned kClockRounds = 12'000;  // of products in a launch: 0.1 to 0.2 ms on an H200
// The last one is looked at: the clock has had some milliseconds to follow.
constexpr unsigned kClockLaunches = 40;

Result<double> megahertz(Rig& rig, CuFunction function, unsigned blocks, bool tensor) {
    const Result<Words> cycles = Words::make(rig.cuda, blocks);
    VUDA_BENCH_TRY(cycles);
    const Result<Words> nanoseconds = Words::make(rig.cuda, blocks);
    VUDA_BENCH_TRY(nanoseconds);
    const Result<Words> sums = Words::make(rig.cuda, size_t{blocks} * kClockThreads);
    VUDA_BENCH_TRY(sums);
    for (unsigned i = 0; i < kClockLaunches; ++i) {
        VUDA_BENCH_TRY(launch(rig.cuda, function, blocks, kClockThreads, 0, nullptr, cycles->pointer(),
                              nanoseconds->pointer(), sums->pointer(), kClockRounds, tensor ? 1U : 0U));
    }
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for products"));
    const auto products = sums->read();
    VUDA_BENCH_TRY(products);
    rig.sum(*products);
    const std::vector<uint32_t> right(products->size(), 4 * 8 * (kClockRounds + 1));
    VUDA_BENCH_TRY(expect_equal(*products, right, tensor ? "products of tensor cores" : "products"));
    const auto took = cycles->read();
    VUDA_BENCH_TRY(took);
    const auto lasted = nanoseconds->read();
    VUDA_BENCH_TRY(lasted);
    const double time = std::accumulate(lasted->begin(), lasted->end(), 0.0);
    if (time <= 0) return wrong("the GPU's timer stands still");
    return 1000 * std::accumulate(took->begin(), took->end(), 0.0) / time;
}

}  // namespace

Status multiprocessor_clock(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_clock");
    VUDA_BENCH_TRY(function);
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    for (const bool tensor : {false, true}) {
        const auto found = megahertz(rig, *function, static_cast<unsigned>(*processors), tensor);
        VUDA_BENCH_TRY(found);
        // Of all rounds the last one's.
        rig.figures[tensor ? "clock_mhz_tensor" : "clock_mhz_plain"] = *found;
    }
    return {};
}

}  // namespace vuda::bench::features
