// Runs a program of the system and keeps what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace vuda::cli {

struct CaptureLimits {
    size_t bytes = 1 << 20;  // the newest are kept
    std::chrono::milliseconds time{5000};
};

// Standard output and error of `arguments[0]`, found in the usual folders of the system. It gets no environment of ours
// but PATH and LC_ALL. A program that takes longer is killed; what it had printed is kept. Errors: those of
// posix_spawn.
Result<std::string> capture(const std::vector<std::string>& arguments, const CaptureLimits& limits = {});

}  // namespace vuda::cli
