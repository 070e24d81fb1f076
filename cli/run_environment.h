// The environment of a program started by `vudactl run`. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/libraries.h"

namespace vuda::cli {

inline constexpr const char* kDefaultSocket = "/run/vuda/vudad.sock";
inline constexpr const char* kLayerName = "VK_LAYER_VUDA_sharing";

// "NAME=value" entries, as in environ.
using Environment = std::vector<std::string>;

std::optional<std::string> get_env(const Environment& env, std::string_view name);
void set_env(Environment& env, std::string_view name, std::string_view value);

// Environment of this process.
Environment current_environment();

// What the user asked for.
struct RunOptions {
    std::string register_name;
    std::vector<std::string> allow_users, allow_groups;  // names or numbers, not looked up yet
    std::string attach_name;
    std::string reserve;  // "", "all" or 1..128
    bool share = false;
    bool require = false;
    bool fit_kernels = false;
    std::string over_limit;  // "", or as the user wrote it
    bool layer = true;
};

// INVALID_ARGUMENT for names, reserve values and combinations that cannot work.
Status check_run_options(const RunOptions& options);

// What is known when the program starts.
struct RunFacts {
    Libraries libraries;
    std::string socket;  // absolute path of vudad's socket
    // From the daemon's Handshake; nothing: there is no daemon.
    struct Daemon {
        std::string handle_socket;
        bool simulated = false;
        std::string sim_socket;
    };
    std::optional<Daemon> daemon;
    std::string allow_uids, allow_gids;  // whom the options name: values of VUDA_ALLOW_UIDS, VUDA_ALLOW_GIDS
    bool preload = true;                 // false: LD_PRELOAD cannot reach this program, leave it as it is
};

// Variables that this call has no value for are inherited, so that wrappers nest.
Environment run_environment(Environment env, const RunOptions& options, const RunFacts& facts);

}  // namespace vuda::cli
