// Version of NVIDIA's kernel driver, such as 580.159.04 or 550.100.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vuda::rm {

// Where the kernel module says which version it is.
inline constexpr const char* kDriverVersionFile = "/proc/driver/nvidia/version";

struct DriverVersion {
    uint16_t branch = 0;     // 580
    uint16_t minor = 0;      // 159
    uint16_t patch = 0;      // 4, printed with two digits; 0 when there are only two parts
    bool has_patch = false;  // "550.90.12" has one, "550.100" has none

    // Releases of one branch are ordered by number whether or not they have a patch part: 550.90.12 < 550.100.
    constexpr std::strong_ordering operator<=>(const DriverVersion& o) const {
        if (const auto c = branch <=> o.branch; std::is_neq(c)) return c;
        if (const auto c = minor <=> o.minor; std::is_neq(c)) return c;
        return patch <=> o.patch;
    }
    constexpr bool operator==(const DriverVersion& o) const { return std::is_eq(*this <=> o); }

    std::string to_string() const;  // as NVIDIA writes it
};

// Accepts exactly "BBB.M[MM]" or "BBB.M[MM].PP" and nothing around it. INVALID_ARGUMENT otherwise.
Result<DriverVersion> parse_driver_version(std::string_view text);

// Finds the version in the text of kDriverVersionFile, which is one of
//   NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (...)
//   NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
// followed by the compiler's version, which must not be mistaken for it. A version that touches the end of the text may
// be cut off and is not taken. Reads at most the first 4096 bytes; any bytes are safe. NOT_FOUND when there is no "NVRM
// version:" line, INVALID_ARGUMENT when that line holds no version.
Result<DriverVersion> parse_proc_driver_version(std::string_view text);

}  // namespace vuda::rm
