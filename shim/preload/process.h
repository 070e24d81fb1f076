// The preload's state in one process: made when the first NVIDIA file is seen, never destroyed (a program may close
// files from an atexit handler). A child of fork starts over with a new one.
//
// Locks, innermost last; none of them is held across an ioctl of the program:
//   slicing_     the timeslice of the renderer's TSG is being set. Only tried, by the program's thread that begins a
//   frame. starting_    libvuda's session is being started. telling_     which subcontexts vudad was told of. Held
//   across a call of libvuda's. mirroring_   one update of control buffers at a time. Held across our own ioctls, and
//   while waiting (1 s at most)
//                for a merge to end; never while waiting for vudad.
//   files_busy_  held while an export uses a renderer's file, and while a tracked descriptor is being closed, so that
//                the number cannot become another file half-way. Exports take milliseconds and never wait for the
//                program.
//   mutex_       the redirector: pure code, microseconds. changed_ tells of every plan that ended.
//   FdTable's    innermost, a map look-up.
// A thread that merges holds no lock while it talks to vudad or RM; a second merge in the same address space waits for
// it on changed_, at most 2 s, then runs unshared. All other ioctls go on meanwhile.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rm/driver_table.h"
#include "shim/preload/call_runner.h"
#include "shim/preload/fault_watch.h"
#include "shim/preload/fd_table.h"
#include "shim/preload/host_channel.h"
#include "shim/preload/late_session.h"
#include "shim/preload/redirector.h"
#include "shim/preload/replay_watch.h"
#include "shim/preload/rm_calls.h"
#include "shim/preload/settings.h"

namespace vuda::shim {

class UserCall;

class Process : public RedirectorAccess, public Attacher {
 public:
    Process(const Settings& settings, FdMarks* marks);

    // ---- from the hooks ----
    int ioctl(int fd, unsigned long request, void* arg);
    void opened(int fd, FileRole role);
    void duplicated(int from, int to);
    // Forgets `fd` and runs `close_it` (its real close, dup2 over it, ...) with no export in progress.
    template <typename CloseIt>
    int closing(int fd, CloseIt close_it) {
        std::vector<FileId> gone;
        int result = 0;
        {
            const std::lock_guard busy(files_busy_);
            files_.closed(fd, &gone);
            result = close_it();
        }
        forget(gone);
        return result;
    }
    void device_created();
    void wishes_changed();
    // In a child of fork, of the parent's state: closes what was inherited. Takes no lock.
    void after_fork_in_child() { replay_watch_.after_fork_in_child(); }
    LateSession& session() { return session_; }
    // A context of this process ran, or runs, outside of the TSG that it was to share. Any thread.
    bool unshared() const { return unshared_.load(std::memory_order_acquire); }
    // The timeslice of the renderer's TSG: vuda_private_callbacks::turn_slice.
    int turn_slice(uint32_t us);
    // vuda_shim_private_l1.
    int private_l1(uint32_t value, vuda_private_error* error);

    // ---- RedirectorAccess ----
    Plan before(const Call& call) override;
    Plan attached(const Plan& plan, const Call& call, const Offer& offer) override;
    Plan refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results) override;
    Plan after(const Plan& plan, const Call& call, const Outcome& outcome,
               std::span<const ActionResult> results) override;
    void abandoned(const Plan& plan) override;
    Plan wait(const Plan& plan, const Call& call) override;
    // ---- Attacher ----
    Offer attach(const AttachWish& wish) override;
    void release(Offer* offer) override;

 private:
    void read_driver();
    int handle(UserCall& call);
    void forget(const std::vector<FileId>& files);
    void move_addresses();
    FileId file_of(int fd, unsigned long request);
    // Before a graphics-engine TSG is made: libvuda is loaded if anybody asked, and the wishes of this moment apply.
    // Also before the address space of a CUDA context, which comes first: loading and connecting then go on beside
    // CUDA's own set-up.
    void prepare();
    // UVM_INITIALIZE. True: MPS serves this process, which is to share or to fail.
    bool keeps_out_mps_client();
    void start_session();
    void deliver_notices();
    void deliver(const Notice& notice);
    Host host() const;  // without its buffers
    int host_methods(const uint32_t* pairs, uint32_t count, uint64_t* ns, vuda_private_error* error);
    int export_host(uint64_t held, vuda_private_handles* out, vuda_private_error* error);
    uint32_t look_for_faults(vuda_private_faults* out);
    uint32_t subdevice_control(uint32_t command, void* params, uint32_t size);
    // Takes out of `host` what is gone by now.
    Result<std::vector<vuda_private_handle>> export_all(Host& host);
    // ---- process_mirror.cc ----
    bool follows_from(uint64_t held) const;
    int mirror_delta(bool idle, vuda_private_mirror* out, vuda_private_error* error);
    int mirror_update(const vuda_private_mirror& update, vuda_private_error* error);
    // Control buffers were mapped by the call that ends now.
    void control_buffers_mapped();
    void apply_kept_updates();
    Status apply(const MirrorUpdate& update, bool local);
    bool still_open(const Action& action) const;
    // ---- process_veids.cc ----
    void others_subcontexts(uint64_t taken, uint64_t stale);
    void tell_subcontexts();

    const Settings& settings_;
    FdMarks* marks_;
    FdTable files_;
    rm::DriverSupport driver_;
    char driver_version_[32] = {};
    unsigned uvm_major_ = 0;
    std::unique_ptr<RmCalls> calls_;             // null: the driver is not supported, everything passes through
    std::unique_ptr<HostChannel> host_channel_;  // null as calls_
    std::unique_ptr<FaultWatch> fault_watch_;    // null as calls_; libvuda's session thread only
    ReplayWatch replay_watch_;                   // likewise
    LateSession session_;

    std::mutex slicing_;
    TurnSlice turn_slice_;  // slicing_ held
    std::mutex mirroring_;
    std::mutex starting_;
    bool started_ = false;  // starting_ held
    std::mutex telling_;
    std::pair<uint64_t, uint64_t> told_{0, 0};  // telling_ held
    std::mutex files_busy_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::unique_ptr<Redirector> redirector_;
    // What the newest export was of, and the number of what others hold; session's thread only. The redirector has the
    // buffers.
    Host exported_;
    uint64_t export_generation_ = 0;
    // Updates that came while a context was about to share, with descriptors of their own.
    std::vector<MirrorUpdate> kept_updates_;
    std::atomic<bool> has_kept_updates_{false};
    std::map<uint64_t, uint64_t> spent_ns_;  // by Notice::started_ns: how long the merging ioctl took
    std::atomic<bool> addresses_moved_{false};
    std::atomic<bool> unshared_{false};
    std::atomic<bool> told_mps_{false};
    bool reported_driver_ = false;
    vuda_private_wishes wishes_{};
    vuda_private_error attach_error_{};
};

}  // namespace vuda::shim
