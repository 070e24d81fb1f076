// The split of a TSG as `vudactl status`, `quota` and `mode` print it. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/status_view.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

// "intra-sm", "inter-sm", "sliced"; "unknown" for what this vudactl does not know.
std::string mode_name(v1::Mode mode);
// "none", "scg", "qmd-mask"; empty when the process has not said.
std::string backend_name(v1::Backend backend);
// "auto", "none" or the number of TPCs.
std::string quota_text(const v1::PartitionInfo& partition);
// Numbers as ranges: "0-3,8".
std::string ranges_text(std::span<const uint32_t> ascending);

// One line a TSG; empty when no TSG says anything about its split.
std::string partition_text(const v1::StatusReply& status);
// null when the TSG says nothing.
Json partition_json(const v1::TsgInfo& tsg);

}  // namespace vuda::cli
