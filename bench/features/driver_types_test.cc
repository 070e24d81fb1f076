// What driver_types.h declares is what cuda.h declares.
#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

#include "bench/features/driver_types.h"

namespace vuda::bench::features {
namespace {

static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig) &&
              offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(sizeof(ArrayDescriptor) == sizeof(CUDA_ARRAY3D_DESCRIPTOR) &&
              offsetof(ArrayDescriptor, flags) == offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags));
static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D) &&
              offsetof(Copy2D, target_array) == offsetof(CUDA_MEMCPY2D, dstArray) &&
              offsetof(Copy2D, source_host) == offsetof(CUDA_MEMCPY2D, srcHost));
static_assert(sizeof(ResourceDescriptor) == sizeof(CUDA_RESOURCE_DESC) &&
              offsetof(ResourceDescriptor, flags) == offsetof(CUDA_RESOURCE_DESC, flags) &&
              offsetof(ResourceDescriptor, resource) == offsetof(CUDA_RESOURCE_DESC, res));
static_assert(sizeof(TextureDescriptor) == sizeof(CUDA_TEXTURE_DESC) &&
              offsetof(TextureDescriptor, border) == offsetof(CUDA_TEXTURE_DESC, borderColor));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) &&
              offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(AccessDescriptor) == sizeof(CUmemAccessDesc));
static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              kComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              kManagedMemory == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY &&
              kPageableAccess == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS &&
              kConcurrentManaged == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS &&
              kCooperative == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH &&
              kVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED &&
              kReservedSharedBytes == CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK &&
              kMemoryPools == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED &&
              kCluster == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
static_assert(kStackSize == CU_LIMIT_STACK_SIZE && kPrintfSize == CU_LIMIT_PRINTF_FIFO_SIZE &&
              kHeapSize == CU_LIMIT_MALLOC_HEAP_SIZE);
static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING &&
              kDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
              kSharedCarveout == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
              kLocalBytes == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES && kAttachGlobal == CU_MEM_ATTACH_GLOBAL &&
              kHostPortable == CU_MEMHOSTALLOC_PORTABLE && kHostDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP &&
              kHostPortable == CU_MEMHOSTREGISTER_PORTABLE && kHostDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kIpcLazyPeer == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && kWaitGreaterEqual == CU_STREAM_WAIT_VALUE_GEQ &&
              kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
              kNodeAllocates == CU_GRAPH_NODE_TYPE_MEM_ALLOC && kNodeFrees == CU_GRAPH_NODE_TYPE_MEM_FREE &&
              kFormatUnsigned32 == CU_AD_FORMAT_UNSIGNED_INT32 && kArraySurface == CUDA_ARRAY3D_SURFACE_LDST &&
              kMemoryHost == CU_MEMORYTYPE_HOST && kMemoryArray == CU_MEMORYTYPE_ARRAY &&
              kReadAsInteger == CU_TRSF_READ_AS_INTEGER && kAttributeCluster == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
              kAttributeEarlyDependents == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
              kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED && kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE &&
              kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kNotFound == CUDA_ERROR_NOT_FOUND && kAssert == CUDA_ERROR_ASSERT &&
              kNotSupported == CUDA_ERROR_NOT_SUPPORTED);

}  // namespace
}  // namespace vuda::bench::features
#endif

TEST(DriverTypes, AgreeWithTheToolkit) {
#if !__has_include(<cuda.h>)
    GTEST_SKIP() << "no cuda.h: the comparison is made where there is a CUDA toolkit";
#endif
}
