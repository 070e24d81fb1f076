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
