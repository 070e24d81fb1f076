// What this process was asked to do: the environment, overlaid with what the program said through vuda.h.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "client/allow_list.h"
#include "client/session_abi.h"
#include "shim/limits/over_limit.h"

namespace vuda::client {

// `text` of VUDA_RESERVE: "all" or 1..128; nullopt for anything else.
std::optional<uint32_t> parse_reserve(const char* text);

class Wishes {
 public:
    void set_register(std::string name);
    void set_attach(std::string name);
    // Also has CUDA make no more channels than that, through its environment variable, unless the user has set it.
    void set_reserve(uint32_t channels);
    // Who else may attach to the name; nothing: whom the environment names.
    void set_allowed(std::optional<AllowList> allow);
    // What becomes of kernels that are too large to share.
    void set_over_limit(limits::OverLimit policy);
    // CUDA's next contexts stay out of this process's own renderer's TSG, whatever was asked for.
    void keep_apart();
    // Nothing any more, whatever the environment says, until the program asks again.
    void clear();

    // Reads the environment each time: programs set it before their first GPU call.
    vuda_private_wishes get() const;
    // What the program said, else VUDA_ALLOW_UIDS and VUDA_ALLOW_GIDS. INVALID_ARGUMENT: what they say is no list.
    Result<AllowList> allowed() const;
    // What the program said, else VUDA_OVER_LIMIT, else the default. INVALID_ARGUMENT: that is none of the policies.
    Result<limits::OverLimit> over_limit() const;

 private:
    mutable std::mutex mutex_;
    bool ignore_environment_ = false;
    std::optional<std::string> register_;
    std::optional<std::string> attach_;
    std::optional<uint32_t> reserve_;
    std::optional<AllowList> allow_;
    std::optional<limits::OverLimit> over_limit_;
    bool apart_ = false;
    std::string told_cuda_;  // what set_reserve put into the environment
};

}  // namespace vuda::client
