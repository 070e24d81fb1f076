// Everything that libvuda keeps for this process, behind one pointer: a child of fork starts with a new one and leaves
// the old one alone, because a thread of the parent may have held any of its locks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "client/partition_client.h"
#include "client/report.h"
#include "client/session.h"
#include "client/session_abi.h"
#include "client/wishes.h"

namespace vuda::client {

// The preload's callbacks as the session calls them.
class CallbackHost : public SessionHost {
 public:
    CallbackHost(const vuda_private_callbacks& callbacks, Wishes& wishes, PartitionClient& partition)
        : callbacks_(callbacks), wishes_(wishes), partition_(partition) {}
    Result<HandleSet> export_host(uint64_t held) override;
    void detach_command(const Error& reason) override;
    void guard_fd(int fd, bool guarded) override;
    void register_failed(const Error& error) override;
    bool follows_from(uint64_t held) override;
    Result<MirrorChange> mirror_delta(bool idle) override;
    Status mirror_update(const MirrorChange& change) override;
    void others_subcontexts(const Subcontexts& now) override;
    Faults look_for_faults() override;
    Status page_received(int fd, uint64_t bytes) override;
    void registered() override { partition_.host_registered(); }
    bool turn_slice(uint32_t us) const;

 private:
    const vuda_private_callbacks callbacks_;
    Wishes& wishes_;
    PartitionClient& partition_;
};

class ProcessState {
 public:
    ProcessState();

    // The calling process's state. Never destroyed: the session's thread and the preload may use it until the process
    // is gone.
    static ProcessState& get();
    // Child of fork: forget the parent's.
    static void abandon_in_child();

    Wishes& wishes() { return wishes_; }
    Reporter& reporter() { return reporter_; }

    // The first call decides; later ones change nothing.
    void start(const vuda_private_callbacks& callbacks, const std::string& driver_version);
    // NULL before start.
    Session* session() { return session_.load(std::memory_order_acquire); }
    // NULL before start.
    PartitionClient* partition() { return partition_.load(std::memory_order_acquire); }
    Steps& steps() { return steps_; }
    // vuda_private_callbacks::turn_slice.
    bool turn_slice(uint32_t us);
    // Who may attach to this process's name. A mistake in the environment is said once, and allows nobody.
    AllowList allowed();
    // What becomes of kernels that are too large to share. A mistake in the environment is said once, and is no choice.
    limits::OverLimit over_limit();
    LimitTerms limit_terms();
    // Of a program that is about to end: PartitionClient::untold_refusal().
    std::optional<LargeKernel> untold_kernel();
    // What the program asked for before start.
    void want_mode(partition::Mode mode);
    void want_quota(const QuotaWish& quota);
    void want_targets(const TargetsWish& targets);

 private:
    void launch_refused(uint32_t bytes, uint32_t limit);

    const pid_t pid_;
    ProcessState* older_ = nullptr;  // an ancestor's, kept reachable
    Reporter reporter_;
    Wishes wishes_;
    std::mutex start_mutex_;
    std::optional<partition::Mode> early_mode_;
    std::optional<QuotaWish> early_quota_;
    std::optional<TargetsWish> early_targets_;
    std::unique_ptr<PartitionClient> owned_partition_;
    std::unique_ptr<CallbackHost> host_;
    std::unique_ptr<Session> owned_session_;
    std::atomic<Session*> session_{nullptr};
    std::atomic<PartitionClient*> partition_{nullptr};
    Steps steps_;
};

void fill_error(vuda_private_error* out, const Error& error);
// kOk when `in` is NULL or says no error.
Error read_error(const vuda_private_error* in);

}  // namespace vuda::client
