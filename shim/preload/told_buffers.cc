#include "shim/preload/told_buffers.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace vuda::shim {

bool ToldBuffers::Before::operator()(const HostBuffer& a, const HostBuffer& b) const {
    return std::tie(a.va, a.order, a.length, a.memory, a.offset) <
           std::tie(b.va, b.order, b.length, b.memory, b.offset);
}

void ToldBuffers::note(const HostBuffer& buffer, Set& here, Set& other) {
    if (other.erase(buffer) == 0) here.insert(buffer);
}

bool ToldBuffers::set(uint64_t at, const std::optional<HostBuffer>& buffer) {
    const auto found = buffers_.find(at);
    if (found == buffers_.end() ? !buffer : buffer == found->second) return false;
    if (found != buffers_.end()) {
        note(found->second, removed_, added_);
        buffers_.erase(found);
    }
    if (buffer) {
        note(*buffer, added_, removed_);
        buffers_.emplace(at, *buffer);
    }
    return true;
}

uint64_t ToldBuffers::end_before(uint64_t at) const {
    const auto next = buffers_.lower_bound(at);
    if (next == buffers_.begin()) return 0;
    const HostBuffer& last = std::prev(next)->second;
    return last.va + last.length;
}

void ToldBuffers::told(const std::vector<HostBuffer>& all) {
    added_.clear();
    removed_ = Set(all.begin(), all.end());
    for (const auto& [at, buffer] : buffers_) note(buffer, added_, removed_);
}

void ToldBuffers::told(const HostDelta& change) {
    // What they have now and was unmapped meanwhile is to be taken away, and the other way round.
    for (const HostBuffer& buffer : change.removed) note(buffer, added_, removed_);
    for (const HostBuffer& buffer : change.added) note(buffer, removed_, added_);
}

HostDelta ToldBuffers::untold(size_t added, size_t removed) const {
    HostDelta delta;
    if (added_.empty()) return delta;
    const auto take = [](const Set& from, size_t most, std::vector<HostBuffer>& to) {
        std::copy_n(from.begin(), std::min(most, from.size()), std::back_inserter(to));
    };
    take(removed_, removed, delta.removed);
    take(added_, removed_.size() <= removed ? added : 0, delta.added);
    delta.more = delta.added.size() < added_.size();
    return delta;
}

}  // namespace vuda::shim
