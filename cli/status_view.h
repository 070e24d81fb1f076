// What `vudactl status` and `vudactl watch` print. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "vuda/v1/control.pb.h"

namespace vuda::cli {

using Json = nlohmann::ordered_json;

// Raised when a field changes its meaning or goes away; new fields do not raise it. Schema: docs/vudactl.md.
inline constexpr int kJsonSchema = 1;

std::string status_text(const v1::StatusReply& status);
Json status_json(const v1::StatusReply& status);

std::string event_text(const v1::Event& event);
Json event_json(const v1::Event& event);

// {"schema":1,"error":{...}}: the answer of a --json command that failed.
Json error_json(const Error& error);

// One line, or two spaces of indentation. Bytes that are not UTF-8 are replaced.
std::string to_line(const Json& json);
std::string to_pretty(const Json& json);

// "SUPPORTED" becomes "supported", for text and JSON alike.
std::string verdict_name(v1::DriverVerdict verdict);
bool verdict_allows_sharing(v1::DriverVerdict verdict);

// "850 ms", "12 s", "3 min 20 s", "5 h 2 min", "4 d 1 h".
std::string duration_text(uint64_t ms);

}  // namespace vuda::cli
