// Graphs with a kernel that must not share a TSG run as a whole on the native side.
//
// When the program instantiates one, a twin of it is made: a clone whose nodes are all in our context, instantiated
// there. When the program launches its own, CUDA is told to skip the call (launch_hook.h), and the twin is launched at
// its place in the stream (native_side.h). What the program changes in its graph is changed in the twin.
//
// The launch descriptors of the twin's kernels go out when it is uploaded, in no order that is known. Each kernel is
// launched by itself before, withheld, in both contexts: that shows which instance of its module's variables in our
// context is which of the program's (native_banks.h), and each descriptor gets the program's by the instance that it
// has. As many descriptors must get some as the graph has kernels with variables.
//
// A graph that cannot have a twin, or whose twin cannot follow a change, is refused at each launch, as without the
// native side. A graph of our own proves skipping, moving and the variables first (native_graph_proof.h).
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "shim/partition/cuda_driver.h"
#include "shim/partition/native_banks.h"
#include "shim/partition/native_graph_calls.h"
#include "shim/partition/native_side.h"
#include "shim/partition/native_twin.h"

namespace vuda::partition {

class NativeGraphs {
 public:
    NativeGraphs(const CudaDriver& cuda, NativeSide& side) : cuda_(cuda), side_(side) {}
    NativeGraphs(const NativeGraphs&) = delete;
    NativeGraphs& operator=(const NativeGraphs&) = delete;

    // --- Around calls of the driver, by their numbers in cupti_driver_cbid.h, with the block of their arguments, which
    // is not trusted, and the context that was current. Kernels over `limit`, bytes, do not share.
    static bool is_of_graphs(int function);
    void on_entered(int function, const void* arguments);
    // After it came to a good end. nullopt: no large kernel; OK: the graph has a twin; an error: why it has none.
    std::optional<Status> on_left(int function, const void* arguments, CuContext context, uint32_t limit);
    // The call launches or uploads a graph. nullopt: one that is none of ours, let it; OK: that was done here, and the
    // call must be skipped; an error: why the graph is to be refused.
    std::optional<Status> on_launch(int function, const void* arguments, CuContext context);
    // Why the graph that the call launches has no twin; nullopt: no reason is known.
    std::optional<Error> why_not(int function, const void* arguments);

    bool any() const { return any_.load(std::memory_order_acquire); }
    // Modules or contexts of the program went away. May be called from within CUDA.
    void outdate() { outdated_.store(true, std::memory_order_release); }

 private:
    friend class NativeGraphProof;
    struct Twin {
        CuGraph graph = nullptr;  // its nodes are found again for changes
        CuGraphExec exec = nullptr;
        CuContext home = nullptr;
        unsigned long long flags = 0;
        std::optional<Error> refused;
    };
    struct Found {
        CuKernel kernel = nullptr;
        bool variables = false;
        unsigned shared_bytes = 0;
    };
    // What became known of kernels while one graph was gone through.
    struct Learned {
        std::map<CuFunction, Found> kernels;
        unsigned with_variables = 0;  // nodes
    };

    // Where a call was made.
    struct Where {
        CuContext context;
        int device;
        uint32_t limit;
    };

    std::optional<Status> instantiated(const GraphCall& call, const Where& where);
    std::optional<Status> updated(const GraphCall& call, const Where& where);
    std::optional<Status> kernel_changed(const GraphCall& call, const Where& where);
    std::optional<Status> changed(const GraphCall& call);
    BankMap& banks_of(CuContext context);
    Status ready(CuContext context);
    Result<Twin> make(CuGraph graph, unsigned long long flags, CuContext context);
    Result<Twin> make_unproved(CuGraph graph, unsigned long long flags, CuContext context);
    Result<CuGraph> moved_clone(CuGraph graph, CuContext context, Learned& learned);
    Result<CuKernel> find(KernelNode& node, CuContext context, Learned& learned);
    // given: descriptors that got variables of the program's.
    Result<unsigned> upload(const Twin& twin);
    Status launch(const Twin& twin, CuStream stream, CuContext context);
    Status refuse(Twin& twin, const Error& why);
    void destroy(Twin& twin);

    const CudaDriver& cuda_;
    NativeSide& side_;
    std::atomic<bool> any_{false};
    std::atomic<bool> outdated_{false};
    std::mutex mutex_;
    bool proved_ = false;
    std::optional<Error> never_;
    std::map<CuGraphExec, Twin> twins_;
    std::map<CuContext, BankMap> banks_;
};

}  // namespace vuda::partition
