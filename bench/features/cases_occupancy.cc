// How many blocks a multiprocessor holds at a time, by the shared memory that each wants. Fewer beside graphics than
// alone, so they are figures, and no part of the result that must be the same.
#include <algorithm>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

// Of 11 KiB (12 with what CUDA reserves) both 48 and 228 KiB hold a whole number; 47,104 is the most that shares with
// every renderer.
constexpr unsigned kSharedBytesEach[] = {1 << 10, 4 << 10, 8 << 10, 11 << 10, 16 << 10, 24 << 10, 32 << 10, 47'104};
// More than any multiprocessor holds, so that each is full for a while.
constexpr unsigned kBlocksEach = 40;
// 25 us at 2 GHz: long beside the time that it takes to begin a block on each.
constexpr unsigned long long kStayCycles = 50'000;
constexpr size_t kProcessorSlots = 1024;  // as feature_residents has them

// Of all rounds: in one of them something else may have had a multiprocessor.
void keep_greatest(Rig& rig, const std::string& name, uint32_t value) {
    auto& figure = rig.figures[name];
    figure = figure.is_null() ? value : std::max(value, figure.get<uint32_t>());
}

// The most blocks that were on one multiprocessor.
Result<uint32_t> most_residents(Rig& rig, CuFunction function, unsigned blocks, unsigned bytes) {
    const Result<Words> ran = Words::make(rig.cuda, 1);
    VUDA_BENCH_TRY(ran);
    const Result<Words> here = Words::make(rig.cuda, kProcessorSlots);
    VUDA_BENCH_TRY(here);
    const Result<Words> most = Words::make(rig.cuda, kProcessorSlots);
    VUDA_BENCH_TRY(most);
    VUDA_BENCH_TRY(launch(rig.cuda, function, blocks, 32, bytes, nullptr, ran->pointer(), here->pointer(),
                          most->pointer(), kStayCycles));
    const std::string what = "blocks of " + std::to_string(bytes) + " bytes of shared memory";
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for " + what));
    const auto in_all = ran->read();
    VUDA_BENCH_TRY(in_all);
    rig.sum(*in_all);
    VUDA_BENCH_TRY(expect_equal(*in_all, {blocks}, what + ", in all"));
    const auto left = here->read();
    VUDA_BENCH_TRY(left);
    VUDA_BENCH_TRY(expect_equal(*left, std::vector<uint32_t>(kProcessorSlots), what + ", still there at the end"));
    const auto counts = most->read();
    VUDA_BENCH_TRY(counts);
    return *std::max_element(counts->begin(), counts->end());
}

}  // namespace

Status shared_memory_blocks(Rig& rig) {
    const Result<CuFunction> function = rig.kernel("feature_residents");
    VUDA_BENCH_TRY(function);
    const Result<int> processors = rig.attribute(kMultiprocessors);
    VUDA_BENCH_TRY(processors);
    const Result<int> reserved = rig.attribute(kReservedSharedBytes);
    VUDA_BENCH_TRY(reserved);
    // Or CUDA chooses how much of the L1 cache is shared memory, and the figure is of its choice.
    VUDA_BENCH_TRY(
        rig.cuda.check(rig.cuda.set_function(*function, kSharedCarveout, 100), "ask for the most shared memory"));
    uint32_t together = 0;
    for (const unsigned bytes : kSharedBytesEach) {
        const auto found = most_residents(rig, *function, kBlocksEach * static_cast<unsigned>(*processors), bytes);
        VUDA_BENCH_TRY(found);
        keep_greatest(rig, "blocks_at_most_" + std::to_string(bytes), *found);
        together = std::max(together, *found * (bytes + static_cast<unsigned>(*reserved)));
    }
    keep_greatest(rig, "shared_memory_per_sm", together);
    return {};
}

}  // namespace vuda::bench::features
