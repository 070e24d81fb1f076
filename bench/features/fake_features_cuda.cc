// A stand-in for libcuda.so.1 that runs kernels.cu on the host, at once, so that the cases and what they expect are
// tested without a GPU. It has no cluster launches, no device runtime and no IPC. What goes wrong is asked for by
// environment variables, read at each launch:
//   FAKE_CUDA_WRONG=KERNEL   one word of its first argument is wrong afterwards; KERNEL:1: of its second, and so on
//   FAKE_CUDA_LOSE=KERNEL    it faults; from then on every call answers CUDA error 719
//   FAKE_CUDA_SHARED=BYTES   of shared memory for all blocks of a multiprocessor; without it 228 KiB, as on Hopper
// Using a context, module or object that has gone aborts, and so does leaving one behind: fake_objects() counts them.
#include "bench/features/fake_features.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/features/fake_kernels.h"

namespace {

using namespace vuda::bench::features;
using namespace vuda::bench::features::fake;

ContextTag* g_primary = nullptr;
int g_retained = 0;
size_t g_stack = 1024;
constexpr unsigned kReserved = 1024;     // bytes of shared memory a block
constexpr unsigned kMostResidents = 32;  // blocks of a multiprocessor

bool is_named(const char* variable, const std::string& kernel) {
    const char* value = std::getenv(variable);
    return value && kernel == value;
}

unsigned residents(CuFunction function, unsigned shared_bytes) {
    const char* value = std::getenv("FAKE_CUDA_SHARED");
    const unsigned room = value ? static_cast<unsigned>(std::atoi(value)) : 228u << 10;
    return std::clamp(room * function->carveout / 100 / (shared_bytes + kReserved), 1u, kMostResidents);
}

void run_now(const std::string& name, FakeShape shape, const std::vector<uint64_t>& values) {
    std::vector<uint64_t> copy = values;
    std::vector<void*> arguments;
    for (uint64_t& value : copy) arguments.push_back(&value);
    if (is_named("FAKE_CUDA_LOSE", name)) {
        g_error = 719;
        return;
    }
    if (run_fake_kernel(name.c_str(), shape, arguments.data()) == FakeRun::kAssertFailed) g_error = kAssert;
    for (size_t i = 0; i < copy.size(); ++i)
        if (is_named("FAKE_CUDA_WRONG", i == 0 ? name : name + ":" + std::to_string(i)))
            ++*reinterpret_cast<uint32_t*>(copy[i]);
}

// Arguments of 8 bytes at most, read before the launch call returns, as CUDA does.
std::vector<uint64_t> read_arguments(const std::string& name, void** arguments) {
    // As the kernels declare them: p a pointer or another 8 bytes, u 4 bytes.
    static const std::pair<const char*, const char*> kShapes[] = {
        {"feature_step", "puu"},     {"feature_spin", "pp"},       {"feature_printf", "u"},
        {"feature_assert", "puu"},   {"feature_malloc", "ppuu"},   {"feature_local", "pu"},
        {"feature_recurse", "pu"},   {"feature_constant", "p"},    {"feature_shared", "pu"},
        {"feature_texture", "ppuu"}, {"feature_grid_sync", "ppu"}, {"feature_residents", "pppp"},
        {"feature_clock", "pppuu"},
    };
    std::vector<uint64_t> values;
    for (const auto& [kernel, shape] : kShapes) {
        if (name != kernel) continue;
        for (const char* at = shape; *at; ++at) {
            uint64_t value = 0;
            std::memcpy(&value, *arguments++, *at == 'p' ? 8 : 4);
            values.push_back(value);
        }
    }
    return values;
}

int launch(CuFunction function, unsigned blocks, unsigned threads, unsigned shared_bytes, StreamTag* stream,
           void** arguments) {
    return now_or_later(stream, 0,
                        [name = function->name, shape = FakeShape{blocks, threads, residents(function, shared_bytes)},
                         values = read_arguments(function->name, arguments)] { run_now(name, shape, values); });
}

}  // namespace

// Objects and allocations that are still there.
FAKE fake_objects() {
    LOCKED;
    return static_cast<int>(g_live.size()) + g_device_memory;
}

FAKE cuInit(unsigned) {
    g_error = 0;
    return 0;
}
FAKE cuDriverGetVersion(int* version) { return *version = 13000, 0; }
FAKE cuGetErrorName(int, const char** text) { return *text = "CUDA_ERROR", 0; }
FAKE cuGetErrorString(int, const char** text) { return *text = "an error", 0; }
FAKE cuDeviceGetCount(int* count) { return *count = 1, 0; }
FAKE cuDeviceGet(int* device, int) { return *device = 0, 0; }
FAKE cuDeviceGetName(char* name, int size, int) {
    return std::snprintf(name, static_cast<size_t>(size), "Fake GPU"), 0;
}
FAKE cuDeviceGetUuid(char* uuid, int) { return std::memset(uuid, 7, 16), 0; }
FAKE cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case kMultiprocessors: return *value = kFakeProcessors, 0;
        case kComputeMajor: return *value = 8, 0;
        case kReservedSharedBytes: return *value = kReserved, 0;
        default: return *value = attribute != kCluster, 0;
    }
}

FAKE cuDevicePrimaryCtxRetain(CuContext* context, int) {
    LOCKED;
    if (g_retained++ == 0) g_primary = made(new ContextTag);
    *context = g_primary;
    return g_error;
}
FAKE cuDevicePrimaryCtxRelease_v2(int) {
    LOCKED;
    if (g_retained == 0) return 201;
    return --g_retained == 0 ? gone(std::exchange(g_primary, nullptr)) : g_error.load();
}
FAKE cuDevicePrimaryCtxReset_v2(int) {
    LOCKED;
    g_retained = 0;
    return gone(std::exchange(g_primary, nullptr));
}
FAKE cuCtxCreate_v2(CuContext* context, unsigned, int) {
    LOCKED;
    t_current = *context = made(new ContextTag);
    return g_error;
}
FAKE cuCtxDestroy_v2(CuContext context) {
    LOCKED;
    if (t_current == context) t_current = nullptr;
    return gone(context);
}
FAKE cuCtxSetCurrent(CuContext context) {
    LOCKED;
    t_current = context;
    return g_error;
}
FAKE cuCtxSynchronize() { return in_context(); }
FAKE cuCtxSetLimit(int limit, size_t value) {
    if (limit == kStackSize) g_stack = value;
    return in_context();
}
FAKE cuCtxGetLimit(size_t* value, int) { return *value = g_stack, in_context(); }
FAKE cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -2, in_context(); }

FAKE cuModuleLoadData(CuModule* module, const void*) {
    LOCKED;
    const int result = in_context();
    *module = t_current->modules.emplace_back(std::make_unique<ModuleTag>()).get();
    return result;
}
FAKE cuModuleUnload(CuModule module) {
    LOCKED;
    const int result = in_context();
    if (std::erase_if(t_current->modules, [&](const auto& one) { return one.get() == module; }) == 0)
        misuse("a module is unloaded that is not in the current context");
    return result;
}
FAKE cuModuleGetFunction(CuFunction* function, CuModule module, const char* name) {
    LOCKED;
    if (!has_fake_kernel(name)) return kNotFound;
    *function = module->functions.emplace_back(std::make_unique<FunctionTag>(FunctionTag{name})).get();
    return in_context();
}
FAKE cuModuleGetGlobal_v2(CuPointer* pointer, size_t* bytes, CuModule, const char*) {
    *pointer = static_cast<CuPointer>(reinterpret_cast<uintptr_t>(fake_constants(bytes)));
    return in_context();
}
FAKE cuFuncSetAttribute(CuFunction function, int attribute, int value) {
    LOCKED;
    if (attribute == kSharedCarveout) function->carveout = static_cast<unsigned>(value);
    return value <= 232'448 ? in_context() : 1;
}
FAKE cuFuncGetAttribute(int* value, int, CuFunction) { return *value = 8192, in_context(); }
FAKE cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CuFunction, int, size_t) {
    return *blocks = 2, in_context();
}

FAKE cuLaunchKernel(CuFunction function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                    unsigned shared_bytes, CuStream stream, void** arguments, void**) {
    LOCKED;
    return launch(function, x, threads, shared_bytes, stream, arguments);
}
FAKE cuLaunchCooperativeKernel(CuFunction function, unsigned x, unsigned, unsigned, unsigned threads, unsigned,
                               unsigned, unsigned shared_bytes, CuStream stream, void** arguments) {
    LOCKED;
    return launch(function, x, threads, shared_bytes, stream, arguments);
}
FAKE cuLaunchHostFunc(CuStream stream, CuHostFunction function, void* data) {
    LOCKED;
    return now_or_later(stream, 3, [function, data] { function(data); });
}

FAKE cuStreamCreate(CuStream* stream, unsigned) {
    LOCKED;
    *stream = made(new StreamTag);
    return in_context();
}
FAKE cuStreamCreateWithPriority(CuStream* stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
FAKE cuStreamDestroy_v2(CuStream stream) {
    LOCKED;
    return gone(stream);
}
FAKE cuStreamSynchronize(CuStream) { return in_context(); }
FAKE cuStreamWaitEvent(CuStream, CuEvent, unsigned) { return in_context(); }
// A wait for a value that is not there yet would have to stop the stream; the case only needs both to be there.
FAKE cuStreamWriteValue32_v2(CuStream, CuPointer pointer, uint32_t value, unsigned) {
    return *at<uint32_t>(pointer) = value, in_context();
}
FAKE cuStreamWaitValue32_v2(CuStream, CuPointer, uint32_t, unsigned) { return in_context(); }

using FakeEvent = std::chrono::steady_clock::time_point;
FAKE cuEventCreate(CuEvent* event, unsigned) { return *event = reinterpret_cast<CuEvent>(new FakeEvent), in_context(); }
FAKE cuEventDestroy_v2(CuEvent event) { return delete reinterpret_cast<FakeEvent*>(event), g_error.load(); }
FAKE cuEventRecord(CuEvent event, CuStream) {
    return *reinterpret_cast<FakeEvent*>(event) = std::chrono::steady_clock::now(), in_context();
}
FAKE cuEventSynchronize(CuEvent) { return in_context(); }
FAKE cuEventElapsedTime(float* ms, CuEvent begin, CuEvent end) {
    *ms = std::chrono::duration<float, std::milli>(*reinterpret_cast<FakeEvent*>(end) -
                                                   *reinterpret_cast<FakeEvent*>(begin))
              .count();
    return in_context();
}
