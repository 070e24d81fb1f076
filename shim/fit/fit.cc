// libvuda_fit.so: tells a CUDA program that it may opt into no more shared memory a block than can run beside graphics,
// so that libraries which choose kernels by that number (cuBLAS, PyTorch's attention and convolutions) choose some that
// fit. Nothing else of what the program sees changes.
//
// A library of its own, preloaded by `vudactl run --fit-kernels` only, because it has to interpose dlsym: that is how
// the CUDA runtime, linked statically into most libraries, finds the driver's functions. It asks for
// cuGetProcAddress(_v2) there and for everything else through that. What is linked to libcuda.so.1 (Triton's helper)
// calls the function itself, which is interposed too.
//
// Needs libc only, allocates nothing, keeps no lock.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "shim/limits/scg_limit.h"

extern "C" __attribute__((visibility("default"))) int cuDeviceGetAttribute(int* value, int attribute, int device);

namespace {

using CuResult = int;  // CUresult; 0 = CUDA_SUCCESS
using DeviceGetAttribute = CuResult (*)(int* value, int attribute, int device);
using GetProcAddress = CuResult (*)(const char* name, void** function, int version, uint64_t flags);
using GetProcAddressV2 = CuResult (*)(const char* name, void** function, int version, uint64_t flags, void* found);

// Of libvuda_preload.so: 1: this process runs work outside of the TSG that it was to share.
using Unshared = int (*)();
std::atomic<Unshared> g_unshared{nullptr};

// cuBLASLt chose kernels for bf16 products by the smaller number that are too large all the same, and whose results are
// wrong (H200, CUDA 13.0, docs/compatibility.md). While a program shares they are refused; where they would run, it is
// told the truth.
bool runs_unshared();

// CUdevice_attribute
constexpr int kMajor = 75, kMinor = 76, kSharedMemoryOptIn = 97;
// What CUDA reserves of a block's shared memory, and what keeps a kernel from waiting for the end of each frame.
constexpr uint32_t kReserved = 1024, kSpare = 1024;

std::atomic<DeviceGetAttribute> g_attribute{nullptr};
std::atomic<GetProcAddress> g_address{nullptr};
std::atomic<GetProcAddressV2> g_address_v2{nullptr};

CuResult attribute(int* value, int which, int device) {
    const DeviceGetAttribute next = g_attribute.load(std::memory_order_acquire);
    const CuResult result = next(value, which, device);
    if (result != 0 || which != kSharedMemoryOptIn || value == nullptr || runs_unshared()) return result;
    int major = 0, minor = 0;
    if (next(&major, kMajor, device) != 0 || next(&minor, kMinor, device) != 0) return result;
    const auto fits = static_cast<int>(vuda::limits::scg_limit(major, minor).bytes - kReserved - kSpare);
    if (*value > fits) *value = fits;
    return result;
}

constexpr CuResult kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED

// The driver's own, for those that are linked to it; false: it is not loaded.
bool find_linked();

CuResult address(const char* name, void** function, int version, uint64_t flags);
CuResult address_v2(const char* name, void** function, int version, uint64_t flags, void* found);

// What the program gets instead of the driver's `function` called `name`.
void* replaced(const char* name, void* function) {
    const auto keep = [&](auto& place, auto* ours) {
        auto* const mine = reinterpret_cast<void*>(ours);
        if (function == mine) return mine;
        place.store(reinterpret_cast<decltype(ours)>(function), std::memory_order_release);
        return mine;
    };
    if (function == nullptr || name == nullptr || name[0] != 'c' || name[1] != 'u') return function;
    // Ours, found in the global scope: without a driver there is nothing.
    if (function == reinterpret_cast<void*>(&cuDeviceGetAttribute)) return find_linked() ? function : nullptr;
    if (std::strcmp(name, "cuDeviceGetAttribute") == 0) return keep(g_attribute, attribute);
    if (std::strcmp(name, "cuGetProcAddress") == 0) return keep(g_address, address);
    if (std::strcmp(name, "cuGetProcAddress_v2") == 0) return keep(g_address_v2, address_v2);
    return function;
}

CuResult address(const char* name, void** function, int version, uint64_t flags) {
    const CuResult result = g_address.load(std::memory_order_acquire)(name, function, version, flags);
    // Asked for by its plain name, it is the second version from CUDA 12 on.
    const bool itself = name != nullptr && std::strcmp(name, "cuGetProcAddress") == 0 && version >= 12000;
    if (result == 0 && function != nullptr) *function = replaced(itself ? "cuGetProcAddress_v2" : name, *function);
    return result;
}

CuResult address_v2(const char* name, void** function, int version, uint64_t flags, void* found) {
    const CuResult result = g_address_v2.load(std::memory_order_acquire)(name, function, version, flags, found);
    const bool itself = name != nullptr && std::strcmp(name, "cuGetProcAddress") == 0 && version >= 12000;
    if (result == 0 && function != nullptr) *function = replaced(itself ? "cuGetProcAddress_v2" : name, *function);
    return result;
}

}  // namespace

// --- dlsym

using Dlsym = void* (*)(void* handle, const char* name);

extern "C" {
// Named for the assembler below; hidden.
__attribute__((visibility("hidden"))) Dlsym vuda_fit_next = nullptr;

__attribute__((visibility("hidden"))) Dlsym vuda_fit_resolve() {
    // The version of the C library's dlsym: from 2.34 on, and before (x86-64).
    void* next = ::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (next == nullptr) next = ::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    __atomic_store_n(&vuda_fit_next, reinterpret_cast<Dlsym>(next), __ATOMIC_RELEASE);
    return reinterpret_cast<Dlsym>(next);
}

__attribute__((visibility("hidden"))) void* vuda_fit_dlsym(void* handle, const char* name) {
    Dlsym next = __atomic_load_n(&vuda_fit_next, __ATOMIC_ACQUIRE);
    if (next == nullptr) next = vuda_fit_resolve();
    return replaced(name, next(handle, name));
}
}

namespace {

bool runs_unshared() {
    Unshared ask = g_unshared.load(std::memory_order_acquire);
    if (ask == nullptr) {
        ask = reinterpret_cast<Unshared>(vuda_fit_dlsym(RTLD_DEFAULT, "vuda_shim_unshared"));
        // Without the shim somebody preloaded this library to see what libraries choose.
        if (ask == nullptr) return false;
        g_unshared.store(ask, std::memory_order_release);
    }
    return ask() != 0;
}

bool find_linked() {
    if (g_attribute.load(std::memory_order_acquire) != nullptr) return true;
    // Where it lies may be no place that RTLD_NEXT looks at: a module that Python loaded brings it along for itself.
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    vuda_fit_dlsym(driver, "cuDeviceGetAttribute");
    ::dlclose(driver);
    return g_attribute.load(std::memory_order_acquire) != nullptr;
}

}  // namespace

extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device) {
    return find_linked() ? ::attribute(value, attribute, device) : kNotInitialized;
}

// What RTLD_NEXT means depends on who calls: such a call goes on as a jump, so that the C library sees its caller.
__asm__(
    ".text\n"
    ".globl dlsym\n"
    ".type dlsym, @function\n"
    "dlsym:\n"
    "    .cfi_startproc\n"
    "    endbr64\n"
    "    cmpq $-1, %rdi\n"
    "    jne vuda_fit_dlsym\n"
    "    movq vuda_fit_next(%rip), %rax\n"
    "    testq %rax, %rax\n"
    "    jne 1f\n"
    "    pushq %rdi\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    pushq %rsi\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    subq $8, %rsp\n"
    "    .cfi_adjust_cfa_offset 8\n"
    "    call vuda_fit_resolve\n"
    "    addq $8, %rsp\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    popq %rsi\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "    popq %rdi\n"
    "    .cfi_adjust_cfa_offset -8\n"
    "1:  jmp *%rax\n"
    "    .cfi_endproc\n"
    ".size dlsym, . - dlsym\n");
