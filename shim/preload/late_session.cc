#include "shim/preload/late_session.h"

#include <dlfcn.h>
#include <limits.h>

#include <cstdio>
#include <cstring>

namespace vuda::shim {
namespace {

constexpr const char* kSoname = "libvuda.so.0";

template <typename Fn>
bool bind(void* handle, const char* name, Fn* out) {
    *out = reinterpret_cast<Fn>(dlsym(handle, name));
    return *out != nullptr;
}

// Where libvuda.so may lie relative to this library: the build tree, the installed tree (libdir/vuda/), an unpacked
// archive.
constexpr const char* kPlaces[] = {"libvuda.so.0", "../libvuda.so.0", "../lib/libvuda.so.0"};

}  // namespace

bool LateSession::adopt(void* handle) {
    decltype(&vuda_private_abi) abi = nullptr;
    if (!bind(handle, "vuda_private_abi", &abi) || abi() != VUDA_PRIVATE_ABI) {
        std::snprintf(problem_, sizeof problem_, "libvuda.so is of another version than libvuda_preload.so");
        return false;
    }
    const bool complete =
        bind(handle, "vuda_private_get_wishes", &get_wishes) && bind(handle, "vuda_private_start", &start) &&
        bind(handle, "vuda_private_register", &register_name) && bind(handle, "vuda_private_attach", &attach) &&
        bind(handle, "vuda_private_va_slot", &va_slot) && bind(handle, "vuda_private_attach_done", &attach_done) &&
        bind(handle, "vuda_private_detached", &detached) && bind(handle, "vuda_private_report", &report) &&
        bind(handle, "vuda_private_own_subcontexts", &own_subcontexts) &&
        bind(handle, "vuda_private_context_left", &context_left) &&
        bind(handle, "vuda_private_mirror_changed", &mirror_changed) && bind(handle, "vuda_private_ending", &ending) &&
        bind(handle, "vuda_private_after_fork_in_child", &after_fork_in_child);
    if (!complete) {
        std::snprintf(problem_, sizeof problem_, "libvuda.so lacks a function that libvuda_preload.so needs");
        return false;
    }
    handle_.store(handle, std::memory_order_release);
    return true;
}

bool LateSession::load(const Settings& settings, const void* own_symbol) {
    const std::lock_guard lock(mutex_);
    if (loaded()) return true;
    if (void* own = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return adopt(own);
    if (!settings.asked() || searched_) return false;
    searched_ = true;

    Dl_info info{};
    if (dladdr(own_symbol, &info) != 0 && info.dli_fname != nullptr) {
        const char* slash = std::strrchr(info.dli_fname, '/');
        const int folder = slash == nullptr ? 0 : static_cast<int>(slash - info.dli_fname);
        for (const char* place : kPlaces) {
            if (slash == nullptr) break;
            char path[PATH_MAX];
            const int size = std::snprintf(path, sizeof path, "%.*s/%s", folder, info.dli_fname, place);
            if (size <= 0 || size >= static_cast<int>(sizeof path)) continue;
            if (void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return adopt(handle);
            // A file that is there but cannot be loaded is the interesting message.
            const char* error = dlerror();
            if (error != nullptr && (problem_[0] == '\0' || std::strstr(error, "No such file") == nullptr)) {
                std::snprintf(problem_, sizeof problem_, "%s", error);
            }
        }
    }
    if (void* handle = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL)) return adopt(handle);
    return false;
}

vuda_private_wishes LateSession::wishes(const Settings& settings) const {
    if (!loaded()) return settings.wishes;
    vuda_private_wishes wishes{};
    get_wishes(&wishes);
    return wishes;
}

}  // namespace vuda::shim
