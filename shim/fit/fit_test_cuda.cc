// What fit_scenario finds where a CUDA program finds libcuda.so.1: an H200's answers.
#include <cstdint>
#include <cstring>

extern "C" {
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    if (device != 0) return 101;
    switch (attribute) {
        case 75: *value = 9; return 0;
        case 76: *value = 0; return 0;
        case 81: *value = 233472; return 0;  // of a multiprocessor
        case 97: *value = 232448; return 0;  // a block may opt in to
        default: return 1;
    }
}
int cuInit(unsigned) { return 0; }
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, void* found);
int cuGetProcAddress(const char* name, void** function, int, uint64_t) {
    *function = nullptr;
    if (std::strcmp(name, "cuDeviceGetAttribute") == 0) *function = reinterpret_cast<void*>(cuDeviceGetAttribute);
    if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(cuInit);
    if (std::strcmp(name, "cuGetProcAddress") == 0) *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
    return *function == nullptr ? 500 : 0;
}
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, void*) {
    return cuGetProcAddress(name, function, version, flags);
}
}
