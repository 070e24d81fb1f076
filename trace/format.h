// Text form of a trace (docs/trace-format.md): reading and writing. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/record.h"

namespace vuda::trace {

// The whole text of a trace. Errors name the line, as "line 12: ...". Any bytes are safe.
Result<Trace> parse(std::string_view text);

// One record, without the line's end. Any bytes are safe.
Result<Record> parse_record(std::string_view line);

// Canonical: parse(write(t)) == t, and equal traces give equal text.
std::string write(const Trace& trace);
std::string write_header(const Header& header);  // with the line's end
std::string write_record(const Record& record);  // with the line's end

// May `text` stand in a header? Printable ASCII, no line's end, at most kMaxHeaderText characters.
bool header_text_ok(std::string_view text);

}  // namespace vuda::trace
