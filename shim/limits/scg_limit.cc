#include "shim/limits/scg_limit.h"

namespace vuda::limits {

ScgLimit scg_limit(int major, int minor) {
    constexpr uint32_t kKiB = 1024;
    if (major == 9 && minor == 0) return {48 * kKiB, true, 47 * kKiB};
    return {48 * kKiB, false};
}

}  // namespace vuda::limits
