// When frames and steps are released, and how much work each is; shared by both plants so that one seed means one
// history.
#pragma once

#include <algorithm>

#include "bench/tuner/workload.h"
#include "sim/model/random.h"

namespace vuda::tuner::eval {

// Bounded bell shape (sum of three uniforms), mean 1.
inline double noise(sim::Random& random, double deviation) {
    return 1 + 2 * deviation * (random.uniform() + random.uniform() + random.uniform() - 1.5);
}

class FrameSource {
 public:
    FrameSource(const Workload& workload, uint64_t seed) : workload_(&workload), random_(seed ^ 0x66726d65) {}
    double next_factor() {
        const double factor = noise(random_, workload_->frame_noise);
        return random_.uniform() < workload_->spikes ? 1.6 * factor : factor;
    }
    // The next release after one that was released at `released` and ended at `ended`: the next tick of the display.
    TimeNs after(TimeNs released, TimeNs ended) const {
        const TimeNs period = workload_->renderer.period;
        return period == 0 ? ended : std::max(ended, released + period);
    }

 private:
    const Workload* workload_;
    sim::Random random_;
};

}  // namespace vuda::tuner::eval
