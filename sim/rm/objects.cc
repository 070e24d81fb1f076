#include "sim/rm/objects.h"

#include <algorithm>

#include "sim/gpu/gpu.h"

namespace vuda::sim {

namespace {

// First gap of `length` in [lo, hi] between the ranges of `a` and `b` (address -> length, as `length_of` gives it).
template <typename Map, typename Length>
const uint64_t* overlapping_end(const Map& map, uint64_t address, uint64_t length, Length length_of, uint64_t& end) {
    auto it = map.upper_bound(address);
    if (it != map.begin()) {
        const auto before = std::prev(it);
        end = before->first + length_of(before->second);
        if (end > address) return &end;
    }
    if (it != map.end() && it->first - address < length) {
        end = it->first + length_of(it->second);
        return &end;
    }
    return nullptr;
}

uint64_t mapping_length(const VaMapping& mapping) { return mapping.length; }
uint64_t plain_length(uint64_t length) { return length; }

}  // namespace

bool VaSpace::overlaps(uint64_t address, uint64_t length) const {
    uint64_t end = 0;
    return overlapping_end(mappings, address, length, mapping_length, end) != nullptr;
}

bool VaSpace::overlaps_reserved(uint64_t address, uint64_t length) const {
    uint64_t end = 0;
    return overlapping_end(reserved, address, length, plain_length, end) != nullptr;
}

std::optional<uint64_t> VaSpace::find_free(uint64_t lo, uint64_t hi, uint64_t length, uint64_t alignment) const {
    if (length == 0 || alignment == 0 || lo > hi) return std::nullopt;
    uint64_t address = lo;
    for (;;) {
        const uint64_t up = (address + alignment - 1) / alignment * alignment;
        if (up < address || up > hi || hi - up < length - 1) return std::nullopt;
        address = up;
        uint64_t end = 0;
        if (overlapping_end(mappings, address, length, mapping_length, end) == nullptr &&
            overlapping_end(reserved, address, length, plain_length, end) == nullptr)
            return address;
        address = end;
    }
}

const VaMapping* VaSpace::lookup(uint64_t address, uint64_t length, uint64_t* offset_in_memory) const {
    auto it = mappings.upper_bound(address);
    if (it == mappings.begin()) return nullptr;
    --it;
    const uint64_t into = address - it->first;
    if (into >= it->second.length || length > it->second.length - into) return nullptr;
    if (it->second.held() == nullptr) return nullptr;
    if (offset_in_memory != nullptr) *offset_in_memory = it->second.offset + into;
    return &it->second;
}

VirtualMemory::~VirtualMemory() {
    if (vas == nullptr || whole) return;
    vas->reserved.erase(base);
    // What is mapped in the range goes with it.
    for (auto it = vas->mappings.lower_bound(base); it != vas->mappings.end() && it->first - base < length;)
        it = vas->mappings.erase(it);
}

Tsg::~Tsg() {
    if (executor != nullptr) executor->remove(*this);
}

ContextShare::~ContextShare() {
    if (const auto owner = returns_veid ? tsg.lock() : nullptr) {
        owner->veids.reset(veid);
        owner->compute_ready.reset(veid);
    }
}

Channel::~Channel() {
    if (tsg == nullptr) return;
    auto& channels = tsg->channels;
    channels.erase(std::remove(channels.begin(), channels.end(), this), channels.end());
    if (tsg->executor != nullptr) tsg->executor->remove(*this);
}

}  // namespace vuda::sim
