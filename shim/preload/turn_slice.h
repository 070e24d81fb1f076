// The timeslice of the renderer's TSG while compute in other TSGs takes turns with it (mode `sliced`): one that a frame
// fits into (shim/layer/turn_pacer.h says why), and afterwards the one that the driver gave it.
#pragma once

#include <cstdint>
#include <functional>

#include "shim/preload/action.h"

namespace vuda::shim {

class TurnSlice {
 public:
    struct Tsg {
        FileId file = 0;
        uint32_t client = 0;  // 0: there is none
        uint32_t tsg = 0;
        uint64_t order = 0;  // its number, never used again
        // Somebody shares it. With compute in it the TSG may never run dry, and a long timeslice would then keep all
        // others off the GPU.
        bool shared = false;
    };
    // RM_CONTROL on the TSG with its timeslice in microseconds, in or out. Returns its NV_STATUS.
    using Control = std::function<uint32_t(const Tsg& at, uint32_t command, uint64_t* us)>;

    // `us` 0: the driver's own. Whether ask() would call the driver.
    bool differs(const Tsg& at, uint32_t us) const;
    void ask(const Tsg& at, uint32_t us, const Control& control);

 private:
    uint64_t order_ = 0;   // of the TSG that the rest is about
    uint64_t own_us_ = 0;  // what it had; 0: it was not asked
    uint32_t now_us_ = 0;  // what it was given; 0: it has its own
    bool refused_ = false;
};

}  // namespace vuda::shim
