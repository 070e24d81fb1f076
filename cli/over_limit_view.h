// What `vudactl status` prints about kernels that are too large to share. Pure functions.
#pragma once

#include <string>

#include "cli/status_view.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

// "native", "unshare", "reject"; empty: the program has not said.
std::string over_limit_name(v1::OverLimit policy);

// A line for each program that has such kernels, or chose what becomes of them; empty where there is none.
std::string over_limit_text(const v1::StatusReply& status);

// A table of the programs that run unshared for a while because of that; empty where there is none.
std::string unfit_text(const v1::StatusReply& status);
Json unfit_json(const v1::Unfit& unfit);

}  // namespace vuda::cli
