// The audit log: one line for each thing that changes who shares with whom, and for each refusal, with fields in the
// journal.
#pragma once

#include <spdlog/common.h>

#include <string>
#include <vector>

#include "vuda/v1/control.pb.h"

namespace vuda::daemon {

// Warning for refusals and failures, debug for sessions that come and go, else info.
spdlog::level::level_enum audit_level(const v1::Event& event);

// The line for people.
std::string audit_text(const v1::Event& event);

// "VUDA_EVENT=attach", ...: what journalctl can select by. A field without a value is left out. Names: vudad(8).
std::vector<std::string> audit_fields(const v1::Event& event);

// To the journal with fields, else as a line to the log.
void audit(const v1::Event& event);

}  // namespace vuda::daemon
