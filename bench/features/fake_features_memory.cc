// Memory, arrays and graphs of the stand-in for libcuda.so.1.
#include <algorithm>
#include <cstring>

#include "bench/features/fake_features.h"
#include "bench/features/fake_kernels.h"

namespace {

using namespace vuda::bench::features;
using namespace vuda::bench::features::fake;

int allocate(CuPointer* pointer, size_t bytes) {
    ++g_device_memory;
    *pointer = static_cast<CuPointer>(reinterpret_cast<uintptr_t>(std::malloc(bytes)));
    return in_context();
}

int release(void* memory) {
    --g_device_memory;
    std::free(memory);
    return g_error;
}

}  // namespace

FAKE cuMemAlloc_v2(CuPointer* pointer, size_t bytes) {
    LOCKED;
    return allocate(pointer, bytes);
}
FAKE cuMemAllocManaged(CuPointer* pointer, size_t bytes, unsigned) { return cuMemAlloc_v2(pointer, bytes); }
FAKE cuMemFree_v2(CuPointer pointer) {
    LOCKED;
    return release(at<void>(pointer));
}
FAKE cuMemsetD32Async(CuPointer pointer, unsigned value, size_t count, CuStream stream) {
    LOCKED;
    return now_or_later(stream, 2, [=] { std::fill_n(at<uint32_t>(pointer), count, value); });
}
FAKE cuMemsetD32_v2(CuPointer pointer, unsigned value, size_t count) {
    return cuMemsetD32Async(pointer, value, count, nullptr);
}
FAKE cuMemcpyDtoHAsync_v2(void* to, CuPointer from, size_t bytes, CuStream stream) {
    LOCKED;
    return now_or_later(stream, 1, [=] { std::memcpy(to, at<void>(from), bytes); });
}
FAKE cuMemcpyDtoH_v2(void* to, CuPointer from, size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }
FAKE cuMemcpyHtoD_v2(CuPointer to, const void* from, size_t bytes) {
    return std::memcpy(at<void>(to), from, bytes), in_context();
}
FAKE cuMemcpy2D_v2(const Copy2D* copy) {
    const auto* source = reinterpret_cast<const FakeArray*>(copy->source_array);
    const auto* target = reinterpret_cast<const FakeArray*>(copy->target_array);
    std::memcpy(target ? target->words : copy->target_host, source ? source->words : copy->source_host,
                copy->width_bytes * copy->height);
    return in_context();
}
FAKE cuMemPrefetchAsync(CuPointer, size_t, int, CuStream) { return in_context(); }
FAKE cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    LOCKED;
    CuPointer pointer = 0;
    const int result = allocate(&pointer, bytes);
    *memory = at<void>(pointer);
    return result;
}
FAKE cuMemFreeHost(void* memory) {
    LOCKED;
    return release(memory);
}
FAKE cuMemHostRegister_v2(void*, size_t, unsigned) { return in_context(); }
FAKE cuMemHostUnregister(void*) { return in_context(); }
FAKE cuMemHostGetDevicePointer_v2(CuPointer* pointer, void* memory, unsigned) {
    return *pointer = static_cast<CuPointer>(reinterpret_cast<uintptr_t>(memory)), in_context();
}
FAKE cuMemAllocAsync(CuPointer* pointer, size_t bytes, CuStream stream) {
    LOCKED;
    if (!stream->capturing) return allocate(pointer, bytes);
    void* memory = std::malloc(bytes);
    *pointer = static_cast<CuPointer>(reinterpret_cast<uintptr_t>(memory));
    stream->capturing->memory.push_back(memory);
    return now_or_later(stream, kNodeAllocates, [] {});
}
FAKE cuMemFreeAsync(CuPointer pointer, CuStream stream) {
    LOCKED;
    if (!stream->capturing) return release(at<void>(pointer));
    return now_or_later(stream, kNodeFrees, [] {});
}
FAKE cuDeviceGetDefaultMemPool(CuPool*, int) { return 0; }
FAKE cuMemPoolTrimTo(CuPool, size_t) { return 0; }

FAKE cuArray3DCreate_v2(CuArray* array, const ArrayDescriptor* shape) {
    auto* made_array =
        new FakeArray{static_cast<unsigned>(shape->width), static_cast<unsigned>(shape->height), nullptr};
    made_array->words = new unsigned[shape->width * shape->height];
    *array = reinterpret_cast<CuArray>(made_array);
    return in_context();
}
FAKE cuArrayDestroy(CuArray array) {
    auto* made_array = reinterpret_cast<FakeArray*>(array);
    delete[] made_array->words;
    delete made_array;
    return in_context();
}
FAKE cuTexObjectCreate(CuObject* texture, const ResourceDescriptor* resource, const TextureDescriptor*, const void*) {
    return *texture = reinterpret_cast<uintptr_t>(resource->resource.array), in_context();
}
FAKE cuTexObjectDestroy(CuObject) { return in_context(); }
FAKE cuSurfObjectCreate(CuObject* surface, const ResourceDescriptor* resource) {
    return *surface = reinterpret_cast<uintptr_t>(resource->resource.array), in_context();
}
FAKE cuSurfObjectDestroy(CuObject) { return in_context(); }

FAKE cuGraphCreate(CuGraph* graph, unsigned) {
    LOCKED;
    *graph = made(new GraphTag);
    return in_context();
}
FAKE cuStreamBeginCapture_v2(CuStream stream, int) {
    LOCKED;
    stream->capturing = made(new GraphTag);
    return in_context();
}
FAKE cuStreamEndCapture(CuStream stream, CuGraph* graph) {
    LOCKED;
    *graph = std::exchange(stream->capturing, nullptr);
    return in_context();
}
FAKE cuGraphDestroy(CuGraph graph) {
    LOCKED;
    for (void* memory : graph->memory) std::free(memory);
    return gone(graph);
}
FAKE cuGraphGetNodes(CuGraph graph, CuGraphNode* nodes, size_t* count) {
    LOCKED;
    *count = graph->nodes.size();
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = reinterpret_cast<CuGraphNode>(&graph->nodes[i]);
    return in_context();
}
FAKE cuGraphNodeGetType(CuGraphNode node, int* type) {
    return *type = reinterpret_cast<std::pair<int, std::function<void()>>*>(node)->first, in_context();
}
FAKE cuGraphAddChildGraphNode(CuGraphNode*, CuGraph graph, const CuGraphNode*, size_t, CuGraph child) {
    LOCKED;
    graph->nodes.emplace_back(4, [nodes = child->nodes] {
        for (const auto& node : nodes) node.second();
    });
    return in_context();
}
FAKE cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph, unsigned long long) {
    LOCKED;
    *exec = reinterpret_cast<CuGraphExec>(made(new GraphTag(*graph)));
    return in_context();
}
FAKE cuGraphExecUpdate_v2(CuGraphExec exec, CuGraph graph, uint64_t*) {
    LOCKED;
    reinterpret_cast<GraphTag*>(exec)->nodes = graph->nodes;
    return in_context();
}
FAKE cuGraphExecDestroy(CuGraphExec exec) {
    LOCKED;
    return gone(reinterpret_cast<GraphTag*>(exec));
}
FAKE cuGraphLaunch(CuGraphExec exec, CuStream) {
    LOCKED;
    for (const auto& node : reinterpret_cast<GraphTag*>(exec)->nodes) node.second();
    return in_context();
}
