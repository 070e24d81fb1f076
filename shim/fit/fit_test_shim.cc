// Stands in for libvuda_preload.so: FIT_TEST_UNSHARED says that the process runs work outside of a shared TSG.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int vuda_shim_unshared() {
    return std::getenv("FIT_TEST_UNSHARED") != nullptr ? 1 : 0;
}
