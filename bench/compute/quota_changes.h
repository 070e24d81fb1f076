// What a program pays that changes its own quota (vuda_set_quota, vuda_get_partition of vuda/vuda.h), where VUDA is in
// this process.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "bench/common/samples.h"

namespace vuda::bench {

struct QuotaChangeTimes {
    Samples call_us;     // in vuda_set_quota
    Samples applied_us;  // from before that call until launches follow the new split
};

// Changes the quota `changes` times, between half of the GPU and all of it, each after the one before is in force.
// `library` is not loaded, only found. NOT_FOUND: it is not there; DEADLINE_EXCEEDED: a change did not come into force
// within 2 s; FAILED_PRECONDITION: nothing is shared, or nothing can keep to a quota.
Result<QuotaChangeTimes> change_quota(uint32_t changes, const std::string& library = "libvuda.so.0");

}  // namespace vuda::bench
