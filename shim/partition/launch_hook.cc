#include "shim/partition/launch_hook.h"
#include "base/monotonic.h"
#include "shim/partition/driver_calls.h"
#include "shim/partition/launch_hook_parts.h"
#include "shim/partition/safe_read.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

namespace vuda::partition {

using namespace hook;

namespace {

constexpr int kDomain = 0xb;
constexpr int kBeforeUpload = 1;
// The second and later descriptors of a graph lie behind other words of it.
constexpr uintptr_t kQmdAlign = 4;
constexpr int kAgain = 3;  // before a graph launches a descriptor that was uploaded earlier
constexpr int kCallDomain = 6;

// Kernels that come again and again are what they were.
constexpr uint64_t kLaunchesUntilQuiet = 4096;

constexpr size_t kSubscribe = 3;
constexpr size_t kEnable = 6;
constexpr size_t kTableSlots = 12;  // as the table's first word says on the versions below
constexpr CuUuid kCallbacks{
    {0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b}};

// Measured: 13.0 (driver 580.159.04). A version that is not here is refused, docs/partitioning.md says how to add one.
constexpr CallbackLayout kCallbackLayouts[] = {
    {13000, 13000, 0x58, 0xa8, 1, 4, 0x68, 8, 5, 7, 11, 10},
};

using Callback = void (*)(void*, int, int, const void*);
using Subscribe = int (*)(uint32_t* handle, Callback callback, void* user);

constinit std::atomic<LaunchHook*> g_kept{nullptr};

// When this thread began to wait for the GPU; 0: it does not.
constinit thread_local uint64_t t_waits_since_ns = 0;
uint64_t own_thread() { return static_cast<uint64_t>(::pthread_self()); }

}  // namespace

const CallbackLayout* find_callback_layout(int cuda_version) {
    for (const CallbackLayout& layout : kCallbackLayouts) {
        if (cuda_version >= layout.first_version && cuda_version <= layout.last_version) return &layout;
    }
    return nullptr;
}

Result<std::unique_ptr<LaunchHook>> LaunchHook::install(const CudaDriver& cuda, std::atomic<uint32_t>& events) {
    int version = 0;
    if (const CuResult got = cuda.driver_get_version(&version); got != 0) {
        return Error{Code::kFailedPrecondition, "CUDA does not say its version (error " + std::to_string(got) + ")",
                     ""};
    }
    const CallbackLayout* layout = find_callback_layout(version);
    if (layout == nullptr) {
        return Error{Code::kFailedPrecondition,
                     "launches of CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                         " are not known to VUDA",
                     "see docs/partitioning.md"};
    }
    const void* table = nullptr;
    if (cuda.get_export_table(&table, &kCallbacks) != 0 || table == nullptr || slot(table, 0) != kTableSlots * 8) {
        return Error{Code::kFailedPrecondition, "CUDA offers no launch callbacks of the kind that VUDA knows", ""};
    }
    Subscribe subscribe;
    std::unique_ptr<LaunchHook> hook(new LaunchHook(*layout, cuda, events));
    const uint64_t subscribe_at = slot(table, kSubscribe);
    const uint64_t enable_at = slot(table, kEnable);
    std::memcpy(&subscribe, &subscribe_at, sizeof subscribe);
    std::memcpy(&hook->enable_, &enable_at, sizeof enable_at);
    if (const int failed = subscribe(&hook->handle_, &LaunchHook::on_callback, hook.get()); failed != 0) {
        return Error{
            Code::kFailedPrecondition,
            "CUDA's launch callbacks are taken (error " + std::to_string(failed) + "), most likely by a profiler",
            "run without it to limit compute to some TPCs"};
    }
    if (const int failed = hook->enable_(1, hook->handle_, kDomain, kBeforeUpload); failed != 0) {
        hook->switch_off("CUDA refuses to call before a launch");
        // Subscribed: CUDA knows its address for as long as the process lives.
        hook->older_ = g_kept.exchange(hook.get(), std::memory_order_acq_rel);
        static_cast<void>(hook.release());
        return Error{Code::kFailedPrecondition,
                     "CUDA refuses to call before a launch (error " + std::to_string(failed) + ")", ""};
    }
    // Where CUDA refuses these, waits are not timed and launches not guarded; the probe finds out.
    hook->enable_calls(1);
    return hook;
}

LaunchHook::~LaunchHook() {
    if (listened_ != nullptr) listened_->listen(nullptr);
    // Reached where the subscription failed, and in tests, which have no CUDA that would call.
    if (enable_ == nullptr || handle_ == 0) return;
    enable_(0, handle_, kDomain, kBeforeUpload);
    enable_calls(0);
}

// Of all functions of the driver, those that are looked at whatever the program does.
void LaunchHook::enable_calls(uint32_t on) {
    for (size_t number = 0; number < kDriverCalls; ++number) {
        const CallKind kind = kCallKinds[number];
        if (is_always_told(kind) || (kind == CallKind::kLaunch && (on == 0 || told_.load(std::memory_order_acquire))))
            enable_(on, handle_, kCallDomain, static_cast<int>(number));
    }
    enable_(on, handle_, kDomain, kAgain);
}

void LaunchHook::tell_launches() {
    if (page_ != nullptr) told_since_.store(page::launches(*page_), std::memory_order_relaxed);
    if (!told_.exchange(true, std::memory_order_acq_rel)) apply_told();
}

// Two threads may be at it: whoever comes last leaves it as it is wanted.
void LaunchHook::apply_told() {
    bool told;
    do {
        told = told_.load(std::memory_order_acquire);
        for (size_t number = 0; number < kDriverCalls; ++number) {
            if (kCallKinds[number] != CallKind::kLaunch) continue;
            if (told_.load(std::memory_order_acquire) != told) break;
            enable_(told ? 1 : 0, handle_, kCallDomain, static_cast<int>(number));
        }
    } while (told_.load(std::memory_order_acquire) != told);
}

// At a launch of which there is nothing to say.
void LaunchHook::consider_quiet() {
    if (page::launches(*page_) - told_since_.load(std::memory_order_relaxed) < kLaunchesUntilQuiet ||
        guard_.refusals() != 0 || native_launches_.load(std::memory_order_relaxed) != 0 || guard_.attention() != 0)
        return;
    if (told_.exchange(false, std::memory_order_acq_rel)) apply_told();
}

// For a chain of kernels on the native side nothing may go by unseen that puts work into a stream.
void LaunchHook::watch_all_calls() {
    NativeSide* native = native_.load(std::memory_order_acquire);
    if (native == nullptr || std::exchange(watches_all_, true)) return;
    for (size_t number = 1; number < kDriverCalls; ++number) {
        if (kCallKinds[number] == CallKind::kOther) enable_(1, handle_, kCallDomain, static_cast<int>(number));
    }
    native->allow_chains();
}

void LaunchHook::on_callback(void* self, int domain, int callback, const void* parameters) {
    if (parameters == nullptr) return;
    auto* hook = static_cast<LaunchHook*>(self);
    if (domain == kDomain && callback == kBeforeUpload) return hook->on_launch(parameters);
    if (domain == kDomain && callback == kAgain) return hook->on_launched_again(parameters);
    if (domain == kCallDomain) return hook->on_call(callback, parameters);
}

void LaunchHook::on_launch(const void* parameters) {
    const uint32_t attention = guard_.attention();
    switch (stage_.load(std::memory_order_acquire)) {
        case Stage::kOff: return;
        case Stage::kWorking:
            return (attention & kProbing) != 0 && is_probing() ? probe(parameters) : work(parameters, attention != 0);
        case Stage::kProving: return probe(parameters);
    }
}

bool LaunchHook::is_probing() const { return probing_thread_.load(std::memory_order_relaxed) == own_thread(); }

void LaunchHook::on_call(int function, const void* parameters) {
    const CallKind kind = call_kind(function);
    const uint32_t attention = guard_.attention();
    if (kind == CallKind::kPrelude) tell_launches();
    if (attention == 0 && !is_always_told(kind)) [[likely]]
        return;
    if (static_cast<uint32_t>(slot(parameters, 0)) != callback_.call_bytes) return;
    const uint64_t call = slot(parameters, callback_.call_slot);
    if (static_cast<uint32_t>(call) != static_cast<uint32_t>(function) || call >> 33 != 0) return;
    const bool enter = call >> 32 == 0;
    const auto context = reinterpret_cast<CuContext>(slot(parameters, callback_.call_context_slot));
    const bool probing = (attention & kProbing) != 0 && is_probing();
    if (attention != 0) {
        limits::LaunchGuard::Thread& thread = limits::LaunchGuard::thread();
        if (thread.errand != nullptr) {
            if (enter && kind == CallKind::kLaunch)
                on_own_call(*static_cast<NativeErrand*>(thread.errand), function, parameters);
            return;
        }
        const bool failed = !enter && (attention & kFaulted) != 0 && has_failed(kind, function, context);
        if (enter) {
            on_entered(thread, kind, function, parameters, context, probing);
        } else if (kind == CallKind::kLaunch || kind == CallKind::kWait) {
            const auto verdict = guard_.left(thread, kind == CallKind::kLaunch);
            if (verdict.result != 0 && !failed) on_withheld(function, parameters, verdict, probing);
            thread.follows = false;
            if ((attention & kCare) != 0) cared_kernel() = {};
        }
        if (failed) return answer_fault(parameters);
    }
    if (!probing && (kind == CallKind::kPrelude || kind == CallKind::kKeep))
        return on_rare_call(function, parameters, context, enter);
    if (kind == CallKind::kWait) return on_wait(context, enter, probing);
    if (kind == CallKind::kManaged && !enter && !probing) return on_managed(parameters, context);
    if (kind == CallKind::kObject && enter) {
        uses_objects_.store(true, std::memory_order_release);
        if (NativeSide* native = native_.load(std::memory_order_acquire)) native->close(kUsesObjects);
    }
}

void LaunchHook::on_entered(limits::LaunchGuard::Thread& thread, CallKind kind, int function, const void* parameters,
                            CuContext context, bool probing) {
    const bool launches = kind == CallKind::kLaunch;
    if ((guard_.attention() & kChained) != 0 && !leaves_streams_alone(kind)) {
        NativeSide* const native = native_.load(std::memory_order_acquire);
        thread.follows =
            launches && !probing && native != nullptr &&
            native->follows(function, reinterpret_cast<const void*>(slot(parameters, callback_.call_parameters_slot)),
                            context);
        if (!thread.follows) guard_.ignore(kChained);
    }
    const bool decides =
        kind == CallKind::kManaged || (kind == CallKind::kPrelude && NativeGraphs::is_of_graphs(function));
    if (decides && !probing && held(context)) hold(context);
    if (!launches && kind != CallKind::kWait) return;
    if (const auto before = guard_.entered(thread); before.kernels != 0) count_refused(before.bytes, before.kernels);
    if (!launches) return;
    if (probing) {
        probe_result_ = reinterpret_cast<const uint32_t*>(slot(parameters, callback_.call_result_slot));
        probe_call_ =
            read_launch_call(function, reinterpret_cast<const void*>(slot(parameters, callback_.call_parameters_slot)));
    } else if (held(context)) {
        hold(context);
    }
    if (!probing && (guard_.attention() & kTwins) != 0) on_graph_begins(function, parameters, context);
    if (!probing && (guard_.attention() & kCare) != 0)
        consider_care(function, reinterpret_cast<const void*>(slot(parameters, callback_.call_parameters_slot)),
                      context);
}

// A call is about to return, and of what it launched something did not run.
void LaunchHook::on_withheld(int function, const void* parameters, const limits::LaunchGuard::Verdict& verdict,
                             bool probing) {
    if (!probing && verdict.kernels != 0) {
        if (runs_natively(function, parameters, verdict)) return;
        const Cared& cared = cared_kernel();
        if (cared.care == ModuleWatch::Care::kFaults) {
            managed_refused_.fetch_add(1, std::memory_order_relaxed);
            wake();
            return answer(parameters, limits::kNotSupported, false);
        }
        count_refused(cared.care == ModuleWatch::Care::kChildren ? cared.bytes : verdict.bytes, verdict.kernels);
    }
    answer(parameters, verdict.result, probing);
}

void LaunchHook::on_managed(const void* parameters, CuContext context) {
    const auto* result = reinterpret_cast<const uint32_t*>(slot(parameters, callback_.call_result_slot));
    if (stage_.load(std::memory_order_acquire) != Stage::kWorking || guard_.limit() == 0 || result == nullptr ||
        *result != 0 || verdict(context) != Verdict::kApproved)
        return;
    const CuDevicePtr* out = nullptr;  // the call's first argument
    CuDevicePtr memory = 0;
    if (read_safely(reinterpret_cast<const void*>(slot(parameters, callback_.call_parameters_slot)), &out,
                    sizeof out) &&
        read_safely(out, &memory, sizeof memory) && memory != 0)
        cuda_.mem_free(memory);
    answer(parameters, limits::kNotSupported, false);
    managed_refused_.fetch_add(1, std::memory_order_relaxed);
    wake();
}

void LaunchHook::count_refused(uint32_t bytes, uint32_t kernels) {
    guard_.counted(bytes, kernels);
    page::SampleWriter(*page_).count_refused(kernels);
    wake();
}

// The call returns `error`, whatever it did.
void LaunchHook::answer(const void* parameters, int error, bool probing) {
    auto* result = reinterpret_cast<uint32_t*>(slot(parameters, callback_.call_result_slot));
    if (probing) {
        // Not proved yet: it must be where it was, and have come to a good end.
        uint32_t now = kNoResultYet;
        if (result != probe_result_ || !read_safely(result, &now, sizeof now) || now != 0) return;
        seen_.answered = true;
    }
    if (result != nullptr) *result = static_cast<uint32_t>(error);
}

// Nothing is known yet of launches in this context.
bool LaunchHook::held(CuContext context) const {
    switch (stage_.load(std::memory_order_acquire)) {
        case Stage::kOff: return false;
        case Stage::kProving: break;
        case Stage::kWorking:
            if (guard_.limit() == 0) return false;
            break;
    }
    return verdict(context) == Verdict::kUnknown;
}

// Until the partitioner has looked at the context.
void LaunchHook::hold(CuContext context) {
    CuContext current = nullptr;
    if (cuda_.ctx_get_current(&current) != 0 || current == nullptr || current != context) return;
    guard_.wait_until([&] { return !held(context); }, [&] { newcomer(context); });
}

void LaunchHook::on_launched_again(const void* parameters) {
    if (stage_.load(std::memory_order_acquire) != Stage::kWorking) return;
    hold_.wait(page_->daemon);
    // Costs a call of the kernel, and only where something was refused before.
    if (guard_.refusals() == 0 || guard_.limit() == 0) return;
    if (static_cast<uint32_t>(slot(parameters, 0)) != callback_.again_bytes) return;
    std::array<uint8_t, kQmdLookBytes> qmd;
    if (!read_safely(reinterpret_cast<const void*>(slot(parameters, callback_.qmd_slot)), qmd.data(), qmd.size()) ||
        !has_version(*layout_, qmd.data()) || read_kind(*layout_, qmd.data()) != QmdKind::kNull) {
        return;
    }
    limits::LaunchGuard::Thread& thread = limits::LaunchGuard::thread();
    if (const uint32_t bytes = read_shared(*layout_, qmd.data()); bytes > guard_.limit())
        guard_.withheld(thread, bytes);
}

void LaunchHook::on_wait(CuContext context, bool enter, bool probing) {
    if (probing) {
        (enter ? seen_.wait_entered : seen_.wait_left) = context;
        return;
    }
    if (!times_waits_.load(std::memory_order_acquire) || stage_.load(std::memory_order_acquire) != Stage::kWorking)
        return;
    page::SampleWriter writer(*page_);
    if (enter) {
        t_waits_since_ns =
            writer.wanted(page::SampleKind::kSync) && verdict(context) == Verdict::kApproved ? monotonic_ns() : 0;
        return;
    }
    const uint64_t since = std::exchange(t_waits_since_ns, 0);
    if (since == 0) return;
    const uint64_t now = monotonic_ns();
    writer.push({page::SampleKind::kSync, 0, now, now - since});
}

// ---- Proving

void LaunchHook::begin_probe(const QmdLayout* layout, const std::optional<QmdMask>& mask) {
    probe_layout_ = layout;
    probe_mask_ = mask;
    probe_refusal_ = false;
    probe_result_ = nullptr;
    probe_call_.reset();
    seen_ = {};
    probing_thread_.store(own_thread(), std::memory_order_relaxed);
    guard_.attend(kProbing);
}

void LaunchHook::begin_refusal(const QmdLayout& layout) {
    begin_probe(&layout, std::nullopt);
    probe_refusal_ = true;
}

SeenLaunch LaunchHook::end_probe() {
    guard_.ignore(kProbing);
    probing_thread_.store(0, std::memory_order_relaxed);
    seen_.call = probe_call_;
    return seen_;
}

void LaunchHook::probe(const void* parameters) {
    if (probing_thread_.load(std::memory_order_relaxed) != own_thread()) {
        // Somebody else's launch: it tells which context there is to prove things in.
        const auto bytes = static_cast<uint32_t>(slot(parameters, 0));
        if (bytes != callback_.bytes)
            return switch_off("CUDA's launch callback has other parameters than its version should have");
        CuContext current = nullptr;
        const auto context = reinterpret_cast<CuContext>(slot(parameters, callback_.context_slot));
        if (cuda_.ctx_get_current(&current) == 0 && current != nullptr && current == context) newcomer(context);
        return;
    }
    seen_ = {};
    seen_.came = true;
    seen_.bytes = static_cast<uint32_t>(slot(parameters, 0));
    if (seen_.bytes != callback_.bytes) return;
    seen_.context = reinterpret_cast<CuContext>(slot(parameters, callback_.context_slot));
    auto* qmd = reinterpret_cast<uint8_t*>(slot(parameters, callback_.qmd_slot));
    std::array<uint8_t, kQmdLookBytes> copy;
    if (reinterpret_cast<uintptr_t>(qmd) % kQmdAlign != 0 || !read_safely(qmd, copy.data(), copy.size())) return;
    seen_.layout = find_qmd_layout(std::span<const uint8_t, kQmdLookBytes>(copy));
    if (seen_.layout == nullptr) return;
    seen_.shape = read_shape(*seen_.layout, copy.data());
    seen_.kind = read_kind(*seen_.layout, copy.data());
    seen_.mask = read_mask(*seen_.layout, copy.data());
    if (probe_refusal_ && seen_.layout == probe_layout_ && seen_.kind == QmdKind::kGrid) {
        uint32_t result = 0;
        if (!can_empty(*seen_.layout) || !read_safely(probe_result_, &result, sizeof result) || result != kNoResultYet)
            return;
        make_empty(*seen_.layout, qmd);
        seen_.emptied = true;
        guard_.withheld(limits::LaunchGuard::thread(), 1);
        return;
    }
    if (!probe_mask_ || seen_.layout != probe_layout_ || seen_.kind != QmdKind::kGrid) return;
    QmdMask mask = *probe_mask_;
    for (size_t i = 0; i < std::size(mask.words); ++i) mask.words[i] |= seen_.mask.words[i];
    write_mask(*seen_.layout, qmd, mask);
}

// ---- Working

void LaunchHook::start(const QmdLayout& layout, const MaskMap& map, page::Page& page) {
    layout_ = &layout;
    map_ = &map;
    page_ = &page;
    Stage proving = Stage::kProving;
    stage_.compare_exchange_strong(proving, Stage::kWorking, std::memory_order_release);
}

void LaunchHook::work(const void* parameters, bool special) {
    if (static_cast<uint32_t>(slot(parameters, 0)) != callback_.bytes) {
        return switch_off("the parameters of CUDA's launch callback changed");
    }
    const auto context = reinterpret_cast<CuContext>(slot(parameters, callback_.context_slot));
    const limits::LaunchGuard::Thread* const thread = special ? &limits::LaunchGuard::thread() : nullptr;
    if (special && thread->errand != nullptr) {
        auto& errand = *static_cast<NativeErrand*>(thread->errand);
        errand.on_upload(reinterpret_cast<uint8_t*>(slot(parameters, callback_.qmd_slot)), context);
        return;
    }
    auto* qmd = reinterpret_cast<uint8_t*>(slot(parameters, callback_.qmd_slot));
    switch (verdict(context)) {
        case Verdict::kUnknown:
            // It may be one that shares, at a moment when nobody was told of its launch, to hold it.
            if ((guard_.attention() & kUndecided) != 0 && is_descriptor(qmd)) withhold_large(qmd, context, false);
            return newcomer(context);
        case Verdict::kDeclined: return;
        case Verdict::kApproved: break;
    }
    hold_.wait(page_->daemon);
    page::SampleWriter writer(*page_);
    count_launch(writer);
    if (told_.load(std::memory_order_relaxed)) consider_quiet();

    QmdMask mask;
    uint64_t generation;
    const bool split = current_mask(mask, generation);
    if (split && writer.applied() != generation) writer.set_applied(generation);
    const bool masked = split && !(mask == QmdMask{});
    if (!masked && guard_.limit() == 0) return;

    if (!is_descriptor(qmd)) return;
    if (withhold_large(
            qmd, context,
            special && (thread->follows || (guard_.attention() & kFaulted) != 0 ||
                        ((guard_.attention() & kCare) != 0 && cared_kernel().care != ModuleWatch::Care::kNone))))
        return;
    if (!masked) return;
    const QmdMask before = read_mask(*layout_, qmd);
    for (size_t i = 0; i < std::size(mask.words); ++i) mask.words[i] |= before.words[i];
    const QmdKind kind = read_kind(*layout_, qmd);
    const bool starts = kind == QmdKind::kGrid      ? leaves_grid(mask, qmd)
                        : kind == QmdKind::kCluster ? map_->leaves_cluster(mask, read_cluster(*layout_, qmd))
                                                    : false;
    if (!starts) {
        left_alone_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    write_mask(*layout_, qmd, mask);
}

// False, and the hook is off: it is none.
bool LaunchHook::is_descriptor(const uint8_t* qmd) {
    if (qmd == nullptr || reinterpret_cast<uintptr_t>(qmd) % kQmdAlign != 0) {
        switch_off("CUDA's launch callback named no descriptor");
    } else if (!has_version(*layout_, qmd)) {
        switch_off("a launch descriptor has another version than the ones before");
    } else {
        return true;
    }
    return false;
}

// True: the kernel is not run, since it is too large or `follows`.
bool LaunchHook::withhold_large(uint8_t* qmd, CuContext context, bool follows) {
    const uint32_t limit = guard_.limit();
    const uint32_t bytes = limit == 0 ? 0 : read_shared(*layout_, qmd);
    if (bytes <= limit && !follows) [[likely]]
        return false;
    if (native_.load(std::memory_order_relaxed) != nullptr)
        withheld_kernel() = {context, read_module_banks(*layout_, qmd)};
    make_empty(*layout_, qmd);
    guard_.withheld(limits::LaunchGuard::thread(), bytes);
    // If nobody was told of this launch, the next such one is to be.
    tell_launches();
    return true;
}

// A grid starts on what `mask` leaves.
bool LaunchHook::leaves_grid(const QmdMask& mask, const uint8_t* qmd) const {
    if (!map_->leaves_any(mask)) return false;
    if (layout_->type_bit != kAbsent) return true;
    // It may be cooperative. One with a block at most for each SM that is left finds room for all; one that no GPU
    // could hold at a time is not cooperative.
    const LaunchShape shape = read_shape(*layout_, qmd);
    return block_count(shape) <= map_->sms_left(mask) || !fits_cooperatively(shape, map_->sms());
}

void LaunchHook::count_launch(page::SampleWriter& writer) {
    // Another thread at the same address comes after the end of the one before.
    const auto self = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    uintptr_t counting = counting_thread_.load(std::memory_order_relaxed);
    if (counting == 0 && counting_thread_.compare_exchange_strong(counting, self, std::memory_order_relaxed))
        counting = self;
    if (counting == self) {
        writer.count_own_launch();
    } else {
        writer.count_launch();
    }
}

// False: the page is being changed this very moment, or nobody asked for anything.
bool LaunchHook::current_mask(QmdMask& mask, uint64_t& generation) {
    const uint64_t version = page_->daemon.version.load(std::memory_order_acquire);
    if (translated_.version.load(std::memory_order_acquire) == version) {
        generation = translated_.generation.load(std::memory_order_acquire);
        for (size_t i = 0; i < std::size(mask.words); ++i)
            mask.words[i] = translated_.words[i].load(std::memory_order_acquire);
        if (translated_.version.load(std::memory_order_relaxed) == version) return true;
    }
    page::Split split;
    if (!page::read_split(page_->daemon, split)) return false;
    TpcMask disable;
    std::copy(std::begin(split.disable), std::end(split.disable), disable.begin());
    mask = map_->translate(disable);
    generation = split.generation;
    if (!translating_.test_and_set(std::memory_order_acquire)) {
        // Release: a reader that meets one of these sees that the version is gone.
        translated_.version.store(~uint64_t{0}, std::memory_order_relaxed);
        translated_.generation.store(generation, std::memory_order_release);
        for (size_t i = 0; i < std::size(mask.words); ++i)
            translated_.words[i].store(mask.words[i], std::memory_order_release);
        // `version` was read before the split: if the split is newer, the next launch translates again.
        translated_.version.store(version, std::memory_order_release);
        translating_.clear(std::memory_order_release);
    }
    return true;
}

// ---- Contexts

LaunchHook::Verdict LaunchHook::verdict(CuContext context) const {
    const auto wanted = reinterpret_cast<uintptr_t>(context);
    bool full = true;
    for (const auto& place : contexts_) {
        const uintptr_t known = place.load(std::memory_order_relaxed);
        if (known == wanted && wanted != 0) return Verdict::kApproved;
        if (known == (wanted | 1)) return Verdict::kDeclined;
        if (known == 0) full = false;
    }
    return full ? Verdict::kDeclined : Verdict::kUnknown;
}

void LaunchHook::decide(CuContext context, bool approved) {
    if (verdict(context) != Verdict::kUnknown) return;
    for (auto& place : contexts_) {
        uintptr_t empty = 0;
        const uintptr_t value = reinterpret_cast<uintptr_t>(context) | (approved ? 0 : 1);
        if (place.compare_exchange_strong(empty, value, std::memory_order_release)) break;
    }
    guard_.changed();
}

void LaunchHook::expect_contexts() { guard_.attend(kUndecided); }
void LaunchHook::settled() { guard_.ignore(kUndecided); }

void LaunchHook::forget_contexts() {
    for (auto& place : contexts_) place.store(0, std::memory_order_relaxed);
    newcomer_.store(nullptr, std::memory_order_relaxed);
    expect_contexts();
    if (NativeSide* native = native_.load(std::memory_order_acquire)) native->forget_contexts();
    if (NativeGraphs* graphs = graphs_.load(std::memory_order_acquire)) graphs->outdate();
    guard_.ignore(kFaulted);
    guard_.changed();
}

void LaunchHook::page_replaced() { translated_.version.store(~uint64_t{0}, std::memory_order_release); }

void LaunchHook::newcomer(CuContext context) {
    CuContext before = nullptr;
    if (context == nullptr || !newcomer_.compare_exchange_strong(before, context, std::memory_order_release)) return;
    wake();
}

CuContext LaunchHook::take_newcomer() { return newcomer_.exchange(nullptr, std::memory_order_acquire); }

void LaunchHook::wake() {
    events_.fetch_add(1, std::memory_order_release);
    events_.notify_all();
}

// ---- Off

bool LaunchHook::watch(bool on) {
    if (stage_.load(std::memory_order_acquire) != Stage::kWorking) return false;
    enable_calls(on ? 1 : 0);
    return enable_(on ? 1 : 0, handle_, kDomain, kBeforeUpload) == 0;
}

void LaunchHook::switch_off(const char* reason) {
    const char* none = nullptr;
    off_reason_.compare_exchange_strong(none, reason, std::memory_order_release);
    stage_.store(Stage::kOff, std::memory_order_release);
    guard_.changed();
    wake();
}

std::optional<Error> LaunchHook::off_reason() const {
    const char* reason = off_reason_.load(std::memory_order_acquire);
    if (reason == nullptr) return std::nullopt;
    return Error{Code::kFailedPrecondition, reason, "see docs/partitioning.md"};
}

}  // namespace vuda::partition
