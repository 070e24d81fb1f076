// Stands in for libvuda.so in a test of step_marks.h: counts marks, and begins whose end did not come.
#include <cstdint>

namespace {

uint64_t g_steps = 0;
uint64_t g_wrong = 0;
uint64_t g_open = UINT64_MAX;

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void vuda_step_begin(uint64_t id) {
    if (g_open != UINT64_MAX) ++g_wrong;
    g_open = id;
}

[[gnu::visibility("default")]] void vuda_step_end(uint64_t id) {
    if (g_open != id) ++g_wrong;
    g_open = UINT64_MAX;
    ++g_steps;
}

[[gnu::visibility("default")]] uint64_t fake_marks_steps() { return g_steps; }
[[gnu::visibility("default")]] uint64_t fake_marks_wrong() { return g_wrong; }

}  // extern "C"
