// What `vudactl status` and `vudactl unquarantine` print about TSGs that died. Pure functions.
#pragma once

#include <string>

#include "cli/status_view.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

// "sharing", "faulted", "quarantined".
std::string fault_state_name(v1::FaultState state);

// A table; empty when nothing died.
std::string fault_text(const v1::StatusReply& status);
Json fault_json(const v1::FaultInfo& fault);

std::string unquarantine_text(const v1::UnquarantineReply& reply);

}  // namespace vuda::cli
