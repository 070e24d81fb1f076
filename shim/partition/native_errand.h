// What CUDA's callbacks do about a call that the native side itself makes, on the thread that makes it.
#pragma once

#include <optional>

#include "shim/partition/cuda_driver.h"
#include "shim/partition/launch_call.h"
#include "shim/partition/native_banks.h"
#include "shim/partition/qmd.h"

namespace vuda::partition {

struct NativeErrand {
    enum class Kind : uint8_t {
        kQuiet,     // nothing
        kWithhold,  // the kernel is not run, and its banks are read
        kRun,       // the kernel gets `banks`
        kGraph,     // each of a graph's kernels gets what `map` says
        kSkip,      // the call is skipped, and returns kSkipped
    };
    static constexpr CuResult kSkipped = 719;

    NativeErrand() = default;
    // `where`: the context whose descriptors are expected.
    NativeErrand(Kind what, const QmdLayout& its, CuContext where) : kind(what), layout(&its), context(where) {}

    Kind kind = Kind::kQuiet;
    const QmdLayout* layout = nullptr;
    CuContext context = nullptr;
    ModuleBanks banks;  // kWithhold: found there; kRun: to be put there
    const BankMap* map = nullptr;
    unsigned given = 0;              // kGraph: descriptors that got banks of the program's
    bool came = false;               // a descriptor or, kSkip, the call came as expected, and it was done
    uint64_t skip_slot = 0;          // kSkip: what was there
    std::optional<LaunchCall> call;  // kWithhold: as CUDA's callback told of it

    // The launch's descriptor is about to go out, in `from`.
    void on_upload(uint8_t* qmd, CuContext from);
};

}  // namespace vuda::partition
