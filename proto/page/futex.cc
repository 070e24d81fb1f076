#include "proto/page/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace vuda::page {
namespace {

static_assert(std::endian::native == std::endian::little);
const uint32_t* futex_of(const Word& word) { return reinterpret_cast<const uint32_t*>(&word); }

}  // namespace

void wake_all(Word& word) { ::syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void wait_while(const Word& word, uint64_t value, std::chrono::nanoseconds limit) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec timeout{seconds.count(), (limit - seconds).count()};
    ::syscall(SYS_futex, futex_of(word), FUTEX_WAIT, static_cast<uint32_t>(value), &timeout, nullptr, 0);
}

}  // namespace vuda::page
