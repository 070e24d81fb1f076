// What `vudactl status` prints about TSGs that died, and `vudactl unquarantine`. Pure functions.
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

// When a program may come back that is held off for so long: "now", "in 28 s".
std::string come_back_text(uint64_t left_ms);

std::string unquarantine_text(const v1::UnquarantineReply& reply);

}  // namespace vuda::cli
