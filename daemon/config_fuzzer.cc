// Any bytes as vudad.toml: an error with a line, or a configuration within its limits.
#include <cstdint>
#include <string_view>

#include "daemon/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vuda::daemon;
    const auto config = parse_config({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    if (!config) {
        if (config.error().text.rfind("fuzz.toml:", 0) != 0) __builtin_trap();
        return 0;
    }
    if (config->settings.names_per_uid < 1 || config->settings.names_per_uid > 1024) __builtin_trap();
    if (config->settings.turn_limit.count() < 10 || config->control_mode > 0777 || !valid_log_level(config->log_level))
        __builtin_trap();
    return 0;
}
