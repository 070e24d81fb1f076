// Stands in for libvuda.so.0 in layer_vulkan_test: loaded with LD_PRELOAD, takes every sample and counts them by kind.
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {
std::atomic<int> g_samples[8];
std::atomic<int> g_lost;
}  // namespace

extern "C" {
int vuda_private_wants_samples(uint32_t) { return 1; }
void vuda_private_sample(uint32_t kind, uint64_t, uint64_t, uint64_t duration_ns) {
    if (kind < 8 && duration_ns > 0) ++g_samples[kind];
}
// LAYER_TEST_TURNS: compute takes turns with frames, which have a target of 30 ms.
int vuda_private_turns(uint32_t* graphics_permille, uint64_t* frame_ns) {
    *graphics_permille = 0;
    *frame_ns = 30'000'000;
    return std::getenv("LAYER_TEST_TURNS") == nullptr ? 0 : 1;
}
void vuda_private_device_lost(void) { ++g_lost; }
int layer_test_lost(void) { return g_lost.load(); }
int layer_test_samples(uint32_t kind) { return kind < 8 ? g_samples[kind].load() : 0; }
}
