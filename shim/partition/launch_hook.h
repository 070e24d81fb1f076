// CUDA calls us before each kernel's launch descriptor goes to the GPU, and we add the TPCs that compute must keep off.
//
// The way in is the interface through which CUDA's own tools watch a program: export table
// 2c8e0ad8-0710-ab4e-90dd-54719fe5f74b, entry 3 to subscribe, entry 6 to enable a callback; domain 0xb, callback 1
// comes before the upload of a descriptor, with a parameter block that holds the context and the descriptor's address.
// None of that is documented, so nothing is believed: memory is written only after a kernel of our own has shown
// (self_check.h) that this address in this version of CUDA is a launch descriptor, and each descriptor must look like
// one again. At the first surprise the hook switches itself off for the rest of the process.
//
// CUDA admits one subscriber: a profiler that is there first keeps us out, and the other way round.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "proto/page/launch_hold.h"
#include "shim/limits/launch_guard.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/driver_calls.h"
#include "shim/partition/mask_map.h"
#include "shim/partition/module_watch.h"
#include "shim/partition/native_graphs.h"
#include "shim/partition/native_side.h"
#include "shim/partition/qmd.h"

namespace vuda::partition {

// What callback parameters look like in one range of CUDA versions.
struct CallbackLayout {
    int first_version;  // as cuDriverGetVersion says it: 13000 is CUDA 13.0
    int last_version;
    uint32_t bytes;        // first word of the block
    uint32_t again_bytes;  // of the block before a graph launches a descriptor again; the same slots
    uint8_t context_slot;  // which 8-byte slot holds the CUcontext
    uint8_t qmd_slot;      // which holds the descriptor's address
    // The block that comes with calls of the driver's own functions.
    uint32_t call_bytes;
    uint8_t call_context_slot;
    uint8_t call_result_slot;      // where the address of the CUresult is that the call returns
    uint8_t call_parameters_slot;  // where the address of the call's arguments is
    uint8_t call_skip_slot;  // where the address of a word is: 0 at the beginning of a call; with 1 CUDA does nothing
    uint8_t call_slot;  // lower half: the function's number, as in CUPTI's cupti_driver_cbid.h; upper: 0 enter, 1 exit
};

const CallbackLayout* find_callback_layout(int cuda_version);

// What the callback saw of one launch of our own thread.
struct SeenLaunch {
    bool came = false;
    uint32_t bytes = 0;
    CuContext context = nullptr;
    const QmdLayout* layout = nullptr;  // nullptr: not a descriptor that is known
    LaunchShape shape{};
    QmdKind kind = QmdKind::kQueue;
    QmdMask mask;  // before anything was added
    // Contexts that the callbacks around a wait of the same thread named.
    CuContext wait_entered = nullptr;
    CuContext wait_left = nullptr;
    // It was made a grid without blocks, and its call's result replaced.
    bool emptied = false;
    bool answered = false;
    std::optional<LaunchCall> call;  // as the arguments say that the callback named
};

class LaunchHook : private NativeFault::Listener {
 public:
    // Subscribes. One in a process, for as long as the process lives. FAILED_PRECONDITION: this version of CUDA is not
    // in the table, or somebody else has subscribed. `events` changes whenever there may be a newcomer to take, or the
    // hook switched itself off: wait on it.
    static Result<std::unique_ptr<LaunchHook>> install(const CudaDriver& cuda, std::atomic<uint32_t>& events);
    ~LaunchHook() override;
    LaunchHook(const LaunchHook&) = delete;
    LaunchHook& operator=(const LaunchHook&) = delete;

    // --- Proving. Only launches of the calling thread are looked at, and masked only when `mask` is given and `layout`
    // was recognised before.
    void begin_probe(const QmdLayout* layout, const std::optional<QmdMask>& mask);
    // The next launch of the calling thread is refused as the guard would: `layout` was recognised before.
    void begin_refusal(const QmdLayout& layout);
    SeenLaunch end_probe();

    // --- Working. From now on launches in approved contexts get what the page says. `page` and `map` outlive the
    // process.
    void start(const QmdLayout& layout, const MaskMap& map, page::Page& page);
    // Takes a sample of each wait for the GPU in an approved context as well. After start(), and only where a probe saw
    // both ends of its own wait.
    void time_waits() { times_waits_.store(true, std::memory_order_release); }
    // The callbacks name the arguments of calls, as a probe saw with its own. After start().
    void trust_arguments() { trusts_arguments_.store(true, std::memory_order_release); }
    // From now on no kernel of an approved context runs that wants more shared memory a block, bytes. After start(),
    // and only where a probe was refused as begin_refusal() says.
    void guard(uint32_t limit) { guard_.arm(limit); }
    limits::LaunchGuard& launch_guard() { return guard_; }
    // From now on kernels that the guard withholds run there, where they can; nullptr: none does. After guard(); `side`
    // outlives the process.
    void run_natively(NativeSide* side);
    // Has CUDA tell of all its functions, which chains of kernels on the native side need (native_side.h). Each call
    // then costs a little more.
    void watch_all_calls();
    // The program's modules, watched from the start. modules().keep(false): not any more.
    NativeModules& modules() { return modules_; }
    uint64_t native_launches() const { return native_launches_.load(std::memory_order_relaxed); }
    // Allocations of managed memory that were refused in contexts that share. A kernel that fetches it by a page fault
    // ends the TSG: UVM does not know the channels of a TSG that is not CUDA's.
    uint64_t managed_refused() const { return managed_refused_.load(std::memory_order_relaxed); }
    // Why the newest kernel that the guard withheld did not run natively; nullopt: there was none.
    std::optional<Error> not_native() const;
    // What is to become of a context's launches: they follow the page, or are not looked at.
    void approve(CuContext context) { decide(context, true); }
    void decline(CuContext context) { decide(context, false); }
    void forget_contexts();
    // CUDA calls at both ends of each launch, which costs more than all else: while contexts come or kernels do that
    // were not launched before, and for good where one did not fit.
    void tell_launches();
    // Contexts may come whose launches are to wait until they are decided on: so it is from the start. And: none will.
    void expect_contexts();
    void settled();
    // Another page is at the page's address.
    void page_replaced();

    // A context that launched something and was neither approved nor declined; nullptr: none so far. Taken once.
    CuContext take_newcomer();

    // Has CUDA stop calling before launches, and start again. False: it refuses, or the hook is off or unproved.
    bool watch(bool on);

    // Why the hook is off; nullopt: it is not.
    std::optional<Error> off_reason() const;
    void switch_off(const char* reason);
    // Launches that a mask would have kept from ever starting.
    uint64_t left_alone() const { return left_alone_.load(std::memory_order_relaxed); }

 private:
    enum class Stage : uint32_t { kOff, kProving, kWorking };

    static constexpr size_t kContexts = 16;

    // The page's split in the descriptor's numbering, for one version of the page.
    struct Translated {
        std::atomic<uint64_t> version{~uint64_t{0}};
        std::atomic<uint64_t> generation{0};
        std::atomic<uint64_t> words[2]{};
    };

    LaunchHook(const CallbackLayout& callback, const CudaDriver& cuda, std::atomic<uint32_t>& events)
        : callback_(callback), cuda_(cuda), events_(events), modules_(cuda_) {
        expect_contexts();
    }

    void enable_calls(uint32_t on);
    void apply_told();
    void consider_quiet();
    static void on_callback(void* self, int domain, int callback, const void* parameters);
    void on_launch(const void* parameters);
    void on_launched_again(const void* parameters);
    void on_call(int function, const void* parameters);
    void on_own_call(NativeErrand& errand, int function, const void* parameters) const;
    void on_rare_call(int function, const void* parameters, CuContext context, bool enter);
    void on_graph_begins(int function, const void* parameters, CuContext context);
    void watch_modules(int function, const void* arguments, bool enter);
    ModuleWatch::Care care_of(const void* function, uint32_t* bytes) const;
    void consider_care(int function, const void* arguments, CuContext context) const;
    bool graph_needs_care(CuGraph graph, int depth) const;
    bool kernel_needs_care(const CuKernelNode& kernel) const;
    bool refuses_graph(int function, const void* arguments, const void* parameters, CuContext context);
    bool can_skip(const void* parameters) const;
    void skip(const void* parameters, CuResult result) const;
    bool refuses_code(int function, const void* parameters, CuContext context);
    bool has_failed(CallKind kind, int function, CuContext context) const;
    void answer_fault(const void* parameters);
    void native_fault(CuResult error) override;
    void ran_natively(const NativeSide& native);
    void is_not_native(const Error& why);
    void on_withheld(int function, const void* parameters, const limits::LaunchGuard::Verdict& verdict, bool probing);
    void on_managed(const void* parameters, CuContext context);
    bool runs_natively(int function, const void* parameters, const limits::LaunchGuard::Verdict& verdict);
    void count_refused(uint32_t bytes, uint32_t kernels);
    void on_wait(CuContext context, bool enter, bool probing);
    void answer(const void* parameters, int error, bool probing);
    void hold(CuContext context);
    bool held(CuContext context) const;
    void probe(const void* parameters);
    void work(const void* parameters, bool special);
    bool is_probing() const;
    bool is_descriptor(const uint8_t* qmd);
    bool withhold_large(uint8_t* qmd, CuContext context, bool follows);
    void on_entered(limits::LaunchGuard::Thread& thread, CallKind kind, int function, const void* parameters,
                    CuContext context, bool probing);
    void count_launch(page::SampleWriter& writer);
    bool leaves_grid(const QmdMask& mask, const uint8_t* qmd) const;
    bool current_mask(QmdMask& mask, uint64_t& generation);
    void newcomer(CuContext context);
    void wake();
    enum class Verdict { kUnknown, kApproved, kDeclined };
    Verdict verdict(CuContext context) const;
    void decide(CuContext context, bool approved);

    const CallbackLayout& callback_;
    const CudaDriver cuda_;
    std::atomic<uint32_t>& events_;
    int (*enable_)(uint32_t enable, uint32_t handle, int domain, int callback) = nullptr;
    uint32_t handle_ = 0;
    LaunchHook* older_ = nullptr;  // keeps those reachable that CUDA knows and nobody uses

    std::atomic<Stage> stage_{Stage::kProving};
    std::atomic<const char*> off_reason_{nullptr};
    std::atomic<CuContext> newcomer_{nullptr};
    std::atomic<uintptr_t> contexts_[kContexts]{};  // lowest bit: declined

    // Probing; touched by the probing thread only.
    std::atomic<uint64_t> probing_thread_{0};  // pthread_t; 0: none
    const QmdLayout* probe_layout_ = nullptr;
    std::optional<QmdMask> probe_mask_;
    bool probe_refusal_ = false;
    std::optional<LaunchCall> probe_call_;
    const uint32_t* probe_result_ = nullptr;  // where the call's result is, as its beginning said
    SeenLaunch seen_;

    // Working; set before the stage is.
    const QmdLayout* layout_ = nullptr;
    const MaskMap* map_ = nullptr;
    page::Page* page_ = nullptr;
    page::LaunchHold hold_;
    std::atomic<bool> times_waits_{false};
    std::atomic<bool> trusts_arguments_{false};
    Translated translated_;
    std::atomic_flag translating_;
    std::atomic<uintptr_t> counting_thread_{0};  // the one that counts its launches without a locked instruction
    std::atomic<uint64_t> left_alone_{0};
    limits::LaunchGuard guard_;
    std::atomic<NativeSide*> native_{nullptr};
    NativeSide* listened_ = nullptr;  // the newest that there was: it outlives this
    NativeModules modules_;
    ModuleWatch watch_;
    std::unique_ptr<NativeGraphs> owned_graphs_;
    std::atomic<NativeGraphs*> graphs_{nullptr};
    std::atomic<CuResult> fault_{0};  // what a kernel on the native side failed with
    std::atomic<bool> uses_objects_{false};
    std::atomic<uint64_t> managed_refused_{0};
    std::atomic<bool> told_{true};         // whether CUDA is to call at both ends of a launch
    std::atomic<uint64_t> told_since_{0};  // launches, when that was last asked for
    std::atomic<uint64_t> native_launches_{0};
    bool watches_all_ = false;  // the partitioner's
    mutable std::mutex not_native_mutex_;
    std::optional<Error> not_native_;
};

}  // namespace vuda::partition
