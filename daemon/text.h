// Text that came from a peer, made fit for logs, terminals and status tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

inline constexpr size_t kProgramLimit = 64;  // bytes; also of version strings
inline constexpr size_t kTextLimit = 256;
inline constexpr size_t kHintLimit = 160;

// At most `limit` bytes, never cut inside a UTF-8 sequence; control characters become '?', so that no peer can write
// escape sequences to an operator's terminal or forge a line of the journal.
std::string clean_text(std::string_view text, size_t limit);

v1::Error to_proto(const Error& error);

// With the peer's text cleaned and its code brought into 1..16.
Error from_proto(const v1::Error& error);

}  // namespace vuda::daemon
