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

using CuGraph = void*;
using CuGraphExec = void*;
using CuGraphNode = void*;

// CUDA_KERNEL_NODE_PARAMS_v2
struct CuKernelNode {
    CuFunction function;  // nullptr: `kernel` in `context`
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void** parameters;
    void** extra;
    CuKernel kernel;
    CuContext context;
};
static_assert(sizeof(CuKernelNode) == 72);

// CUDA_MEMCPY3D
struct CuCopy3D {
    uint64_t words[25];
};
static_assert(sizeof(CuCopy3D) == 200);

// CUDA_MEMSET_NODE_PARAMS, and with a context after it CUDA_MEMSET_NODE_PARAMS_v2.
struct CuMemset {
    CuDevicePtr to;
    size_t pitch;
    unsigned value;
    unsigned element_bytes;
    size_t width;
    size_t height;
};
static_assert(sizeof(CuMemset) == 40);

// CUDA_MEMCPY_NODE_PARAMS
struct CuCopyNode {
    int flags;
    int reserved;
    CuContext context;
    CuCopy3D copy;
};
// CUDA_MEMSET_NODE_PARAMS_v2
struct CuSetNode {
    CuMemset set;
    CuContext context;
};

// CUgraphNodeParams of the kinds of node that are read or written here.
struct CuNodeParams {
    int type;
    int reserved0[3];
    union {
        uint64_t words[29];
        CuCopyNode copy;
        CuSetNode set;
        CuKernelNode kernel;
    };
    uint64_t reserved2;
};
static_assert(sizeof(CuNodeParams) == 256);

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

    // --- For kernels of modules (native_modules.h).
    CuResult (*load_library_file)(CuLibrary* library, const char* path, int* jit_options, void** jit_values,
                                  unsigned jit_count, int* options, void** values, unsigned count);
    CuResult (*function_get_module)(CuModule* module, CuFunction function);
    CuResult (*function_get_name)(const char** name, CuFunction function);
    CuResult (*module_get_global)(CuDevicePtr* memory, size_t* bytes, CuModule module, const char* name);
    bool has_modules() const {
        return load_library_file != nullptr && function_get_module != nullptr && function_get_name != nullptr &&
               module_get_global != nullptr;
    }

    // --- For graphs (native_graphs.h).
    CuResult (*graph_create)(CuGraph* graph, unsigned flags);
    CuResult (*graph_add_kernel)(CuGraphNode* node, CuGraph graph, const CuGraphNode* after, size_t count,
                                 const CuKernelNode* kernel);
    CuResult (*graph_clone)(CuGraph* clone, CuGraph graph);
    CuResult (*graph_destroy)(CuGraph graph);
    CuResult (*graph_get_nodes)(CuGraph graph, CuGraphNode* nodes, size_t* count);
    CuResult (*graph_node_type)(CuGraphNode node, int* type);
    CuResult (*graph_of_child)(CuGraphNode node, CuGraph* graph);
    CuResult (*graph_find_in_clone)(CuGraphNode* node, CuGraphNode original, CuGraph clone);
    CuResult (*kernel_node_get)(CuGraphNode node, CuKernelNode* kernel);
    CuResult (*kernel_node_set)(CuGraphNode node, const CuKernelNode* kernel);
    CuResult (*kernel_node_attribute)(CuGraphNode node, unsigned attribute, void* value);
    CuResult (*copy_node_get)(CuGraphNode node, CuCopy3D* copy);
    CuResult (*set_node_get)(CuGraphNode node, CuMemset* set);
    CuResult (*graph_node_set)(CuGraphNode node, CuNodeParams* params);
    CuResult (*graph_instantiate)(CuGraphExec* exec, CuGraph graph, unsigned long long flags);
    CuResult (*exec_destroy)(CuGraphExec exec);
    CuResult (*exec_upload)(CuGraphExec exec, CuStream stream);
    CuResult (*exec_launch)(CuGraphExec exec, CuStream stream);
    CuResult (*exec_update)(CuGraphExec exec, CuGraph graph, void* result);
    CuResult (*exec_set_kernel)(CuGraphExec exec, CuGraphNode node, const CuKernelNode* kernel);
    CuResult (*exec_set_copy)(CuGraphExec exec, CuGraphNode node, const CuCopy3D* copy, CuContext context);
    CuResult (*exec_set_memset)(CuGraphExec exec, CuGraphNode node, const CuMemset* set, CuContext context);
    CuResult (*exec_set_host)(CuGraphExec exec, CuGraphNode node, const void* host);
    CuResult (*exec_enable_node)(CuGraphExec exec, CuGraphNode node, unsigned on);
    CuResult (*function_get_attribute)(int* value, int attribute, CuFunction function);
    CuResult (*kernel_get_attribute)(int* value, int attribute, CuKernel kernel, int device);
    CuResult (*function_parameter)(CuFunction function, size_t index, size_t* offset, size_t* bytes);
    CuResult (*kernel_parameter)(CuKernel kernel, size_t index, size_t* offset, size_t* bytes);
    CuResult (*stream_is_capturing)(CuStream stream, int* status);
    CuResult (*stream_get_context)(CuStream stream, CuContext* context);
    bool has_graphs() const {
        return graph_create != nullptr && graph_add_kernel != nullptr && graph_clone != nullptr &&
               graph_destroy != nullptr && graph_get_nodes != nullptr && graph_node_type != nullptr &&
               graph_of_child != nullptr && graph_find_in_clone != nullptr && kernel_node_get != nullptr &&
               kernel_node_set != nullptr && kernel_node_attribute != nullptr && copy_node_get != nullptr &&
               set_node_get != nullptr && graph_node_set != nullptr && graph_instantiate != nullptr &&
               exec_destroy != nullptr && exec_upload != nullptr && exec_launch != nullptr && exec_update != nullptr &&
               exec_set_kernel != nullptr && exec_set_copy != nullptr && exec_set_memset != nullptr &&
               exec_set_host != nullptr && exec_enable_node != nullptr && function_get_attribute != nullptr &&
               kernel_get_attribute != nullptr && function_parameter != nullptr && kernel_parameter != nullptr &&
               stream_is_capturing != nullptr && stream_get_context != nullptr && has_modules();
    }

    // --- For faults of kernels there (native_fault.h).
    CuResult (*host_alloc)(void** memory, size_t bytes, unsigned flags);
    CuResult (*stream_query)(CuStream stream);
    CuResult (*stream_wait_value)(CuStream stream, CuDevicePtr at, uint32_t value, unsigned flags);
    CuResult (*stream_write_value)(CuStream stream, CuDevicePtr at, uint32_t value, unsigned flags);
    bool has_values() const {
        return host_alloc != nullptr && stream_query != nullptr && stream_wait_value != nullptr &&
               stream_write_value != nullptr;
    }
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
