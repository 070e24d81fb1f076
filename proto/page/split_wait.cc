#include "proto/page/split_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace vuda::page {
namespace {

// A futex is a 32-bit word; the lower half of the version is one.
static_assert(std::endian::native == std::endian::little);
const uint32_t* futex_of(const DaemonHalf& half) { return reinterpret_cast<const uint32_t*>(&half.version); }

}  // namespace

void wake_split_waiters(DaemonHalf& half) {
    ::syscall(SYS_futex, futex_of(half), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_split(const DaemonHalf& half, uint64_t version, std::chrono::milliseconds limit) {
    if (split_version(half) != version) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec timeout{seconds.count(), std::chrono::nanoseconds(limit - seconds).count()};
    ::syscall(SYS_futex, futex_of(half), FUTEX_WAIT, static_cast<uint32_t>(version), &timeout, nullptr, 0);
}

}  // namespace vuda::page
