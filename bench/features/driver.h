// The CUDA driver's functions that vuda-bench-features calls, found at run time one by one: a driver that lacks one
// costs the cases that need it and no other.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "bench/features/driver_types.h"

namespace vuda::bench::features {

class Driver {
 public:
    // A function of the driver, or one that answers kNotFound.
    template <typename... Arguments>
    class Function {
     public:
        Function(Driver& driver, const char* name) : function_(reinterpret_cast<Pointer>(driver.find(name))) {}
        CuResult operator()(Arguments... arguments) const { return function_ ? function_(arguments...) : kNotFound; }
        explicit operator bool() const { return function_ != nullptr; }

     private:
        using Pointer = CuResult (*)(Arguments...);
        Pointer function_;
    };

    // `library`: path or soname. UNAVAILABLE, with words, when it cannot be loaded.
    static Result<std::unique_ptr<Driver>> load(const std::string& library);
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;
    // libcuda is never unloaded: it keeps threads and exit handlers that outlive a dlclose.
    ~Driver() = default;

    // OK for 0; otherwise `what` and the error in CUDA's words. Results that end a context have the code kDeviceLost,
    // those that say "not offered here" UNIMPLEMENTED.
    Status check(CuResult result, const std::string& what) const;

 private:
    explicit Driver(void* library) : library_(library) {}
    void* find(const char* name) const;
    void* library_;

 public:
#define VUDA_CU(member, symbol, ...) \
    Function<__VA_ARGS__> member { *this, symbol }
    VUDA_CU(init, "cuInit", unsigned);
    VUDA_CU(version, "cuDriverGetVersion", int*);
    VUDA_CU(error_name, "cuGetErrorName", CuResult, const char**);
    VUDA_CU(error_string, "cuGetErrorString", CuResult, const char**);
    VUDA_CU(device_count, "cuDeviceGetCount", int*);
    VUDA_CU(device, "cuDeviceGet", CuDevice*, int);
    VUDA_CU(device_name, "cuDeviceGetName", char*, int, CuDevice);
    VUDA_CU(device_uuid, "cuDeviceGetUuid", char*, CuDevice);
    VUDA_CU(attribute, "cuDeviceGetAttribute", int*, int, CuDevice);

    VUDA_CU(primary_retain, "cuDevicePrimaryCtxRetain", CuContext*, CuDevice);
    VUDA_CU(primary_release, "cuDevicePrimaryCtxRelease_v2", CuDevice);
    VUDA_CU(primary_reset, "cuDevicePrimaryCtxReset_v2", CuDevice);
    VUDA_CU(context_create, "cuCtxCreate_v2", CuContext*, unsigned, CuDevice);
    VUDA_CU(context_destroy, "cuCtxDestroy_v2", CuContext);
    VUDA_CU(context_use, "cuCtxSetCurrent", CuContext);
    VUDA_CU(context_wait, "cuCtxSynchronize", );
    VUDA_CU(set_limit, "cuCtxSetLimit", int, size_t);
    VUDA_CU(get_limit, "cuCtxGetLimit", size_t*, int);
    VUDA_CU(priorities, "cuCtxGetStreamPriorityRange", int*, int*);

    VUDA_CU(module_load, "cuModuleLoadData", CuModule*, const void*);
    VUDA_CU(module_unload, "cuModuleUnload", CuModule);
    VUDA_CU(module_function, "cuModuleGetFunction", CuFunction*, CuModule, const char*);
    VUDA_CU(module_global, "cuModuleGetGlobal_v2", CuPointer*, size_t*, CuModule, const char*);
    VUDA_CU(set_function, "cuFuncSetAttribute", CuFunction, int, int);
    VUDA_CU(function_attribute, "cuFuncGetAttribute", int*, int, CuFunction);
    VUDA_CU(blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor", int*, CuFunction, int, size_t);
    VUDA_CU(launch, "cuLaunchKernel", CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
            CuStream, void**, void**);
    VUDA_CU(launch_cooperative, "cuLaunchCooperativeKernel", CuFunction, unsigned, unsigned, unsigned, unsigned,
            unsigned, unsigned, unsigned, CuStream, void**);
    VUDA_CU(launch_with, "cuLaunchKernelEx", const LaunchConfig*, CuFunction, void**, void**);
    VUDA_CU(launch_host, "cuLaunchHostFunc", CuStream, CuHostFunction, void*);

    VUDA_CU(stream_create, "cuStreamCreate", CuStream*, unsigned);
    VUDA_CU(stream_create_priority, "cuStreamCreateWithPriority", CuStream*, unsigned, int);
    VUDA_CU(stream_destroy, "cuStreamDestroy_v2", CuStream);
    VUDA_CU(stream_wait, "cuStreamSynchronize", CuStream);
    VUDA_CU(stream_wait_event, "cuStreamWaitEvent", CuStream, CuEvent, unsigned);
    VUDA_CU(stream_write_value, "cuStreamWriteValue32_v2", CuStream, CuPointer, uint32_t, unsigned);
    VUDA_CU(stream_wait_value, "cuStreamWaitValue32_v2", CuStream, CuPointer, uint32_t, unsigned);
    VUDA_CU(event_create, "cuEventCreate", CuEvent*, unsigned);
    VUDA_CU(event_destroy, "cuEventDestroy_v2", CuEvent);
    VUDA_CU(event_record, "cuEventRecord", CuEvent, CuStream);
    VUDA_CU(event_wait, "cuEventSynchronize", CuEvent);
    VUDA_CU(event_elapsed, "cuEventElapsedTime", float*, CuEvent, CuEvent);

    VUDA_CU(allocate, "cuMemAlloc_v2", CuPointer*, size_t);
    VUDA_CU(free, "cuMemFree_v2", CuPointer);
    VUDA_CU(set_words, "cuMemsetD32_v2", CuPointer, unsigned, size_t);
    VUDA_CU(set_words_async, "cuMemsetD32Async", CuPointer, unsigned, size_t, CuStream);
    VUDA_CU(to_host, "cuMemcpyDtoH_v2", void*, CuPointer, size_t);
    VUDA_CU(to_device, "cuMemcpyHtoD_v2", CuPointer, const void*, size_t);
    VUDA_CU(to_host_async, "cuMemcpyDtoHAsync_v2", void*, CuPointer, size_t, CuStream);
    VUDA_CU(to_device_async, "cuMemcpyHtoDAsync_v2", CuPointer, const void*, size_t, CuStream);
    VUDA_CU(copy_2d, "cuMemcpy2D_v2", const Copy2D*);
    VUDA_CU(managed_allocate, "cuMemAllocManaged", CuPointer*, size_t, unsigned);
    VUDA_CU(prefetch, "cuMemPrefetchAsync", CuPointer, size_t, CuDevice, CuStream);
    VUDA_CU(host_allocate, "cuMemHostAlloc", void**, size_t, unsigned);
    VUDA_CU(host_free, "cuMemFreeHost", void*);
    VUDA_CU(host_register, "cuMemHostRegister_v2", void*, size_t, unsigned);
    VUDA_CU(host_unregister, "cuMemHostUnregister", void*);
    VUDA_CU(host_pointer, "cuMemHostGetDevicePointer_v2", CuPointer*, void*, unsigned);
    VUDA_CU(pool_allocate, "cuMemAllocAsync", CuPointer*, size_t, CuStream);
    VUDA_CU(pool_free, "cuMemFreeAsync", CuPointer, CuStream);
    VUDA_CU(default_pool, "cuDeviceGetDefaultMemPool", CuPool*, CuDevice);
    VUDA_CU(pool_trim, "cuMemPoolTrimTo", CuPool, size_t);
    VUDA_CU(ipc_export, "cuIpcGetMemHandle", IpcHandle*, CuPointer);
    VUDA_CU(ipc_open, "cuIpcOpenMemHandle_v2", CuPointer*, IpcHandle, unsigned);
    VUDA_CU(ipc_close, "cuIpcCloseMemHandle", CuPointer);
    VUDA_CU(granularity, "cuMemGetAllocationGranularity", size_t*, const AllocationProperties*, int);
    VUDA_CU(address_reserve, "cuMemAddressReserve", CuPointer*, size_t, size_t, CuPointer, unsigned long long);
    VUDA_CU(address_free, "cuMemAddressFree", CuPointer, size_t);
    VUDA_CU(physical_create, "cuMemCreate", CuAllocation*, size_t, const AllocationProperties*, unsigned long long);
    VUDA_CU(physical_release, "cuMemRelease", CuAllocation);
    VUDA_CU(map, "cuMemMap", CuPointer, size_t, size_t, CuAllocation, unsigned long long);
    VUDA_CU(unmap, "cuMemUnmap", CuPointer, size_t);
    VUDA_CU(set_access, "cuMemSetAccess", CuPointer, size_t, const AccessDescriptor*, size_t);

    VUDA_CU(array_create, "cuArray3DCreate_v2", CuArray*, const ArrayDescriptor*);
    VUDA_CU(array_destroy, "cuArrayDestroy", CuArray);
    VUDA_CU(texture_create, "cuTexObjectCreate", CuObject*, const ResourceDescriptor*, const TextureDescriptor*,
            const void*);
    VUDA_CU(texture_destroy, "cuTexObjectDestroy", CuObject);
    VUDA_CU(surface_create, "cuSurfObjectCreate", CuObject*, const ResourceDescriptor*);
    VUDA_CU(surface_destroy, "cuSurfObjectDestroy", CuObject);

    VUDA_CU(capture_begin, "cuStreamBeginCapture_v2", CuStream, int);
    VUDA_CU(capture_end, "cuStreamEndCapture", CuStream, CuGraph*);
    VUDA_CU(graph_create, "cuGraphCreate", CuGraph*, unsigned);
    VUDA_CU(graph_destroy, "cuGraphDestroy", CuGraph);
    VUDA_CU(graph_nodes, "cuGraphGetNodes", CuGraph, CuGraphNode*, size_t*);
    VUDA_CU(graph_node_type, "cuGraphNodeGetType", CuGraphNode, int*);
    VUDA_CU(graph_add_child, "cuGraphAddChildGraphNode", CuGraphNode*, CuGraph, const CuGraphNode*, size_t, CuGraph);
    VUDA_CU(graph_instantiate, "cuGraphInstantiateWithFlags", CuGraphExec*, CuGraph, unsigned long long);
    VUDA_CU(graph_exec_destroy, "cuGraphExecDestroy", CuGraphExec);
    // The last: CUgraphExecUpdateResultInfo, three words.
    VUDA_CU(graph_exec_update, "cuGraphExecUpdate_v2", CuGraphExec, CuGraph, uint64_t*);
    VUDA_CU(graph_launch, "cuGraphLaunch", CuGraphExec, CuStream);
#undef VUDA_CU
};

}  // namespace vuda::bench::features
