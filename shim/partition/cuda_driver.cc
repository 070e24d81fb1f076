#include "shim/partition/cuda_driver.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

namespace vuda::partition {
namespace {

template <typename Function>
bool bind(void* library, const char* name, Function* out) {
    void* found = ::dlsym(library, name);
    std::memcpy(out, &found, sizeof *out);  // POSIX guarantees the size; a cast would be pedantically invalid
    return found != nullptr;
}

}  // namespace

Result<CudaDriver> find_cuda() {
    // The handle stays open: the program's own keeps the library loaded, and so does this.
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return Error{Code::kFailedPrecondition, "this process does not use CUDA", ""};
    CudaDriver cuda{};
    const char* missing = nullptr;
    const auto need = [&](const char* name, auto* out) {
        if (missing == nullptr && !bind(library, name, out)) missing = name;
    };
    need("cuDriverGetVersion", &cuda.driver_get_version);
    need("cuGetExportTable", &cuda.get_export_table);
    need("cuDeviceGetCount", &cuda.device_get_count);
    need("cuDeviceGet", &cuda.device_get);
    need("cuDeviceGetAttribute", &cuda.device_get_attribute);
    need("cuDeviceGetUuid", &cuda.device_get_uuid);
    need("cuDevicePrimaryCtxGetState", &cuda.primary_get_state);
    need("cuDevicePrimaryCtxRetain", &cuda.primary_retain);
    need("cuDevicePrimaryCtxRelease_v2", &cuda.primary_release);
    need("cuCtxGetCurrent", &cuda.ctx_get_current);
    need("cuCtxPushCurrent_v2", &cuda.ctx_push);
    need("cuCtxPopCurrent_v2", &cuda.ctx_pop);
    need("cuCtxGetDevice", &cuda.ctx_get_device);
    need("cuThreadExchangeStreamCaptureMode", &cuda.exchange_capture_mode);
    need("cuModuleLoadData", &cuda.module_load);
    need("cuModuleUnload", &cuda.module_unload);
    need("cuModuleGetFunction", &cuda.module_get_function);
    need("cuMemAlloc_v2", &cuda.mem_alloc);
    need("cuMemFree_v2", &cuda.mem_free);
    need("cuMemsetD32Async", &cuda.memset_async);
    need("cuMemcpyDtoHAsync_v2", &cuda.copy_to_host);
    need("cuStreamCreate", &cuda.stream_create);
    need("cuStreamDestroy_v2", &cuda.stream_destroy);
    need("cuStreamSynchronize", &cuda.stream_synchronize);
    need("cuLaunchKernel", &cuda.launch);
    const auto want = [&](const char* name, auto* out) { bind(library, name, out); };
    want("cuCtxCreate_v2", &cuda.ctx_create);
    want("cuCtxGetLimit", &cuda.ctx_get_limit);
    want("cuCtxSetLimit", &cuda.ctx_set_limit);
    want("cuLibraryLoadData", &cuda.load_library);
    want("cuLibraryUnload", &cuda.unload_library);
    want("cuLibraryGetKernel", &cuda.kernel_of_library);
    want("cuLibraryGetGlobal", &cuda.global_of_library);
    want("cuKernelGetFunction", &cuda.kernel_get_function);
    want("cuEventQuery", &cuda.event_query);
    want("cuKernelSetAttribute", &cuda.kernel_set_attribute);
    want("cuEventCreate", &cuda.event_create);
    want("cuEventRecord", &cuda.event_record);
    want("cuStreamWaitEvent", &cuda.stream_wait_event);
    want("cuLaunchKernelEx", &cuda.launch_config);
    if (missing != nullptr) {
        return Error{Code::kFailedPrecondition, std::string("this CUDA driver lacks ") + missing,
                     "use a newer NVIDIA driver"};
    }
    return cuda;
}

}  // namespace vuda::partition
