// `vudactl run`.
#pragma once

#include <string>
#include <vector>

#include "cli/run_environment.h"

namespace vuda::cli {

// `command` is the program and its arguments. Returns the exit status of vudactl: the program's own once it has
// started.
int run_command(const std::string& socket, const RunOptions& options, const std::vector<std::string>& command);

}  // namespace vuda::cli
