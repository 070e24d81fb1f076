// Names of the status codes that RM and UVM answer with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vuda::rm {

// NVIDIA's name without "NV_", e.g. "ERR_INVALID_OBJECT_PARENT"; empty for a code this table lacks.
std::string_view status_name(uint32_t status);

// What it most often means in VUDA's use, for messages; empty when the name says it all.
std::string_view status_hint(uint32_t status);

// "ERR_INVALID_OBJECT_PARENT (0x36)", or "status 0x1234" for an unknown code.
std::string status_text(uint32_t status);

}  // namespace vuda::rm
