// Functions of a library that this process has loaded already; it is never loaded for them, so that without VUDA
// nothing changes.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <string>

namespace vuda::bench {

class LoadedLibrary {
 public:
    // The handle is not given back: a library that was found stays.
    explicit LoadedLibrary(const std::string& name)
        : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {}

    explicit operator bool() const { return handle_ != nullptr; }

    // `function` is nullptr when the library, or the name in it, is not there.
    template <typename Function>
    void find(const char* name, Function** function) const {
        void* found = handle_ != nullptr ? ::dlsym(handle_, name) : nullptr;
        std::memcpy(function, &found, sizeof found);
    }

 private:
    void* handle_;
};

}  // namespace vuda::bench
