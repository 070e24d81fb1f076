// Stands in for libvuda.so in tests of quota_changes.h (a change is in force at the second look after it) and
// launch_watch.h.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "vuda/vuda.h"

namespace {

uint64_t g_changes = 0;
int g_looks = 2;
uint64_t g_watched[2] = {};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int vuda_set_quota(uint32_t tpcs) {
    if (tpcs == 0) return VUDA_E_INVALID;
    ++g_changes;
    g_looks = 0;
    return VUDA_OK;
}

[[gnu::visibility("default")]] int vuda_get_partition(vuda_partition* partition) {
    const bool stuck = std::getenv("FAKE_QUOTA_STUCK") != nullptr;
    partition->total_tpcs = 66;
    partition->backend = std::getenv("FAKE_QUOTA_NO_BACKEND") != nullptr ? VUDA_BACKEND_NONE : VUDA_BACKEND_QMD_MASK;
    partition->generation = stuck ? 7 : g_changes - (g_looks++ < 1 ? 1 : 0);
    std::strncpy(partition->reason, "as the test wants", sizeof partition->reason - 1);
    return VUDA_OK;
}

[[gnu::visibility("default")]] int vuda_private_watch_launches(int on) {
    ++g_watched[on];
    return 1;
}
[[gnu::visibility("default")]] uint64_t fake_watched(int on) { return g_watched[on]; }

[[gnu::visibility("default")]] uint64_t fake_quota_changes() { return g_changes; }

}  // extern "C"
