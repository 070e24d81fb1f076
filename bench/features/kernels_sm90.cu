// The kernels of vuda-bench-features that need compute capability 9.0; see kernels.cu.

#include <cooperative_groups.h>

// Each block writes into the shared memory of the next one of its cluster, and says what it found in its own.
extern "C" __global__ void feature_cluster(unsigned* out, unsigned salt) {
    __shared__ unsigned box[32];
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const unsigned size = cluster.num_blocks();
    const unsigned rank = cluster.block_rank();
    if (threadIdx.x < 32) {
        unsigned* next = cluster.map_shared_rank(box, (rank + 1) % size);
        next[threadIdx.x] = (blockIdx.x + salt) * 32 + threadIdx.x;
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned i = 0; i < 32; ++i) sum += box[i] * (i + 1);
        out[blockIdx.x] = sum + size * 1000003u;
    }
    cluster.sync();
}

// May begin before the kernel ahead of it has ended; waits for it where it needs its results.
extern "C" __global__ void feature_dependent(unsigned* data, unsigned count, unsigned add) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] = 3 * data[i] + add;
}
