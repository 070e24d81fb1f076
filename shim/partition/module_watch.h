// Knows the kernels that must not run in a TSG that is shared whatever their size: those that may fetch managed
// variables by page faults, and those that may launch kernels which are too large.
//
// It goes by what the program asks CUDA for: code that it loads is looked into (module_traits.h), and functions and
// kernels that it gets are remembered by the module or library that they are of. Code that was loaded before it
// watched, or that is compressed, is not known, but for a library of which CUDA was asked for a managed variable.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "shim/partition/module_traits.h"

namespace vuda::partition {

class ModuleWatch {
 public:
    enum class Care {
        kNone,      // no more than its size says
        kFaults,    // may fetch managed variables by page faults: only a TSG of CUDA's own can
        kChildren,  // may launch kernels that are too large, and those would go where it is
    };

    ModuleWatch() = default;
    ModuleWatch(const ModuleWatch&) = delete;
    ModuleWatch& operator=(const ModuleWatch&) = delete;

    // --- Around calls of the driver, by their numbers in cupti_driver_cbid.h, with the block of their arguments, which
    // is not trusted. Any thread.
    static bool is_watched(int function);
    // It loads code with managed variables. What was seen of that code serves on_left(), too.
    bool loads_managed(int function, const void* arguments) const;
    static bool is_library(int function);
    void on_entered(int function, const void* arguments);
    // After it came to a good end.
    void on_left(int function, const void* arguments);

    // What the call launches, where that is one kernel; nullptr: something else, or it cannot be read.
    static const void* launched(int function, const void* arguments);

    // Whether there is any kernel that needs care: while there is none, care_of() need not be asked.
    bool any() const { return any_.load(std::memory_order_acquire); }
    // Of a function or kernel as a launch names it. `limit`: bytes of shared memory a block beside graphics; 0: there
    // is none. `bytes`: what the largest child may want, for kChildren.
    Care care_of(const void* function, uint32_t limit, uint32_t* bytes = nullptr) const;

 private:
    // A module or a library.
    struct Code {
        ModuleTraits traits;
        uint32_t raised = 0;
    };
    void loaded(const void* code, const ModuleTraits& traits);
    void got(const void* function, const void* code);
    void raised(const void* function, int attribute, int value);
    void forget(const void* code);
    void recount();
    const Code* code_of(const void* function) const;
    const void* library_of(const void* code) const;

    std::atomic<bool> any_{false};
    mutable std::mutex mutex_;
    std::map<const void*, Code> codes_;             // only such as need care
    std::map<const void*, const void*> libraries_;  // of modules that a library has in a context
    std::map<const void*, const void*> functions_;  // to the code that they are of
};

}  // namespace vuda::partition
