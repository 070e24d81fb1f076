// What the redirector wants done besides forwarding the program's own ioctl. Actions are data: the hook turns them into
// real ioctls (rm_calls.h), tests hand them to a simulated resource manager.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/uuid.h"

namespace vuda::shim {

// One open file description of an NVIDIA device file (dup'ed descriptors share it, as RM clients do). Never 0, never
// reused within a process.
using FileId = uint32_t;

// NV_STATUS values the shim itself produces or judges; everything else passes through as a number.
// Source: open-gpu-kernel-modules, src/common/sdk/nvidia/inc/nvstatuscodes.h
inline constexpr uint32_t kNvOk = 0x0;
inline constexpr uint32_t kNvErrOperatingSystem = 0x59;  // the ioctl itself failed, errno instead of a status

// NV_ESC_RM_DUP_OBJECT. RM allows it between clients of one process only.
struct DupObject {
    FileId file = 0;  // the nvidiactl file that created `client`
    uint32_t client = 0;
    uint32_t parent = 0;  // a Device of `client`: ctxshares under any other parent are refused
    uint32_t object = 0;  // new handle
    uint32_t source_client = 0;
    uint32_t source_object = 0;
};

// NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD.
struct ImportObject {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t object = 0;  // new handle
    int fd = -1;          // borrowed: whoever offered it closes it
};

// Exports `source` to a fresh nvidiactl descriptor and imports it into `client` at once: the way between two clients of
// one process when RM denies the direct one.
struct TransferObject {
    FileId source_file = 0;
    uint32_t source_client = 0;
    uint32_t source_device = 0;
    uint32_t source_object = 0;
    FileId file = 0;
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t object = 0;
};

// FERMI_CONTEXT_SHARE_A.
struct AllocCtxshare {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t tsg = 0;
    uint32_t object = 0;
    uint32_t va_space = 0;
    uint32_t flags = 0;  // rm::kCtxshare*
    uint32_t veid = 0;   // in, with the SPECIFIED flag
    // The VEID may be a program's that is just ending: half a second for RM to take it back.
    bool patient = false;
    // Or it may be somebody else's for good: then nothing is made, and that is no failure.
    bool optional = false;
};

// UVM_CREATE_EXTERNAL_RANGE. va and length are multiples of 4 KiB.
struct UvmCreateRange {
    FileId uvm = 0;
    uint64_t va = 0;
    uint64_t length = 0;
    uint64_t mapping = 0;  // of the buffer that will be in it (MirrorTable); not part of the ioctl
};

// UVM_MAP_EXTERNAL_ALLOCATION, one GPU, read-write-atomic.
struct UvmMapRange {
    FileId uvm = 0;
    uint64_t va = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    FileId file = 0;  // the nvidiactl file that created `client`
    uint32_t client = 0;
    uint32_t memory = 0;
    Uuid gpu;
};

// UVM_FREE: drops the range with its mappings.
struct UvmFreeRange {
    FileId uvm = 0;
    uint64_t va = 0;
    uint64_t length = 0;
};

// NV_ESC_RM_FREE.
struct FreeObject {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t object = 0;
};

// A control sent to one channel in place of the same control on its TSG (schedule, bind).
struct ChannelControl {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t channel = 0;
    uint32_t command = 0;
    std::array<uint8_t, 16> params{};
    uint32_t params_size = 0;
};

// Send CUDA's start-up compute methods to a new subcontext (bootstrap.h). Only with Options::bootstrap.
struct BootstrapSubcontext {
    FileId file = 0;
    FileId uvm = 0;
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t va_space = 0;
    uint32_t ctxshare = 0;
    uint32_t channel = 0;         // a moved channel, scheduled
    uint32_t native_channel = 0;  // a channel of the same context that stayed; 0 = none
};

using Action = std::variant<DupObject, ImportObject, TransferObject, AllocCtxshare, UvmCreateRange, UvmMapRange,
                            UvmFreeRange, FreeObject, ChannelControl, BootstrapSubcontext>;

struct ActionResult {
    uint32_t status = kNvOk;  // NV_STATUS; kNvErrOperatingSystem when the ioctl failed without one
    uint32_t veid = 0;        // AllocCtxshare
};

class Executor {
 public:
    virtual ~Executor() = default;
    // Must not throw. Never called with a lock of the redirector's owner held.
    virtual ActionResult run(const Action& action) = 0;
};

// Takes back what a successful `action` did; false when there is nothing to take back.
bool undo_of(const Action& action, Action* undo);

// Takes back a sequence that succeeded, last first. Objects that the sequence freed itself are left out.
std::vector<Action> undo_all(std::span<const Action> done);

}  // namespace vuda::shim
