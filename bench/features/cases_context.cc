// More contexts than one, and contexts that go and come again.
#include <thread>

#include "bench/features/cases.h"
#include "bench/features/kernels_ptx.h"

namespace vuda::bench::features {
namespace {

// A context of its own, current on the thread that made it, with the kernels in it, which go with it.
struct OwnContext {
    CuContext context = nullptr;
    Finally destroy;
    CuFunction step = nullptr;

    static Result<OwnContext> make(const Driver& cuda, CuDevice device) {
        OwnContext own;
        VUDA_BENCH_TRY(cuda.check(cuda.context_create(&own.context, 0, device), "make a context"));
        own.destroy = Finally([&cuda, context = own.context] { cuda.context_destroy(context); });
        CuModule module = nullptr;
        VUDA_BENCH_TRY(cuda.check(cuda.module_load(&module, kKernelsPtx), "load the kernels"));
        VUDA_BENCH_TRY(
            cuda.check(cuda.module_function(&own.step, module, "feature_step"), "find the kernel feature_step"));
        return own;
    }
};

constexpr uint32_t kContextWords = 1 << 18;

}  // namespace

Status contexts_in_turns(Rig& rig) {
    const Finally back([&] { static_cast<void>(rig.use_primary()); });
    constexpr size_t kContexts = 3;
    std::vector<OwnContext> contexts;
    for (size_t i = 0; i < kContexts; ++i) {
        Result<OwnContext> own = OwnContext::make(rig.cuda, rig.device);
        VUDA_BENCH_TRY(own);
        contexts.push_back(std::move(*own));
    }
    for (int turn = 0; turn < 3; ++turn) {
        for (const OwnContext& own : contexts) {
            VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.context_use(own.context), "change the context"));
            VUDA_BENCH_TRY(steps_come_out(rig, own.step, kContextWords, 5, nullptr));
        }
    }
    return {};
}

Status contexts_at_once(Rig& rig) {
    const Finally back([&] { static_cast<void>(rig.use_primary()); });
    // Sums and figures belong to one thread, so each has a rig of its own without a primary context.
    Status statuses[2];
    uint32_t sums[2] = {};
    const auto work = [&](int which) {
        Rig own_rig(rig.cuda, rig.device, rig.options);
        Result<OwnContext> own = OwnContext::make(rig.cuda, rig.device);
        Status status = own.ok() ? Status{} : Status{own.error()};
        for (int i = 0; i < 20 && status.ok(); ++i)
            status = steps_come_out(own_rig, own->step, kContextWords, 10, nullptr);
        statuses[which] = status;
        sums[which] = static_cast<uint32_t>(own_rig.checksum);
    };
    {
        const std::jthread other([&] { work(1); });
        work(0);
    }
    VUDA_BENCH_TRY(statuses[0]);
    VUDA_BENCH_TRY(statuses[1]);
    rig.sum(sums);
    return {};
}

// Nothing is left between two of them: the process has no other context.
Status context_recreated(Rig& rig) {
    rig.release_primary();
    const Finally back([&] { static_cast<void>(rig.use_primary()); });
    for (int i = 0; i < 5; ++i) {
        const Result<OwnContext> own = OwnContext::make(rig.cuda, rig.device);
        VUDA_BENCH_TRY(own);
        VUDA_BENCH_TRY(steps_come_out(rig, own->step, kContextWords, 5, nullptr));
    }
    return {};
}

Status primary_reset(Rig& rig) {
    for (int i = 0; i < 2; ++i) {
        VUDA_BENCH_TRY(rig.use_primary());
        const Result<CuFunction> step = rig.kernel("feature_step");
        VUDA_BENCH_TRY(step);
        VUDA_BENCH_TRY(steps_come_out(rig, *step, kContextWords, 5, nullptr));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.primary_reset(rig.device), "reset the primary context"));
        rig.primary_was_reset();
    }
    VUDA_BENCH_TRY(rig.use_primary());
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    return steps_come_out(rig, *step, kContextWords, 5, nullptr);
}

}  // namespace vuda::bench::features
