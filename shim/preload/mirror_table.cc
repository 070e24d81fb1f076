#include "shim/preload/mirror_table.h"

#include <algorithm>
#include <set>

namespace vuda::shim {
namespace {

constexpr uint64_t kMirrorPage = 4096;

}  // namespace

std::vector<OfferedBuffer> tidy(std::vector<OfferedBuffer> buffers) {
    std::erase_if(buffers, [](const OfferedBuffer& b) {
        return b.length == 0 || b.va % kMirrorPage != 0 || b.offset % kMirrorPage != 0 || b.va + b.length < b.va;
    });
    std::ranges::sort(buffers, {}, &OfferedBuffer::va);
    std::vector<OfferedBuffer> out;
    uint64_t end = 0;
    for (OfferedBuffer buffer : buffers) {
        const uint64_t stop = (buffer.va + buffer.length + kMirrorPage - 1) / kMirrorPage * kMirrorPage;
        if (buffer.va < end) {
            buffer.offset += end - buffer.va;
            buffer.va = end;
        }
        if (buffer.va >= stop) continue;
        buffer.length = stop - buffer.va;
        end = stop;
        out.push_back(buffer);
    }
    return out;
}

MirrorTable::Steps MirrorTable::plan(const MirrorUpdate& update) const {
    Steps steps;
    std::set<uint64_t> dropped;
    const auto drop = [&](uint64_t va, const Entry& entry) {
        if (dropped.insert(va).second) steps.drops.push_back({va, entry.length, entry.mapping});
    };
    for (const MirrorRange& range : update.removed) {
        const auto found = entries_.find(range.va);
        if (found != entries_.end() && found->second.length == range.length && found->second.mapping == range.mapping) {
            drop(found->first, found->second);
        }
    }
    for (size_t i = 0; i < update.added.size(); ++i) {
        const OfferedBuffer& wanted = update.added[i];
        auto at = entries_.upper_bound(wanted.va);
        if (at != entries_.begin() && std::prev(at)->first + std::prev(at)->second.length > wanted.va) --at;
        const auto first = at;
        bool needed = true;
        for (; at != entries_.end() && at->first < wanted.va + wanted.length; ++at) {
            if (dropped.contains(at->first)) continue;
            const bool same =
                at->first == wanted.va && at->second.length == wanted.length && at->second.mapping == wanted.mapping;
            if (same || at->second.mapping > wanted.mapping) needed = false;
        }
        if (!needed) continue;
        for (auto old = first; old != at; ++old) drop(old->first, old->second);
        steps.adds.push_back(i);
    }
    return steps;
}

bool MirrorTable::holds(std::span<const OfferedBuffer> buffers) const {
    return std::ranges::all_of(buffers, [&](const OfferedBuffer& buffer) {
        const auto found = entries_.find(buffer.va);
        return found != entries_.end() && found->second.length == buffer.length &&
               found->second.mapping == buffer.mapping;
    });
}

}  // namespace vuda::shim
