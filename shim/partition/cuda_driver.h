// The calls of libcuda that the partitioner makes, in a process that has loaded it already. Types as in NVIDIA's
// cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace vuda::partition {

using CuResult = int;  // CUresult; 0 = CUDA_SUCCESS
using CuContext = void*;
using CuStream = void*;
using CuModule = void*;
using CuFunction = void*;
using CuEvent = void*;
using CuLibrary = void*;
using CuKernel = void*;  // a kernel of a library, in whatever context; may stand where a CuFunction is launched
using CuDevicePtr = unsigned long long;

struct CuUuid {
    unsigned char bytes[16];
};

// CUlaunchAttribute
struct CuLaunchAttribute {
    uint32_t id;
    uint32_t pad;
    uint64_t value[8];
};
static_assert(sizeof(CuLaunchAttribute) == 72);

// CUlaunchConfig
struct CuLaunchConfig {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;  // dynamic shared memory of a block
    CuStream stream;
    CuLaunchAttribute* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(CuLaunchConfig) == 56);

struct CudaDriver {
    CuResult (*driver_get_version)(int* version);
    CuResult (*get_export_table)(const void** table, const CuUuid* id);
    CuResult (*device_get_count)(int* count);
    CuResult (*device_get)(int* device, int ordinal);
    CuResult (*device_get_attribute)(int* value, int attribute, int device);
    CuResult (*device_get_uuid)(CuUuid* uuid, int device);
    CuResult (*primary_get_state)(int device, unsigned* flags, int* active);
    CuResult (*primary_retain)(CuContext* context, int device);
    CuResult (*primary_release)(int device);
    CuResult (*ctx_get_current)(CuContext* context);
    CuResult (*ctx_push)(CuContext context);
    CuResult (*ctx_pop)(CuContext* context);
    CuResult (*ctx_get_device)(int* device);
    CuResult (*exchange_capture_mode)(int* mode);
    CuResult (*module_load)(CuModule* module, const void* image);
    CuResult (*module_unload)(CuModule module);
    CuResult (*module_get_function)(CuFunction* function, CuModule module, const char* name);
    CuResult (*mem_alloc)(CuDevicePtr* memory, size_t bytes);
    CuResult (*mem_free)(CuDevicePtr memory);
    CuResult (*memset_async)(CuDevicePtr memory, unsigned value, size_t words, CuStream stream);
    CuResult (*copy_to_host)(void* to, CuDevicePtr from, size_t bytes, CuStream stream);
    CuResult (*stream_create)(CuStream* stream, unsigned flags);
    CuResult (*stream_destroy)(CuStream stream);
    CuResult (*stream_synchronize)(CuStream stream);
    CuResult (*launch)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters,
                       void** extra);

    // --- What it takes to run a kernel in a context of our own (native_side.h): nullptr where this CUDA lacks it.
    CuResult (*ctx_create)(CuContext* context, unsigned flags, int device);
    CuResult (*ctx_get_limit)(size_t* value, int limit);
    CuResult (*ctx_set_limit)(int limit, size_t value);
    CuResult (*load_library)(CuLibrary* library, const void* code, int* jit_options, void** jit_values,
                             unsigned jit_count, int* options, void** values, unsigned count);
    CuResult (*unload_library)(CuLibrary library);
    CuResult (*kernel_of_library)(CuKernel* kernel, CuLibrary library, const char* name);
    CuResult (*global_of_library)(CuDevicePtr* memory, size_t* bytes, CuLibrary library, const char* name);
    CuResult (*kernel_get_function)(CuFunction* function, CuKernel kernel);
    CuResult (*kernel_set_attribute)(int attribute, int value, CuKernel kernel, int device);
    CuResult (*event_create)(CuEvent* event, unsigned flags);
    CuResult (*event_record)(CuEvent event, CuStream stream);
    CuResult (*event_query)(CuEvent event);
    CuResult (*stream_wait_event)(CuStream stream, CuEvent event, unsigned flags);
    CuResult (*launch_config)(const CuLaunchConfig* config, CuFunction function, void** parameters, void** extra);
    bool has_native_side() const {
        return ctx_create != nullptr && ctx_get_limit != nullptr && ctx_set_limit != nullptr &&
               load_library != nullptr && unload_library != nullptr && kernel_of_library != nullptr &&
               global_of_library != nullptr && kernel_get_function != nullptr && event_query != nullptr &&
               kernel_set_attribute != nullptr && event_create != nullptr && event_record != nullptr &&
               stream_wait_event != nullptr && launch_config != nullptr;
    }
};

// FAILED_PRECONDITION: this process has not loaded CUDA (nothing is loaded here), or CUDA is too old.
Result<CudaDriver> find_cuda();

}  // namespace vuda::partition
