// Memory that moves between host and GPU. The last two have the GPU fault on pages, which the driver resolves and
// replays: it finds out whose fault it is by the channel that the hardware names.
#include <algorithm>
#include <cstdlib>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

// Half a MiB for each multiprocessor.
Result<uint32_t> word_count(const Rig& rig) {
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    return static_cast<uint32_t>(*processors) << 17;
}

// The host writes, the GPU works, the host compares: twice over, so that pages go there and back.
Status back_and_forth(Rig& rig, uint32_t* words, uint32_t count, CuPointer at, bool prefetch, const std::string& what) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    constexpr uint32_t kRounds = 3;
    for (uint32_t turn = 1; turn <= 2; ++turn) {
        std::fill(words, words + count, turn);
        if (prefetch)
            VUDA_BENCH_TRY(
                rig.cuda.check(rig.cuda.prefetch(at, size_t{4} * count, rig.device, nullptr), "prefetch to the GPU"));
        VUDA_BENCH_TRY(run_steps(rig.cuda, *step, at, count, kRounds, nullptr));
        constexpr CuDevice kHost = -1;  // CU_DEVICE_CPU
        if (prefetch)
            VUDA_BENCH_TRY(
                rig.cuda.check(rig.cuda.prefetch(at, size_t{4} * count, kHost, nullptr), "prefetch to the host"));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for the kernels"));
        const uint32_t wanted = stepped(turn, kRounds);
        const auto bad = std::count_if(words, words + count, [&](uint32_t word) { return word != wanted; });
        rig.sum({words, 1024});
        VUDA_BENCH_TRY(expect(bad == 0, what + ": " + std::to_string(bad) + " words are wrong"));
    }
    return {};
}

Status managed(Rig& rig, bool prefetch) {
    VUDA_BENCH_TRY(rig.require(kManagedMemory, "managed memory"));
    VUDA_BENCH_TRY(rig.require(kConcurrentManaged, "managed memory that host and GPU use at once"));
    const Result<uint32_t> count = word_count(rig);
    VUDA_BENCH_TRY(count);
    CuPointer at = 0;
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.managed_allocate(&at, size_t{4} * *count, kAttachGlobal), "allocate managed memory"));
    const Finally free([&] { rig.cuda.free(at); });
    auto* const words = reinterpret_cast<uint32_t*>(static_cast<uintptr_t>(at));
    return back_and_forth(rig, words, *count, at, prefetch, "managed memory");
}

}  // namespace

Status managed_prefetched(Rig& rig) { return managed(rig, true); }

Status managed_faulting(Rig& rig) { return managed(rig, false); }

Status pageable_memory(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kPageableAccess, "access to ordinary host memory"));
    const Result<uint32_t> count = word_count(rig);
    VUDA_BENCH_TRY(count);
    constexpr size_t kPage = 4096;
    const std::unique_ptr<void, decltype(&std::free)> own(std::aligned_alloc(kPage, size_t{4} * *count), &std::free);
    const auto at = static_cast<CuPointer>(reinterpret_cast<uintptr_t>(own.get()));
    return back_and_forth(rig, static_cast<uint32_t*>(own.get()), *count, at, false, "host memory");
}

}  // namespace vuda::bench::features
