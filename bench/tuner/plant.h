// What the controllers steer.  Virtual time, nanoseconds from 0.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/tuner/workload.h"
#include "tuner/decision.h"

namespace vuda::tuner::eval {

inline constexpr uint32_t kUnpartitioned = 0;  // level: no split, the GPU's default mode

// One frame or step that ended.
struct Done {
    int client = -1;  // -1: a frame
    TimeNs end = 0;
    TimeNs duration = 0;  // from release, so queueing counts
};

class Plant {
 public:
    virtual ~Plant() = default;
    virtual void set_level(uint32_t tpcs) = 0;
    // Fraction of the compute side that each client gets while it runs.
    virtual void set_shares(const std::vector<double>& shares) = 0;
    virtual void set_load(double graphics, double compute) = 0;
    virtual void set_client(int client, bool on) = 0;
    // Appends what ended up to and including `until`, in order.
    virtual void run_until(TimeNs until, std::vector<Done>& out) = 0;
};

}  // namespace vuda::tuner::eval
