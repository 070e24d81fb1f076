// Kernels that take more shared memory a block than may run beside graphics. Attached with policy native they run on
// a TSG of the program's own, and must come out as anywhere else: in their places, with the variables of their module.
#include <chrono>
#include <numeric>

#include "bench/common/clock.h"
#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr unsigned kLargeBytes = 96 << 10;
constexpr uint32_t kNativeWords = 1 << 16;
constexpr uint32_t kConstants = 16'384;
constexpr unsigned kThreads = 256;

// One of the base kernels, which all are of a module, allowed that much.
Result<CuFunction> large_kernel(Rig& rig, const char* name) {
    const Result<CuFunction> kernel = rig.kernel(name);
    VUDA_BENCH_TRY(kernel);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.set_function(*kernel, kDynamicSharedBytes, static_cast<int>(kLargeBytes)),
                                  "allow a kernel 96 KiB of shared memory a block"));
    return kernel;
}

// feature_constant reads this; what it makes of it.
Result<std::vector<uint32_t>> fill_constants(Rig& rig, uint32_t factor, uint32_t count) {
    CuPointer table = 0;
    size_t bytes = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.module_global(&table, &bytes, rig.base_kernels()->module(), "feature_table"),
                                  "find the constant memory"));
    std::vector<uint32_t> values(kConstants);
    for (uint32_t i = 0; i < kConstants; ++i) values[i] = i * factor;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.to_device(table, values.data(), 4 * kConstants), "fill constant memory"));
    std::vector<uint32_t> sums(count);
    for (uint32_t thread = 0; thread < count; ++thread)
        for (uint32_t i = 0; i < kConstants; ++i) sums[thread] += values[(i + thread) % kConstants] * (i | 1u);
    return sums;
}

// Small and large ones in turns, each of which needs what the one before left.
Status step_in_turns(const Driver& cuda, CuFunction step, CuPointer data, uint32_t rounds, unsigned large,
                     CuStream stream) {
    for (uint32_t round = 1; round <= rounds; ++round)
        VUDA_BENCH_TRY(launch(cuda, step, 64, kThreads, round % 2 == 0 ? large : 0, stream, data, kNativeWords, round));
    return {};
}

struct LargeGraph {
    CuGraph graph = nullptr;
    Finally destroy;
};

Result<LargeGraph> capture_steps(Rig& rig, CuFunction step, CuFunction constants, CuPointer data, CuPointer sums,
                                 void* copy, uint32_t rounds, unsigned large, CuStream stream) {
    const Driver& cuda = rig.cuda;
    VUDA_BENCH_TRY(cuda.check(cuda.capture_begin(stream, kCaptureThreadLocal), "begin to capture a graph"));
    Status recorded = cuda.check(cuda.set_words_async(data, 5, kNativeWords, stream), "fill memory in a graph");
    if (recorded) recorded = step_in_turns(cuda, step, data, rounds, large, stream);
    if (recorded) recorded = launch(cuda, constants, 4, kThreads, large, stream, sums);
    if (recorded)
        recorded = cuda.check(cuda.to_host_async(copy, data, 4 * kNativeWords, stream), "copy memory in a graph");
    LargeGraph made;
    const Status ended = cuda.check(cuda.capture_end(stream, &made.graph), "capture a graph");
    VUDA_BENCH_TRY(recorded);
    VUDA_BENCH_TRY(ended);
    made.destroy = Finally([&cuda, graph = made.graph] { cuda.graph_destroy(graph); });
    return made;
}

// Everything that a round of the graphs' cases needs.
struct GraphRound {
    Rig& rig;
    CuFunction step = nullptr;
    CuFunction constants = nullptr;
    std::pair<CuStream, Finally> stream;
    Words data;
    Words sums;
    void* pinned = nullptr;
    Finally free_pinned;

    static Result<GraphRound> make(Rig& rig) {
        const Result<CuFunction> step = large_kernel(rig, "feature_step");
        VUDA_BENCH_TRY(step);
        const Result<CuFunction> constants = large_kernel(rig, "feature_constant");
        VUDA_BENCH_TRY(constants);
        auto stream = make_stream(rig.cuda);
        VUDA_BENCH_TRY(stream);
        Result<Words> data = Words::make(rig.cuda, kNativeWords, 5);
        VUDA_BENCH_TRY(data);
        Result<Words> sums = Words::make(rig.cuda, 4 * kThreads);
        VUDA_BENCH_TRY(sums);
        GraphRound round{rig, *step, *constants, *std::move(stream), *std::move(data), *std::move(sums), nullptr, {}};
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.host_allocate(&round.pinned, 4 * kNativeWords, 0), "pin host memory"));
        round.free_pinned = Finally([&rig, pinned = round.pinned] { rig.cuda.host_free(pinned); });
        return round;
    }
    Result<LargeGraph> graph(uint32_t rounds, unsigned large) {
        return capture_steps(rig, step, constants, data.pointer(), sums.pointer(), pinned, rounds, large, stream.first);
    }
    Status launched(CuGraphExec exec, uint32_t rounds, uint32_t factor) {
        const Result<std::vector<uint32_t>> wanted = fill_constants(rig, factor, 4 * kThreads);
        VUDA_BENCH_TRY(wanted);
        auto* const copied = static_cast<uint32_t*>(pinned);
        std::fill(copied, copied + kNativeWords, 0u);
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_launch(exec, stream.first), "launch a graph"));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream.first), "wait for a graph"));
        rig.sum({copied, kNativeWords});
        VUDA_BENCH_TRY(expect_equal({copied, copied + kNativeWords},
                                    std::vector<uint32_t>(kNativeWords, stepped(5, rounds)),
                                    "a graph's large kernels"));
        const auto found = sums.read();
        VUDA_BENCH_TRY(found);
        rig.sum(*found);
        return expect_equal(*found, *wanted, "sums of constants in a graph's large kernel");
    }
};

Result<std::pair<CuGraphExec, Finally>> make_executable(const Driver& cuda, CuGraph graph) {
    CuGraphExec exec = nullptr;
    VUDA_BENCH_TRY(cuda.check(cuda.graph_instantiate(&exec, graph, 0), "instantiate a graph"));
    return std::pair(exec, Finally([&cuda, exec] { cuda.graph_exec_destroy(exec); }));
}

}  // namespace

Status native_module(Rig& rig) {
    const Result<CuFunction> step = large_kernel(rig, "feature_step");
    VUDA_BENCH_TRY(step);
    const Result<CuFunction> constants = large_kernel(rig, "feature_constant");
    VUDA_BENCH_TRY(constants);
    const auto own_stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(own_stream);
    const Result<Words> data = Words::make(rig.cuda, kNativeWords, 5);
    VUDA_BENCH_TRY(data);
    const Result<Words> sums = Words::make(rig.cuda, 4 * kThreads);
    VUDA_BENCH_TRY(sums);
    constexpr uint32_t kRounds = 10;
    uint32_t value = 5;
    for (const CuStream stream : {own_stream->first, CuStream{nullptr}}) {
        VUDA_BENCH_TRY(step_in_turns(rig.cuda, *step, data->pointer(), kRounds, kLargeBytes, stream));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream), "wait for kernels"));
        value = stepped(value, kRounds);
        const auto found = data->read();
        VUDA_BENCH_TRY(found);
        rig.sum(*found);
        VUDA_BENCH_TRY(expect_equal(*found, std::vector<uint32_t>(kNativeWords, value), "large kernels of a module"));
    }
    for (const uint32_t factor : {2246822519u, 3266489917u}) {
        const auto wanted = fill_constants(rig, factor, 4 * kThreads);
        VUDA_BENCH_TRY(wanted);
        VUDA_BENCH_TRY(launch(rig.cuda, *constants, 4, kThreads, kLargeBytes, nullptr, sums->pointer()));
        const auto found = sums->read();
        VUDA_BENCH_TRY(found);
        rig.sum(*found);
        VUDA_BENCH_TRY(expect_equal(*found, *wanted, "sums of constants in a large kernel"));
    }
    return {};
}

Status native_graph(Rig& rig) {
    Result<GraphRound> round = GraphRound::make(rig);
    VUDA_BENCH_TRY(round);
    constexpr uint32_t kRounds = 20;
    const Result<LargeGraph> graph = round->graph(kRounds, kLargeBytes);
    VUDA_BENCH_TRY(graph);
    const auto exec = make_executable(rig.cuda, graph->graph);
    VUDA_BENCH_TRY(exec);
    for (const uint32_t factor : {2246822519u, 3266489917u, 668265263u})
        VUDA_BENCH_TRY(round->launched(exec->first, kRounds, factor));
    return {};
}

// From a graph that fits to one that does not, and to one that fits again.
Status native_graph_update(Rig& rig) {
    Result<GraphRound> round = GraphRound::make(rig);
    VUDA_BENCH_TRY(round);
    constexpr uint32_t kRounds = 6;
    const Result<LargeGraph> small = round->graph(kRounds, 0);
    VUDA_BENCH_TRY(small);
    const auto exec = make_executable(rig.cuda, small->graph);
    VUDA_BENCH_TRY(exec);
    VUDA_BENCH_TRY(round->launched(exec->first, kRounds, 2246822519u));
    for (const unsigned large : {kLargeBytes, kLargeBytes / 2 + 8192, 0u}) {
        const Result<LargeGraph> other = round->graph(kRounds, large);
        VUDA_BENCH_TRY(other);
        uint64_t result[3] = {};
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_exec_update(exec->first, other->graph, result), "update a graph"));
        VUDA_BENCH_TRY(round->launched(exec->first, kRounds, 3266489917u + large));
    }
    return {};
}

// What must come is CUDA's error, in time, and again at each call after it; a renderer beside it must not notice.
Status native_fault(Rig& rig) {
    constexpr double kInTimeMs = 200;
    const Result<CuFunction> fault = large_kernel(rig, "feature_fault");
    VUDA_BENCH_TRY(fault);
    const Result<CuFunction> step = large_kernel(rig, "feature_step");
    VUDA_BENCH_TRY(step);
    const Result<Words> data = Words::make(rig.cuda, kNativeWords, 5);
    VUDA_BENCH_TRY(data);
    // The first of all makes a context; that time is none of the fault's.
    VUDA_BENCH_TRY(step_in_turns(rig.cuda, *step, data->pointer(), 2, kLargeBytes, nullptr));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(nullptr), "wait for kernels"));
    const auto begin = Clock::now();
    VUDA_BENCH_TRY(launch(rig.cuda, *fault, 1, 32, kLargeBytes, nullptr, 0x7000'0000'0000ull));
    const CuResult result = rig.cuda.stream_wait(nullptr);
    const double ms = ms_between(begin, Clock::now());
    CuPointer more = 0;
    const CuResult later = rig.cuda.allocate(&more, 4);
    rig.figures["result"] = result;
    rig.figures["later"] = later;
    rig.figures["ms"] = ms;
    VUDA_BENCH_TRY(expect(result != kSuccess, "nothing happened"));
    VUDA_BENCH_TRY(expect(later == result, "the next call gave CUDA's result " + std::to_string(later)));
    return expect(ms < kInTimeMs, "the error came after " + std::to_string(ms) + " ms");
}

}  // namespace vuda::bench::features
