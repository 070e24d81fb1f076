#include "bench/mirror/mapper.h"

#include <algorithm>
#include <condition_variable>

namespace vuda::bench {
namespace {

constexpr uint64_t kBytes = 4096;
constexpr uint32_t kMost = 4;

}  // namespace

Mapper::Mapper(const MappingRecipe& recipe, std::chrono::nanoseconds period)
    : buffers_(recipe, kBytes), thread_([this, period](const std::stop_token& stop) { run(stop, period); }) {}

void Mapper::run(const std::stop_token& stop, std::chrono::nanoseconds period) {
    std::condition_variable_any never;
    std::mutex waiting;
    uint32_t round = 0;
    do {
        const Result<ControlBuffers::Times> times = buffers_.make_and_free(1 + round++ % kMost);
        {
            const std::lock_guard lock(mutex_);
            if (!times) {
                failed_ = times.error();
                return;
            }
            figures_.maps += times->count;
            figures_.map_max_ms = std::max(figures_.map_max_ms, times->map_max_ms);
        }
        std::unique_lock lock(waiting);
        never.wait_for(lock, stop, period, [] { return false; });
    } while (!stop.stop_requested());
}

Result<Mapper::Figures> Mapper::stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    if (!failed_) return failed_.error();
    return figures_;
}

}  // namespace vuda::bench
