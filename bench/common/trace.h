// When each measured frame or step ended and how long it took: what a sample set leaves out, and needs to be asked for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/common/clock.h"

namespace vuda::bench {

class Trace {
 public:
    void add(Clock::time_point end, double ms) { entries_.push_back({end, ms}); }
    bool empty() const { return entries_.empty(); }

    // [[end, duration], ...] in the order of their ends, both in milliseconds to three digits; the end on
    // CLOCK_MONOTONIC, so that programs that ran beside each other and a script that steered them have one time axis.
    nlohmann::ordered_json to_json() const;

 private:
    struct Entry {
        Clock::time_point end;
        double ms;
    };
    std::vector<Entry> entries_;
};

}  // namespace vuda::bench
