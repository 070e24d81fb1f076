// What cuda_driver.h declares is what cuda.h declares.
#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

#include "shim/partition/cuda_driver.h"

namespace vuda::partition {
namespace {

#define SAME(ours, our_member, theirs, their_member) (offsetof(ours, our_member) == offsetof(theirs, their_member))

static_assert(sizeof(CuLaunchConfig) == sizeof(CUlaunchConfig) &&
              SAME(CuLaunchConfig, attributes, CUlaunchConfig, attrs));
static_assert(sizeof(CuKernelNode) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2) &&
              SAME(CuKernelNode, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes) &&
              SAME(CuKernelNode, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra) &&
              SAME(CuKernelNode, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern) &&
              SAME(CuKernelNode, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx));
static_assert(offsetof(CuKernelNode, kernel) == sizeof(CUDA_KERNEL_NODE_PARAMS_v1));
static_assert(sizeof(CuCopy3D) == sizeof(CUDA_MEMCPY3D) && sizeof(CuMemset) == sizeof(CUDA_MEMSET_NODE_PARAMS_v1));
static_assert(sizeof(CuNodeParams) == sizeof(CUgraphNodeParams) &&
              SAME(CuNodeParams, words, CUgraphNodeParams, reserved1) &&
              SAME(CuNodeParams, reserved2, CUgraphNodeParams, reserved2));
static_assert(SAME(CuCopyNode, context, CUDA_MEMCPY_NODE_PARAMS, copyCtx) &&
              SAME(CuCopyNode, copy, CUDA_MEMCPY_NODE_PARAMS, copyParams));
static_assert(SAME(CuSetNode, context, CUDA_MEMSET_NODE_PARAMS_v2, ctx));
static_assert(offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, flags) == 0);
static_assert(sizeof(CUgraphExecUpdateResultInfo) <= 24 && sizeof(CUlaunchAttributeValue) == 64);
static_assert(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE == 13 && CU_GRAPH_NODE_TYPE_GRAPH == 4 &&
              CU_GRAPH_NODE_TYPE_EMPTY == 5 && CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES == 1);
static_assert(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD == 2 && CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH == 4);
static_assert(CU_JIT_CACHE_MODE == 14 && CU_JIT_POSITION_INDEPENDENT_CODE == 30 &&
              CU_JIT_OVERRIDE_DIRECTIVE_VALUES == 33 && CU_JIT_LOG_VERBOSE == 12);

}  // namespace
}  // namespace vuda::partition
#else
// The comparison is made by the compiler, where there is a CUDA toolkit to compare with; this says that there was none.
TEST(CudaDriver, TypesAreThoseOfTheToolkit) { GTEST_SKIP() << "no cuda.h on this machine: needs a toolkit"; }
#endif
