// A stand-in for libcuda.so.1 that computes bench/compute/kernels.cu's results on the CPU, so that the benchmark's
// logic is tested without a GPU. What goes wrong is asked for by environment variables, read by cuInit:
//   FAKE_CUDA_NO_DEVICE=1   cuInit fails as on a machine without a GPU
//   FAKE_CUDA_FAULT_AT=N    the N-th launch (from 1) faults; from then on every call answers CUDA error 719
//   FAKE_CUDA_LOSE=N        the N-th launch does nothing
//   FAKE_CUDA_WRONG=N       the N-th launch computes something wrong
//   FAKE_CUDA_NS=T          a kernel takes T nanoseconds an iteration
//   FAKE_CUDA_HOLE_EVERY=N  before every N-th launch the GPU is with somebody else, for
//   FAKE_CUDA_HOLE_US=T     T microseconds, by a clock of its own that a busy machine does not disturb; in the midst of
//                           the launch if FAKE_CUDA_HOLE_INSIDE=1
// Destroying a context that still holds objects aborts: the benchmark must clean up.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "bench/compute/kernels_ptx.h"

namespace {

using Clock = std::chrono::steady_clock;

struct State {
    bool initialised = false;
    long fault_at = 0;
    long lose = 0;
    long wrong = 0;
    long ns = 0;
    long hole_every = 0;
    long hole_us = 0;
    bool hole_inside = false;
    uint64_t gpu_ns = 1'700'000'000'000'000'000;
    long launches = 0;
    bool lost = false;
    bool current = false;
    int objects = 0;
    int retained = 0;
    Clock::time_point busy_until{};
};

State g_state;

long from_environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::strtol(value, nullptr, 10) : 0;
}

int answer() { return g_state.lost ? 719 : !g_state.initialised ? 3 : 0; }

template <typename T>
T& parameter(void** parameters, int i) {
    return *static_cast<T*>(parameters[i]);
}

uint32_t* words(unsigned long long pointer) { return reinterpret_cast<uint32_t*>(static_cast<uintptr_t>(pointer)); }

constexpr uintptr_t kFma = 1;
constexpr uintptr_t kMemory = 2;
constexpr uintptr_t kTiny = 3;
constexpr uintptr_t kTimed = 4;  // added to one of those

uint64_t* stamp(void** parameters, int i) {
    return reinterpret_cast<uint64_t*>(words(parameter<unsigned long long>(parameters, i)));
}

// As the kernels say it: the begin is a least value, the end a greatest.
void keep_time(uintptr_t kernel, uint64_t kernel_ns, void** parameters) {
    const int at = kernel == kTiny ? 3 : 6;
    const bool hole = g_state.hole_every != 0 && g_state.launches % g_state.hole_every == 0;
    const uint64_t hole_ns = hole ? 1000 * static_cast<uint64_t>(g_state.hole_us) : 0;
    g_state.gpu_ns += 5000 + (g_state.hole_inside ? 0 : hole_ns);
    *stamp(parameters, at) = std::min(*stamp(parameters, at), g_state.gpu_ns);
    g_state.gpu_ns += kernel_ns + (g_state.hole_inside ? hole_ns : 0);
    *stamp(parameters, at + 1) = std::max(*stamp(parameters, at + 1), g_state.gpu_ns);
}

void compute(uintptr_t kernel, unsigned blocks, void** parameters, bool wrong) {
    uint32_t* marks = words(parameter<unsigned long long>(parameters, 0));
    uint32_t* errors = words(parameter<unsigned long long>(parameters, 1));
    const uint32_t index = parameter<uint32_t>(parameters, 2);
    if (wrong) ++*errors;
    errors[1] |= 3;  // both multiprocessors
    if (kernel == kMemory) {
        const uint32_t iterations = parameter<uint32_t>(parameters, 3);
        uint32_t* data = words(parameter<unsigned long long>(parameters, 4));
        const uint32_t vectors = parameter<uint32_t>(parameters, 5);
        for (uint32_t pass = 0; pass < iterations; ++pass) {
            const uint32_t base = index * iterations + pass;
            for (uint32_t i = 0; i < 4 * vectors; ++i) {
                if (base != 0 && data[i] != i + base) ++*errors;
                data[i] = i + base + 1;
            }
        }
    }
    for (uint32_t block = 0; block < blocks; ++block) {
        if (index != 0 && marks[block] != (index - 1) * 2654435761u + block) ++*errors;
        marks[block] = index * 2654435761u + block;
    }
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
    g_state = State{};
    if (from_environment("FAKE_CUDA_NO_DEVICE") != 0) return 100;
    g_state.fault_at = from_environment("FAKE_CUDA_FAULT_AT");
    g_state.lose = from_environment("FAKE_CUDA_LOSE");
    g_state.wrong = from_environment("FAKE_CUDA_WRONG");
    g_state.ns = from_environment("FAKE_CUDA_NS");
    g_state.hole_every = from_environment("FAKE_CUDA_HOLE_EVERY");
    g_state.hole_us = from_environment("FAKE_CUDA_HOLE_US");
    g_state.hole_inside = from_environment("FAKE_CUDA_HOLE_INSIDE") != 0;
    g_state.initialised = true;
    return 0;
}

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

int cuGetErrorName(int error, const char** text) {
    *text = error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

int cuGetErrorString(int error, const char** text) {
    *text = error == 719   ? "unspecified launch failure"
            : error == 100 ? "no CUDA-capable device is detected"
                           : "unknown error";
    return 0;
}

int cuDeviceGetCount(int* count) {
    *count = 1;
    return answer();
}

int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? answer() : 101;
}

int cuDeviceGetName(char* name, int length, int) {
    std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
    return answer();
}

int cuDeviceGetUuid(char* uuid, int) {
    for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(i + 1);
    return answer();
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 16 ? 2 : 0;
    return answer();
}

int cuDevicePrimaryCtxRetain(void** context, int) {
    *context = &g_state;
    ++g_state.retained;
    return answer();
}

int cuDevicePrimaryCtxRelease_v2(int) {
    if (--g_state.retained != 0 || g_state.objects != 0 || g_state.current) {
        std::fprintf(stderr, "fake_cuda: context destroyed with %d objects, current %d\n", g_state.objects,
                     g_state.current);
        std::abort();
    }
    return answer();
}

int cuCtxSetCurrent(void* context) {
    g_state.current = context != nullptr;
    return answer();
}

int cuModuleLoadData(void** module, const void* image) {
    // The benchmark must hand over the whole text.
    if (std::strcmp(static_cast<const char*>(image), vuda::bench::kKernelsPtx) != 0) return 218;
    *module = &g_state;
    ++g_state.objects;
    return answer();
}

int cuModuleUnload(void*) {
    --g_state.objects;
    return answer();
}

int cuModuleGetFunction(uintptr_t* function, void*, const char* name) {
    const std::string whole(name);
    const bool timed = whole.size() > 6 && whole.compare(whole.size() - 6, 6, "_timed") == 0;
    const std::string kernel = timed ? whole.substr(0, whole.size() - 6) : whole;
    *function = kernel == "vuda_fma" ? kFma : kernel == "vuda_memory" ? kMemory : kernel == "vuda_tiny" ? kTiny : 0;
    if (*function == 0) return 500;
    if (timed) *function += kTimed;
    return answer();
}

int cuFuncSetAttribute(uintptr_t, int attribute, int value) { return attribute == 8 && value <= 232448 ? answer() : 1; }

int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
    void* memory = std::malloc(bytes);
    *pointer = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(memory));
    ++g_state.objects;
    return answer();
}

int cuMemFree_v2(unsigned long long pointer) {
    std::free(words(pointer));
    --g_state.objects;
    return answer();
}

int cuMemsetD32_v2(unsigned long long pointer, unsigned value, size_t count) {
    for (size_t i = 0; i < count; ++i) words(pointer)[i] = value;
    return answer();
}

int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
    std::memcpy(to, words(from), bytes);
    return answer();
}

int cuStreamCreate(void** stream, unsigned) {
    *stream = &g_state;
    ++g_state.objects;
    return answer();
}

int cuStreamDestroy_v2(void*) {
    --g_state.objects;
    return answer();
}

int cuStreamSynchronize(void*) {
    std::this_thread::sleep_until(g_state.busy_until);
    return answer();
}

int cuLaunchKernel(uintptr_t function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void** parameters, void**) {
    if (answer() != 0) return answer();
    ++g_state.launches;
    if (g_state.launches == g_state.fault_at) {
        g_state.lost = true;  // reported by the next call, as a GPU fault is
        return 0;
    }
    const bool timed = function > kTimed;
    if (timed) function -= kTimed;
    const long iterations = function == kTiny ? 1 : static_cast<long>(parameter<uint32_t>(parameters, 3));
    g_state.busy_until = Clock::now() + std::chrono::nanoseconds(g_state.ns * iterations);
    if (g_state.launches == g_state.lose) return 0;
    compute(function, blocks, parameters, g_state.launches == g_state.wrong);
    if (timed) keep_time(function, static_cast<uint64_t>(g_state.ns * iterations), parameters);
    return 0;
}

}  // extern "C"
