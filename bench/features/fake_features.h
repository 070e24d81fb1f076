// What the two halves of the stand-in for libcuda.so.1 share (fake_features_cuda.cc, fake_features_memory.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/features/driver_types.h"

namespace vuda::bench::features {

struct FunctionTag {
    std::string name;
    unsigned carveout = 50;  // per cent of a multiprocessor's shared memory; some, until more is asked for
};
struct ModuleTag {
    std::vector<std::unique_ptr<FunctionTag>> functions;
};
struct ContextTag {
    std::vector<std::unique_ptr<ModuleTag>> modules;  // go with it
};
struct GraphTag {
    std::vector<std::pair<int, std::function<void()>>> nodes;
    std::vector<void*> memory;
};
struct StreamTag {
    GraphTag* capturing = nullptr;
};

namespace fake {

inline std::recursive_mutex g_mutex;  // one call at a time; host functions make none
using Lock = std::lock_guard<std::recursive_mutex>;
inline std::set<const void*> g_live;
inline thread_local ContextTag* t_current = nullptr;
inline std::atomic<int> g_error{0};
inline int g_device_memory = 0;

[[noreturn]] inline void misuse(const char* what) {
    std::fprintf(stderr, "fake CUDA: %s\n", what);
    std::abort();
}

template <typename T>
T* made(T* object) {
    g_live.insert(object);
    return object;
}

template <typename T>
int gone(T* object) {
    if (g_live.erase(object) == 0) misuse("something is freed that is not there");
    delete object;
    return g_error;
}

inline int in_context() {
    const Lock lock(g_mutex);
    if (!t_current || !g_live.contains(t_current)) misuse("a call without a context, or in one that has gone");
    return g_error;
}

// Now, or as a node of the graph that is being captured.
inline int now_or_later(StreamTag* stream, int type, std::function<void()> action) {
    const int result = in_context();
    if (stream && !g_live.contains(stream)) misuse("a stream that has gone");
    if (stream && stream->capturing) {
        stream->capturing->nodes.emplace_back(type, std::move(action));
    } else {
        action();
    }
    return result;
}

template <typename T>
T* at(CuPointer pointer) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(pointer));
}

}  // namespace fake
}  // namespace vuda::bench::features

#define FAKE extern "C" int
#define LOCKED const Lock lock(g_mutex)
