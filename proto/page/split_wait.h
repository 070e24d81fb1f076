// Sleeping until vudad publishes another split, for what has to act on it and is not asked by a launch.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/page/session_page.h"

namespace vuda::page {

// vudad's, after SplitWriter::publish().
void wake_split_waiters(DaemonHalf& half);

inline uint64_t split_version(const DaemonHalf& half) { return half.version.load(std::memory_order_acquire); }

// Until the version is no longer `version`, at most `limit`; may return early. A page that was replaced under the
// waiter (PageMapping::replace) wakes nobody, so callers choose a limit that they can live with.
void wait_for_split(const DaemonHalf& half, uint64_t version, std::chrono::milliseconds limit);

}  // namespace vuda::page
