// Stands in for libvuda_preload.so in layer_vulkan_test: loaded with LD_PRELOAD, counts the layer's calls.
#include <atomic>

namespace {
std::atomic<int> g_calls{0};
}

extern "C" {
void vuda_shim_device_created(void) { ++g_calls; }
int layer_test_device_created_calls(void) { return g_calls; }
}
