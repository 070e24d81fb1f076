// Why a process does not share, or shares differently from what it asked for. Numbers and fixed texts instead of
// strings: the redirector makes no strings, the hook formats one when somebody reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/uuid.h"

namespace vuda::shim {

enum class Reason : uint8_t {
    kNone,
    kNoHost,              // no renderer TSG in this process yet
    kHostLegacy,          // the renderer's TSG has no context shares and cannot take more
    kHostEarlier,         // the renderer's device is older than its wish to share, and not set up for it
    kOtherGpu,            // detail: CUDA's device instance, other: the renderer's
    kNotRegistered,       // CUDA's address space is not registered with UVM
    kTsgFull,             // detail: channels in use
    kImportRefused,       // RM refused the TSG; status
    kBufferRefused,       // RM or UVM refused a control buffer; status, detail: its address
    kBufferOverlap,       // CUDA's address space holds something else at a control buffer's address (detail)
    kCtxshareRefused,     // RM refused the context share; status
    kVeidTaken,           // a program that shared is still ending; detail: its VEID
    kChannelRefused,      // RM refused the first channel; status
    kContextGone,         // CUDA freed its context before the channels ran
    kBusy,                // another context of this process was being set up for too long
    kAttachFailed,        // vudad's answer (libvuda has the words)
    kPartialUnsupported,  // reserve(n), and CUDA makes more channels than n; detail: n, other: what it makes
    kStopped,             // vudad ended sharing
    kDebugger,            // cuda-gdb is attached; detail: its pid
    kCoreDumps,           // CUDA is to write GPU core dumps
    kMps,                 // CUDA's work goes through an MPS server
    kMig,                 // CUDA works in a MIG instance
    kVirtualGpu,          // a vGPU
    kConfidential,        // confidential computing is on
};

struct Refusal {
    Reason reason = Reason::kNone;
    uint32_t status = 0;  // NV_STATUS
    uint64_t detail = 0;
    uint64_t other = 0;
    explicit operator bool() const { return reason != Reason::kNone; }
    bool operator==(const Refusal&) const = default;
};

struct Words {
    int code = 0;  // google.rpc.Code
    char text[200] = {};
    char hint[160] = {};
};

// One line for people, and what they can do about it.
Words describe(const Refusal& refusal);

}  // namespace vuda::shim
