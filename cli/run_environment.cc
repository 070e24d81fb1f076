#include "cli/run_environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cli/preload_list.h"
#include "shim/limits/over_limit.h"

namespace vuda::cli {
namespace {

constexpr unsigned kMaxChannels = 128;  // of one TSG
// What CUDA reads (CUDA C++ Programming Guide, "CUDA Environment Variables").
constexpr const char* kCudaChannels = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr unsigned kMaxCudaChannels = 32;

// A number of channels; nullopt: "all", or nothing that --reserve takes.
std::optional<unsigned> channels_of(const std::string& reserve) {
    unsigned value = 0;
    const char* end = reserve.data() + reserve.size();
    const auto [stop, error] = std::from_chars(reserve.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > kMaxChannels) return std::nullopt;
    return value;
}

bool is_entry(const std::string& entry, std::string_view name) {
    return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

// The rule of RegisterRequest.name (proto/vuda/v1/session.proto).
bool valid_name(std::string_view name) {
    if (name.empty() || name.size() > 64 || name.front() == '.' || name.front() == '-') return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    });
}

// Adds `item` to a colon-separated list unless it is there.
std::string with_item(std::string_view list, std::string_view item) {
    std::string result(list);
    size_t start = 0;
    while (start <= list.size()) {
        const size_t end = std::min(list.find(':', start), list.size());
        if (list.substr(start, end - start) == item) return result;
        start = end + 1;
    }
    if (!result.empty()) result += ':';
    result += item;
    return result;
}

void add_item(Environment& env, std::string_view name, std::string_view item) {
    set_env(env, name, with_item(get_env(env, name).value_or(""), item));
}

}  // namespace

std::optional<std::string> get_env(const Environment& env, std::string_view name) {
    for (const std::string& entry : env) {
        if (is_entry(entry, name)) return entry.substr(name.size() + 1);
    }
    return std::nullopt;
}

void set_env(Environment& env, std::string_view name, std::string_view value) {
    std::string entry(name);
    entry += '=';
    entry += value;
    const auto named = [&](const std::string& other) { return is_entry(other, name); };
    const auto first = std::find_if(env.begin(), env.end(), named);
    if (first == env.end()) {
        env.push_back(std::move(entry));
        return;
    }
    *first = std::move(entry);
    env.erase(std::remove_if(first + 1, env.end(), named), env.end());
}

Environment current_environment() {
    Environment env;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) env.emplace_back(*entry);
    return env;
}

Status check_run_options(const RunOptions& options) {
    const auto bad = [](std::string text, std::string hint) {
        return Error{Code::kInvalidArgument, std::move(text), std::move(hint)};
    };
    const std::string name_rule = "a name is 1 to 64 of A-Z a-z 0-9 . _ - and starts with none of . and -";
    if (!options.register_name.empty() && !valid_name(options.register_name))
        return bad("--register: '" + options.register_name + "' is not a name", name_rule);
    if (!options.attach_name.empty() && !valid_name(options.attach_name))
        return bad("--attach: '" + options.attach_name + "' is not a name", name_rule);
    if (options.register_name.empty() && !(options.allow_users.empty() && options.allow_groups.empty()))
        return bad("--allow-user and --allow-group need --register", "they say who else may attach to that name");
    if (!options.attach_name.empty() && options.share)
        return bad("--attach and --share exclude each other", "--share is for CUDA and Vulkan in one process");
    if (!options.attach_name.empty() && options.attach_name == options.register_name)
        return bad("a program cannot attach to the name that it registers",
                   "CUDA and Vulkan in one process share with --share");
    if (!options.reserve.empty()) {
        if (options.attach_name.empty() && !options.share) return bad("--reserve needs --attach or --share", "");
        if (options.reserve != "all" && !channels_of(options.reserve))
            return bad("--reserve: '" + options.reserve + "' is neither 'all' nor a number of channels from 1 to 128",
                       "");
    }
    if (options.fit_kernels && options.attach_name.empty() && !options.share)
        return bad("--fit-kernels needs --attach or --share", "it is for programs that share");
    if (!options.over_limit.empty()) {
        if (!limits::parse_over_limit(options.over_limit))
            return bad("--over-limit: '" + options.over_limit + "' is none of native, unshare and reject", "");
        if (options.attach_name.empty() && !options.share)
            return bad("--over-limit needs --attach or --share", "it is for programs that share");
        if (options.fit_kernels && limits::parse_over_limit(options.over_limit) == limits::OverLimit::kNative)
            return bad("--fit-kernels and --over-limit native exclude each other",
                       "what a library chose by the smaller number may compute wrongly elsewhere; such kernels are "
                       "refused (docs/compatibility.md)");
    }
    if (options.require && options.register_name.empty() && options.attach_name.empty() && !options.share)
        return bad("--require needs one of --register, --attach and --share", "");
    return {};
}

Environment run_environment(Environment env, const RunOptions& options, const RunFacts& facts) {
    if (facts.preload && !facts.libraries.preload.empty()) {
        PreloadEdit edit{facts.libraries.preload, SimEntry::kKeep, ""};
        if (facts.daemon) {
            const bool insert = facts.daemon->simulated && !facts.libraries.sim.empty();
            edit.sim_entry = insert ? SimEntry::kInsert : SimEntry::kRemove;
            edit.sim = facts.libraries.sim;
        }
        set_env(env, "LD_PRELOAD", edit_preload(get_env(env, "LD_PRELOAD").value_or(""), edit));
        if (options.fit_kernels && !facts.libraries.fit.empty()) {
            add_item(env, "LD_PRELOAD", facts.libraries.fit);
            set_env(env, "VUDA_FIT_KERNELS", "1");
        }
    }

    set_env(env, "VUDA_SOCKET", facts.socket);
    if (facts.daemon) {
        set_env(env, "VUDA_HANDLE_SOCKET", facts.daemon->handle_socket);
        if (facts.daemon->simulated) set_env(env, "VUDA_SIM_SOCKET", facts.daemon->sim_socket);
    } else if (!get_env(env, "VUDA_HANDLE_SOCKET")) {
        // vudad's default places both sockets in one folder; it may come up while the program runs.
        set_env(env, "VUDA_HANDLE_SOCKET", facts.socket.substr(0, facts.socket.rfind('/') + 1) + "handles.sock");
    }

    if (!options.register_name.empty()) {
        set_env(env, "VUDA_REGISTER", options.register_name);
        // A list belongs to its name: one that was made for another name must not open this one.
        for (const auto& [name, ids] :
             {std::pair("VUDA_ALLOW_UIDS", facts.allow_uids), std::pair("VUDA_ALLOW_GIDS", facts.allow_gids)}) {
            if (!ids.empty() || get_env(env, name)) set_env(env, name, ids);
        }
    }
    if (!options.attach_name.empty()) set_env(env, "VUDA_ATTACH", options.attach_name);
    if (!options.reserve.empty()) {
        set_env(env, "VUDA_RESERVE", options.reserve);
        // The channels of a context share all or not at all, so CUDA is told to make no more; it makes 32 at most.
        const std::optional<unsigned> channels = channels_of(options.reserve);
        if (channels && !get_env(env, kCudaChannels))
            set_env(env, kCudaChannels, std::to_string(std::min(*channels, kMaxCudaChannels)));
    }
    if (options.share) set_env(env, "VUDA_SHARE", "1");
    if (!options.over_limit.empty()) set_env(env, "VUDA_OVER_LIMIT", options.over_limit);
    if (options.require) set_env(env, "VUDA_REQUIRE", "1");

    if (options.layer && facts.preload && !facts.libraries.layer_manifest.empty()) {
        if (facts.libraries.explicit_layer.empty()) {
            set_env(env, "VUDA_ENABLE_LAYER", "1");
        } else {
            add_item(env, "VK_INSTANCE_LAYERS", kLayerName);
            add_item(env, "VK_ADD_LAYER_PATH", facts.libraries.explicit_layer);
        }
    }
    return env;
}

}  // namespace vuda::cli
