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
using CuDevicePtr = unsigned long long;

struct CuUuid {
    unsigned char bytes[16];
};

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
};

// FAILED_PRECONDITION: this process has not loaded CUDA (nothing is loaded here), or CUDA is too old.
Result<CudaDriver> find_cuda();

}  // namespace vuda::partition
