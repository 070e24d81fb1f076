// The kernels of vuda-bench-features that any GPU from Turing on runs. make_ptx.sh turns this into kernels.ptx, which
// is checked in, so that building needs no CUDA toolkit. What each should leave behind is computed again by the host.

#include <cooperative_groups.h>

#include <cassert>
#include <cstdio>

// No unnamed namespace: what is in one is named after the path of this file in PTX.
__device__ unsigned index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// On the host fake_kernels.cc says where a block is.
#ifdef __CUDACC__
__device__ unsigned multiprocessor() {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__device__ unsigned nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return static_cast<unsigned>(now);
}

// Adds eight products of ones to each sum: on the tensor cores, a warp at a time,
__device__ void multiply_by_tensor_cores(float (&sums)[4], unsigned ones) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, {%4}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(ones));
}

// or one of eight to each, without them.
__device__ void multiply_plainly(float (&sums)[4], float eight) {
    for (float& sum : sums) asm volatile("fma.rn.f32 %0, %1, 0f3F800000, %0;" : "+f"(sum) : "f"(eight));
}
#endif

// Not inlined and not a loop: each level takes stack.
extern "C" __device__ __noinline__ unsigned feature_descend(unsigned depth, unsigned value) {
    volatile unsigned frame[24];
    for (unsigned i = 0; i < 24; ++i) frame[i] = value + i;
    const unsigned below = depth == 0 ? 0 : feature_descend(depth - 1, value + 1);
    return below + frame[value % 24];
}

__constant__ unsigned feature_table[16384];

// data[i] = 3 data[i] + add
extern "C" __global__ void feature_step(unsigned* data, unsigned count, unsigned add) {
    for (unsigned i = index(); i < count; i += gridDim.x * blockDim.x) data[i] = 3 * data[i] + add;
}

// Holds the GPU's attention for about `cycles`.
extern "C" __global__ void feature_spin(unsigned* data, unsigned long long cycles) {
    const unsigned long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    if (index() == 0) atomicAdd(data, 1u);
}

// Cooperative: each block leaves its mark, waits for all, and looks at what the block after it left in that round.
extern "C" __global__ void feature_grid_sync(unsigned* marks, unsigned* errors, unsigned rounds) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    for (unsigned round = 1; round <= rounds; ++round) {
        if (threadIdx.x == 0) atomicExch(&marks[blockIdx.x], round * 1000003u + blockIdx.x);
        grid.sync();
        const unsigned next = (blockIdx.x + 1) % gridDim.x;
        if (threadIdx.x == 0 && atomicAdd(&marks[next], 0u) != round * 1000003u + next) atomicAdd(errors, 1u);
        grid.sync();
    }
}

extern "C" __global__ void feature_printf(unsigned base) {
    if (threadIdx.x == 0) printf("feature %u of %u: %s\n", base + blockIdx.x, gridDim.x, "printed on the GPU");
}

// Holds for all data that is below `bound`.
extern "C" __global__ void feature_assert(unsigned* data, unsigned count, unsigned bound) {
    const unsigned i = index();
    if (i >= count) return;
    assert(data[i] < bound);
    data[i] += 1;
}

// Takes memory from the device's heap, uses it and gives it back, `rounds` times.
extern "C" __global__ void feature_malloc(unsigned* out, unsigned* errors, unsigned words, unsigned rounds) {
    unsigned sum = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        unsigned* memory = static_cast<unsigned*>(malloc(words * sizeof(unsigned)));
        if (memory == nullptr) {
            atomicAdd(errors, 1u);
            return;
        }
        for (unsigned i = 0; i < words; ++i) memory[i] = index() + round + i;
        for (unsigned i = 0; i < words; ++i) sum += memory[i];
        free(memory);
    }
    out[index()] = sum;
}

// 8 KiB of local memory a thread, indexed by what only the data knows.
extern "C" __global__ void feature_local(unsigned* out, unsigned seed) {
    unsigned memory[2048];
    for (unsigned i = 0; i < 2048; ++i) memory[(i * 1031u + seed) & 2047u] = index() + i;
    unsigned sum = 0;
    for (unsigned i = 0; i < 2048; i += 2) sum += memory[(i + out[index()]) & 2047u] * (i + 1);
    out[index()] = sum;
}

extern "C" __global__ void feature_recurse(unsigned* out, unsigned depth) {
    out[index()] = feature_descend(depth, index());
}

// All 64 KiB of constant memory.
extern "C" __global__ void feature_constant(unsigned* out) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 16384; ++i) sum += feature_table[(i + index()) & 16383u] * (i | 1u);
    out[index()] = sum;
}

// Turns `words` words of the block's shared memory round.
extern "C" __global__ void feature_shared(unsigned* out, unsigned words) {
    extern __shared__ unsigned memory[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) memory[i] = i * 2654435761u + blockIdx.x;
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) sum += memory[words - 1 - i] * (i + 1);
    atomicAdd(&out[blockIdx.x], sum);
}

// Counts the blocks that are on a multiprocessor at the same time (`here`, `most`: 1,024 words) and in all (`ran`). Each
// stays for about `cycles`.
extern "C" __global__ void feature_residents(unsigned* ran, unsigned* here, unsigned* most, unsigned long long cycles) {
    if (threadIdx.x != 0) return;
    const unsigned place = multiprocessor() & 1023u;
    atomicMax(&most[place], atomicAdd(&here[place], 1u) + 1u);
    const unsigned long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    atomicSub(&here[place], 1u);
    atomicAdd(ran, 1u);
}

// Through a texture, into a surface of the same size.
extern "C" __global__ void feature_texture(unsigned long long texture, unsigned long long surface, int width,
                                           int height) {
    const int x = static_cast<int>(index()) % width;
    const int y = static_cast<int>(index()) / width;
    if (y >= height) return;
    const unsigned value = tex2D<unsigned>(texture, static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f);
    surf2Dwrite(value * 5 + 7, surface, 4 * x, y);
}

// Writes where nothing is. Only ever launched when the command line asks for it by name.
extern "C" __global__ void feature_fault(unsigned long long address) {
    *reinterpret_cast<volatile unsigned*>(address) = 1;
}

// How fast the multiprocessors' clock runs while there is nothing but such products: it is not what the driver reports
// when tensor cores are at work. A warp in each block; `cycles` and `ns`: a word for each block.
extern "C" __global__ void feature_clock(unsigned* cycles, unsigned* ns, unsigned* sums, unsigned rounds, unsigned tensor) {
    const unsigned ones = 0x3c003c00u;  // two of half precision
    const float eight = static_cast<float>(rounds != 0 ? 8 : 0);
    float sum[4] = {};
    tensor ? multiply_by_tensor_cores(sum, ones) : multiply_plainly(sum, eight);
    const unsigned long long begin = clock64();
    const unsigned began = nanoseconds();
    if (tensor) {
        for (unsigned i = 0; i < rounds; ++i) multiply_by_tensor_cores(sum, ones);
    } else {
        for (unsigned i = 0; i < rounds; ++i) multiply_plainly(sum, eight);
    }
    const unsigned long long end = clock64();
    const unsigned ended = nanoseconds();
    if (threadIdx.x == 0) {
        cycles[blockIdx.x] = static_cast<unsigned>(end - begin);
        ns[blockIdx.x] = ended - began;
    }
    sums[index()] = static_cast<unsigned>(sum[0] + sum[1] + sum[2] + sum[3]);
}
