#include "shim/partition/native_proof.h"

#include <algorithm>
#include <array>
#include <string>

#include "shim/partition/native_scope.h"
#include "shim/partition/probe_ptx.h"

namespace vuda::partition {
namespace {

constexpr unsigned kProofStream = 1;  // CU_STREAM_NON_BLOCKING

Error not_proved(const std::string& what, CuResult result) {
    return Error{Code::kFailedPrecondition, what + " (CUDA error " + std::to_string(result) + ")", ""};
}

}  // namespace

Status NativeProof::prove(CuContext context) {
    CuLibrary library = nullptr;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0
                               ? current.result()
                               : cuda_.load_library(&library, kNativePtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
        r != 0) {
        return not_proved("CUDA does not load the probe kernel", r);
    }
    CuKernel kernel = nullptr;
    CuDevicePtr device = 0, constant = 0;
    size_t bytes = 0;
    CuResult r = cuda_.kernel_of_library(&kernel, library, "vuda_native");
    if (r == 0) r = cuda_.global_of_library(&device, &bytes, library, "vuda_device_word");
    if (r == 0) r = cuda_.global_of_library(&constant, &bytes, library, "vuda_constant_word");
    Status proved = r == 0 ? prove_with(context, kernel, device, constant)
                           : Status{not_proved("CUDA does not find the probe kernel", r)};
    cuda_.unload_library(library);
    return proved;
}

Status NativeProof::prove_modules(CuContext context) {
    if (!cuda_.has_modules())
        return Error{Code::kFailedPrecondition, "this CUDA does not tell of which module a kernel is", ""};
    CuModule module = nullptr;
    CuLibrary library = nullptr;
    const CurrentContext current(cuda_, context);
    CuResult r = current.result() != 0 ? current.result() : cuda_.module_load(&module, kNativePtx);
    if (r != 0) return not_proved("CUDA does not load the probe kernel as a module", r);
    r = cuda_.load_library(&library, kNativePtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (r == 0) side_.modules_.add(module, library, true);
    CuFunction function = nullptr;
    CuDevicePtr device = 0, constant = 0;
    size_t bytes = 0;
    if (r == 0) r = cuda_.module_get_function(&function, module, "vuda_native");
    if (r == 0) r = cuda_.module_get_global(&device, &bytes, module, "vuda_device_word");
    if (r == 0) r = cuda_.module_get_global(&constant, &bytes, module, "vuda_constant_word");
    Status proved = r == 0 ? prove_with(context, function, device, constant)
                           : Status{not_proved("CUDA does not find the probe kernel of a module", r)};
    side_.modules_.remove(module);
    cuda_.module_unload(module);
    return proved;
}

Status NativeProof::prove_with(CuContext context, CuFunction kernel, CuDevicePtr device, CuDevicePtr constant) {
    constexpr uint32_t kDevice = 0x5eed0001, kConstant = 0x5eed0002;  // the code starts with others
    constexpr size_t kWords = 4;
    struct Resources {
        const CudaDriver& cuda;
        CuStream stream = nullptr;
        CuDevicePtr out = 0;
        ~Resources() {
            if (stream != nullptr) cuda.stream_destroy(stream);
            if (out != 0) cuda.mem_free(out);
        }
    } own{cuda_};
    CuResult r = cuda_.mem_alloc(&own.out, kWords * 4);
    if (r == 0) r = cuda_.stream_create(&own.stream, kProofStream);
    if (r == 0) r = cuda_.memset_async(device, kDevice, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(constant, kConstant, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(own.out, 0, kWords, own.stream);
    if (r != 0) return not_proved("CUDA does not prepare the probe kernel", r);

    LaunchCall call;
    call.function = kernel;
    call.grid[0] = call.grid[1] = call.grid[2] = 1;
    call.block[0] = 3;
    call.block[1] = call.block[2] = 1;
    call.stream = own.stream;
    void* parameters[] = {&own.out};
    call.parameters = parameters;
    NativeErrand errand(NativeErrand::Kind::kWithhold, side_.layout_, context);
    {
        const OnErrand on(errand);
        r = cuda_.launch(call.function, 1, 1, 1, 3, 1, 1, 0, call.stream, call.parameters, nullptr);
    }
    if (r != 0) return not_proved("CUDA does not launch the probe kernel", r);
    if (!errand.came || !errand.call || errand.call->function != call.function || errand.call->stream != call.stream ||
        errand.call->parameters != call.parameters ||
        !std::equal(std::begin(call.block), std::end(call.block), errand.call->block)) {
        return Error{Code::kFailedPrecondition, "CUDA does not tell of its launches as its version should", ""};
    }
    if (Status launched = side_.launch(*errand.call, context, errand.banks, false); !launched)
        return Error{Code::kFailedPrecondition, launched.error().text, ""};
    std::array<uint32_t, kWords> words{};
    r = cuda_.copy_to_host(words.data(), own.out, sizeof words, own.stream);
    if (r == 0) r = cuda_.stream_synchronize(own.stream);
    if (r != 0) return not_proved("CUDA does not run the probe kernel", r);
    if (words != std::array<uint32_t, kWords>{kDevice, kConstant, 3, 0})
        return Error{Code::kFailedPrecondition, "a kernel in another context does not see its program's variables", ""};
    return {};
}

}  // namespace vuda::partition
