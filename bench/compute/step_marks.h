// Marks steps for VUDA's tuner (vuda_step_begin, vuda_step_end of vuda/vuda.h), where VUDA is in this process.
#pragma once

#include <cstdint>
#include <string>

namespace vuda::bench {

class StepMarks {
 public:
    StepMarks() = default;

    // Looks in `library`, if it is loaded already; never loads it, so that without VUDA nothing changes. libvuda.so is
    // loaded by the time that a shared CUDA context exists.
    static StepMarks find(const std::string& library = "libvuda.so.0");

    bool found() const { return begin_ != nullptr && end_ != nullptr; }
    // Nothing happens when it was not found.
    void begin(uint64_t id) const {
        if (found()) begin_(id);
    }
    void end(uint64_t id) const {
        if (found()) end_(id);
    }

 private:
    using Mark = void(uint64_t id);
    Mark* begin_ = nullptr;
    Mark* end_ = nullptr;
};

}  // namespace vuda::bench
