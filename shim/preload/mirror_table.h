// The control buffers of a renderer that an address space holds, and how it follows them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace vuda::shim {

// A control buffer of a renderer. fds stay whose they are.
struct OfferedBuffer {
    int fd = -1;
    uint64_t va = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    uint64_t mapping = 0;  // renderer's number of the mapping, rising, never used again; 0: it gives none
};

struct MirrorRange {
    uint64_t va = 0;
    uint64_t length = 0;
    uint64_t mapping = 0;
};

// Taken over in this order; an address may be used again.
struct MirrorUpdate {
    std::vector<MirrorRange> removed;
    std::vector<OfferedBuffer> added;
};

// In address order, whole pages, nothing twice: what UVM_CREATE_EXTERNAL_RANGE accepts.
std::vector<OfferedBuffer> tidy(std::vector<OfferedBuffer> buffers);

class MirrorTable {
 public:
    struct Entry {
        uint64_t length = 0;
        uint64_t mapping = 0;
    };
    struct Steps {
        std::vector<MirrorRange> drops;  // first
        std::vector<size_t> adds;        // of update.added
        bool empty() const { return drops.empty() && adds.empty(); }
    };

    // What leads to the set of which `update` speaks. Idempotent, and of two updates that are applied in the wrong
    // order the newer one stays in force: a buffer gives way to one with a higher number only. What is not mentioned
    // stays.
    Steps plan(const MirrorUpdate& update) const;

    // Every one of these is here, as it is.
    bool holds(std::span<const OfferedBuffer> buffers) const;

    void put(uint64_t va, const Entry& entry) { entries_[va] = entry; }
    void drop(uint64_t va) { entries_.erase(va); }
    void clear() { entries_.clear(); }
    bool empty() const { return entries_.empty(); }
    size_t size() const { return entries_.size(); }
    const std::map<uint64_t, Entry>& entries() const { return entries_; }

 private:
    std::map<uint64_t, Entry> entries_;  // by address; they do not overlap
};

}  // namespace vuda::shim
