// The commands that ask the daemon something, and those that look at the machine. Each returns vudactl's exit status.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

int status_command(const std::string& socket, bool json);
int watch_command(const std::string& socket, bool json);
int metrics_command(const std::string& socket);
int detach_command(const std::string& socket, uint64_t session);
int quota_command(const std::string& socket, const v1::SetQuotaRequest& request);
int mode_command(const std::string& socket, const v1::SetModeRequest& request);
// Sets, and shows what holds then; with nothing set in the request only that.
int slo_command(const std::string& socket, const v1::SetSloRequest& request, bool json);

// Lets programs that are held off after a fault come back.
int unquarantine_command(const std::string& socket, const v1::UnquarantineRequest& request);

int doctor_command(const std::string& socket, const std::string& root, bool json);
int driver_list_command(bool json);

// "N", "auto" or "none"; INVALID_ARGUMENT otherwise.
Result<v1::SetQuotaRequest> parse_quota(const std::string& name, const std::string& quota);
// "intra-sm", "inter-sm" or "sliced"; INVALID_ARGUMENT otherwise.
Result<v1::Mode> parse_mode(const std::string& mode);

// Text to standard output. Returns 0, or 74 when it could not all be written.
int print_text(const std::string& text);

// "vudactl: text; hint" on stderr. Returns the exit status for `error`.
int fail(const Error& error);

}  // namespace vuda::cli
