#include "shim/layer/turn_gate.h"

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/monotonic.h"

namespace vuda::layer {
namespace {

void sleep_until(uint64_t ns) {
    const timespec at{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    // A signal ends it early: the caller looks at the clock.
    static_cast<void>(::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr));
}

}  // namespace

TurnSource TurnSource::find() {
    TurnSource source;
    // libvuda stays in a process that has it: the handle is not given back.
    void* library = ::dlopen("libvuda.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return source;
    void* turns = ::dlsym(library, "vuda_private_turns");
    std::memcpy(&source.turns, &turns, sizeof source.turns);
    void* slice = ::dlsym(library, "vuda_private_turn_slice");
    std::memcpy(&source.slice, &slice, sizeof source.slice);
    return source;
}

void TurnGate::queue_found(VkQueue queue, uint32_t family) {
    if (queue == VK_NULL_HANDLE || family >= families_.size()) return;
    if ((families_[family].queueFlags & VK_QUEUE_GRAPHICS_BIT) == 0) return;
    const std::lock_guard lock(mutex_);
    if (std::find(queues_.begin(), queues_.end(), queue) != queues_.end()) return;
    try {
        queues_.push_back(queue);
    } catch (const std::bad_alloc&) {
        // Not paced.
    }
}

bool TurnGate::paced(VkQueue queue) const {
    const std::lock_guard lock(mutex_);
    return std::find(queues_.begin(), queues_.end(), queue) != queues_.end();
}

bool TurnGate::terms(TurnPacer::Terms& out) const {
    out = {};
    return source_.turns(&out.graphics_permille, &out.frame_ns) != 0;
}

void TurnGate::ask_for_slice(uint32_t us) {
    if (source_.slice == nullptr || (us == 0 && !asked_for_slice_.load(std::memory_order_relaxed))) return;
    const bool done = source_.slice(us) != 0;
    asked_for_slice_.store(us != 0 || !done, std::memory_order_relaxed);
}

void TurnGate::submitting(VkQueue queue) {
    if (in_frame_.load(std::memory_order_relaxed) || !paced(queue)) return;
    if (in_frame_.exchange(true, std::memory_order_acq_rel)) return;
    TurnPacer::Terms now_asked;
    bool sliced = terms(now_asked);
    const bool ends_elsewhere =
        fences_others_.load(std::memory_order_relaxed) && !fences_graphics_.load(std::memory_order_relaxed);
    wants_gpu_time_.store(sliced && (now_asked.graphics_permille != 0 || ends_elsewhere), std::memory_order_relaxed);
    if (!sliced) return ask_for_slice(0);
    uint64_t release;
    {
        const std::lock_guard lock(mutex_);
        release = pacer_.release_ns(now_asked, monotonic_ns());
    }
    for (uint64_t now = monotonic_ns(); now < release; now = monotonic_ns()) {
        sleep_until(std::min(release, now + kLookNs));
        const TurnPacer::Terms before = now_asked;
        sliced = terms(now_asked);
        if (!sliced) return ask_for_slice(0);
        if (now_asked == before) continue;
        const std::lock_guard lock(mutex_);
        release = std::min(release, pacer_.release_ns(now_asked, monotonic_ns()));
    }
    uint32_t slice;
    {
        const std::lock_guard lock(mutex_);
        pacer_.began(now_asked, monotonic_ns());
        slice = pacer_.slice_us(now_asked);
    }
    ask_for_slice(slice);
}

void TurnGate::submitted(VkQueue queue, bool fence) {
    if (!fence || presents_.load(std::memory_order_relaxed)) return;
    const bool graphics = paced(queue);
    (graphics ? fences_graphics_ : fences_others_).store(true, std::memory_order_relaxed);
    if (graphics || !fences_graphics_.load(std::memory_order_relaxed))
        in_frame_.store(false, std::memory_order_release);
}

void TurnGate::presented() {
    presents_.store(true, std::memory_order_relaxed);
    in_frame_.store(false, std::memory_order_release);
}

void TurnGate::worked(uint64_t gpu_ns) {
    const std::lock_guard lock(mutex_);
    pacer_.worked(gpu_ns);
}

}  // namespace vuda::layer
