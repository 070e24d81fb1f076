#include "sim/standin/vuda.h"

#include <dlfcn.h>

#include "sim/standin/measure.h"

namespace vuda::sim::standin {

Vuda Vuda::find() {
    Vuda found;
    void* library = dlopen("libvuda.so.0", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return found;
    found.disable_mask_ = reinterpret_cast<decltype(found.disable_mask_)>(dlsym(library, "vuda_private_disable_mask"));
    found.sample_ = reinterpret_cast<decltype(found.sample_)>(dlsym(library, "vuda_private_sample"));
    dlclose(library);  // libvuda.so is never unloaded
    return found;
}

uint64_t Vuda::mask(work::Launch& launch) const {
    if (disable_mask_ == nullptr) return 0;
    uint64_t words[4] = {};
    const uint64_t generation = disable_mask_(words);
    // A launch descriptor's mask has room for 128 TPCs.
    for (int i = 0; i < 4; i++) launch.disabled_tpcs[i] |= static_cast<uint32_t>(words[i / 2] >> (i % 2 * 32));
    if ((words[0] | words[1]) != 0) launch.flags |= work::kLaunchMaskValid;
    return generation;
}

void Vuda::sample(Sample kind, uint64_t id, double duration_ms) const {
    if (sample_ == nullptr) return;
    sample_(static_cast<uint32_t>(kind), id, monotonic_ns(), static_cast<uint64_t>(duration_ms * 1e6));
}

}  // namespace vuda::sim::standin
