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
    bool rest = false;  // and something else is left for rest()
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

    // What a mapping call waits for, at most so many of each; nothing while nothing was mapped. Others need time for
    // each buffer that they let go of, so of what was unmapped there is only what lies where a new buffer goes, and as
    // many more as there are new ones (`least`, if that is more). So what others hold never grows because of buffers
    // that they could have let go of.
    HostDelta untold(size_t added, size_t removed, size_t least = 0);
    // What nobody waits for: of what was unmapped before untold() last had something, at most so many. What was
    // unmapped later stays until something is mapped again: graphics state may point there to the very end.
    HostDelta rest(size_t removed) const;
    bool is_untold(const HostBuffer& buffer) const { return added_.contains(buffer); }
    bool all_told() const { return added_.empty() && removed_.empty() && unmapped_.empty(); }

    // By the address of the mapping that makes it: a buffer begins there, or behind what another one has of its pages.
    const std::map<uint64_t, HostBuffer>& buffers() const { return buffers_; }

 private:
    // An address holds one buffer at a time, but another one before and after.
    struct Before {
        bool operator()(const HostBuffer& a, const HostBuffer& b) const;
    };
    using Set = std::set<HostBuffer, Before>;
    // A buffer that came and went, or went and came, before anybody heard of it is no news.
    void came(const HostBuffer& buffer);
    void went(const HostBuffer& buffer);
    // The first of removed_ that has a byte where `buffer` is, or one behind it.
    Set::const_iterator first_over(const HostBuffer& buffer) const;

    std::map<uint64_t, HostBuffer> buffers_;
    Set added_;  // here, and unknown to others
    // Gone, and others have it: before untold() last had something, and since. They do not overlap, since others hold
    // one buffer at an address.
    Set removed_;
    Set unmapped_;
};

}  // namespace vuda::shim
