#include "shim/partition/native_graph_proof.h"

#include <array>
#include <cstdio>
#include <string>

#include "shim/partition/native_scope.h"
#include "shim/partition/probe_ptx.h"

namespace vuda::partition {
namespace {

constexpr uint32_t kDeviceWord = 0x5eed0003, kConstantWord = 0x5eed0004;  // the code starts with others
constexpr size_t kOutWords = 4;
constexpr unsigned kStreamOfItsOwn = 1;  // CU_STREAM_NON_BLOCKING
using OutWords = std::array<uint32_t, kOutWords>;

Error graphs_not_proved(const std::string& what, CuResult result) {
    return Error{Code::kFailedPrecondition, what + (result == 0 ? "" : " (CUDA error " + std::to_string(result) + ")"),
                 ""};
}

}  // namespace

struct NativeGraphProof::Own {
    const CudaDriver& cuda;
    CuLibrary code = nullptr;
    CuGraph graph = nullptr;
    CuGraphExec exec = nullptr;
    CuStream stream = nullptr;
    CuDevicePtr out = 0;

    explicit Own(const CudaDriver& driver) : cuda(driver) {}
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
    ~Own() {
        if (exec != nullptr) cuda.exec_destroy(exec);
        if (graph != nullptr) cuda.graph_destroy(graph);
        if (stream != nullptr) cuda.stream_destroy(stream);
        if (out != 0) cuda.mem_free(out);
        if (code != nullptr) cuda.unload_library(code);
    }
    CuResult read(OutWords& words) {
        const CuResult r = cuda.copy_to_host(words.data(), out, sizeof words, stream);
        return r == 0 ? cuda.stream_synchronize(stream) : r;
    }
};

Status NativeGraphProof::prove(CuContext context) {
    const RelaxedCapture relaxed(cuda_);
    const CurrentContext current(cuda_, context);
    if (current.result() != 0) return graphs_not_proved("the program's context is lost", current.result());
    Own own(cuda_);
    Status proved = prove_with(context, own);
    // Its library goes away.
    if (own.code != nullptr) side_.modules().forget(own.code);
    graphs_.outdate();
    return proved;
}

Status NativeGraphProof::prove_with(CuContext context, Own& own) {
    CuKernel kernel = nullptr;
    CuDevicePtr device = 0, constant = 0;
    size_t bytes = 0;
    CuResult r = cuda_.load_library(&own.code, kNativePtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (r == 0) r = cuda_.kernel_of_library(&kernel, own.code, "vuda_native");
    if (r == 0) r = cuda_.global_of_library(&device, &bytes, own.code, "vuda_device_word");
    if (r == 0) r = cuda_.global_of_library(&constant, &bytes, own.code, "vuda_constant_word");
    if (r == 0) r = cuda_.mem_alloc(&own.out, sizeof(OutWords));
    if (r == 0) r = cuda_.stream_create(&own.stream, kStreamOfItsOwn);
    if (r == 0) r = cuda_.memset_async(device, kDeviceWord, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(constant, kConstantWord, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(own.out, 0, kOutWords, own.stream);
    if (r == 0) r = cuda_.graph_create(&own.graph, 0);
    // A graph may tell of its function only.
    if (r == 0) side_.modules().add_kernel(kernel, own.code, "vuda_native");
    void* parameters[] = {&own.out};
    const CuKernelNode node{nullptr, {1, 1, 1}, {3, 1, 1}, 0, parameters, nullptr, kernel, context};
    CuGraphNode added = nullptr;
    if (r == 0) r = cuda_.graph_add_kernel(&added, own.graph, nullptr, 0, &node);
    if (r == 0) r = cuda_.graph_instantiate(&own.exec, own.graph, 0);
    if (r != 0) return graphs_not_proved("CUDA does not make the probe graph", r);
    if (Status skips = prove_skip(own); !skips) return skips;

    Result<NativeGraphs::Twin> twin = graphs_.make_unproved(own.graph, 0, context);
    if (!twin) return Error{Code::kFailedPrecondition, twin.error().text, ""};
    const Status launched = graphs_.launch(*twin, own.stream, context);
    OutWords words{};
    r = own.read(words);
    graphs_.destroy(*twin);
    if (!launched) return Error{Code::kFailedPrecondition, launched.error().text, ""};
    if (r != 0) return graphs_not_proved("CUDA does not run the probe graph", r);
    if (words != OutWords{kDeviceWord, kConstantWord, 3, 0})
        return graphs_not_proved("a graph in another context does not see its program's variables", 0);
    return {};
}

// The program's way to launch it does nothing when it is skipped.
Status NativeGraphProof::prove_skip(Own& own) {
    NativeErrand errand;
    errand.kind = NativeErrand::Kind::kSkip;
    CuResult said = 0;
    {
        const OnErrand on(errand);
        said = cuda_.exec_launch(own.exec, own.stream);
    }
    OutWords words{};
    const CuResult r = own.read(words);
    if (r != 0) return graphs_not_proved("CUDA does not skip a call and go on", r);
    if (errand.came && said == NativeErrand::kSkipped && words == OutWords{}) return {};
    char text[96];
    std::snprintf(text, sizeof text, "CUDA does not skip a call as its version should (%#llx, %d, %u)",
                  static_cast<unsigned long long>(errand.skip_slot), said, words[2]);
    return Error{Code::kFailedPrecondition, text, ""};
}

}  // namespace vuda::partition
