#include "proto/page/split_wait.h"

#include "proto/page/futex.h"

namespace vuda::page {

void wake_split_waiters(DaemonHalf& half) { wake_all(half.version); }

void wait_for_split(const DaemonHalf& half, uint64_t version, std::chrono::milliseconds limit) {
    if (split_version(half) == version) wait_while(half.version, version, limit);
}

}  // namespace vuda::page
