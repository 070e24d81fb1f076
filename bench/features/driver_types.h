// Types of the CUDA driver API that vuda-bench-features hands over, declared here so that building needs no CUDA
// toolkit. Source: https://docs.nvidia.com/cuda/cuda-driver-api/; driver_types_test.cc compares them with cuda.h where
// there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::bench::features {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;
using CuContext = struct ContextTag*;
using CuModule = struct ModuleTag*;
using CuFunction = struct FunctionTag*;
using CuStream = struct StreamTag*;
using CuEvent = struct EventTag*;
using CuGraph = struct GraphTag*;
using CuGraphNode = struct GraphNodeTag*;
using CuGraphExec = struct GraphExecTag*;
using CuArray = struct ArrayTag*;
using CuPool = struct PoolTag*;
using CuObject = unsigned long long;  // a texture or surface
using CuAllocation = unsigned long long;
using CuHostFunction = void (*)(void*);

// CUresult
inline constexpr CuResult kSuccess = 0;
inline constexpr CuResult kNotFound = 500;
inline constexpr CuResult kAssert = 710;
inline constexpr CuResult kNotSupported = 801;

// CUdevice_attribute
inline constexpr int kMultiprocessors = 16;
inline constexpr int kComputeMajor = 75;
inline constexpr int kManagedMemory = 83;
inline constexpr int kPageableAccess = 88;
inline constexpr int kConcurrentManaged = 89;
inline constexpr int kCooperative = 95;
inline constexpr int kVirtualMemory = 102;
inline constexpr int kReservedSharedBytes = 111;
inline constexpr int kMemoryPools = 115;
inline constexpr int kCluster = 120;

// CUlimit
inline constexpr int kStackSize = 0;
inline constexpr int kPrintfSize = 1;
inline constexpr int kHeapSize = 2;

inline constexpr unsigned kNonBlocking = 1;          // CU_STREAM_NON_BLOCKING
inline constexpr int kDynamicSharedBytes = 8;        // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int kSharedCarveout = 9;            // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
inline constexpr int kLocalBytes = 3;                // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
inline constexpr unsigned kAttachGlobal = 1;         // CU_MEM_ATTACH_GLOBAL
inline constexpr unsigned kHostPortable = 1;         // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kHostDeviceMap = 2;        // CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned kIpcLazyPeer = 1;          // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr unsigned kWaitGreaterEqual = 0;     // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr int kCaptureThreadLocal = 1;        // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr int kNodeAllocates = 10;            // CU_GRAPH_NODE_TYPE_MEM_ALLOC
inline constexpr int kNodeFrees = 11;                // CU_GRAPH_NODE_TYPE_MEM_FREE
inline constexpr int kFormatUnsigned32 = 3;          // CU_AD_FORMAT_UNSIGNED_INT32
inline constexpr unsigned kArraySurface = 2;         // CUDA_ARRAY3D_SURFACE_LDST
inline constexpr int kMemoryHost = 1;                // CU_MEMORYTYPE_HOST
inline constexpr int kMemoryArray = 3;               // CU_MEMORYTYPE_ARRAY
inline constexpr unsigned kReadAsInteger = 1;        // CU_TRSF_READ_AS_INTEGER
inline constexpr int kAttributeCluster = 4;          // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
inline constexpr int kAttributeEarlyDependents = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int kAllocationPinned = 1;          // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int kLocationDevice = 1;            // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kAccessReadWrite = 3;           // CU_MEM_ACCESS_FLAGS_PROT_READWRITE

struct IpcHandle {
    char bytes[64];
};

struct LaunchAttribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int flag;
    } value;
};

struct LaunchConfig {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes;
    CuStream stream;
    LaunchAttribute* attributes;
    unsigned attribute_count;
};

struct ArrayDescriptor {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
};

struct Copy2D {
    size_t source_x, source_y;
    int source_type;
    const void* source_host;
    CuPointer source_device;
    CuArray source_array;
    size_t source_pitch;
    size_t target_x, target_y;
    int target_type;
    void* target_host;
    CuPointer target_device;
    CuArray target_array;
    size_t target_pitch;
    size_t width_bytes;
    size_t height;
};

struct ResourceDescriptor {
    int type;  // 0: an array
    union {
        CuArray array;
        int reserved[32];
    } resource;
    unsigned flags;
};

struct TextureDescriptor {
    int address_mode[3];
    int filter_mode;
    unsigned flags;
    unsigned anisotropy;
    int mipmap_filter;
    float mipmap_bias, mipmap_min, mipmap_max;
    float border[4];
    int reserved[12];
};

struct Location {
    int type;
    int id;
};

struct AllocationProperties {
    int type;
    int handle_types;
    Location location;
    void* platform;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct AccessDescriptor {
    Location location;
    int flags;
};

}  // namespace vuda::bench::features
