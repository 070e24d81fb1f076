// Asks for the driver's functions in each way that CUDA programs do: fit_scenario LIBRARY BYTES [linked]. Exits with
// the number of the first thing that is not as it should be.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

using Attribute = int (*)(int*, int, int);
using Address = int (*)(const char*, void**, int, uint64_t);
using AddressV2 = int (*)(const char*, void**, int, uint64_t, void*);

int g_bytes = 0;
int g_step = 0;

void expect(bool good, const char* what) {
    ++g_step;
    if (good) return;
    std::fprintf(stderr, "step %d: %s\n", g_step, what);
    std::exit(g_step);
}

template <typename Function>
Function find(void* library, const char* name) {
    return reinterpret_cast<Function>(::dlsym(library, name));
}

void check(Attribute attribute, const char* way) {
    expect(attribute != nullptr, way);
    int value = 0;
    expect(attribute(&value, 97, 0) == 0 && value == g_bytes, way);
    expect(attribute(&value, 81, 0) == 0 && value == 233472, "other attributes are as they are");
    expect(attribute(&value, 75, 0) == 0 && value == 9, "other attributes are as they are");
    expect(attribute(&value, 97, 1) == 101, "errors are handed on");
}

}  // namespace

// The program's own definition comes before everybody's: RTLD_NEXT has to look behind the program, not behind a
// preloaded library.
extern "C" __attribute__((visibility("default"))) int puts(const char*) { return -77; }

int main(int argc, char** argv) {
    if (argc != 3 && argc != 4) return 64;
    g_bytes = std::atoi(argv[2]);
    expect(::dlsym(RTLD_DEFAULT, "cuDeviceGetAttribute") == nullptr, "no driver is loaded yet");
    void* library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    expect(library != nullptr, "the library loads");

    if (argc == 4) {
        check(find<Attribute>(library, "ask"), "what is linked to the driver");
        return 0;
    }
    check(find<Attribute>(library, "cuDeviceGetAttribute"), "dlsym");
    Attribute attribute = nullptr;
    const auto address = find<Address>(library, "cuGetProcAddress");
    expect(address("cuDeviceGetAttribute", reinterpret_cast<void**>(&attribute), 11030, 0) == 0, "cuGetProcAddress");
    check(attribute, "cuGetProcAddress");
    const auto second = find<AddressV2>(library, "cuGetProcAddress_v2");
    attribute = nullptr;
    expect(second("cuDeviceGetAttribute", reinterpret_cast<void**>(&attribute), 13000, 0, nullptr) == 0,
           "cuGetProcAddress_v2");
    check(attribute, "cuGetProcAddress_v2");
    // As the runtime does: it asks cuGetProcAddress for itself.
    AddressV2 itself = nullptr;
    expect(address("cuGetProcAddress", reinterpret_cast<void**>(&itself), 12000, 0) == 0,
           "cuGetProcAddress for itself");
    attribute = nullptr;
    expect(itself("cuDeviceGetAttribute", reinterpret_cast<void**>(&attribute), 13000, 0, nullptr) == 0,
           "what it gave");
    check(attribute, "what cuGetProcAddress gave for itself");
    void* none = &none;
    expect(second("cuNoSuchFunction", &none, 13000, 0, nullptr) == 500 && none == nullptr, "what is not there");
    expect(find<void*>(library, "cuInit") != nullptr && find<void*>(library, "cuNoSuchFunction") == nullptr,
           "other functions");

    const auto next_puts = find<int (*)(const char*)>(RTLD_NEXT, "puts");
    expect(next_puts != nullptr && next_puts != &puts, "RTLD_NEXT looks behind the program");
    expect(find<int (*)(const char*)>(RTLD_DEFAULT, "puts") == &puts, "RTLD_DEFAULT finds the program's");
    return 0;
}
