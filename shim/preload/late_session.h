// libvuda.so, found and loaded when the process first makes a GPU context that somebody asked to share; never before,
// and never in a process that does not use the GPU.
#pragma once

#include <atomic>
#include <mutex>

#include "client/session_abi.h"
#include "shim/preload/settings.h"

namespace vuda::shim {

class LateSession {
 public:
    // An instance that the program itself brought along, else (when the environment asks for sharing) the one of this
    // build: beside this library, or where the installed tree has it. Repeats the search for a program's own instance
    // on each call. `own_symbol`: any address inside this library.
    bool load(const Settings& settings, const void* own_symbol);
    bool loaded() const { return handle_.load(std::memory_order_acquire) != nullptr; }
    // Why load() failed, for people; empty while nothing was tried.
    const char* problem() const { return problem_; }

    vuda_private_wishes wishes(const Settings& settings) const;

    // The functions of session_abi.h. Call only after load() returned true.
    decltype(&vuda_private_get_wishes) get_wishes = nullptr;
    decltype(&vuda_private_start) start = nullptr;
    decltype(&vuda_private_register) register_name = nullptr;
    decltype(&vuda_private_attach) attach = nullptr;
    decltype(&vuda_private_va_slot) va_slot = nullptr;
    decltype(&vuda_private_attach_done) attach_done = nullptr;
    decltype(&vuda_private_detached) detached = nullptr;
    decltype(&vuda_private_report) report = nullptr;
    decltype(&vuda_private_context_left) context_left = nullptr;
    decltype(&vuda_private_own_subcontexts) own_subcontexts = nullptr;
    decltype(&vuda_private_mirror_changed) mirror_changed = nullptr;
    decltype(&vuda_private_ending) ending = nullptr;
    decltype(&vuda_private_after_fork_in_child) after_fork_in_child = nullptr;

 private:
    bool adopt(void* handle);

    std::mutex mutex_;
    std::atomic<void*> handle_{nullptr};
    bool searched_ = false;
    char problem_[256] = {};
};

}  // namespace vuda::shim
