// A renderer's control buffers that come and go while it draws: mapped and unmapped again on a thread of their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "bench/mirror/control_buffers.h"

namespace vuda::bench {

class Mapper {
 public:
    struct Figures {
        uint64_t maps = 0;
        double map_max_ms = 0;
    };

    // At once and every `period`, one to four buffers of 4 KiB; `recipe` as seen_recipe() gives it.
    Mapper(const MappingRecipe& recipe, std::chrono::nanoseconds period);

    // Ends it. What was done, or what the driver refused.
    Result<Figures> stop();

 private:
    void run(const std::stop_token& stop, std::chrono::nanoseconds period);

    ControlBuffers buffers_;
    std::mutex mutex_;
    Figures figures_;
    Status failed_;
    std::jthread thread_;  // last: it uses the others
};

}  // namespace vuda::bench
