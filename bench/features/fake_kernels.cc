#include "bench/features/fake_kernels.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

// The language of kernels.cu, as far as it goes on a host. Threads of a block run one after the other, or each in a
// thread of the host where they wait for each other. Blocks do likewise where it counts how many there are at a time.
#define __global__
#define __device__
#define __constant__ static
#define __shared__
#define __noinline__ __attribute__((noinline))

namespace {

struct Index {
    unsigned x = 0;
};
thread_local Index threadIdx, blockIdx;
Index blockDim, gridDim;

std::barrier<>* g_block = nullptr;
std::barrier<>* g_grid = nullptr;
std::barrier<>* g_residents = nullptr;
thread_local bool t_tensor = false;   // used its tensor cores last
thread_local bool t_arrives = false;  // as one of those, and has yet to look at the clock
std::atomic<bool> g_assert_failed{false};

void __syncthreads() { g_block->arrive_and_wait(); }

unsigned atomicAdd(unsigned* at, unsigned value) { return std::atomic_ref<unsigned>(*at).fetch_add(value); }
unsigned atomicSub(unsigned* at, unsigned value) { return std::atomic_ref<unsigned>(*at).fetch_sub(value); }
unsigned atomicExch(unsigned* at, unsigned value) { return std::atomic_ref<unsigned>(*at).exchange(value); }
unsigned atomicMax(unsigned* at, unsigned value) {
    std::atomic_ref<unsigned> word(*at);
    unsigned before = word.load();
    while (before < value && !word.compare_exchange_weak(before, value)) {
    }
    return before;
}

unsigned multiprocessor() { return blockIdx.x % vuda::bench::features::kFakeProcessors; }

uint64_t host_nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// A GPU of 2 GHz, 1.8 while its tensor cores are at work. It stands still until all blocks are there that there is room
// for.
unsigned long long clock64() {
    if (std::exchange(t_arrives, false)) g_residents->arrive_and_wait();
    return host_nanoseconds() / 10 * (t_tensor ? 18 : 20);
}
unsigned nanoseconds() { return static_cast<unsigned>(host_nanoseconds()); }

void multiply_by_tensor_cores(float (&sums)[4], unsigned ones) {
    t_tensor = true;
    for (float& sum : sums) sum += ones == 0x3c003c00 ? 8.0F : 0.0F;
}
void multiply_plainly(float (&sums)[4], float eight) {
    t_tensor = false;
    for (float& sum : sums) sum += eight;
}

template <typename Word>
Word tex2D(unsigned long long texture, float x, float y) {
    const auto* array = reinterpret_cast<const vuda::bench::features::FakeArray*>(texture);
    return array->words[static_cast<unsigned>(y) * array->width + static_cast<unsigned>(x)];
}

void surf2Dwrite(unsigned value, unsigned long long surface, int x_bytes, int y) {
    const auto* array = reinterpret_cast<const vuda::bench::features::FakeArray*>(surface);
    array->words[static_cast<unsigned>(y) * array->width + static_cast<unsigned>(x_bytes) / 4] = value;
}

}  // namespace

void fake_grid_sync() {
    // Only the first thread of each block has a thread of its own; the others would only wait.
    g_grid->arrive_and_wait();
}
void fake_assert_failed() { g_assert_failed = true; }

extern "C" {
unsigned memory[16384];  // a block's shared memory
}

#include "bench/features/kernels.cu"

namespace vuda::bench::features {
namespace {

enum class Style { kOneByOne, kBlock, kGrid, kResidents };

template <typename... Arguments, size_t... Places>
void call(void (*function)(Arguments...), void** arguments, std::index_sequence<Places...>) {
    function(*static_cast<Arguments*>(arguments[Places])...);
}

template <auto Function, typename... Arguments>
void call_all(void** arguments, void (*function)(Arguments...)) {
    call(function, arguments, std::index_sequence_for<Arguments...>{});
}

struct Kernel {
    const char* name;
    Style style;
    void (*call)(void** arguments);
};

#define VUDA_FAKE(function, style)                                                            \
    {                                                                                         \
#function, style, [](void** arguments) { call_all<&function>(arguments, &function); } \
    }
constexpr Kernel kKernels[] = {
    VUDA_FAKE(feature_step, Style::kOneByOne),    VUDA_FAKE(feature_spin, Style::kOneByOne),
    VUDA_FAKE(feature_printf, Style::kOneByOne),  VUDA_FAKE(feature_assert, Style::kOneByOne),
    VUDA_FAKE(feature_malloc, Style::kOneByOne),  VUDA_FAKE(feature_local, Style::kOneByOne),
    VUDA_FAKE(feature_recurse, Style::kOneByOne), VUDA_FAKE(feature_constant, Style::kOneByOne),
    VUDA_FAKE(feature_texture, Style::kOneByOne), VUDA_FAKE(feature_shared, Style::kBlock),
    VUDA_FAKE(feature_grid_sync, Style::kGrid),   VUDA_FAKE(feature_residents, Style::kResidents),
    VUDA_FAKE(feature_clock, Style::kOneByOne),
};
#undef VUDA_FAKE

const Kernel* find(const char* name) {
    for (const Kernel& kernel : kKernels)
        if (std::strcmp(kernel.name, name) == 0) return &kernel;
    return nullptr;
}

void run_threads(unsigned count, std::barrier<>*& barrier, const Kernel& kernel, void** arguments, bool blocks,
                 unsigned block) {
    std::barrier<> own(static_cast<std::ptrdiff_t>(count));
    barrier = &own;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            threadIdx.x = blocks ? 0 : i;
            blockIdx.x = blocks ? i : block;
            kernel.call(arguments);
        });
    }
}

// As many blocks as there is room for, each in a thread, and the next when those have gone.
void run_residents(FakeShape shape, const Kernel& kernel, void** arguments) {
    for (unsigned first = 0; first < shape.blocks;) {
        const unsigned end = std::min(shape.blocks, first + shape.residents * kFakeProcessors);
        std::barrier<> all(static_cast<std::ptrdiff_t>(end - first));
        g_residents = &all;
        std::vector<std::jthread> threads;
        for (; first < end; ++first) {
            threads.emplace_back([&, block = first] {
                t_arrives = true;
                blockIdx.x = block;
                for (threadIdx.x = 0; threadIdx.x < shape.threads; ++threadIdx.x) kernel.call(arguments);
            });
        }
    }
}

}  // namespace

bool has_fake_kernel(const char* name) { return find(name) != nullptr; }

void* fake_constants(unsigned long* bytes) {
    *bytes = sizeof feature_table;
    return feature_table;
}

FakeRun run_fake_kernel(const char* name, FakeShape shape, void** arguments) {
    const Kernel* kernel = find(name);
    if (!kernel) return FakeRun::kUnknown;
    g_assert_failed = false;
    blockDim.x = shape.threads;
    gridDim.x = shape.blocks;
    if (kernel->style == Style::kGrid) {
        run_threads(shape.blocks, g_grid, *kernel, arguments, true, 0);
    } else if (kernel->style == Style::kResidents) {
        run_residents(shape, *kernel, arguments);
    } else {
        for (unsigned block = 0; block < shape.blocks; ++block) {
            if (kernel->style == Style::kBlock) {
                run_threads(shape.threads, g_block, *kernel, arguments, false, block);
                continue;
            }
            blockIdx.x = block;
            for (threadIdx.x = 0; threadIdx.x < shape.threads; ++threadIdx.x) kernel->call(arguments);
        }
    }
    return g_assert_failed ? FakeRun::kAssertFailed : FakeRun::kDone;
}

}  // namespace vuda::bench::features
