#include "bench/compute/quota_changes.h"

#include "bench/common/clock.h"
#include "bench/common/stop_signal.h"
#include "bench/compute/loaded_library.h"
#include "vuda/vuda.h"

namespace vuda::bench {
namespace {

constexpr double kPatienceSeconds = 2;

}  // namespace

Result<QuotaChangeTimes> change_quota(uint32_t changes, const std::string& library) {
    const LoadedLibrary vuda(library);
    if (!vuda) return Error{Code::kNotFound, "VUDA is not in this process", "run it under vudactl run --attach"};
    decltype(&::vuda_set_quota) set_quota = nullptr;
    decltype(&::vuda_get_partition) get_partition = nullptr;
    vuda.find("vuda_set_quota", &set_quota);
    vuda.find("vuda_get_partition", &get_partition);
    if (set_quota == nullptr || get_partition == nullptr)
        return Error{Code::kNotFound, library + " has no vuda_set_quota", "it is older than this program"};

    vuda_partition partition{};
    partition.size = sizeof partition;
    get_partition(&partition);
    if (partition.total_tpcs < 2 || partition.backend <= VUDA_BACKEND_NONE)
        return Error{Code::kFailedPrecondition, "compute cannot be kept to a quota here", partition.reason};

    QuotaChangeTimes times;
    for (uint32_t change = 0; change < changes && !stop_requested(); ++change) {
        const uint64_t before = partition.generation;
        const auto start = Clock::now();
        if (const int result = set_quota(change % 2 == 0 ? partition.total_tpcs / 2 : VUDA_QUOTA_NONE);
            result != VUDA_OK)
            return Error{Code::kFailedPrecondition, "vuda_set_quota failed: " + std::to_string(result), ""};
        times.call_us.add(1e3 * ms_between(start, Clock::now()));
        const auto deadline = start + from_seconds(kPatienceSeconds);
        do {
            get_partition(&partition);
            if (Clock::now() > deadline)
                return Error{Code::kDeadlineExceeded, "a change of the quota did not come into force",
                             partition.reason};
        } while (partition.generation == before);
        times.applied_us.add(1e3 * ms_between(start, Clock::now()));
    }
    return times;
}

}  // namespace vuda::bench
