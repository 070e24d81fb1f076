#include "shim/preload/bootstrap.h"

namespace vuda::shim {

// No chip has been given one yet: the methods CUDA sends have not been recorded on hardware.
Bootstrap* bootstrap_for_this_build() { return nullptr; }

}  // namespace vuda::shim
