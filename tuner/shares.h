// Division of the compute side among the processes attached to it.
#pragma once

#include <vector>

#include "tuner/decision.h"

namespace vuda::tuner {

struct Claim {
    SessionId session = 0;
    double weight = 1;    // > 0
    bool counted = true;  // idle processes claim nothing
};

// Divides `level` TPCs by weight: whole TPCs by largest remainder, each claim at least one, side by side while there
// are enough; with more claims than TPCs they wrap round and overlap.  Claims that are not counted may use all.
void divide(uint32_t level, const std::vector<Claim>& claims, std::vector<SessionShare>& out);

}  // namespace vuda::tuner
