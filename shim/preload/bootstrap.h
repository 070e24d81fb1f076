// The place where CUDA's start-up compute methods are repeated on a new subcontext.
//
// When only a part of a context's channels moves into the renderer's TSG, CUDA's own context share stays behind, and
// with it the compute state that CUDA set once through a channel that stayed (shader local memory, address windows,
// ...). A kernel on a moved channel then stops with SKEDCHECK05_LOCAL_MEMORY_TOTAL_SIZE. An implementation submits the
// same methods on the moved channel. Which methods a chip takes is that chip's class header's word: an implementation
// says for which it is right.
#pragma once

#include "shim/preload/action.h"

namespace vuda::shim {

class Bootstrap {
 public:
    virtual ~Bootstrap() = default;
    // False: partial reservations move all channels.
    virtual bool available() const = 0;
    // Called with the moved channels scheduled, before CUDA's own schedule call returns. NV_STATUS.
    virtual uint32_t start(const BootstrapSubcontext& subcontext) = 0;
};

// The implementation for this build, or nullptr.
Bootstrap* bootstrap_for_this_build();

}  // namespace vuda::shim
