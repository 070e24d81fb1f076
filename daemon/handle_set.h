// The exported RM objects that stand for one TSG: its own fd and those of its control buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/fd_reaper.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

// Largest set that one TSG may have. Real renderers: about 84 (docs/wire-protocol.md).
inline constexpr size_t kHandlesPerSet = 16384;
inline constexpr size_t kHandlesPerFrame = 64;

// Closes its descriptor through the reaper.
class HeldHandle {
 public:
    HeldHandle(FdReaper& reaper, const v1::Handle& handle, UniqueFd given)
        : kind(handle.kind()),
          va(handle.va()),
          length(handle.length()),
          offset(handle.offset()),
          mapping(handle.mapping()),
          fd(std::move(given)),
          reaper_(reaper) {}
    HeldHandle(const HeldHandle&) = delete;
    HeldHandle& operator=(const HeldHandle&) = delete;
    ~HeldHandle() { reaper_.close(std::move(fd)); }

    v1::Handle message() const;

    const v1::HandleKind kind;
    const uint64_t va;
    const uint64_t length;
    const uint64_t offset;
    const uint64_t mapping;
    UniqueFd fd;

 private:
    FdReaper& reaper_;
};

// Shared: sets that follow one another have most of their handles in common.
using HeldPtr = std::shared_ptr<const HeldHandle>;

// INVALID_ARGUMENT: fields that make no sense, another kind than a control buffer.
Status check_buffer(const v1::Handle& handle);

// Immutable once stored, and shared: a transfer that is under way keeps the set it began with while a newer one takes
// its place. vudad never looks into the fds (fstat on a hostile FUSE file can block); RM does when somebody imports
// them.
class HandleSet {
 public:
    explicit HandleSet(FdReaper& reaper) : reaper_(reaper) {}
    HandleSet(const HandleSet&) = delete;
    HandleSet& operator=(const HandleSet&) = delete;
    // A TSG, and buffers by address.
    HandleSet(FdReaper& reaper, std::vector<HeldPtr> items) : reaper_(reaper), items_(std::move(items)) {}

    const std::vector<HeldPtr>& items() const { return items_; }
    FdReaper& reaper() const { return reaper_; }
    size_t size() const { return items_.size(); }

    // Adds one frame's handles. INVALID_ARGUMENT: not exactly one TSG, first; fields that make no sense; more or fewer
    // fds than handles. RESOURCE_EXHAUSTED: more than `limit` in all. After an error the set is unusable; every fd has
    // an owner all the same.
    Status append(const v1::HandleBundle& bundle, std::vector<UniqueFd> fds, size_t limit);

 private:
    FdReaper& reaper_;
    std::vector<HeldPtr> items_;
};

using HandleSetPtr = std::shared_ptr<const HandleSet>;

// The handles [first, first + count) as one frame's message; `last` when the set ends there.
v1::HandleBundle bundle_of(const HandleSet& set, size_t first, size_t count);

}  // namespace vuda::daemon
