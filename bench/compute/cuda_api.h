// The part of the CUDA driver API that the benchmark uses, declared here and loaded at run time: building needs no CUDA
// toolkit, and the program runs (to a clear message) where there is no CUDA.
// Source of names and types: the CUDA driver API, https://docs.nvidia.com/cuda/cuda-driver-api/
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vuda::bench {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
struct CUuuid {
    char bytes[16];
};

// CUdevice_attribute, CUfunction_attribute, CUstream_flags
inline constexpr int kCuAttributeMultiprocessorCount = 16;
inline constexpr int kCuFunctionMaxDynamicSharedBytes = 8;
inline constexpr unsigned kCuStreamNonBlocking = 1;

class CudaApi {
 public:
    // `library`: path or soname. UNAVAILABLE, with words, when it or one of its functions is missing.
    static Result<std::shared_ptr<const CudaApi>> load(const std::string& library = "libcuda.so.1");

    CudaApi(const CudaApi&) = delete;
    CudaApi& operator=(const CudaApi&) = delete;
    // libcuda is never unloaded: it keeps threads and exit handlers that outlive a dlclose.
    ~CudaApi() = default;

    // OK for 0; otherwise the error in CUDA's words. Results that end the context's life have the code kDeviceLost.
    Status check(CUresult result, std::string_view what) const;

    CUresult (*init)(unsigned flags) = nullptr;
    CUresult (*driver_get_version)(int* version) = nullptr;
    CUresult (*get_error_name)(CUresult error, const char** text) = nullptr;
    CUresult (*get_error_string)(CUresult error, const char** text) = nullptr;
    CUresult (*device_get_count)(int* count) = nullptr;
    CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
    CUresult (*device_get_name)(char* name, int length, CUdevice device) = nullptr;
    CUresult (*device_get_uuid)(CUuuid* uuid, CUdevice device) = nullptr;
    CUresult (*device_get_attribute)(int* value, int attribute, CUdevice device) = nullptr;
    CUresult (*primary_context_retain)(CUcontext* context, CUdevice device) = nullptr;
    CUresult (*primary_context_release)(CUdevice device) = nullptr;
    CUresult (*context_set_current)(CUcontext context) = nullptr;
    CUresult (*module_load_data)(CUmodule* module, const void* image) = nullptr;
    CUresult (*module_unload)(CUmodule module) = nullptr;
    CUresult (*module_get_function)(CUfunction* function, CUmodule module, const char* name) = nullptr;
    CUresult (*function_set_attribute)(CUfunction function, int attribute, int value) = nullptr;
    CUresult (*memory_allocate)(CUdeviceptr* pointer, size_t bytes) = nullptr;
    CUresult (*memory_free)(CUdeviceptr pointer) = nullptr;
    CUresult (*memory_set_32)(CUdeviceptr pointer, unsigned value, size_t count) = nullptr;
    CUresult (*copy_to_host)(void* to, CUdeviceptr from, size_t bytes) = nullptr;
    CUresult (*stream_create)(CUstream* stream, unsigned flags) = nullptr;
    CUresult (*stream_destroy)(CUstream stream) = nullptr;
    CUresult (*stream_synchronize)(CUstream stream) = nullptr;
    CUresult (*launch_kernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                              void** parameters, void** extra) = nullptr;

 private:
    CudaApi() = default;
};

}  // namespace vuda::bench
