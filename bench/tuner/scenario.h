// What the controllers are put through.
#pragma once

#include <string>
#include <vector>

#include "bench/tuner/workload.h"
#include "sim/model/random.h"

namespace vuda::tuner::eval {

struct LoadPoint {
    TimeNs at = 0;
    double graphics = 1, compute = 1;  // factors on the work of what is released from here on
};

struct Attendance {
    TimeNs at = 0;
    int client = 0;
    bool on = true;
};

struct ClockJump {
    TimeNs at = 0;
    int64_t by = 0;  // added to what the controller's clock shows from here on
};

// One history: what one seed makes of a scenario.
struct History {
    std::vector<LoadPoint> loads;             // ascending, first at 0
    std::vector<Attendance> attendance = {};  // ascending; clients not named are there all the time
    std::vector<ClockJump> jumps = {};
    std::vector<std::pair<TimeNs, TimeNs>> blackouts = {};  // no sample reaches the controller
    double lost = 0;                                        // fraction of the samples that do not, at random
};

struct Scenario {
    std::string name;
    std::string text;  // one line, for the table
    Workload workload;
    TimeNs duration = 60 * kSecond;
    std::vector<TimeNs> steps = {};  // after which there is time to converge; the start is one by itself
    bool stationary = true;          // between steps: reversals there count against the tuner
    bool worst_is_top = true;        // start level: highest or lowest
    History (*make)(const Scenario& scenario, sim::Random& random) = nullptr;
};

// Fixed; no parameter was chosen by its outcome.
std::vector<Scenario> scenarios();

}  // namespace vuda::tuner::eval
