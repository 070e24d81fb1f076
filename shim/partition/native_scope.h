// What the native side does on a thread of the program leaves the thread as it was.
#pragma once

#include "shim/limits/launch_guard.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/native_errand.h"

namespace vuda::partition {

// Captures of the program go on undisturbed by calls that they would not allow.
class RelaxedCapture {
 public:
    explicit RelaxedCapture(const CudaDriver& cuda) : cuda_(cuda), changed_(cuda.exchange_capture_mode(&mode_) == 0) {}
    ~RelaxedCapture() {
        if (changed_) cuda_.exchange_capture_mode(&mode_);
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
    const CudaDriver& cuda_;
    int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
    const bool changed_;
};

class CurrentContext {
 public:
    CurrentContext(const CudaDriver& cuda, CuContext context) : cuda_(cuda), pushed_(cuda.ctx_push(context)) {}
    ~CurrentContext() {
        CuContext popped = nullptr;
        if (pushed_ == 0) cuda_.ctx_pop(&popped);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;
    CuResult result() const { return pushed_; }

 private:
    const CudaDriver& cuda_;
    const CuResult pushed_;
};

// CUDA's callbacks on this thread are about this errand until its end.
class OnErrand {
 public:
    explicit OnErrand(NativeErrand& errand) : thread_(limits::LaunchGuard::thread()), before_(thread_.errand) {
        thread_.errand = &errand;
    }
    ~OnErrand() { thread_.errand = before_; }
    OnErrand(const OnErrand&) = delete;
    OnErrand& operator=(const OnErrand&) = delete;

 private:
    limits::LaunchGuard::Thread& thread_;
    void* const before_;
};

}  // namespace vuda::partition
