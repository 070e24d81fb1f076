#include "client/partition_client.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/fault_point.h"
#include "client/process_state.h"
#include "rm/abi.h"
#include "shim/limits/launch_guard.h"
#include "shim/partition/rm_topology.h"

namespace vuda::client {
namespace {

constexpr char kOwnDescriptors[] = "this program writes its launch descriptors itself";

bool wanted_by_environment() {
    const char* value = ::secure_getenv("VUDA_PARTITION");
    return value == nullptr || std::strcmp(value, "off") != 0;
}

}  // namespace

PartitionClient::PartitionClient(const vuda_private_callbacks& callbacks, Report report, FindCuda find_cuda,
                                 Refused refused, std::function<void()> managed_refused)
    : callbacks_(callbacks),
      report_(std::move(report)),
      find_cuda_(std::move(find_cuda)),
      refused_(std::move(refused)),
      managed_refused_(std::move(managed_refused)) {}

Status PartitionClient::page_received(int fd, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (mapping_) {
        if (Status replaced = mapping_.replace(fd, bytes); !replaced) return replaced;
        VUDA_FAULT_POINT(client_page_replaced);
        if (partitioner_) partitioner_->page_replaced();
        return {};
    }
    Result<page::PageMapping> mapped = page::PageMapping::of_received(fd, bytes);
    if (!mapped) return mapped.error();
    mapping_ = *std::move(mapped);
    page_.store(&*mapping_, std::memory_order_release);
    partitioner_ = std::make_unique<partition::Partitioner>(*this, *mapping_, wanted_by_environment());
    partitioner_->over_limit(over_limit_);
    for (; waiting_ > 0; --waiting_) partitioner_->sharing();
    return {};
}

void PartitionClient::over_limit(limits::OverLimit policy) {
    partition::PartitionState said;
    {
        const std::lock_guard lock(mutex_);
        if (policy == over_limit_) return;
        over_limit_ = policy;
        if (partitioner_) partitioner_->over_limit(policy);
        // Nothing was said yet: the first report will have it.
        if (state_.backend == partition::Backend::kUnspecified) return;
        said = state_;
    }
    partition_state(said);
}

void PartitionClient::sharing_began() {
    const std::lock_guard lock(mutex_);
    shares_.store(true);
    refusal_told_.store(false);
    if (partitioner_) refusals_before_ = partitioner_->refusals().count;
    if (partitioner_) {
        partitioner_->sharing();
    } else {
        ++waiting_;
    }
}

void PartitionClient::sharing_ended() {
    const std::lock_guard lock(mutex_);
    shares_.store(false);
    waiting_ = 0;
    if (partitioner_) partitioner_->detached();
}

void PartitionClient::host_registered() {
    if (callbacks_.host_compute_class == nullptr || !wanted_by_environment()) return;
    partition::PartitionState said;
    {
        const std::lock_guard lock(mutex_);
        if (scg_ || !mapping_) return;
        const uint32_t compute_class = callbacks_.host_compute_class(callbacks_.context);
        if (!partition::has_scg(compute_class)) return;
        if (Status steered = steer_host(compute_class); !steered) {
            state_.backend = partition::Backend::kNone;
            state_.reason = steered.error();
        }
        said = state_;
    }
    report_(said);
}

Status PartitionClient::steer_host(uint32_t compute_class) {
    const Result<partition::GpuLayout> layout =
        partition::read_layout([this](uint32_t command, void* params, uint32_t size) {
            return callbacks_.host_control(callbacks_.context, command, params, size);
        });
    if (!layout) return layout.error();
    state_.topology = layout->topology;
    const auto sms_per_tpc =
        static_cast<uint32_t>(layout->topology.sm_count() / std::max<size_t>(layout->topology.tpcs.size(), 1));
    partition::ScgFollower::Host host;
    host.run = [this](const std::vector<partition::Method>& methods) { return run_methods(methods); };
    host.failed = [this](const Error& error) {
        partition::PartitionState failed;
        {
            const std::lock_guard lock(mutex_);
            state_.backend = partition::Backend::kNone;
            state_.reason = error;
            failed = state_;
        }
        report_(failed);
    };
    auto follower = std::make_unique<partition::ScgFollower>(*mapping_, compute_class, sms_per_tpc, std::move(host));
    // An empty list: the channel is made and proved before vudad is promised anything.
    if (Status proved = run_methods({}); !proved) return proved;
    if (Status started = follower->start(); !started) return started;
    scg_ = std::move(follower);
    state_.backend = partition::Backend::kScg;
    state_.reason = Error{Code::kOk, "", ""};
    return {};
}

Status PartitionClient::run_methods(const std::vector<partition::Method>& methods) {
    std::vector<uint32_t> pairs;
    for (const partition::Method& method : methods) pairs.insert(pairs.end(), {method.address, method.data});
    uint64_t ns = 0;
    vuda_private_error error{};
    if (callbacks_.host_methods(callbacks_.context, pairs.data(), static_cast<uint32_t>(methods.size()), &ns, &error) ==
        0)
        return {};
    return read_error(&error);
}

PartitionView PartitionClient::view() const {
    PartitionView view;
    {
        const std::lock_guard lock(mutex_);
        view.state = state_;
    }
    if (const page::Page* page = this->page()) {
        page::read_split(page->daemon, view.split);
        view.launches = page::launches(*page);
    }
    return view;
}

uint32_t PartitionClient::subdevice_control(uint32_t command, void* params, uint32_t size) {
    if (callbacks_.subdevice_control == nullptr) return rm::nv::kNotSupported;
    return callbacks_.subdevice_control(callbacks_.context, command, params, size);
}

void PartitionClient::unshared_contexts(bool on) {
    if (callbacks_.unshared_contexts != nullptr) callbacks_.unshared_contexts(callbacks_.context, on ? 1 : 0);
}

void PartitionClient::partition_state(const partition::PartitionState& state) {
    partition::PartitionState said = state;
    if (own_backend_.load() && !said.topology.empty()) {
        said.backend = partition::Backend::kQmdMask;
        said.reason = Error{Code::kOk, "", ""};
        said.shared_limit = own_limit_.load();
    }
    {
        const std::lock_guard lock(mutex_);
        said.over_limit = over_limit_;
        // Its descriptors are nobody's but its own.
        if (own_limit_.load() != 0)
            said.native_reason = over_limit_ == limits::OverLimit::kNative ? kOwnDescriptors : "";
        state_ = said;
    }
    report_(said);
}

bool PartitionClient::watch_launches(bool on) {
    const std::lock_guard lock(mutex_);
    return partitioner_ != nullptr && partitioner_->watch_launches(on);
}

page::Split PartitionClient::own_launch() {
    page::Split split;
    page::Page* page = this->page();
    if (page == nullptr || !wanted_by_environment()) return split;
    if (!own_backend_.exchange(true)) {
        partition::PartitionState known;
        {
            const std::lock_guard lock(mutex_);
            known = state_;
        }
        // Not known yet: the partitioner's own report comes through partition_state().
        if (!known.topology.empty()) partition_state(known);
    }
    hold_.wait(page->daemon);
    page::SampleWriter writer(*page);
    writer.count_launch();
    if (page::read_split(page->daemon, split)) writer.set_applied(split.generation);
    return split;
}

int PartitionClient::own_kernel(uint32_t bytes, uint32_t limit) {
    page::Page* page = this->page();
    if (page == nullptr || !shares_.load() || !wanted_by_environment()) return 0;
    if (own_limit_.exchange(limit) != limit) {
        partition::PartitionState known;
        {
            const std::lock_guard lock(mutex_);
            if (over_limit_ == limits::OverLimit::kNative) state_.native_reason = kOwnDescriptors;
            known = state_;
        }
        if (own_backend_.load() && !known.topology.empty()) partition_state(known);
    }
    if (bytes <= limit) return 0;
    page::SampleWriter(*page).count_refused();
    launch_refused(bytes, limit);
    return limits::kLaunchOutOfResources;
}

void PartitionClient::launch_refused(uint32_t bytes, uint32_t limit) {
    if (!refusal_told_.exchange(true) && refused_) refused_(bytes, limit);
}

std::optional<partition::Refusals> PartitionClient::untold_refusal() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || !partitioner_ || over_limit_ != limits::OverLimit::kUnshare) return std::nullopt;
    const partition::Refusals refusals = partitioner_->refusals();
    if (refusals.count == refusals_before_ || refusal_told_.exchange(true)) return std::nullopt;
    return refusals;
}

void Steps::begin(uint64_t id, uint64_t now_ns) {
    Open& open = open_[id % std::size(open_)];
    open.begun_ns.store(0, std::memory_order_relaxed);
    open.id.store(id, std::memory_order_relaxed);
    open.begun_ns.store(now_ns, std::memory_order_release);
}

std::optional<uint64_t> Steps::end(uint64_t id, uint64_t now_ns) {
    Open& open = open_[id % std::size(open_)];
    uint64_t begun = open.begun_ns.load(std::memory_order_acquire);
    if (begun == 0 || open.id.load(std::memory_order_relaxed) != id) return std::nullopt;
    if (!open.begun_ns.compare_exchange_strong(begun, 0, std::memory_order_relaxed)) return std::nullopt;
    return now_ns >= begun ? now_ns - begun : 0;
}

}  // namespace vuda::client
