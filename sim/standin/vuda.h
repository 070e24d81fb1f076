// What VUDA has to do with a stand-in's work: TPCs to keep off, and timing samples.
//
// On hardware the shim does both to an unmodified program (launch descriptors, the Vulkan layer). Nobody can do it to a
// stand-in, whose work is a made-up method; so it asks libvuda.so, if the shim has loaded that into this process.
#pragma once

#include <cstdint>

#include "shim/layer/turn_pacer.h"
#include "sim/pushbuffer/format.h"

namespace vuda::sim::standin {

class Vuda {
 public:
    // Call it once a context exists: by then the shim has loaded libvuda.so, or never will.
    static Vuda find();

    // Adds the TPCs that compute must keep off now. Returns the split's generation, 0: there is none.
    uint64_t mask(work::Launch& launch) const;

    // Before each kernel of a program under the launch guard: the CUresult that it gets; 0: it may run.
    int refusal(const work::Launch& launch) const;

    // A frame is about to begin: waits for its turn, where compute takes turns with frames.
    void wait_for_turn(layer::TurnPacer& pacer) const;

    enum class Sample : uint32_t { kFrame = 1, kInterval = 2, kSync = 4 };
    // Ends now; `id` counts frames from 1.
    void sample(Sample kind, uint64_t id, double duration_ms) const;

    // What libVkLayer_vuda.so says when Vulkan does.
    void device_lost() const;

 private:
    void (*device_lost_)() = nullptr;
    int (*turns_)(uint32_t* graphics_permille, uint64_t* frame_ns) = nullptr;
    int (*turn_slice_)(uint32_t us) = nullptr;
    uint64_t (*disable_mask_)(uint64_t mask[4]) = nullptr;
    int (*own_kernel_)(uint32_t shared_memory, uint32_t limit) = nullptr;
    void (*sample_)(uint32_t kind, uint64_t id, uint64_t end_ns, uint64_t duration_ns) = nullptr;
};

}  // namespace vuda::sim::standin
