#include "bench/compute/cuda_api.h"

#include <dlfcn.h>

#include "bench/common/exit_code.h"

namespace vuda::bench {
namespace {

// CUresult values after which a context cannot be used any more: 700 illegal address, 702 launch timeout, 710 assert,
// 714 hardware stack error, 715 illegal instruction, 716 misaligned address, 717 invalid address space, 718 invalid
// program counter, 719 launch failed; 999 is "unknown", which a reset GPU answers too.
bool ends_context(CUresult result) {
    return result == 700 || result == 702 || result == 710 || (result >= 714 && result <= 719) || result == 999;
}

template <typename Function>
bool resolve(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<const CudaApi>> CudaApi::load(const std::string& library) {
    std::shared_ptr<CudaApi> api(new CudaApi);  // the constructor is private, so no make_shared
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char* reason = dlerror();
        return Error{Code::kUnavailable, std::string("no CUDA driver: ") + (reason ? reason : library),
                     "install the NVIDIA driver's CUDA library"};
    }
    const char* missing = nullptr;
    const auto need = [&](const char* name, auto& function) {
        if (!resolve(handle, name, function) && !missing) missing = name;
    };
    need("cuInit", api->init);
    need("cuDriverGetVersion", api->driver_get_version);
    need("cuGetErrorName", api->get_error_name);
    need("cuGetErrorString", api->get_error_string);
    need("cuDeviceGetCount", api->device_get_count);
    need("cuDeviceGet", api->device_get);
    need("cuDeviceGetName", api->device_get_name);
    need("cuDeviceGetUuid", api->device_get_uuid);
    need("cuDeviceGetAttribute", api->device_get_attribute);
    need("cuDevicePrimaryCtxRetain", api->primary_context_retain);
    need("cuDevicePrimaryCtxRelease_v2", api->primary_context_release);
    need("cuCtxSetCurrent", api->context_set_current);
    need("cuModuleLoadData", api->module_load_data);
    need("cuModuleUnload", api->module_unload);
    need("cuModuleGetFunction", api->module_get_function);
    need("cuFuncSetAttribute", api->function_set_attribute);
    need("cuMemAlloc_v2", api->memory_allocate);
    need("cuMemFree_v2", api->memory_free);
    need("cuMemsetD32_v2", api->memory_set_32);
    need("cuMemcpyDtoH_v2", api->copy_to_host);
    need("cuStreamCreate", api->stream_create);
    need("cuStreamDestroy_v2", api->stream_destroy);
    need("cuStreamSynchronize", api->stream_synchronize);
    need("cuLaunchKernel", api->launch_kernel);
    if (missing)
        return Error{Code::kUnavailable, library + " has no " + missing,
                     "the NVIDIA driver is too old (CUDA 11 or newer is needed)"};
    return std::shared_ptr<const CudaApi>(std::move(api));
}

Status CudaApi::check(CUresult result, std::string_view what) const {
    if (result == 0) return {};
    const char* name = nullptr;
    const char* words = nullptr;
    if (get_error_name) get_error_name(result, &name);
    if (get_error_string) get_error_string(result, &words);
    std::string text(what);
    text += ": ";
    text += words ? words : "unknown error";
    text += " (" + std::string(name ? name : "CUresult") + ", " + std::to_string(result) + ")";
    if (ends_context(result)) return Error{kDeviceLost, text, ""};
    switch (result) {
        case 2: return Error{Code::kResourceExhausted, text, ""};  // out of memory
        case 3:                                                    // not initialised
        case 34:                                                   // only the stub library is there
        case 100:                                                  // no device
        case 803: return Error{Code::kUnavailable, text, ""};      // driver and library do not match
        default: return Error{Code::kInternal, text, ""};
    }
}

}  // namespace vuda::bench
