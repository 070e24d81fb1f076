// What the daemon says about this machine's NVIDIA driver.
#pragma once

#include <string>

#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

struct DriverFacts {
    std::string version;  // empty: no driver
    v1::DriverVerdict verdict = v1::DRIVER_VERDICT_ABSENT;
    std::string note;
};

// Reads /proc/driver/nvidia/version, or `file` in tests. Read again for each status: the module may be loaded later
// than the daemon.
DriverFacts read_driver_facts(const char* file = nullptr);

}  // namespace vuda::daemon
