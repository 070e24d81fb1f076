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
    want("cuLibraryLoadFromFile", &cuda.load_library_file);
    want("cuFuncGetModule", &cuda.function_get_module);
    want("cuFuncGetName", &cuda.function_get_name);
    want("cuModuleGetGlobal_v2", &cuda.module_get_global);
    want("cuGraphCreate", &cuda.graph_create);
    want("cuGraphAddKernelNode_v2", &cuda.graph_add_kernel);
    want("cuGraphClone", &cuda.graph_clone);
    want("cuGraphDestroy", &cuda.graph_destroy);
    want("cuGraphGetNodes", &cuda.graph_get_nodes);
    want("cuGraphNodeGetType", &cuda.graph_node_type);
    want("cuGraphChildGraphNodeGetGraph", &cuda.graph_of_child);
    want("cuGraphNodeFindInClone", &cuda.graph_find_in_clone);
    want("cuGraphKernelNodeGetParams_v2", &cuda.kernel_node_get);
    want("cuGraphKernelNodeSetParams_v2", &cuda.kernel_node_set);
    want("cuGraphKernelNodeGetAttribute", &cuda.kernel_node_attribute);
    want("cuGraphMemcpyNodeGetParams", &cuda.copy_node_get);
    want("cuGraphMemsetNodeGetParams", &cuda.set_node_get);
    want("cuGraphNodeSetParams", &cuda.graph_node_set);
    want("cuGraphInstantiateWithFlags", &cuda.graph_instantiate);
    want("cuGraphExecDestroy", &cuda.exec_destroy);
    want("cuGraphUpload", &cuda.exec_upload);
    want("cuGraphLaunch", &cuda.exec_launch);
    want("cuGraphExecUpdate_v2", &cuda.exec_update);
    want("cuGraphExecKernelNodeSetParams_v2", &cuda.exec_set_kernel);
    want("cuGraphExecMemcpyNodeSetParams", &cuda.exec_set_copy);
    want("cuGraphExecMemsetNodeSetParams", &cuda.exec_set_memset);
    want("cuGraphExecHostNodeSetParams", &cuda.exec_set_host);
    want("cuGraphNodeSetEnabled", &cuda.exec_enable_node);
    want("cuFuncGetAttribute", &cuda.function_get_attribute);
    want("cuKernelGetAttribute", &cuda.kernel_get_attribute);
    want("cuFuncGetParamInfo", &cuda.function_parameter);
    want("cuKernelGetParamInfo", &cuda.kernel_parameter);
    want("cuStreamIsCapturing", &cuda.stream_is_capturing);
    want("cuStreamGetCtx", &cuda.stream_get_context);
    want("cuMemHostAlloc", &cuda.host_alloc);
    want("cuStreamQuery", &cuda.stream_query);
    want("cuStreamWaitValue32_v2", &cuda.stream_wait_value);
    want("cuStreamWriteValue32_v2", &cuda.stream_write_value);
    if (missing != nullptr) {
        return Error{Code::kFailedPrecondition, std::string("this CUDA driver lacks ") + missing,
                     "use a newer NVIDIA driver"};
    }
    return cuda;
}

}  // namespace vuda::partition
