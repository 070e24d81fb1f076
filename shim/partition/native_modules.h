// Finds the kernel that runs in any context for a function that belongs to one.
//
// A program that loads code with cuModuleLoad* gets functions of one context (CuFunction); a context of ours can only
// launch kernels of libraries (CuKernel). So whatever is loaded as a module is loaded as a library, too, while the
// program's image is still there: CUDA keeps a copy of its own and compiles or uploads nothing before a kernel of it is
// wanted (CUDA_MODULE_LOADING=EAGER: at once, in each context). A function is found again by its module and its name.
//
// Some programs launch the function that a library's kernel has in their context (cuKernelGetFunction). CUDA tells of
// its function no kernel, so those are found by what the program asked before: cuKernelGetFunction itself,
// cuLibraryGetModule, or cuLibraryGetKernel for the name, where the kernel's function must be the very one.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "shim/partition/cuda_driver.h"

namespace vuda::partition {

class NativeModules {
 public:
    explicit NativeModules(const CudaDriver& cuda) : cuda_(cuda) {}
    NativeModules(const NativeModules&) = delete;
    NativeModules& operator=(const NativeModules&) = delete;

    // Modules that are loaded while it is off are not known later.
    void keep(bool on) { keeps_.store(on, std::memory_order_relaxed); }

    // --- Around calls of the driver, by their numbers in cupti_driver_cbid.h, with the block of their arguments, which
    // is not trusted. On an errand of the native side's only. Nothing that goes wrong here is told to anybody: the
    // module's kernels stay in their context.
    // True: something was unloaded that kernels may be of.
    bool on_entered(int function, const void* arguments);
    // After it came to a good end.
    void on_left(int function, const void* arguments);

    // `function` belongs to `context`. UNIMPLEMENTED: it cannot be told.
    Result<CuKernel> kernel_of(CuFunction function, CuContext context);
    // Takes a module for a library's; `owned`: the library goes with it.
    void add(CuModule module, CuLibrary library, bool owned);
    void remove(CuModule module);
    // A kernel of a library, by its name. And: that library is gone.
    void add_kernel(CuKernel kernel, CuLibrary library, std::string name);
    void forget(CuLibrary library);

 private:
    struct Code {
        CuLibrary from = nullptr;
        bool owned = false;
    };
    struct Known {
        CuKernel kernel = nullptr;
        CuLibrary from = nullptr;
    };
    void load(int function, const void* arguments);
    void drop(CuLibrary library);
    Result<Known> look_up(CuFunction function);

    const CudaDriver& cuda_;
    std::atomic<bool> keeps_{true};
    std::mutex mutex_;
    std::map<CuModule, Code> modules_;
    std::map<CuFunction, Known> functions_;
    std::multimap<std::string, Known> names_;
    std::map<CuKernel, CuLibrary> libraries_;
    std::vector<CuLibrary> leaving_;  // of modules that are being unloaded
};

}  // namespace vuda::partition
