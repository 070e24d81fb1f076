// Takes one ioctl through the redirector: the loop described in redirector.h, over interfaces, so that the hook and the
// tests run the same code.
#pragma once

#include <cstdint>
#include <span>

#include "shim/preload/redirector.h"

namespace vuda::shim {

// The redirector behind its owner's lock: each function is one short critical section.
class RedirectorAccess {
 public:
    virtual ~RedirectorAccess() = default;
    virtual Plan before(const Call& call) = 0;
    virtual Plan attached(const Plan& plan, const Call& call, const Offer& offer) = 0;
    virtual Plan refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results) = 0;
    virtual Plan after(const Plan& plan, const Call& call, const Outcome& outcome,
                       std::span<const ActionResult> results) = 0;
    virtual void abandoned(const Plan& plan) = 0;
    // Blocks until no other thread is in the way of `call`, for which `plan` is kWait, or for as long as a call may be
    // held up. The plan that follows: never kWait.
    virtual Plan wait(const Plan& plan, const Call& call) = 0;
};

// vudad, seen from a CUDA process. The offer's descriptors stay open until release().
class Attacher {
 public:
    virtual ~Attacher() = default;
    virtual Offer attach(const AttachWish& wish) = 0;
    virtual void release(Offer* offer) = 0;
};

// The caller's memory and the kernel.
class Forwarder {
 public:
    virtual ~Forwarder() = default;
    // The ioctl as the program made it, on the program's memory. Returns what ioctl(2) returns and leaves errno.
    virtual int forward() = 0;
    // The same on private copies. The forwarder puts the address of `params` into `arg` where the caller's pointer was.
    virtual int forward_copy(std::span<uint8_t> arg, std::span<uint8_t> params) = 0;
    // The caller's memory; false when it cannot be accessed.
    virtual bool read(Edit::Where where, std::span<uint8_t> out) = 0;
    virtual bool write(Edit::Where where, size_t offset, std::span<const uint8_t> bytes) = 0;
    // Offset of the pointer to the parameter block in the argument block: a place the kernel's copy has different.
    virtual size_t pointer_offset() const = 0;
};

// ioctl(2)'s result for the caller, errno set as the kernel left it.
int run_call(RedirectorAccess& redirector, Executor& executor, Attacher& attacher, Forwarder& forwarder,
             const Call& call);

// What the caller sees of a block that the kernel got as `sent` (edits applied) and left as `left`: the bytes that the
// kernel changed, without the redirector's own bits. `original` is the block as the caller gave it.
std::vector<uint8_t> visible_block(Edit::Where where, std::span<const uint8_t> original, std::span<const uint8_t> sent,
                                   std::span<const uint8_t> left, std::span<const Edit> edits);

// Applies the edits for `where`; false when one lies outside of the block.
bool apply_edits(Edit::Where where, std::span<const Edit> edits, std::span<uint8_t> block);

}  // namespace vuda::shim
