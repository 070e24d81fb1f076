#include "shim/preload/told_buffers.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace vuda::shim {

bool ToldBuffers::Before::operator()(const HostBuffer& a, const HostBuffer& b) const {
    return std::tie(a.va, a.order, a.length, a.memory, a.offset) <
           std::tie(b.va, b.order, b.length, b.memory, b.offset);
}

void ToldBuffers::came(const HostBuffer& buffer) {
    if (removed_.erase(buffer) + unmapped_.erase(buffer) == 0) added_.insert(buffer);
}

void ToldBuffers::went(const HostBuffer& buffer) {
    if (added_.erase(buffer) == 0) unmapped_.insert(buffer);
}

bool ToldBuffers::set(uint64_t at, const std::optional<HostBuffer>& buffer) {
    const auto found = buffers_.find(at);
    if (found == buffers_.end() ? !buffer : buffer == found->second) return false;
    if (found != buffers_.end()) {
        went(found->second);
        buffers_.erase(found);
    }
    if (buffer) {
        came(*buffer);
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
    removed_.clear();
    unmapped_ = Set(all.begin(), all.end());
    for (const auto& [at, buffer] : buffers_) came(buffer);
}

void ToldBuffers::told(const HostDelta& change) {
    // What they have now and was unmapped meanwhile is to be taken away, and the other way round.
    for (const HostBuffer& buffer : change.removed) came(buffer);
    for (const HostBuffer& buffer : change.added) went(buffer);
}

ToldBuffers::Set::const_iterator ToldBuffers::first_over(const HostBuffer& buffer) const {
    const auto at = removed_.lower_bound({0, buffer.va, 0, 0, 0});
    if (at == removed_.begin()) return at;
    const auto before = std::prev(at);
    return before->va + before->length > buffer.va ? before : at;
}

HostDelta ToldBuffers::untold(size_t added, size_t removed, size_t least) {
    HostDelta delta;
    if (!added_.empty()) removed_.merge(unmapped_);
    Set gone;
    const auto makes_room = [&](const HostBuffer& buffer) {
        for (auto at = first_over(buffer); at != removed_.end() && at->va < buffer.va + buffer.length; ++at) {
            if (gone.contains(*at)) continue;
            if (gone.size() == removed) return false;
            gone.insert(*at);
        }
        return true;
    };
    for (auto next = added_.begin(); next != added_.end() && delta.added.size() < added; ++next) {
        if (!makes_room(*next)) break;
        delta.added.push_back(*next);
    }
    if (!added_.empty()) {
        size_t more = std::min(std::max(delta.added.size(), least), removed - gone.size());
        for (auto at = removed_.begin(); at != removed_.end() && more > 0; ++at)
            more -= gone.insert(*at).second ? 1 : 0;
    }
    delta.removed.assign(gone.begin(), gone.end());
    delta.more = delta.added.size() < added_.size();
    delta.rest = gone.size() < removed_.size();
    return delta;
}

HostDelta ToldBuffers::rest(size_t removed) const {
    HostDelta delta;
    // Unmapping may change what the mappings beside it make, without a mapping call: they are still there, and must not
    // go before they come again.
    if (!added_.empty()) return delta;
    const size_t count = std::min(removed, removed_.size());
    std::copy_n(removed_.begin(), count, std::back_inserter(delta.removed));
    delta.rest = count < removed_.size();
    return delta;
}

}  // namespace vuda::shim
