// The loads of vuda-bench-compute. make_ptx.sh turns this into kernels.ptx, which is checked in, so that building needs no
// CUDA toolkit.
//
// Every launch checks the one before it: each block (fma, tiny) or word (memory) must hold what launch `index - 1` left
// there. What is wrong is counted in `errors`; the host reads that and the last launch's marks. `index` 0 checks nothing.
// After the count, `errors` holds a bit for each multiprocessor that a block ran on.
//
// The NAME_timed kernels do the same work between two looks at the GPU's clock. They are kernels of their own, so that what is
// measured without them is not slower for it.

namespace {

__device__ unsigned mark(unsigned index, unsigned place) { return index * 2654435761u + place; }

__device__ void check_and_mark(unsigned* marks, unsigned* errors, unsigned index) {
    if (threadIdx.x != 0) return;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if ((errors[1 + sm / 32] >> sm % 32 & 1u) == 0) atomicOr(&errors[1 + sm / 32], 1u << sm % 32);
    const unsigned block = blockIdx.x;
    if (index != 0 && marks[block] != mark(index - 1, block)) atomicAdd(errors, 1u);
    marks[block] = mark(index, block);
}

// Nanoseconds, of all blocks alike.
__device__ unsigned long long gpu_clock() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// A launch begins with its first block, and ends with its last.
__device__ void begins(unsigned long long* begin) {
    if (threadIdx.x == 0) atomicMin(begin, gpu_clock());
    __syncthreads();
}

__device__ void ends(unsigned long long* end) {
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(end, gpu_clock());
}

// Fused multiply-adds, four chains a thread. `one` is 1 and `minus_one` is -1, which the compiler cannot know: every value
// is a small whole number and so exact, and the host's compiler has no say in the result.
__device__ __forceinline__ void fma(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, float one,
                                    float minus_one) {
    const float start = static_cast<float>(threadIdx.x);
    float up = start;
    float down = start;
    float flip = start;
    float flop = start + 1.0f;
    for (unsigned i = 0; i < iterations; ++i) {
        up = fmaf(up, one, one);
        down = fmaf(down, one, minus_one);
        flip = fmaf(flip, minus_one, one);
        flop = fmaf(flop, minus_one, minus_one);
    }
    const float n = static_cast<float>(iterations);
    const bool odd = (iterations & 1u) != 0;
    const bool right = up == start + n && down == start - n && flip == (odd ? 1.0f - start : start) &&
                       flop == (odd ? -2.0f - start : start + 1.0f);
    if (!right) atomicAdd(errors, 1u);
    check_and_mark(marks, errors, index);
}

// Reads and writes `vectors` groups of 16 bytes, `iterations` times over. A word holds its place plus one for every pass of
// every launch, so each pass checks every word that the last one wrote.
__device__ __forceinline__ void memory(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, uint4* data,
                                       unsigned vectors) {
    const unsigned step = gridDim.x * blockDim.x;
    unsigned wrong = 0;
    for (unsigned pass = 0; pass < iterations; ++pass) {
        const unsigned base = index * iterations + pass;
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
            const uint4 v = data[i];
            const unsigned want = 4 * i + base;
            if (base != 0) wrong |= (v.x ^ want) | (v.y ^ (want + 1)) | (v.z ^ (want + 2)) | (v.w ^ (want + 3));
            data[i] = make_uint4(want + 1, want + 2, want + 3, want + 4);
        }
    }
    if (wrong != 0) atomicAdd(errors, 1u);
    check_and_mark(marks, errors, index);
}

}  // namespace

extern "C" __global__ void vuda_fma(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, float one,
                                    float minus_one) {
    fma(marks, errors, index, iterations, one, minus_one);
}

extern "C" __global__ void vuda_memory(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, uint4* data,
                                       unsigned vectors) {
    memory(marks, errors, index, iterations, data, vectors);
}

// As little as a kernel can do and still be checked.
extern "C" __global__ void vuda_tiny(unsigned* marks, unsigned* errors, unsigned index) { check_and_mark(marks, errors, index); }

extern "C" __global__ void vuda_fma_timed(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, float one,
                                          float minus_one, unsigned long long* begin, unsigned long long* end) {
    begins(begin);
    fma(marks, errors, index, iterations, one, minus_one);
    ends(end);
}

extern "C" __global__ void vuda_memory_timed(unsigned* marks, unsigned* errors, unsigned index, unsigned iterations, uint4* data,
                                             unsigned vectors, unsigned long long* begin, unsigned long long* end) {
    begins(begin);
    memory(marks, errors, index, iterations, data, vectors);
    ends(end);
}

extern "C" __global__ void vuda_tiny_timed(unsigned* marks, unsigned* errors, unsigned index, unsigned long long* begin,
                                           unsigned long long* end) {
    begins(begin);
    check_and_mark(marks, errors, index);
    ends(end);
}
