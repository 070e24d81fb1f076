// Kernels that launch kernels. Needs NVIDIA's device runtime, which is linked in by nvcc: make_nested.sh. Not checked in;
// a build without nvcc has no such image, and vuda-bench-features says so.

extern "C" __global__ void feature_child(unsigned* data, unsigned count, unsigned add) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] = 3 * data[i] + add;
}

// Each block has a child work on its part of the data, and one more work on it behind all.
extern "C" __global__ void feature_parent(unsigned* data, unsigned part, unsigned add) {
    if (threadIdx.x != 0) return;
    feature_child<<<4, 64>>>(data + blockIdx.x * part, part, add);
    feature_child<<<4, 64, 0, cudaStreamTailLaunch>>>(data + blockIdx.x * part, part, add + 1);
}

// Counts the words of shared memory that it is launched with, each written by one thread and read by another.
extern "C" __global__ void feature_large_child(unsigned* out, unsigned words) {
    extern __shared__ unsigned memory[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) memory[i] = 1;
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) sum += memory[words - 1 - i];
    if (threadIdx.x == 0) out[blockIdx.x] = 0;
    __syncthreads();
    atomicAdd(&out[blockIdx.x], sum);
}

extern "C" __global__ void feature_large_parent(unsigned* out, unsigned words) {
    if (threadIdx.x != 0) return;
    feature_large_child<<<4, 64, words * sizeof(unsigned)>>>(out, words);
}
