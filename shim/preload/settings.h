// What the environment says to the preload, read once in the constructor without allocating.
#pragma once

#include <cstdint>

#include "client/session_abi.h"

namespace vuda::shim {

enum class LogLevel : uint8_t { kOff, kError, kInfo, kDebug };

struct Settings {
    bool off = true;  // VUDA_DISABLE=1, or a program that gained privileges by exec: everything passes through
    LogLevel log = LogLevel::kError;
    vuda_private_wishes wishes{};  // from the environment alone; libvuda adds what the program said
    bool asked() const {
        return wishes.register_name[0] != 0 || wishes.attach_name[0] != 0 || wishes.share_in_process != 0;
    }
};

Settings read_settings();
// GR channels that CUDA makes for a context: CUDA_DEVICE_MAX_CONNECTIONS, 1 to 32, else 8. Reads the environment, as
// CUDA does.
uint32_t cuda_channels();

// One line on stderr, "vuda: ...", at most once for each text. Allocates nothing, keeps errno.
[[gnu::format(printf, 2, 3)]] void say(LogLevel level, const char* format, ...);
void set_log_level(LogLevel level);

}  // namespace vuda::shim
