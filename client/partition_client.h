// libvuda's side of splitting the GPU: the session page, the partitioner that follows it, and what the program is told.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/unique_fd.h"
#include "client/session_abi.h"
#include "proto/page/launch_hold.h"
#include "proto/page/page_memory.h"
#include "shim/partition/partitioner.h"
#include "shim/partition/scg_follower.h"

namespace vuda::client {

struct PartitionView {
    partition::PartitionState state;
    page::Split split;
    uint64_t launches = 0;
};

class PartitionClient : public partition::PartitionHost {
 public:
    using Report = std::function<void(const partition::PartitionState&)>;
    using FindCuda = std::function<Result<partition::CudaDriver>()>;

    // `report` is called on the partitioner's thread, without locks held.
    // `refused`: a kernel was refused, the first one since the newest context began to share. On the partitioner's
    // thread, or that of own_kernel().
    using Refused = std::function<void(uint32_t bytes, uint32_t limit)>;
    PartitionClient(const vuda_private_callbacks& callbacks, Report report, FindCuda find_cuda = partition::find_cuda,
                    Refused refused = {}, std::function<void()> managed_refused = {});

    // The page that came with a greeting, or error: none that can be used. Any earlier page stays where it is.
    Status page_received(int fd, uint64_t bytes);
    // What becomes of kernels that are too large to share, from now on. Reported when it changes. Any thread.
    void over_limit(limits::OverLimit policy);
    // A context of this process began to share; none does any more.
    void sharing_began();
    void sharing_ended();
    // vudad knows this process's renderer by its name: where the GPU has SCG control methods, the split is steered from
    // here.
    void host_registered();

    // NULL before a page came. The address stays good.
    page::Page* page() const { return page_.load(std::memory_order_acquire); }
    PartitionView view() const;

    // One launch of a program that keeps to the split by itself.
    page::Split own_launch();
    // One kernel of such a program, and how much shared memory a block may take beside graphics; bytes. 0, or the
    // CUresult that it gets: it must not run.
    int own_kernel(uint32_t bytes, uint32_t limit);
    // The program is about to end. A kernel that was refused, where that unshares, and of which `refused` has not heard
    // yet; from now on it counts as told. Takes no lock that the caller may hold.
    std::optional<partition::Refusals> untold_refusal();
    // vuda_private_watch_launches.
    bool watch_launches(bool on);

 private:
    Status steer_host(uint32_t compute_class);
    Status run_methods(const std::vector<partition::Method>& methods);
    uint32_t subdevice_control(uint32_t command, void* params, uint32_t size) override;
    void partition_state(const partition::PartitionState& state) override;
    void unshared_contexts(bool on) override;
    Result<partition::CudaDriver> cuda() override { return find_cuda_(); }
    void launch_refused(uint32_t bytes, uint32_t limit) override;
    void managed_memory_refused() override {
        if (managed_refused_) managed_refused_();
    }

    const vuda_private_callbacks callbacks_;
    const Report report_;
    const FindCuda find_cuda_;
    const Refused refused_;
    const std::function<void()> managed_refused_;

    mutable std::mutex mutex_;
    page::PageMapping mapping_;
    std::atomic<page::Page*> page_{nullptr};
    std::atomic<bool> own_backend_{false};
    page::LaunchHold hold_;
    std::atomic<uint32_t> own_limit_{0};  // of kernels that own_kernel() was asked for
    std::atomic<bool> shares_{false};
    std::atomic<bool> refusal_told_{false};  // since the newest context began to share
    uint64_t refusals_before_ = 0;           // that the partitioner had counted then
    limits::OverLimit over_limit_ = limits::kDefaultOverLimit;
    uint32_t waiting_ = 0;  // contexts that share and wait for a page
    partition::PartitionState state_;
    std::unique_ptr<partition::ScgFollower> scg_;
    std::unique_ptr<partition::Partitioner> partitioner_;  // last: its thread uses the rest
};

// Steps that the program marked with vuda_step_begin and have not ended. Any thread; a begin and its end may be on
// different ones.
class Steps {
 public:
    void begin(uint64_t id, uint64_t now_ns);
    // Nanoseconds since the begin of the same id; nullopt: there was none, or too many are open at a time.
    std::optional<uint64_t> end(uint64_t id, uint64_t now_ns);

 private:
    struct Open {
        std::atomic<uint64_t> id{0};
        std::atomic<uint64_t> begun_ns{0};  // 0: free
    };
    Open open_[256];
};

}  // namespace vuda::client
