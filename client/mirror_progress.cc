#include "client/mirror_progress.h"

#include <algorithm>

namespace vuda::client {

void MirrorProgress::begin(uint32_t wait_ms) {
    wait_ms_ = wait_ms;
    stuck_ = false;
}

void MirrorProgress::end() {
    wait_ms_ = 0;
    stuck_ = false;
    rest_ = false;
    in_flight_.clear();
    covered_ = done_ = changed_;
}

void MirrorProgress::reach(uint64_t change) {
    done_ = std::max(done_, change);
    if (in_flight_.empty()) stuck_ = false;
}

void MirrorProgress::covered(uint64_t change) {
    covered_ = std::max(covered_, change);
    if (in_flight_.empty()) {
        reach(covered_);
    } else {
        in_flight_.back().change = covered_;
    }
}

bool MirrorProgress::answered(uint64_t id, bool late) {
    const auto found = std::ranges::find(in_flight_, id, &Update::id);
    if (id == 0 || found == in_flight_.end()) return false;
    if (late) rest_ = false;
    const uint64_t change = found->change;
    if (found != in_flight_.begin()) {
        // It goes on from one that is out still.
        std::prev(found)->change = std::max(std::prev(found)->change, change);
        in_flight_.erase(found);
        return true;
    }
    in_flight_.pop_front();
    reach(change);
    return true;
}

}  // namespace vuda::client
