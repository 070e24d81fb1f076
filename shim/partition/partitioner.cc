#include "shim/partition/partitioner.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "rm/abi.h"
#include "rm/status.h"
#include "shim/limits/scg_limit.h"

namespace vuda::partition {
namespace {

constexpr size_t kThreadStack = 1 << 20;
constexpr uint32_t kAttempts = 8;
const Error kNoError{Code::kOk, "", ""};

}  // namespace

Partitioner::~Partitioner() {
    {
        const std::lock_guard lock(mutex_);
        if (!started_) return;
    }
    stopping_.store(true);
    wake();
    ::pthread_join(thread_, nullptr);
}

void Partitioner::wake() {
    events_.fetch_add(1, std::memory_order_release);
    events_.notify_all();
}

void Partitioner::sharing() {
    const std::lock_guard lock(mutex_);
    ++admitted_;
    ++begins_;
    // Before the context can launch anything.
    if (LaunchHook* hook = hook_.load(std::memory_order_acquire)) hook->expect_contexts();
    if (!started_) {
        pthread_attr_t attributes;
        ::pthread_attr_init(&attributes);
        ::pthread_attr_setstacksize(&attributes, kThreadStack);
        // The program's signals are the program's business: this thread takes none.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        started_ = ::pthread_create(&thread_, &attributes, &Partitioner::thread_main, this) == 0;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::pthread_attr_destroy(&attributes);
    }
    wake();
}

void Partitioner::detached() {
    const std::lock_guard lock(mutex_);
    admitted_ = 0;
    ++ends_;
    // At once: the address of a context that is gone may be the next one's.
    if (LaunchHook* hook = hook_.load(std::memory_order_acquire)) hook->forget_contexts();
    wake();
}

void Partitioner::page_replaced() {
    if (LaunchHook* hook = hook_.load(std::memory_order_acquire)) hook->page_replaced();
}

bool Partitioner::watch_launches(bool on) {
    LaunchHook* hook = hook_.load(std::memory_order_acquire);
    return hook != nullptr && hook->watch(on);
}

Refusals Partitioner::refusals() const {
    LaunchHook* hook = hook_.load(std::memory_order_acquire);
    if (hook == nullptr) return {};
    const limits::LaunchGuard& guard = hook->launch_guard();
    return {guard.refusals(), guard.first_refused_bytes(), guard.limit()};
}

void* Partitioner::thread_main(void* self) {
    ::pthread_setname_np(::pthread_self(), "vuda-partition");
    auto* partitioner = static_cast<Partitioner*>(self);
    try {
        partitioner->run();
    } catch (const std::exception& failure) {
        // Out of memory, in practice. Launches go on as they did.
        if (LaunchHook* hook = partitioner->hook_.load()) hook->switch_off("VUDA's partitioner ran out of memory");
    }
    return nullptr;
}

void Partitioner::run() {
    if (prepare()) follow_contexts();
    for (;;) {
        const uint32_t seen = events_.load(std::memory_order_acquire);
        if (stopping_.load()) return;
        events_.wait(seen, std::memory_order_acquire);
    }
}

// False: nothing in this process can follow a split; that was reported.
bool Partitioner::prepare() {
    Result<GpuLayout> layout = read_layout([this](uint32_t command, void* params, uint32_t size) {
        return host_.subdevice_control(command, params, size);
    });
    if (!layout) {
        report(Backend::kNone, layout.error());
        return false;
    }
    layout_ = *std::move(layout);
    rm::GidInfoParams uuid{};
    uuid.flags = rm::kGidBinary;
    if (const uint32_t status = host_.subdevice_control(rm::ctrl::kGpuGetGidInfo, &uuid, sizeof uuid);
        status != rm::nv::kOk || uuid.length != gpu_.bytes.size()) {
        report(Backend::kNone,
               Error{Code::kFailedPrecondition,
                     "the resource manager does not say which GPU this is (" + rm::status_text(status) + ")", ""});
        return false;
    }
    std::memcpy(gpu_.bytes.data(), uuid.data, gpu_.bytes.size());
    if (!enabled_) {
        report(Backend::kNone, Error{Code::kFailedPrecondition, "switched off by VUDA_PARTITION=off", ""});
        return false;
    }
    Result<CudaDriver> cuda = host_.cuda();
    if (!cuda) {
        report(Backend::kNone, cuda.error());
        return false;
    }
    cuda_ = *cuda;
    Result<std::unique_ptr<LaunchHook>> hook = LaunchHook::install(cuda_, events_);
    if (!hook) {
        report(Backend::kNone, hook.error());
        return false;
    }
    owned_hook_ = *std::move(hook);
    hook_.store(owned_hook_.get(), std::memory_order_release);
    report(Backend::kNone, Error{Code::kUnavailable, "not proved yet; waiting for the program's first kernel", ""});
    return true;
}

void Partitioner::follow_contexts() {
    LaunchHook& hook = *owned_hook_;
    uint32_t begins = 0;
    while (!stopping_.load()) {
        const uint32_t seen = events_.load(std::memory_order_acquire);
        follow_policy();
        tell_refusals();
        if (const auto reason = hook.off_reason()) return report(Backend::kNone, *reason);
        bool begun = false;
        {
            const std::lock_guard lock(mutex_);
            if (std::exchange(ends_seen_, ends_) != ends_) approved_ = 0;
            begun = std::exchange(begins, begins_) != begins_;
        }
        if (begun) {
            hook.tell_launches();
            // Programs of the CUDA runtime use the primary context: no need to wait for their first kernel.
            int device = 0;
            if (const CuContext primary = retain_primary(device)) {
                look_at(primary);
                cuda_.primary_release(device);
            }
        }
        if (given_up_) return;
        const CuContext context = hook.take_newcomer();
        if (context != nullptr) {
            look_at(context);
            continue;
        }
        events_.wait(seen, std::memory_order_acquire);
    }
}

CuContext Partitioner::retain_primary(int& device) {
    int devices = 0;
    if (cuda_.device_get_count(&devices) != 0) return nullptr;
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
        CuUuid uuid{};
        unsigned flags = 0;
        int active = 0;
        if (cuda_.device_get(&device, ordinal) != 0 || cuda_.device_get_uuid(&uuid, device) != 0) continue;
        if (std::memcmp(uuid.bytes, gpu_.bytes.data(), gpu_.bytes.size()) != 0) continue;
        if (cuda_.primary_get_state(device, &flags, &active) != 0 || active == 0) return nullptr;
        CuContext context = nullptr;
        return cuda_.primary_retain(&context, device) == 0 ? context : nullptr;
    }
    return nullptr;
}

bool Partitioner::on_this_gpu(CuContext context) {
    if (cuda_.ctx_push(context) != 0) return false;
    int device = 0;
    CuUuid uuid{};
    const bool known = cuda_.ctx_get_device(&device) == 0 && cuda_.device_get_uuid(&uuid, device) == 0;
    CuContext popped = nullptr;
    cuda_.ctx_pop(&popped);
    return known && std::memcmp(uuid.bytes, gpu_.bytes.data(), gpu_.bytes.size()) == 0;
}

// vudad admitted a number of contexts; those that show up first on their GPU are taken for them.
void Partitioner::look_at(CuContext context) {
    if (given_up_) return;
    LaunchHook& hook = *owned_hook_;
    uint32_t admitted;
    {
        const std::lock_guard lock(mutex_);
        admitted = admitted_;
    }
    if (approved_ >= admitted || !on_this_gpu(context)) return hook.decline(context);
    if (!proof_) {
        Result<Proof> proof = self_check(cuda_, hook, layout_, context);
        if (!proof) {
            if (proof.error().code != Code::kUnavailable || ++attempts_ == kAttempts) return give_up(proof.error());
            // Launches must not wait for a context that goes away.
            hook.launch_guard().let_go();
            return report(Backend::kNone, proof.error());
        }
        proof_.emplace(*std::move(proof));
        hook.start(*proof_->layout, proof_->map, page_);
        if (proof_->waits) hook.time_waits();
        if (proof_->arguments) hook.trust_arguments();
        if (proof_->refuses) {
            hook.guard(shared_limit(context));
            follow_policy();
        }
    }
    hook.approve(context);
    ++approved_;
    {
        const std::lock_guard lock(mutex_);
        if (approved_ >= admitted_ && ends_seen_ == ends_) hook.settled();
    }
    if (!hook.off_reason()) report(Backend::kQmdMask, kNoError);
}

// Bytes of shared memory that a block may take beside graphics.
uint32_t Partitioner::shared_limit(CuContext context) {
    constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
    int device = 0, major = 0, minor = 0;
    if (cuda_.ctx_push(context) == 0) {
        if (cuda_.ctx_get_device(&device) == 0 &&
            cuda_.device_get_attribute(&major, kComputeCapabilityMajor, device) == 0)
            cuda_.device_get_attribute(&minor, kComputeCapabilityMinor, device);
        CuContext popped = nullptr;
        cuda_.ctx_pop(&popped);
    }
    return limits::scg_limit(major, minor).bytes;
}

// Where the kernels go that the guard withholds.
void Partitioner::follow_policy() {
    const bool wanted = over_limit_.load(std::memory_order_relaxed) == limits::OverLimit::kNative;
    owned_hook_->modules().keep(wanted);
    if (!proof_ || !proof_->refuses) return;
    if (wanted && !owned_native_ && cuda_.has_native_side() && has_module_banks(*proof_->layout))
        owned_native_ = std::make_unique<NativeSide>(cuda_, *proof_->layout, host_, owned_hook_->modules());
    owned_hook_->run_natively(wanted ? owned_native_.get() : nullptr);
}

void Partitioner::tell_refusals() {
    limits::LaunchGuard& guard = owned_hook_->launch_guard();
    if (owned_hook_->native_launches() != 0) owned_hook_->watch_all_calls();
    if (owned_hook_->managed_refused() != 0 && !std::exchange(managed_told_, true)) host_.managed_memory_refused();
    if (said_.backend == Backend::kQmdMask && (owned_hook_->native_launches() != 0 || owned_hook_->not_native()))
        report(Backend::kQmdMask, kNoError);
    const uint64_t refusals = guard.refusals();
    if (refusals == refusals_told_) return;
    refusals_told_ = refusals;
    host_.launch_refused(guard.first_refused_bytes(), guard.limit());
}

void Partitioner::give_up(const Error& reason) {
    given_up_ = true;
    owned_hook_->switch_off("the self-check failed");
    report(Backend::kNone, reason);
}

void Partitioner::report(Backend backend, const Error& reason) {
    const uint32_t limit = owned_hook_ && !owned_hook_->off_reason() ? owned_hook_->launch_guard().limit() : 0;
    PartitionState state{backend, reason, layout_.topology, limit};
    if (limit != 0) {
        // How many is in the page; here only that there are some.
        state.native_launches = owned_hook_->native_launches() != 0 ? 1 : 0;
        if (const auto why = owned_hook_->not_native())
            state.native_reason = why->text;
        else if (over_limit_.load(std::memory_order_relaxed) == limits::OverLimit::kNative && !owned_native_)
            state.native_reason = "this GPU or CUDA is none where kernels were seen to run in another context";
    }
    if (state == said_) return;
    said_ = std::move(state);
    host_.partition_state(said_);
}

}  // namespace vuda::partition
