// The rule for names of TSGs, as session.proto states it (RegisterRequest.name).
#pragma once

#include <string>
#include <string_view>

namespace vuda::client {

inline constexpr size_t kNameLimit = 64;  // bytes

// Checked here too, so that what a program passes never reaches the wire as broken UTF-8.
bool valid_name(std::string_view name);

// Printable ASCII only, at most `limit` bytes: text from a peer or a program that goes to a terminal or into a protobuf
// string.
std::string plain_text(std::string_view text, size_t limit);

}  // namespace vuda::client
