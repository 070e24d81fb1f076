// Exported RM objects on their way between two processes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"

namespace vuda::client {

using Token = std::array<uint8_t, 16>;

// vuda.v1.HandleKind
enum class HandleKind : uint32_t { kTsg = 1, kControlBuffer = 2 };

struct HandleInfo {
    HandleKind kind = HandleKind::kTsg;
    uint64_t va = 0;       // GPU virtual address, bytes
    uint64_t length = 0;   // bytes
    uint64_t offset = 0;   // bytes
    uint64_t mapping = 0;  // owner's number of the mapping, never used again; 0: it gives none
};

struct ExportedHandle {
    HandleInfo info;
    UniqueFd fd;
};

// The TSG first, then its control buffers.
struct HandleSet {
    std::vector<ExportedHandle> items;
    uint32_t channels_in_use = 0;  // owner's channels in the TSG
    uint64_t generation = 0;       // owner's number of this set; 0: it gives none
    uint64_t stale_veids = 0;      // for an attacher: subcontexts that it must take (AttachReply)
    uint64_t unknown_veids = 0;    // and those that it takes where it can
};

// A control buffer that is no longer mapped.
struct MirrorRange {
    uint64_t va = 0;      // GPU virtual address, bytes
    uint64_t length = 0;  // bytes
    uint64_t mapping = 0;
};

// What changed in a set (vuda.v1.MirrorUpdate).
struct MirrorChange {
    uint64_t from = 0;  // 0 from vudad: `added` is part of the set as it is
    uint64_t to = 0;
    std::vector<MirrorRange> removed;
    std::vector<ExportedHandle> added;
    bool more = false;  // owner: this was not all
    bool rest = false;  // owner: buffers are left that others may let go of, and nobody waits for that

    bool empty() const { return removed.empty() && added.empty(); }
};

// As many as vudad keeps for one TSG. A renderer has tens.
inline constexpr size_t kHandleLimit = 16384;

}  // namespace vuda::client
