// Memory that moves between host and GPU. The last two have the GPU fault on pages, which the driver resolves and
// replays: it finds out whose fault it is by the channel that the hardware names.
#include <algorithm>
#include <cstdlib>

#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

// words[i] = 3 words[i] + add, in a module of its own: one with managed variables is another case for CUDA.
constexpr char kManagedVariablePtx[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .b8 feature_managed_words[2097152];
.visible .entry feature_managed_step(.param .u32 count, .param .u32 add) {
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %nctaid.x;
    mul.lo.u32 %r5, %r5, %r2;
    ld.param.u32 %r6, [count];
    ld.param.u32 %r7, [add];
    mov.u64 %rd1, feature_managed_words;
    cvta.global.u64 %rd1, %rd1;
NEXT:
    setp.ge.u32 %p1, %r4, %r6;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.u32 %r8, [%rd3];
    mad.lo.u32 %r8, %r8, 3, %r7;
    st.u32 [%rd3], %r8;
    add.u32 %r4, %r4, %r5;
    bra NEXT;
DONE:
    ret;
}
)";

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

// No call allocates this memory: it comes with the module.
Status managed_variable(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kManagedMemory, "managed memory"));
    VUDA_BENCH_TRY(rig.require(kConcurrentManaged, "managed memory that host and GPU use at once"));
    // VUDA has looked at a context once it ran a kernel.
    const Result<CuFunction> plain = rig.kernel("feature_step");
    VUDA_BENCH_TRY(plain);
    VUDA_BENCH_TRY(steps_come_out(rig, *plain, 1 << 16, 2, nullptr));
    const Result<Kernels> kernels = Kernels::load(rig.cuda, kManagedVariablePtx);
    VUDA_BENCH_TRY(kernels);
    const Result<CuFunction> step = kernels->get("feature_managed_step");
    VUDA_BENCH_TRY(step);
    CuPointer at = 0;
    size_t bytes = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.module_global(&at, &bytes, kernels->module(), "feature_managed_words"),
                                  "find a managed variable"));
    auto* const words = reinterpret_cast<uint32_t*>(static_cast<uintptr_t>(at));
    const size_t count = bytes / 4;
    constexpr uint32_t kRounds = 3;
    for (uint32_t turn = 1; turn <= 2; ++turn) {
        std::fill(words, words + count, turn);
        for (uint32_t round = 1; round <= kRounds; ++round)
            VUDA_BENCH_TRY(launch(rig.cuda, *step, 64, 256, 0, nullptr, static_cast<uint32_t>(count), round));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for the kernels"));
        const uint32_t wanted = stepped(turn, kRounds);
        const auto bad = std::count_if(words, words + count, [&](uint32_t word) { return word != wanted; });
        rig.sum({words, 1024});
        VUDA_BENCH_TRY(expect(bad == 0, "a managed variable: " + std::to_string(bad) + " words are wrong"));
    }
    return {};
}

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
