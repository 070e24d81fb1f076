// The control buffers of one TSG as its owner has them now: the set that it pushed, and what it mapped and unmapped
// since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "daemon/handle_set.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

// Of one MirrorUpdate.
inline constexpr int kRangesPerUpdate = 1024;

class LiveSet {
 public:
    // A whole set takes the place of what is there. `generation` 0: the owner numbers none, and no update fits.
    void replace(HandleSetPtr set, uint64_t generation);

    // Applies one update: the ranges of `update.removed`, then `added`, which are update.added in that order. Changes
    // nothing when it fails. FAILED_PRECONDITION: `update.from` is not generation(). INVALID_ARGUMENT: it makes no
    // sense, or two buffers would lie over each other. RESOURCE_EXHAUSTED: more than `limit` handles in all.
    Status update(const v1::MirrorUpdate& update, const std::vector<HeldPtr>& added, size_t limit);

    bool empty() const { return !tsg_; }
    size_t size() const { return tsg_ ? 1 + buffers_.size() : 0; }
    uint64_t generation() const { return generation_; }

    // The set of this moment. Made when it is asked for; the same one until the next change. Null when empty.
    HandleSetPtr set() const;

 private:
    HeldPtr tsg_;
    std::map<uint64_t, HeldPtr> buffers_;  // by address; they do not overlap
    uint64_t generation_ = 0;
    FdReaper* reaper_ = nullptr;
    mutable HandleSetPtr set_;
};

}  // namespace vuda::daemon
