// Runs kernels that must not share a TSG, in the same process and at their place in their stream.
//
// All contexts of a process on one GPU have one address space (seen: both name the same FERMI_VASPACE_A), and each has
// a TSG of its own. So a second context, made by us and left where CUDA puts it, can run a kernel of the first on the
// same memory: an event after what came before, the kernel on a stream of ours, an event that what follows waits for.
// A kernel of a library (CuKernel, what the CUDA runtime launches) needs no more than that to be launched there; one
// that a program loaded into its context as a module (CuFunction) cannot be.
//
// What a module keeps in memory, __device__ and __constant__ variables, exists once in each context. The descriptor of
// our launch gets the program's instance of them (qmd.h, ModuleBanks), taken from the descriptor that the guard made
// empty. Nothing of this is documented, so it is proved by a kernel of our own before a program's kernel goes this way.
//
// Going to and fro costs: the GPU switches TSGs, and beside a renderer that never rests it waits for the end of a frame
// each time. So a kernel that would have to wait for one on the native side follows it there, as long as its stream got
// nothing else in between: a chain. What may not be missed for that is any call that puts work into a stream.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "shim/limits/launch_guard.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_call.h"
#include "shim/partition/qmd.h"

namespace vuda::partition {

class NativeSide;

// What callbacks do about a launch that the native side itself makes on this thread.
struct NativeErrand {
    enum class Kind : uint8_t { kQuiet, kWithhold, kRun };
    explicit NativeErrand(const NativeSide& owner) : side(owner) {}
    const NativeSide& side;  // whose it is, whatever the policy says by now
    Kind kind = Kind::kQuiet;
    ModuleBanks banks;               // kWithhold: found there; kRun: to be put there
    bool came = false;               // the descriptor was one as expected, and it was done
    std::optional<LaunchCall> call;  // as CUDA's callback told of it
};

class NativeSide {
 public:
    // Makes contexts on the calling thread stay out of other TSGs: true from now on, false no longer.
    class Host {
     public:
        virtual ~Host() = default;
        virtual void unshared_contexts(bool on) = 0;
    };

    // `host` outlives it. Needs cuda.has_native_side() and has_module_banks(layout).
    NativeSide(const CudaDriver& cuda, const QmdLayout& layout, Host& host)
        : cuda_(cuda), layout_(layout), host_(host) {}
    NativeSide(const NativeSide&) = delete;
    NativeSide& operator=(const NativeSide&) = delete;

    // Runs `call`, whose kernel was withheld in `context` with a descriptor that had `banks`. The first one makes our
    // context (a context's time and memory of the GPU) and proves the way. Any thread; returns once the
    // kernel is in order, not when it has run. An error: it will not run.
    // UNIMPLEMENTED: not this kernel. FAILED_PRECONDITION: none will in this process.
    // `follows`: as follows() said.
    Status run(const LaunchCall& call, CuContext context, const ModuleBanks& banks, bool follows = false);
    // Launches a kernel where the program wanted it, which was withheld because it follows and cannot.
    Status run_at_home(LaunchCall call, CuContext context);

    // --- Chains: only once every call of CUDA that is not CallKind::kQuiet or kWait is told of.
    void allow_chains() { chains_.store(true, std::memory_order_release); }
    bool chains() const { return chains_.load(std::memory_order_acquire); }
    // A call begins that launches, by read_launch_call()'s arguments, in `context`: it is of the chain's stream, and
    // would have to wait for the chain's end where it is.
    bool follows(int function, const void* parameters, CuContext context);
    // Contexts of the program went away. May be called from within CUDA.
    void forget_contexts() { forget_.store(true, std::memory_order_release); }
    // Kernels must not go this way any more: what they use exists once in each context (texture and surface objects).
    // `reason` is a literal.
    void close(const char* reason) { closed_.store(reason, std::memory_order_release); }

    // --- In callbacks, on a thread in run().
    // The launch's descriptor is about to go out.
    void on_upload(NativeErrand& errand, uint8_t* qmd, CuContext context) const;

 private:
    static constexpr size_t kLanes = 8;

    Status open(CuContext context);
    Status prove(CuContext context);
    Status prove_with(CuContext context, CuLibrary library);
    Status launch(LaunchCall call, CuContext context, const ModuleBanks& banks, bool follows);
    Status wait_for_place(const LaunchCall& call, CuContext context, CuEvent& before);
    Result<CuEvent> event_of(CuContext context);
    Result<CuStream> lane_of(CuStream stream);
    CuResult run_here(LaunchCall& call, CuStream lane, NativeErrand& errand);

    const CudaDriver cuda_;
    const QmdLayout& layout_;
    Host& host_;
    std::atomic<bool> forget_{false};
    std::atomic<const char*> closed_{nullptr};
    std::atomic<bool> chains_{false};

    std::mutex mutex_;
    std::optional<Error> never_;  // why no kernel goes this way
    CuContext own_ = nullptr;
    int device_ = 0;
    size_t stack_bytes_ = 0;
    CuStream lanes_[kLanes] = {};
    CuEvent after_ = nullptr;
    std::map<CuContext, CuEvent> before_;
    CuContext chain_context_ = nullptr;
    CuStream chain_stream_ = nullptr;
};

}  // namespace vuda::partition
