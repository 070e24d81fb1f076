// Runs kernels that must not share a TSG, in the same process and at their place in their stream.
//
// All contexts of a process on one GPU have one address space (seen: both name the same FERMI_VASPACE_A), and each has
// a TSG of its own. So a second context, made by us and left where CUDA puts it, can run a kernel of the first on the
// same memory: an event after what came before, the kernel on a stream of ours, and what follows waits for that
// (native_fault.h). A kernel of a library (CuKernel, what the CUDA runtime launches) needs no more than that to be
// launched there; for one that a program loaded into its context as a module (CuFunction) the same code is there as a
// library (native_modules.h).
//
// What a module keeps in memory, __device__ and __constant__ variables, exists once in each context. The descriptor of
// our launch gets the program's instance of them (qmd.h, ModuleBanks), taken from the descriptor that the guard made
// empty. Nothing of this is documented, so it is proved by kernels of our own before a program's kernel goes this way
// (native_proof.h).
//
// Going to and fro costs: the GPU switches TSGs, and beside a renderer that never rests it waits for the end of a frame
// each time. So a kernel that would have to wait for one on the native side follows it there, as long as its stream got
// nothing else in between: a chain. What may not be missed for that is any call that puts work into a stream.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_call.h"
#include "shim/partition/native_errand.h"
#include "shim/partition/native_fault.h"
#include "shim/partition/native_modules.h"
#include "shim/partition/qmd.h"

namespace vuda::partition {

class NativeSide {
 public:
    // Makes contexts on the calling thread stay out of other TSGs: true from now on, false no longer.
    class Host {
     public:
        virtual ~Host() = default;
        virtual void unshared_contexts(bool on) = 0;
    };

    // `host` and `modules` outlive it. Needs cuda.has_native_side() and has_module_banks(layout).
    NativeSide(const CudaDriver& cuda, const QmdLayout& layout, Host& host, NativeModules& modules)
        : cuda_(cuda), layout_(layout), host_(host), modules_(modules), fault_(cuda_) {}
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

    // --- For whole graphs (native_graphs.h), on an errand of theirs.
    // Makes our context and proves the way, as run() does; errors as there.
    Status open(CuContext context);
    CuContext own() const { return own_; }
    int device() const { return device_; }
    const QmdLayout& layout() const { return layout_; }
    NativeModules& modules() { return modules_; }
    // Launches `call` withheld in `context` and, as `kernel`, in ours: the banks of both.
    struct BothBanks {
        ModuleBanks home;
        ModuleBanks here;
    };
    Result<BothBanks> banks_of(LaunchCall call, CuKernel kernel, CuContext context);
    // Has `work` put something onto a stream of our context, which is current then, at the place that comes next in
    // `stream` of `context`. An error: `work` was not called, or returned one.
    using Work = std::function<CuResult(CuStream lane)>;
    Status run_in_place(CuStream stream, CuContext context, const Work& work);
    // A stream of ours on which nothing of the program's is.
    Result<CuStream> spare_lane();

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
    // Who is told when our context fails.
    void listen(NativeFault::Listener* listener) { fault_.listen(listener); }

 private:
    friend class NativeProof;
    static constexpr size_t kLanes = NativeFault::kLanes;

    Status open_locked(CuContext context);
    Status make_context(CuContext context);
    Status launch(LaunchCall call, CuContext context, const ModuleBanks& banks, bool follows);
    Status place(CuStream stream, CuContext context, bool follows, const Work& work);
    Status wait_for_place(CuStream stream, CuContext context, CuEvent& before);
    CuResult leave_place(size_t number, CuStream lane, CuStream stream, CuContext context);
    Result<CuEvent> event_of(CuContext context);
    Result<CuStream> home_stream_of(CuContext context);
    Result<CuStream> lane_of(size_t number);
    Result<CuStream> spare_lane_locked();
    Status remember(Status status);
    CuResult run_here(LaunchCall& call, CuStream lane, NativeErrand& errand);
    bool under_way() const;

    const CudaDriver cuda_;
    const QmdLayout& layout_;
    Host& host_;
    NativeModules& modules_;
    std::atomic<bool> forget_{false};
    std::atomic<const char*> closed_{nullptr};
    std::atomic<bool> chains_{false};

    std::mutex mutex_;
    std::optional<Error> never_;  // why no kernel goes this way
    bool modules_proved_ = false;
    std::optional<Error> no_modules_;  // why none of a module does
    CuContext own_ = nullptr;
    int device_ = 0;
    size_t stack_bytes_ = 0;
    CuStream lanes_[kLanes] = {};
    CuStream spare_lane_ = nullptr;
    CuEvent after_ = nullptr;  // where fault_ does not work
    std::map<CuContext, CuEvent> before_;
    std::map<CuContext, CuStream> home_streams_;
    CuContext chain_context_ = nullptr;
    CuStream chain_stream_ = nullptr;
    size_t newest_lane_ = 0;
    NativeFault fault_;
};

}  // namespace vuda::partition
