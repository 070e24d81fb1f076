// Stands in for libvuda.so in tests of the preload: records what it is told, answers an attach with two exported
// objects.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "client/session_abi.h"

#define VUDA_TEST_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

vuda_private_callbacks g_callbacks{};
std::string& log_text() {
    static auto* text = new std::string;
    return *text;
}
void note(const std::string& line) {
    static auto* mutex = new std::mutex;
    const std::lock_guard lock(*mutex);
    log_text() += line + "\n";
}
std::atomic<bool> g_started{false};

void copy_env(const char* name, char (&out)[65]) {
    const char* value = std::getenv(name);
    if (value != nullptr) std::snprintf(out, sizeof out, "%s", value);
}

}  // namespace

VUDA_TEST_EXPORT uint32_t vuda_private_abi() {
    return std::getenv("TEST_OTHER_ABI") != nullptr ? VUDA_PRIVATE_ABI + 1 : VUDA_PRIVATE_ABI;
}

VUDA_TEST_EXPORT void vuda_private_get_wishes(vuda_private_wishes* out) {
    *out = {};
    copy_env("VUDA_REGISTER", out->register_name);
    copy_env("VUDA_ATTACH", out->attach_name);
    out->share_in_process = std::getenv("VUDA_SHARE") != nullptr;
    out->require = std::getenv("VUDA_REQUIRE") != nullptr;
    out->reserve = UINT32_MAX;
}

VUDA_TEST_EXPORT void vuda_private_start(const vuda_private_callbacks* callbacks, const char* driver) {
    if (std::getenv("TEST_SLOW_START") != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    g_callbacks = *callbacks;
    note(std::string("start ") + driver);
    g_started = true;
}

VUDA_TEST_EXPORT void vuda_private_register(const char* name, const uint8_t uuid[16]) {
    char text[128];
    std::snprintf(text, sizeof text, "register %s %02x%02x", name, uuid[1], uuid[15]);
    note(text);
}

VUDA_TEST_EXPORT int vuda_private_attach(const char* name, const uint8_t[16], uint32_t channels, uint64_t va_base,
                                         uint32_t timeout, vuda_private_handles* out, vuda_private_error* error) {
    if (!g_started) note("attach before start");
    note(std::string("attach ") + name + " " + std::to_string(channels) + (timeout <= 2000 ? "" : " too patient") +
         (va_base != 0 ? " above " + std::to_string(va_base >> 33) : ""));
    const auto exported = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "test_exported_fd"));
    if (std::strcmp(name, "nobody") == 0 || exported == nullptr) {
        *error = {};
        error->code = 5;
        std::snprintf(error->text, sizeof error->text, "no TSG named '%s'", name);
        return -1;
    }
    *out = {};
    out->count = 2;
    out->items = static_cast<vuda_private_handle*>(std::calloc(2, sizeof(vuda_private_handle)));
    out->items[0] = {1, exported(1), 0, 0, 0, 0};
    out->items[1] = {2, exported(0), 0x51f0000, 0x3000, 0, 0};
    out->channels_in_use = 2;
    return 0;
}

// Moved up once where a test says so.
VUDA_TEST_EXPORT int vuda_private_va_slot(uint32_t) {
    const char* const slot = std::getenv("TEST_VA_SLOT");
    return slot != nullptr ? std::atoi(slot) : -1;
}

VUDA_TEST_EXPORT void vuda_private_attach_done(uint32_t channels, uint32_t veid, uint64_t, uint32_t buffers, uint32_t,
                                               const vuda_private_error* reason) {
    note("attach_done " + std::to_string(channels) + " " + std::to_string(veid) + " " + std::to_string(buffers) +
         (reason != nullptr ? std::string(" ") + reason->text : ""));
}

VUDA_TEST_EXPORT void vuda_private_detached(const vuda_private_error*) { note("detached"); }
VUDA_TEST_EXPORT void vuda_private_report(uint32_t state, const vuda_private_error* reason) {
    note("report " + std::to_string(state) + (reason != nullptr ? std::string(" ") + reason->text : ""));
}
VUDA_TEST_EXPORT void vuda_private_context_left(uint64_t veids, uint32_t channels) {
    note("context_left " + std::to_string(veids) + " " + std::to_string(channels));
}
VUDA_TEST_EXPORT void vuda_private_own_subcontexts(uint64_t taken, uint64_t stale) {
    note("subcontexts " + std::to_string(taken) + " " + std::to_string(stale));
}
VUDA_TEST_EXPORT void vuda_private_mirror_changed() { note("mirror_changed"); }
VUDA_TEST_EXPORT void vuda_private_ending() { note("ending"); }
VUDA_TEST_EXPORT void vuda_private_after_fork_in_child() { note("child"); }

// ---- for the test program ----
VUDA_TEST_EXPORT const char* test_session_log() { return log_text().c_str(); }
VUDA_TEST_EXPORT const vuda_private_callbacks* test_session_callbacks() { return &g_callbacks; }
