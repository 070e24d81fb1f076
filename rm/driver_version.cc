#include "rm/driver_version.h"

#include <cstdio>

namespace vuda::rm {
namespace {

constexpr size_t kMaxProcText = 4096;

// Digits up to a '.', the end of the text, or `max_digits`; false when there is none or too many.
bool take_number(std::string_view& text, size_t min_digits, size_t max_digits, uint16_t& out) {
    size_t digits = 0;
    unsigned value = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
        if (++digits > max_digits) return false;
        value = value * 10 + static_cast<unsigned>(text[digits - 1] - '0');
    }
    if (digits < min_digits) return false;
    text.remove_prefix(digits);
    out = static_cast<uint16_t>(value);
    return true;
}

bool take_dot(std::string_view& text) {
    if (text.empty() || text.front() != '.') return false;
    text.remove_prefix(1);
    return true;
}

bool parse(std::string_view text, DriverVersion& out) {
    DriverVersion v;
    if (text.starts_with('0')) return false;  // would print as another, shorter branch
    if (!take_number(text, 3, 4, v.branch) || !take_dot(text) || !take_number(text, 1, 4, v.minor)) return false;
    if (!text.empty()) {
        if (!take_dot(text) || !take_number(text, 2, 2, v.patch)) return false;
        v.has_patch = true;
    }
    if (!text.empty()) return false;
    out = v;
    return true;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Text from a file ends up in messages: keep it short and printable.
std::string quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
    return out + (text.size() > 80 ? "...'" : "'");
}

}  // namespace

std::string DriverVersion::to_string() const {
    char buffer[32];
    if (has_patch) {
        std::snprintf(buffer, sizeof buffer, "%u.%02u.%02u", branch, minor, patch);
    } else {
        std::snprintf(buffer, sizeof buffer, "%u.%02u", branch, minor);
    }
    return buffer;
}

Result<DriverVersion> parse_driver_version(std::string_view text) {
    DriverVersion version;
    if (!parse(text, version)) {
        return Error{Code::kInvalidArgument, quoted(text) + " is not an NVIDIA driver version",
                     "it looks like 580.159.04 or 550.100"};
    }
    return version;
}

Result<DriverVersion> parse_proc_driver_version(std::string_view text) {
    constexpr std::string_view kPrefix = "NVRM version:";
    text = text.substr(0, kMaxProcText);
    while (!text.empty()) {
        const size_t newline = text.find('\n');
        const std::string_view line = text.substr(0, newline);
        if (!line.starts_with(kPrefix)) {
            text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
            continue;
        }
        std::string_view rest = line.substr(kPrefix.size());
        while (!rest.empty()) {
            size_t end = 0;
            while (end < rest.size() && !is_space(rest[end])) ++end;
            DriverVersion version;
            const bool cut = end == rest.size() && newline == text.npos;
            if (!cut && parse(rest.substr(0, end), version)) return version;
            while (end < rest.size() && is_space(rest[end])) ++end;
            rest.remove_prefix(end);
        }
        return Error{Code::kInvalidArgument, "no driver version in " + quoted(line), {}};
    }
    return Error{Code::kNotFound, "no 'NVRM version:' line in the driver's version file",
                 "is the NVIDIA kernel module loaded?"};
}

}  // namespace vuda::rm
