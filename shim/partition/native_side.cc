#include "shim/partition/native_side.h"

#include <algorithm>
#include <string>

#include "shim/partition/probe_ptx.h"

namespace vuda::partition {
namespace {

constexpr int kCaptureMode = 2;       // CU_STREAM_CAPTURE_MODE_RELAXED: captures of the program go on undisturbed
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

class RelaxedCapture {
 public:
    explicit RelaxedCapture(const CudaDriver& cuda) : cuda_(cuda), changed_(cuda.exchange_capture_mode(&mode_) == 0) {}
    ~RelaxedCapture() {
        if (changed_) cuda_.exchange_capture_mode(&mode_);
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
    const CudaDriver& cuda_;
    int mode_ = kCaptureMode;
    const bool changed_;
};

class CurrentContext {
 public:
    CurrentContext(const CudaDriver& cuda, CuContext context) : cuda_(cuda), pushed_(cuda.ctx_push(context)) {}
    ~CurrentContext() {
        CuContext popped = nullptr;
        if (pushed_ == 0) cuda_.ctx_pop(&popped);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;
    CuResult result() const { return pushed_; }

 private:
    const CudaDriver& cuda_;
    const CuResult pushed_;
};

// CUDA's callbacks on this thread are about this errand until its end.
class OnErrand {
 public:
    explicit OnErrand(NativeErrand& errand) : thread_(limits::LaunchGuard::thread()), before_(thread_.errand) {
        thread_.errand = &errand;
    }
    ~OnErrand() { thread_.errand = before_; }
    OnErrand(const OnErrand&) = delete;
    OnErrand& operator=(const OnErrand&) = delete;

 private:
    limits::LaunchGuard::Thread& thread_;
    void* const before_;
};

}  // namespace

Status NativeSide::run(const LaunchCall& call, CuContext context, const ModuleBanks& banks, bool follows) {
    // Before anything else: no callback of what is called here is the program's.
    NativeErrand quiet(*this);
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    if (const char* reason = closed_.load(std::memory_order_acquire)) never_ = {Code::kFailedPrecondition, reason, ""};
    if (never_) return *never_;
    const RelaxedCapture relaxed(cuda_);
    if (forget_.exchange(false, std::memory_order_acq_rel)) before_.clear();
    Status ran = own_ == nullptr ? open(context) : Status{};
    if (ran) ran = launch(call, context, banks, follows);
    chain_context_ = context;
    chain_stream_ = call.stream;
    if (!ran && ran.error().code == Code::kFailedPrecondition) never_ = ran.error();
    return ran;
}

Status NativeSide::run_at_home(LaunchCall call, CuContext context) {
    NativeErrand quiet(*this);
    const CurrentContext current(cuda_, context);
    const CuResult r = current.result() != 0 ? current.result() : run_here(call, call.stream, quiet);
    if (r != 0) return not_this("CUDA does not launch the kernel", r);
    return {};
}

bool NativeSide::follows(int function, const void* parameters, CuContext context) {
    const std::optional<LaunchCall> call = read_launch_call(function, parameters);
    if (!call) return false;
    NativeErrand quiet(*this);
    const OnErrand errand(quiet);
    const std::lock_guard lock(mutex_);
    if (never_ || forget_.load(std::memory_order_acquire) || call->stream != chain_stream_ || context != chain_context_)
        return false;
    const CurrentContext current(cuda_, own_);
    CuFunction of_library = nullptr;
    // Nothing to wait for: it may as well share.
    return current.result() == 0 && cuda_.event_query(after_) == kNotReady &&
           cuda_.kernel_get_function(&of_library, call->function) == 0;
}

Status NativeSide::open(CuContext context) {
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
    if (const CuResult r = cuda_.event_create(&after_, kNoTiming); r != 0) {
        cuda_.ctx_pop(&popped);
        return never("CUDA makes no event", r);
    }
    cuda_.ctx_pop(&popped);
    return prove(context);
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

// Streams that share one wait for each other, in the order in which their kernels were launched.
Result<CuStream> NativeSide::lane_of(CuStream stream) {
    CuStream& lane = lanes_[reinterpret_cast<uintptr_t>(stream) / 64 % kLanes];
    if (lane != nullptr) return lane;
    if (const CuResult r = cuda_.stream_create(&lane, kNonBlocking); r != 0) {
        lane = nullptr;
        return not_this("CUDA makes no stream", r);
    }
    return lane;
}

// Our stream goes on when the program's has come so far.
Status NativeSide::wait_for_place(const LaunchCall& call, CuContext context, CuEvent& before) {
    const Result<CuEvent> event = event_of(context);
    if (!event) return event.error();
    before = *event;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0 ? current.result() : cuda_.event_record(before, call.stream); r != 0) {
        before_.erase(context);
        return not_this("CUDA records no event in the kernel's stream", r);
    }
    size_t stack = 0;
    if (cuda_.ctx_get_limit(&stack, kLimitStack) != 0 || stack <= stack_bytes_) return {};
    const CurrentContext own(cuda_, own_);
    if (cuda_.ctx_set_limit(kLimitStack, stack) == 0) stack_bytes_ = stack;
    return {};
}

Status NativeSide::launch(LaunchCall call, CuContext context, const ModuleBanks& banks, bool follows) {
    CuEvent before = nullptr;
    if (!follows) {
        if (Status waits = wait_for_place(call, context, before); !waits) return waits;
    }
    NativeErrand errand(*this);
    CuResult recorded = 0;
    CuStream lane = nullptr;
    {
        const CurrentContext current(cuda_, own_);
        if (current.result() != 0) return never("VUDA's own context is lost", current.result());
        const Result<CuStream> found = lane_of(call.stream);
        if (!found) return found.error();
        lane = *found;
        if (const CuResult r = follows ? 0 : cuda_.stream_wait_event(lane, before, 0); r != 0)
            return not_this("a stream does not wait for the kernel's place", r);
        errand.kind = NativeErrand::Kind::kRun;
        errand.banks = banks;
        if (const CuResult r = run_here(call, lane, errand); r != 0) {
            return r == kInvalidHandle ? not_this("a kernel that was loaded into one context runs in no other", r)
                                       : not_this("CUDA does not launch the kernel in another context", r);
        }
        recorded = cuda_.event_record(after_, lane);
    }
    const CurrentContext current(cuda_, context);
    const CuResult waits = recorded != 0           ? recorded
                           : current.result() != 0 ? current.result()
                                                   : cuda_.stream_wait_event(call.stream, after_, 0);
    if (waits != 0) {
        // It is on its way: what follows must not overtake it.
        const CurrentContext own(cuda_, own_);
        if (const CuResult r = cuda_.stream_synchronize(lane); r != 0) return never("VUDA's own context is lost", r);
    }
    if (!errand.came)
        return Error{Code::kFailedPrecondition, "a kernel's launch descriptor is not alike in two contexts", ""};
    return {};
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

void NativeSide::on_upload(NativeErrand& errand, uint8_t* qmd, CuContext context) const {
    if (!has_version(layout_, qmd)) return;
    switch (errand.kind) {
        case NativeErrand::Kind::kQuiet: return;
        case NativeErrand::Kind::kWithhold:
            errand.banks = read_module_banks(layout_, qmd);
            make_empty(layout_, qmd);
            errand.came = true;
            return;
        case NativeErrand::Kind::kRun:
            errand.came = context == own_ && write_module_banks(layout_, qmd, errand.banks);
            // Better nothing than a kernel that works on other variables than the program's.
            if (!errand.came) make_empty(layout_, qmd);
            return;
    }
}

// ---- The proof

// A kernel that copies a __device__ and a __constant__ variable of its library, withheld in the program's context and
// run in ours, between two writes to where it copies to.
Status NativeSide::prove(CuContext context) {
    CuLibrary library = nullptr;
    const CurrentContext current(cuda_, context);
    if (const CuResult r = current.result() != 0
                               ? current.result()
                               : cuda_.load_library(&library, kNativePtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
        r != 0) {
        return never("CUDA does not load the probe kernel", r);
    }
    Status proved = prove_with(context, library);
    cuda_.unload_library(library);
    return proved;
}

Status NativeSide::prove_with(CuContext context, CuLibrary library) {
    constexpr uint32_t kDevice = 0x5eed0001, kConstant = 0x5eed0002;  // the library starts with others
    constexpr size_t kWords = 4;
    struct Resources {
        const CudaDriver& cuda;
        CuStream stream = nullptr;
        CuDevicePtr out = 0;
        ~Resources() {
            if (stream != nullptr) cuda.stream_destroy(stream);
            if (out != 0) cuda.mem_free(out);
        }
    } own{cuda_};
    CuKernel kernel = nullptr;
    CuDevicePtr device = 0, constant = 0;
    size_t bytes = 0;
    CuResult r = cuda_.kernel_of_library(&kernel, library, "vuda_native");
    if (r == 0) r = cuda_.global_of_library(&device, &bytes, library, "vuda_device_word");
    if (r == 0) r = cuda_.global_of_library(&constant, &bytes, library, "vuda_constant_word");
    if (r == 0) r = cuda_.mem_alloc(&own.out, kWords * 4);
    if (r == 0) r = cuda_.stream_create(&own.stream, kNonBlocking);
    if (r == 0) r = cuda_.memset_async(device, kDevice, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(constant, kConstant, 1, own.stream);
    if (r == 0) r = cuda_.memset_async(own.out, 0, kWords, own.stream);
    if (r != 0) return never("CUDA does not prepare the probe kernel", r);

    LaunchCall call;
    call.function = kernel;
    call.grid[0] = call.grid[1] = call.grid[2] = 1;
    call.block[0] = 3;
    call.block[1] = call.block[2] = 1;
    call.stream = own.stream;
    void* parameters[] = {&own.out};
    call.parameters = parameters;
    NativeErrand errand(*this);
    errand.kind = NativeErrand::Kind::kWithhold;
    {
        const OnErrand on(errand);
        r = cuda_.launch(call.function, 1, 1, 1, 3, 1, 1, 0, call.stream, call.parameters, nullptr);
    }
    if (r != 0) return never("CUDA does not launch the probe kernel", r);
    if (!errand.came || !errand.call || errand.call->function != call.function || errand.call->stream != call.stream ||
        errand.call->parameters != call.parameters ||
        !std::equal(std::begin(call.block), std::end(call.block), errand.call->block)) {
        return Error{Code::kFailedPrecondition, "CUDA does not tell of its launches as its version should", ""};
    }
    if (Status launched = launch(*errand.call, context, errand.banks, false); !launched) {
        return Error{Code::kFailedPrecondition, launched.error().text, ""};
    }
    std::array<uint32_t, kWords> words{};
    r = cuda_.copy_to_host(words.data(), own.out, sizeof words, own.stream);
    if (r == 0) r = cuda_.stream_synchronize(own.stream);
    if (r != 0) return never("CUDA does not run the probe kernel", r);
    if (words != std::array<uint32_t, kWords>{kDevice, kConstant, 3, 0})
        return Error{Code::kFailedPrecondition, "a kernel in another context does not see its program's variables", ""};
    return {};
}

}  // namespace vuda::partition
