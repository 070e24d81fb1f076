// LD_PRELOAD as a list.
#pragma once

#include <string>
#include <string_view>

namespace vuda::trace {

// `list` with `library` in it once: at the end, so that what it records is what the libraries before it made of a call,
// but in front of a simulated GPU (libvuda_sim.so), which passes nothing on. Entries that are there stay as they are.
std::string with_library(std::string_view list, std::string_view library);

}  // namespace vuda::trace
