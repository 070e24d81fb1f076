// Stands in for libvuda.so.0 in layer_vulkan_test: loaded with LD_PRELOAD, takes every sample and counts them by kind.
#include <atomic>
#include <cstdint>

namespace {
std::atomic<int> g_samples[8];
}

extern "C" {
int vuda_private_wants_samples(uint32_t) { return 1; }
void vuda_private_sample(uint32_t kind, uint64_t, uint64_t, uint64_t duration_ns) {
    if (kind < 8 && duration_ns > 0) ++g_samples[kind];
}
int layer_test_samples(uint32_t kind) { return kind < 8 ? g_samples[kind].load() : 0; }
}
