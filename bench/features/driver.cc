#include "bench/features/driver.h"

#include <dlfcn.h>

#include "bench/common/exit_code.h"

namespace vuda::bench::features {
namespace {

// 700 illegal address, 702 launch timeout, 710 assert, 714 hardware stack error, 715 illegal instruction, 716
// misaligned address, 717 invalid address space, 718 invalid program counter, 719 launch failed; 999 is "unknown".
bool ends_its_context(CuResult result) {
    return result == 700 || result == 702 || result == kAssert || (result >= 714 && result <= 719) || result == 999;
}

}  // namespace

Result<std::unique_ptr<Driver>> Driver::load(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char* reason = dlerror();
        return Error{Code::kUnavailable, std::string("no CUDA driver: ") + (reason ? reason : library),
                     "install the NVIDIA driver's CUDA library"};
    }
    return std::unique_ptr<Driver>(new Driver(handle));  // the constructor is private, so no make_unique
}

void* Driver::find(const char* name) const { return dlsym(library_, name); }

Status Driver::check(CuResult result, const std::string& what) const {
    if (result == kSuccess) return {};
    const char* name = nullptr;
    const char* words = nullptr;
    error_name(result, &name);
    error_string(result, &words);
    const std::string text = what + ": " + (words ? words : "unknown error") + " (" + (name ? name : "CUresult") +
                             ", " + std::to_string(result) + ")";
    if (ends_its_context(result)) return Error{kDeviceLost, text, ""};
    if (result == kNotFound || result == kNotSupported) return Error{Code::kUnimplemented, text, ""};
    switch (result) {
        case 2: return Error{Code::kResourceExhausted, text, ""};
        case 3:
        case 34:
        case 100:
        case 803: return Error{Code::kUnavailable, text, ""};
        default: return Error{Code::kInternal, text, ""};
    }
}

}  // namespace vuda::bench::features
