// vudad.toml: what it may say, and errors that lead to the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/acceptor.h"
#include "daemon/registry.h"

namespace vuda::daemon {

// The defaults are those of config/vudad.toml (a test compares them).
struct Config {
    std::string control_socket = "/run/vuda/vudad.sock";
    std::string handle_socket = "/run/vuda/handles.sock";
    uint32_t control_mode = 0666;
    uint32_t handle_mode = 0666;

    std::string log_level = "info";

    ConnectionLimits connections;
    uint32_t requests_per_s = 5000;   // of one user; 0: no limit
    uint32_t message_bytes = 65'536;  // largest frame and gRPC message
    // What may go wrong with more: docs/compatibility.md, "More than one program".
    static constexpr uint32_t kProgramsPerTsg = 1;
    Settings settings = [] {
        Settings own;
        own.programs_per_tsg = kProgramsPerTsg;
        // That ends the TSG on GH100.
        own.same_addresses = false;
        return own;
    }();

    // Where the metrics are written now and then, an absolute path; empty: nowhere.
    std::string metrics_textfile;
    Milliseconds metrics_interval{15'000};

    bool sim = false;
    std::string sim_preset = "h200";

    bool operator==(const Config&) const;
};

// `file` is for the messages. Errors are INVALID_ARGUMENT and read "FILE:LINE: KEY: what is wrong"; the first one found
// is reported.
Result<Config> parse_config(std::string_view text, const std::string& file);

// NOT_FOUND or PERMISSION_DENIED when the file cannot be read.
Result<Config> load_config(const std::string& file);

// Keys whose change takes effect only at the next start, by name; empty: a reload applies everything.
std::vector<std::string> needs_restart(const Config& running, const Config& wanted);

// "trace" .. "off"
bool valid_log_level(std::string_view level);

}  // namespace vuda::daemon
