// Puts vudad's splits into force in this process: learns the GPU's layout, proves the way that they take, and says what
// came of it.
//
// A thread of its own, because it calls CUDA, which may be busy for as long as the program likes. It is started when a
// context of this process shares a TSG, and not before.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "base/uuid.h"
#include "proto/page/session_page.h"
#include "shim/limits/over_limit.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_hook.h"
#include "shim/partition/partition_state.h"
#include "shim/partition/rm_topology.h"
#include "shim/partition/self_check.h"

namespace vuda::partition {

// What the partitioner needs from its process. Called on its thread.
class PartitionHost : public NativeSide::Host {
 public:
    ~PartitionHost() override = default;
    // One RM_CONTROL on the subdevice of the context that shares. Returns an NV_STATUS.
    virtual uint32_t subdevice_control(uint32_t command, void* params, uint32_t size) = 0;
    virtual void partition_state(const PartitionState& state) = 0;
    virtual Result<CudaDriver> cuda() = 0;
    // Kernels were refused since the last call, or the first ones: the first of all wanted so much shared memory a
    // block, and so much is possible; bytes.
    virtual void launch_refused(uint32_t bytes, uint32_t limit) = 0;
    // The first allocation of managed memory was refused (LaunchHook::managed_refused).
    virtual void managed_memory_refused() = 0;
};

// Kernels that were refused so far.
struct Refusals {
    uint64_t count = 0;
    uint32_t bytes = 0;  // of shared memory a block that the first of all wanted
    uint32_t limit = 0;  // and that are possible
};

class Partitioner {
 public:
    // `host` and `page` outlive it. `enabled` false: the program's user wants no hook in its launches; only the layout
    // is reported.
    Partitioner(PartitionHost& host, page::Page& page, bool enabled) : host_(host), page_(page), enabled_(enabled) {}
    // Waits for a call into CUDA that is under way.
    ~Partitioner();
    Partitioner(const Partitioner&) = delete;
    Partitioner& operator=(const Partitioner&) = delete;

    // What becomes of kernels over the limit from now on. Any thread.
    void over_limit(limits::OverLimit policy) {
        over_limit_.store(policy, std::memory_order_relaxed);
        wake();
    }
    // A context of this process began to share. Returns at once; any thread.
    void sharing();
    // None does any more.
    void detached();
    // The page is another vudad's.
    void page_replaced();
    // Whether CUDA calls before launches. False: it does not care, or is not asked yet.
    bool watch_launches(bool on);
    // Any thread; takes no lock.
    Refusals refusals() const;

 private:
    static void* thread_main(void* self);
    void run();
    bool prepare();
    void follow_contexts();
    void look_at(CuContext context);
    CuContext retain_primary(int& device);
    bool on_this_gpu(CuContext context);
    uint32_t shared_limit(CuContext context);
    void tell_refusals();
    void follow_policy();
    void give_up(const Error& reason);
    void report(Backend backend, const Error& reason);
    void wake();

    PartitionHost& host_;
    page::Page& page_;
    const bool enabled_;

    std::mutex mutex_;
    bool started_ = false;
    pthread_t thread_{};
    uint32_t admitted_ = 0;  // contexts that began to share since the last detached()
    uint32_t begins_ = 0;    // calls of sharing()
    uint32_t ends_ = 0;      // calls of detached()
    std::atomic<bool> stopping_{false};
    std::atomic<limits::OverLimit> over_limit_{limits::kDefaultOverLimit};
    std::atomic<uint32_t> events_{0};
    std::atomic<LaunchHook*> hook_{nullptr};

    // The thread's.
    CudaDriver cuda_{};
    GpuLayout layout_;
    Uuid gpu_;
    bool managed_told_ = false;
    std::unique_ptr<NativeSide> owned_native_;  // the hook uses it
    std::unique_ptr<LaunchHook> owned_hook_;
    std::optional<Proof> proof_;
    bool given_up_ = false;
    uint32_t attempts_ = 0;
    uint32_t approved_ = 0;
    uint32_t ends_seen_ = 0;  // of ends_: what was approved since
    uint64_t refusals_told_ = 0;
    PartitionState said_;
};

}  // namespace vuda::partition
