#include "shim/partition/native_side.h"

#include <string>

#include "shim/partition/native_proof.h"
#include "shim/partition/native_scope.h"

namespace vuda::partition {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING
constexpr int kLimitStack = 0;        // CU_LIMIT_STACK_SIZE
constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr CuResult kInvalidValue = 1;
constexpr CuResult kInvalidHandle = 400;
constexpr CuResult kNotReady = 600;
// Shared memory of a block that a kernel may have without having asked for more (CUDA C++ Programming Guide).
constexpr unsigned kSharedWithoutAsking = 48 * 1024;

Error never(const std::string& what, CuResult result) {
    return Error{Code::kFailedPrecondition, what + " (CUDA error " + std::to_string(result) + ")", ""};
}
Error not_this(const std::string& what, CuResult result) {
    return Error{Code::kUnimplemented, what + " (CUDA error " + std::to_string(result) + ")", ""};
}

}  // namespace

Status NativeSide::run(const LaunchCall& call, CuContext context, const ModuleBanks& banks, bool follows) {
    // Before anything else: no callback of what is called here is the program's.
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed(cuda_);
    Status ran = open_locked(context);
    if (ran) ran = remember(launch(call, context, banks, follows));
    chain_context_ = context;
    chain_stream_ = call.stream;
    return ran;
}

Status NativeSide::open(CuContext context) {
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed(cuda_);
    return open_locked(context);
}

Status NativeSide::open_locked(CuContext context) {
    if (const char* reason = closed_.load(std::memory_order_acquire)) never_ = {Code::kFailedPrecondition, reason, ""};
    if (const CuResult failed = fault_.error(); failed != 0 && !never_)
        never_ = never("a kernel failed on the program's own TSG", failed);
    if (never_) return *never_;
    if (forget_.exchange(false, std::memory_order_acq_rel)) {
        before_.clear();
        home_streams_.clear();
    }
    if (own_ != nullptr) return {};
    Status made = make_context(context);
    if (made) made = NativeProof(*this).prove(context);
    return remember(made);
}

Status NativeSide::remember(Status status) {
    if (!status && status.error().code == Code::kFailedPrecondition) never_ = status.error();
    return status;
}

Status NativeSide::run_in_place(CuStream stream, CuContext context, const Work& work) {
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed(cuda_);
    if (Status ready = open_locked(context); !ready) return ready;
    Status ran = remember(place(stream, context, false, work));
    chain_context_ = context;
    chain_stream_ = stream;
    return ran;
}

Status NativeSide::run_at_home(LaunchCall call, CuContext context) {
    NativeErrand quiet;
    const CurrentContext current(cuda_, context);
    const CuResult r = current.result() != 0 ? current.result() : run_here(call, call.stream, quiet);
    if (r != 0) return not_this("CUDA does not launch the kernel", r);
    return {};
}

bool NativeSide::follows(int function, const void* parameters, CuContext context) {
    const std::optional<LaunchCall> call = read_launch_call(function, parameters);
    if (!call) return false;
    NativeErrand quiet;
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    if (never_ || forget_.load(std::memory_order_acquire) || call->stream != chain_stream_ || context != chain_context_)
        return false;
    // Nothing to wait for: it may as well share.
    return under_way() && modules_.kernel_of(call->function, context);
}

bool NativeSide::under_way() const {
    if (fault_.works()) return !fault_.done(newest_lane_);
    const CurrentContext current(cuda_, own_);
    return current.result() == 0 && cuda_.event_query(after_) == kNotReady;
}

Status NativeSide::make_context(CuContext context) {
    {
        const CurrentContext current(cuda_, context);
        if (const CuResult r = cuda_.ctx_get_device(&device_); current.result() != 0 || r != 0)
            return never("CUDA does not say on which GPU a kernel is", r);
    }
    host_.unshared_contexts(true);
    const CuResult made = cuda_.ctx_create(&own_, 0, device_);
    host_.unshared_contexts(false);
    if (made != 0) {
        own_ = nullptr;
        return never("CUDA makes no second context", made);
    }
    CuContext popped = nullptr;
    const CuResult r = cuda_.event_create(&after_, kNoTiming);
    cuda_.ctx_pop(&popped);
    if (r != 0) return never("CUDA makes no event", r);
    // Without it a fault goes unnoticed, and all else works.
    static_cast<void>(fault_.open(own_, context));
    return {};
}

Result<CuEvent> NativeSide::event_of(CuContext context) {
    CuEvent& event = before_[context];
    if (event != nullptr) return event;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0 ? current.result() : cuda_.event_create(&event, kNoTiming); r != 0) {
        before_.erase(context);
        return not_this("CUDA makes no event", r);
    }
    return event;
}

Result<CuStream> NativeSide::home_stream_of(CuContext context) {
    CuStream& stream = home_streams_[context];
    if (stream != nullptr) return stream;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0 ? current.result() : cuda_.stream_create(&stream, kNonBlocking);
        r != 0) {
        home_streams_.erase(context);
        return not_this("CUDA makes no stream", r);
    }
    return stream;
}

Result<CuStream> NativeSide::lane_of(size_t number) {
    CuStream& lane = lanes_[number];
    if (lane != nullptr) return lane;
    if (const CuResult r = cuda_.stream_create(&lane, kNonBlocking); r != 0) {
        lane = nullptr;
        return not_this("CUDA makes no stream", r);
    }
    return lane;
}

Result<CuStream> NativeSide::spare_lane() {
    const std::lock_guard lock(mutex_);
    return spare_lane_locked();
}

Result<CuStream> NativeSide::spare_lane_locked() {
    if (spare_lane_ != nullptr) return spare_lane_;
    const CurrentContext current(cuda_, own_);
    if (const CuResult r = current.result() != 0 ? current.result() : cuda_.stream_create(&spare_lane_, kNonBlocking);
        r != 0) {
        spare_lane_ = nullptr;
        return not_this("CUDA makes no stream", r);
    }
    return spare_lane_;
}

// Our stream goes on when the program's has come so far.
Status NativeSide::wait_for_place(CuStream stream, CuContext context, CuEvent& before) {
    const Result<CuEvent> event = event_of(context);
    if (!event) return event.error();
    before = *event;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0 ? current.result() : cuda_.event_record(before, stream); r != 0) {
        before_.erase(context);
        return not_this("CUDA records no event in the kernel's stream", r);
    }
    size_t stack = 0;
    if (cuda_.ctx_get_limit(&stack, kLimitStack) != 0 || stack <= stack_bytes_) return {};
    const CurrentContext own(cuda_, own_);
    if (cuda_.ctx_set_limit(kLimitStack, stack) == 0) stack_bytes_ = stack;
    return {};
}

// What follows in the program's stream goes on when ours has come so far.
CuResult NativeSide::leave_place(size_t number, CuStream lane, CuStream stream, CuContext context) {
    newest_lane_ = number;
    const auto in = [&](CuContext where, const auto& call) {
        const CurrentContext current(cuda_, where);
        return current.result() != 0 ? current.result() : call();
    };
    if (fault_.works()) {
        if (const CuResult left = in(own_, [&] { return fault_.signal(number, lane); }); left != 0) return left;
        if (in(context, [&] { return fault_.wait(number, stream); }) == 0) return 0;
        // Not on this stream, it seems: an event does.
    }
    const CuResult left = in(own_, [&] { return cuda_.event_record(after_, lane); });
    return left != 0 ? left : in(context, [&] { return cuda_.stream_wait_event(stream, after_, 0); });
}

Status NativeSide::place(CuStream stream, CuContext context, bool follows, const Work& work) {
    CuEvent before = nullptr;
    if (!follows) {
        if (Status waits = wait_for_place(stream, context, before); !waits) return waits;
    }
    // Streams that share a lane wait for each other, in the order in which their kernels were launched.
    const size_t number = reinterpret_cast<uintptr_t>(stream) / 64 % kLanes;
    CuStream lane = nullptr;
    {
        const CurrentContext current(cuda_, own_);
        if (current.result() != 0) return never("VUDA's own context is lost", current.result());
        const Result<CuStream> found = lane_of(number);
        if (!found) return found.error();
        lane = *found;
        if (const CuResult r = follows ? 0 : cuda_.stream_wait_event(lane, before, 0); r != 0) {
            fault_.suspect(lane);
            return not_this("a stream does not wait for the kernel's place", r);
        }
        if (const CuResult r = work(lane); r != 0) {
            fault_.suspect(lane);
            return r == kInvalidHandle ? not_this("a kernel that was loaded into one context runs in no other", r)
                                       : not_this("CUDA does not launch the kernel in another context", r);
        }
    }
    if (leave_place(number, lane, stream, context) != 0) {
        // It is on its way: what follows must not overtake it.
        const CurrentContext own(cuda_, own_);
        if (const CuResult r = cuda_.stream_synchronize(lane); r != 0) {
            fault_.suspect(lane);
            return never("VUDA's own context is lost", r);
        }
    }
    return {};
}

Status NativeSide::launch(LaunchCall call, CuContext context, const ModuleBanks& banks, bool follows) {
    NativeErrand errand(NativeErrand::Kind::kRun, layout_, own_);
    errand.banks = banks;
    const Result<CuKernel> kernel = modules_.kernel_of(call.function, context);
    if (!kernel) return kernel.error();
    if (*kernel != call.function && !modules_proved_) {
        modules_proved_ = true;
        if (const Status proved = NativeProof(*this).prove_modules(context); !proved) no_modules_ = proved.error();
    }
    if (*kernel != call.function && no_modules_) return Error{Code::kUnimplemented, no_modules_->text, ""};
    call.function = *kernel;
    Status ran = place(call.stream, context, follows, [&](CuStream lane) { return run_here(call, lane, errand); });
    if (ran && !errand.came)
        return Error{Code::kFailedPrecondition, "a kernel's launch descriptor is not alike in two contexts", ""};
    return ran;
}

Result<NativeSide::BothBanks> NativeSide::banks_of(LaunchCall call, CuKernel kernel, CuContext context) {
    const std::lock_guard lock(mutex_);
    const RelaxedCapture relaxed(cuda_);
    const Result<CuStream> home = home_stream_of(context);
    if (!home) return home.error();
    BothBanks both;
    const auto look = [&](CuContext where, CuStream stream, ModuleBanks& banks) -> Status {
        const CurrentContext current(cuda_, where);
        NativeErrand errand(NativeErrand::Kind::kWithhold, layout_, where);
        const CuResult r = current.result() != 0 ? current.result() : run_here(call, stream, errand);
        if (r != 0) return not_this("CUDA does not launch a graph's kernel on its own", r);
        if (!errand.came) return not_this("CUDA launches a graph's kernel otherwise than expected", r);
        banks = errand.banks;
        return {};
    };
    if (Status looked = look(context, *home, both.home); !looked) return looked.error();
    const Result<CuStream> lane = spare_lane_locked();
    if (!lane) return lane.error();
    call.function = kernel;
    if (Status looked = look(own_, *lane, both.here); !looked) return looked.error();
    return both;
}

CuResult NativeSide::run_here(LaunchCall& call, CuStream lane, NativeErrand& errand) {
    const OnErrand on(errand);
    const CuLaunchConfig config = call.config_on(lane);
    CuResult launched = cuda_.launch_config(&config, call.function, call.parameters, call.extra);
    if (launched == kInvalidValue && call.shared_bytes > kSharedWithoutAsking &&
        cuda_.kernel_set_attribute(kMaxDynamicShared, static_cast<int>(call.shared_bytes), call.function, device_) ==
            0) {
        // The program asked for it in its own context only.
        errand.came = false;
        launched = cuda_.launch_config(&config, call.function, call.parameters, call.extra);
    }
    return launched;
}

}  // namespace vuda::partition
