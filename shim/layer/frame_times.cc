#include "shim/layer/frame_times.h"

#include <dlfcn.h>

#include <cstring>

namespace vuda::layer {

SampleSink SampleSink::find() {
    SampleSink sink;
    // libvuda stays in a process that has it: the handle is not given back.
    void* library = ::dlopen("libvuda.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) return sink;
    void* wants = ::dlsym(library, "vuda_private_wants_samples");
    void* push = ::dlsym(library, "vuda_private_sample");
    std::memcpy(&sink.wants, &wants, sizeof sink.wants);
    std::memcpy(&sink.push, &push, sizeof sink.push);
    return sink;
}

// Handles are addresses or counters: the low bits of the former say nothing.
FrameTimes::Pending& FrameTimes::place(uint64_t fence) { return pending_[(fence >> 4 ^ fence) % kPending]; }

void FrameTimes::interval(uint64_t now_ns) {
    const uint64_t last = last_ns_.exchange(now_ns, std::memory_order_relaxed);
    if (last != 0 && now_ns > last) {
        sink_.push(kIntervalSample, frames_.load(std::memory_order_relaxed), now_ns, now_ns - last);
    }
}

uint64_t FrameTimes::submitted(uint64_t fence, uint64_t now_ns) {
    if (fence == 0) return 0;
    const uint64_t frame = frames_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!presents_.load(std::memory_order_relaxed) && sink_.wants(kIntervalSample) != 0) interval(now_ns);
    if (sink_.wants(kFrameSample) == 0) return frame;
    Pending& pending = place(fence);
    pending.fence.store(0, std::memory_order_relaxed);
    pending.submitted_ns.store(now_ns, std::memory_order_relaxed);
    pending.frame.store(frame, std::memory_order_relaxed);
    pending.fence.store(fence, std::memory_order_release);
    return frame;
}

void FrameTimes::signalled(uint64_t fence, uint64_t now_ns) {
    if (fence == 0) return;
    Pending& pending = place(fence);
    if (pending.fence.load(std::memory_order_acquire) != fence) return;
    const uint64_t begun = pending.submitted_ns.load(std::memory_order_relaxed);
    const uint64_t frame = pending.frame.load(std::memory_order_relaxed);
    // Several threads may wait for one fence; one of them reports it.
    if (!pending.fence.compare_exchange_strong(fence, 0, std::memory_order_relaxed)) return;
    if (now_ns >= begun) sink_.push(kFrameSample, frame, now_ns, now_ns - begun);
}

void FrameTimes::presented(uint64_t now_ns) {
    if (!presents_.exchange(true, std::memory_order_relaxed)) last_ns_.store(0, std::memory_order_relaxed);
    if (sink_.wants(kIntervalSample) != 0) interval(now_ns);
}

}  // namespace vuda::layer
