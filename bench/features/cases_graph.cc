// CUDA graphs, captured from a stream.
#include "bench/features/cases.h"

namespace vuda::bench::features {
namespace {

constexpr uint32_t kGraphWords = 1 << 16;
constexpr uint32_t kGraphSteps = 20;
constexpr uint32_t kGraphLaunches = 5;

struct Graph {
    CuGraph graph = nullptr;
    Finally destroy;
};

// What `record` puts into `stream`, as a graph.
Result<Graph> capture(const Driver& cuda, CuStream stream, const std::function<Status()>& record) {
    VUDA_BENCH_TRY(cuda.check(cuda.capture_begin(stream, kCaptureThreadLocal), "begin to capture a graph"));
    const Status recorded = record();
    Graph graph;
    const Status ended = cuda.check(cuda.capture_end(stream, &graph.graph), "capture a graph");
    VUDA_BENCH_TRY(recorded);
    VUDA_BENCH_TRY(ended);
    graph.destroy = Finally([&cuda, made = graph.graph] { cuda.graph_destroy(made); });
    return graph;
}

Result<std::pair<CuGraphExec, Finally>> instantiate(const Driver& cuda, CuGraph graph) {
    CuGraphExec exec = nullptr;
    VUDA_BENCH_TRY(cuda.check(cuda.graph_instantiate(&exec, graph, 0), "instantiate a graph"));
    return std::pair(exec, Finally([&cuda, exec] { cuda.graph_exec_destroy(exec); }));
}

uint32_t launched(uint32_t value, uint32_t launches, uint32_t rounds) {
    for (uint32_t i = 0; i < launches; ++i) value = stepped(value, rounds);
    return value;
}

Status launch_and_compare(Rig& rig, CuGraphExec exec, CuStream stream, const Words& data, uint32_t wanted) {
    for (uint32_t i = 0; i < kGraphLaunches; ++i)
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_launch(exec, stream), "launch a graph"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream), "wait for a graph"));
    const auto found = data.read();
    VUDA_BENCH_TRY(found);
    rig.sum(*found);
    return expect_equal(*found, std::vector<uint32_t>(data.size(), wanted), "a graph's kernels");
}

}  // namespace

Status graph_plain(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    const Result<Words> data = Words::make(rig.cuda, kGraphWords, 5);
    VUDA_BENCH_TRY(data);
    const Result<Graph> graph = capture(rig.cuda, stream->first, [&] {
        return run_steps(rig.cuda, *step, data->pointer(), kGraphWords, kGraphSteps, stream->first);
    });
    VUDA_BENCH_TRY(graph);
    const auto exec = instantiate(rig.cuda, graph->graph);
    VUDA_BENCH_TRY(exec);
    return launch_and_compare(rig, exec->first, stream->first, *data, launched(5, kGraphLaunches, kGraphSteps));
}

Status graph_child(Rig& rig) {
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    const Result<Words> data = Words::make(rig.cuda, kGraphWords, 5);
    VUDA_BENCH_TRY(data);
    const Result<Graph> child = capture(rig.cuda, stream->first, [&] {
        return run_steps(rig.cuda, *step, data->pointer(), kGraphWords, 3, stream->first);
    });
    VUDA_BENCH_TRY(child);
    Graph parent;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_create(&parent.graph, 0), "make a graph"));
    parent.destroy = Finally([&] { rig.cuda.graph_destroy(parent.graph); });
    CuGraphNode first = nullptr;
    CuGraphNode second = nullptr;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_add_child(&first, parent.graph, nullptr, 0, child->graph),
                                  "add a graph to a graph"));
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_add_child(&second, parent.graph, &first, 1, child->graph),
                                  "add a graph to a graph"));
    const auto exec = instantiate(rig.cuda, parent.graph);
    VUDA_BENCH_TRY(exec);
    return launch_and_compare(rig, exec->first, stream->first, *data, launched(5, 2 * kGraphLaunches, 3));
}

// The graph allocates what its kernels work on, copies it out and frees it.
Status graph_memory(Rig& rig) {
    VUDA_BENCH_TRY(rig.require(kMemoryPools, "memory pools"));
    const Result<CuFunction> step = rig.kernel("feature_step");
    VUDA_BENCH_TRY(step);
    const auto stream = make_stream(rig.cuda);
    VUDA_BENCH_TRY(stream);
    void* pinned = nullptr;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.host_allocate(&pinned, 4 * kGraphWords, 0), "allocate pinned memory"));
    const Finally free_pinned([&] { rig.cuda.host_free(pinned); });
    const Result<Graph> graph = capture(rig.cuda, stream->first, [&]() -> Status {
        CuPointer at = 0;
        VUDA_BENCH_TRY(
            rig.cuda.check(rig.cuda.pool_allocate(&at, 4 * kGraphWords, stream->first), "allocate in a graph"));
        VUDA_BENCH_TRY(
            rig.cuda.check(rig.cuda.set_words_async(at, 5, kGraphWords, stream->first), "fill memory in a graph"));
        VUDA_BENCH_TRY(run_steps(rig.cuda, *step, at, kGraphWords, kGraphSteps, stream->first));
        VUDA_BENCH_TRY(
            rig.cuda.check(rig.cuda.to_host_async(pinned, at, 4 * kGraphWords, stream->first), "copy in a graph"));
        return rig.cuda.check(rig.cuda.pool_free(at, stream->first), "free in a graph");
    });
    VUDA_BENCH_TRY(graph);

    size_t count = 0;
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_nodes(graph->graph, nullptr, &count), "count a graph's nodes"));
    std::vector<CuGraphNode> nodes(count);
    VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_nodes(graph->graph, nodes.data(), &count), "read a graph's nodes"));
    int memory_nodes = 0;
    for (const CuGraphNode node : nodes) {
        int type = -1;
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_node_type(node, &type), "ask what a node is"));
        memory_nodes += type == kNodeAllocates || type == kNodeFrees;
    }
    VUDA_BENCH_TRY(expect(memory_nodes == 2, "the graph has " + std::to_string(memory_nodes) + " memory nodes"));

    const auto exec = instantiate(rig.cuda, graph->graph);
    VUDA_BENCH_TRY(exec);
    const auto* const words = static_cast<const uint32_t*>(pinned);
    for (uint32_t i = 0; i < kGraphLaunches; ++i) {
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.graph_launch(exec->first, stream->first), "launch a graph"));
        VUDA_BENCH_TRY(rig.cuda.check(rig.cuda.stream_wait(stream->first), "wait for a graph"));
        rig.sum({words, kGraphWords});
        VUDA_BENCH_TRY(expect_equal({words, words + kGraphWords},
                                    std::vector<uint32_t>(kGraphWords, stepped(5, kGraphSteps)),
                                    "a graph's own memory"));
    }
    return {};
}

}  // namespace vuda::bench::features
