// The launch hook's dealings with the native side: what is withheld runs there, whole graphs do, and its errors are the
// program's.
#include "shim/partition/launch_hook.h"
#include "shim/partition/launch_hook_parts.h"
#include "shim/partition/safe_read.h"

#include <optional>
#include <string>

namespace vuda::partition {

using namespace hook;

namespace {

constexpr int kCalls = 6;                 // domain
constexpr CuResult kStillUnderWay = 600;  // CUDA_ERROR_NOT_READY

// What the call is about to return; nothing where it cannot be read.
std::optional<CuResult> result_of(const void* parameters, const CallbackLayout& layout) {
    CuResult result = 0;
    if (!read_safely(reinterpret_cast<const void*>(slot(parameters, layout.call_result_slot)), &result, sizeof result))
        return std::nullopt;
    return result;
}

}  // namespace

Withheld& hook::withheld_kernel() {
    constinit thread_local Withheld own;
    return own;
}

void LaunchHook::run_natively(NativeSide* side) {
    if (side != nullptr) {
        if (uses_objects_.load(std::memory_order_acquire)) side->close(kUsesObjects);
        if (!owned_graphs_) {
            owned_graphs_ = std::make_unique<NativeGraphs>(cuda_, *side);
            graphs_.store(owned_graphs_.get(), std::memory_order_release);
        }
        side->listen(this);
        listened_ = side;
    }
    native_.store(side, std::memory_order_release);
}

std::optional<Error> LaunchHook::not_native() const {
    const std::lock_guard lock(not_native_mutex_);
    return not_native_;
}

void LaunchHook::is_not_native(const Error& why) {
    {
        const std::lock_guard lock(not_native_mutex_);
        not_native_ = why;
    }
    wake();
}

// CUDA tells of a call that the native side makes itself.
void LaunchHook::on_own_call(NativeErrand& errand, int function, const void* parameters) const {
    if (errand.kind == NativeErrand::Kind::kWithhold) {
        errand.call = read_launch_call(function, arguments_of(parameters, callback_));
    } else if (errand.kind == NativeErrand::Kind::kSkip) {
        errand.skip_slot = slot(parameters, callback_.call_skip_slot);
        if (!can_skip(parameters)) return;
        skip(parameters, NativeErrand::kSkipped);
        errand.came = true;
    }
}

// A call begins, and what it takes to skip it is where it should be and says what it should.
bool LaunchHook::can_skip(const void* parameters) const {
    uint32_t result = 0, flag = 0;
    return read_safely(reinterpret_cast<const void*>(slot(parameters, callback_.call_result_slot)), &result,
                       sizeof result) &&
           result == kNoResultYet &&
           read_safely(reinterpret_cast<const void*>(slot(parameters, callback_.call_skip_slot)), &flag, sizeof flag) &&
           flag == 0;
}

// CUDA returns `result` and does nothing. Only where can_skip().
void LaunchHook::skip(const void* parameters, CuResult result) const {
    std::memcpy(reinterpret_cast<void*>(slot(parameters, callback_.call_result_slot)), &result, sizeof result);
    const uint32_t skipped = 1;
    std::memcpy(reinterpret_cast<void*>(slot(parameters, callback_.call_skip_slot)), &skipped, sizeof skipped);
}

bool LaunchHook::runs_natively(int function, const void* parameters, const limits::LaunchGuard::Verdict& verdict) {
    NativeSide* native = native_.load(std::memory_order_acquire);
    const auto* result = reinterpret_cast<const uint32_t*>(slot(parameters, callback_.call_result_slot));
    if (native == nullptr || result == nullptr || *result != 0) return false;
    const ModuleWatch::Care care = cared_kernel().care;
    if (care == ModuleWatch::Care::kChildren) {
        is_not_native(Error{Code::kUnimplemented, "it may launch kernels that are too large to share", ""});
        return false;
    }
    std::optional<LaunchCall> call;
    if (verdict.kernels == 1) call = read_launch_call(function, arguments_of(parameters, callback_));
    if (!call) {
        std::optional<Error> why;
        if (NativeGraphs* graphs = graphs_.load(std::memory_order_acquire))
            why = graphs->why_not(function, arguments_of(parameters, callback_));
        is_not_native(why ? *why : Error{Code::kUnimplemented, "it was not launched on its own", ""});
        return false;
    }
    const Withheld& kernel = withheld_kernel();
    const bool follows = limits::LaunchGuard::thread().follows;
    guard_.attend_one();
    const Status ran = native->run(*call, kernel.context, kernel.banks, follows);
    guard_.ignore_one();
    if (!ran) {
        is_not_native(ran.error());
        return care == ModuleWatch::Care::kNone && verdict.bytes <= guard_.limit() &&
               native->run_at_home(*call, kernel.context);
    }
    ran_natively(*native);
    return true;
}

void LaunchHook::ran_natively(const NativeSide& native) {
    if (native.chains()) guard_.attend(kChained);
    page::SampleWriter(*page_).count_native();
    if (native_launches_.fetch_add(1, std::memory_order_relaxed) == 0) wake();
}

// One that loads code or makes, changes or ends a graph.
void LaunchHook::on_rare_call(int function, const void* parameters, CuContext context, bool enter) {
    limits::LaunchGuard::Thread& thread = limits::LaunchGuard::thread();
    if (thread.errand != nullptr || stage_.load(std::memory_order_acquire) == Stage::kOff ||
        verdict(context) == Verdict::kDeclined)
        return;
    const void* const arguments = arguments_of(parameters, callback_);
    NativeGraphs* const graphs = graphs_.load(std::memory_order_acquire);
    const bool of_graphs = NativeGraphs::is_of_graphs(function);
    if (enter) {
        if (refuses_code(function, parameters, context)) return;
        watch_modules(function, arguments, true);
        if (of_graphs && graphs != nullptr) {
            graphs->on_entered(function, arguments);
            if (!graphs->any()) guard_.ignore(kTwins);
            // One may have come on another thread since.
            if (graphs->any()) guard_.attend(kTwins);
        } else if (modules_.on_entered(function, arguments) && graphs != nullptr) {
            graphs->outdate();
        }
        return;
    }
    if (result_of(parameters, callback_) != CuResult{0}) return;
    watch_modules(function, arguments, false);
    if (of_graphs && refuses_graph(function, arguments, parameters, context)) return;
    guard_.attend_one();
    if (!of_graphs) {
        modules_.on_left(function, arguments);
    } else if (graphs != nullptr && native_.load(std::memory_order_acquire) != nullptr &&
               trusts_arguments_.load(std::memory_order_acquire) && verdict(context) == Verdict::kApproved) {
        const std::optional<Status> became = graphs->on_left(function, arguments, context, guard_.limit());
        if (became && *became) {
            guard_.attend(kTwins);
            // What the program's own graph had uploaded and was withheld does not matter.
            guard_.left(thread, true);
        } else if (became) {
            guard_.attend(kTwins);
            is_not_native(became->error());
        }
    }
    guard_.ignore_one();
}

// A graph is about to be launched or uploaded.
void LaunchHook::on_graph_begins(int function, const void* parameters, CuContext context) {
    NativeSide* const native = native_.load(std::memory_order_acquire);
    NativeGraphs* const graphs = graphs_.load(std::memory_order_acquire);
    if (native == nullptr || graphs == nullptr || !NativeGraphs::is_of_graphs(function) ||
        verdict(context) != Verdict::kApproved || (guard_.attention() & kFaulted) != 0)
        return;
    const std::optional<Status> done = graphs->on_launch(function, arguments_of(parameters, callback_), context);
    if (!done) return;
    if (!*done) return is_not_native(done->error());
    skip(parameters, 0);
    ran_natively(*native);
}

// ---- Faults

void LaunchHook::native_fault(CuResult error) {
    fault_.store(error, std::memory_order_release);
    guard_.attend(kFaulted);
    for (const int function : kQueries) enable_(1, handle_, kCalls, function);
    is_not_native(Error{Code::kFailedPrecondition,
                        "a kernel failed on the program's own TSG (CUDA error " + std::to_string(error) + ")", ""});
}

// The call is about to return to a program whose kernel has failed.
bool LaunchHook::has_failed(CallKind kind, int function, CuContext context) const {
    return !ends_context(function) && kind != CallKind::kManaged && verdict(context) == Verdict::kApproved;
}

// An error of CUDA's own stays.
void LaunchHook::answer_fault(const void* parameters) {
    if (const auto now = result_of(parameters, callback_); now == CuResult{0} || now == kStillUnderWay)
        answer(parameters, fault_.load(std::memory_order_acquire), false);
}

}  // namespace vuda::partition
