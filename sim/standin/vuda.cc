#include "sim/standin/vuda.h"

#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "shim/limits/scg_limit.h"
#include "sim/standin/measure.h"

namespace vuda::sim::standin {

Vuda Vuda::find() {
    Vuda found;
    void* library = dlopen("libvuda.so.0", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return found;
    found.disable_mask_ = reinterpret_cast<decltype(found.disable_mask_)>(dlsym(library, "vuda_private_disable_mask"));
    found.own_kernel_ = reinterpret_cast<decltype(found.own_kernel_)>(dlsym(library, "vuda_private_own_kernel"));
    found.device_lost_ = reinterpret_cast<decltype(found.device_lost_)>(dlsym(library, "vuda_private_device_lost"));
    found.turns_ = reinterpret_cast<decltype(found.turns_)>(dlsym(library, "vuda_private_turns"));
    found.turn_slice_ = reinterpret_cast<decltype(found.turn_slice_)>(dlsym(library, "vuda_private_turn_slice"));
    found.sample_ = reinterpret_cast<decltype(found.sample_)>(dlsym(library, "vuda_private_sample"));
    dlclose(library);  // libvuda.so is never unloaded
    return found;
}

void Vuda::device_lost() const {
    if (device_lost_ != nullptr) device_lost_();
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

int Vuda::refusal(const work::Launch& launch) const {
    // The simulated GPUs have compute capability 7.5 to 9.0.
    return own_kernel_ == nullptr ? 0 : own_kernel_(launch.shared_memory, limits::scg_limit(9, 0).bytes);
}

void Vuda::wait_for_turn(layer::TurnPacer& pacer) const {
    layer::TurnPacer::Terms terms;
    if (turns_ == nullptr) return;
    if (turns_(&terms.graphics_permille, &terms.frame_ns) == 0) {
        if (turn_slice_ != nullptr) turn_slice_(0);
        return;
    }
    const uint64_t now = monotonic_ns();
    std::this_thread::sleep_for(std::chrono::nanoseconds(pacer.release_ns(terms, now) - now));
    pacer.began(terms, monotonic_ns());
    if (turn_slice_ != nullptr) turn_slice_(pacer.slice_us(terms));
}

void Vuda::sample(Sample kind, uint64_t id, double duration_ms) const {
    if (sample_ == nullptr) return;
    sample_(static_cast<uint32_t>(kind), id, monotonic_ns(), static_cast<uint64_t>(duration_ms * 1e6));
}

}  // namespace vuda::sim::standin
