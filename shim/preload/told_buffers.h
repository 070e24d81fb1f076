// A renderer's control buffers as they are, and what others still have to hear of them. Each change and each look costs
// as much as a search, however many buffers there are: mapping calls wait for it. Pure.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace vuda::shim {

struct HostBuffer {
    uint32_t memory = 0;
    uint64_t va = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    uint64_t order = 0;  // number of the mapping, never used again
    bool operator==(const HostBuffer&) const = default;
};

// What the renderer unmapped and mapped; both in address order.
struct HostDelta {
    std::vector<HostBuffer> removed;
    std::vector<HostBuffer> added;
    bool more = false;  // a part: something else was mapped
};

class ToldBuffers {
 public:
    // The mapping at `at` makes this buffer from now on, or none. False: so it was.
    bool set(uint64_t at, const std::optional<HostBuffer>& buffer);
    // Where what is made by mappings before `at` ends.
    uint64_t end_before(uint64_t at) const;

    // Others hold exactly these.
    void told(const std::vector<HostBuffer>& all);
    // Others took that over; it may be out of date by now.
    void told(const HostDelta& change);

    // What they do not know, at most so many of each. Nothing while nothing was mapped; and nothing that was mapped
    // while more was unmapped than goes into one.
    HostDelta untold(size_t added, size_t removed) const;
    bool is_untold(const HostBuffer& buffer) const { return added_.contains(buffer); }
    bool all_told() const { return added_.empty() && removed_.empty(); }

    // By the address of the mapping that makes it: a buffer begins there, or behind what another one has of its pages.
    const std::map<uint64_t, HostBuffer>& buffers() const { return buffers_; }

 private:
    // An address holds one buffer at a time, but another one before and after.
    struct Before {
        bool operator()(const HostBuffer& a, const HostBuffer& b) const;
    };
    using Set = std::set<HostBuffer, Before>;
    // A buffer that came and went, or went and came, before anybody heard of it is no news.
    static void note(const HostBuffer& buffer, Set& here, Set& other);

    std::map<uint64_t, HostBuffer> buffers_;
    Set added_;    // here, and unknown to others
    Set removed_;  // gone, and others have it
};

}  // namespace vuda::shim
