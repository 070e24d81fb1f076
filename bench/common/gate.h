// Lines programs up for a measurement, by files that a script can see and make: each program creates its ready file
// once it runs steadily, goes on working, and measures from the moment its start file appears.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/result.h"
#include "bench/common/clock.h"

namespace vuda::bench {

struct GateOptions {
    std::string ready_file;     // empty: tell nobody
    std::string start_file;     // empty: start as soon as every party is ready
    double start_timeout = 60;  // seconds to wait for the start file
    int parties = 1;            // threads that call ready()
};

// Thread-safe.
class StartGate {
 public:
    explicit StartGate(GateOptions options) : options_(std::move(options)), waiting_for_(options_.parties) {}

    // This party runs steadily. The last one creates the ready file.
    Status ready();

    // This party gives up before the start, and so shall the others: their next started() is an error with this reason.
    void abandon(const std::string& reason);

    // True from the start of the measurement on. Never blocks: the caller goes on with its load in between, and looks
    // again after the next frame or kernel. DEADLINE_EXCEEDED when the start file does not come,
    // ABORTED after abandon().
    Result<bool> started();

 private:
    const GateOptions options_;
    std::mutex mutex_;
    int waiting_for_;
    Clock::time_point deadline_{};
    std::string abandoned_;
    std::atomic<bool> started_{false};
};

}  // namespace vuda::bench
