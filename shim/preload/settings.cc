#include "shim/preload/settings.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vuda::shim {
namespace {

constinit std::atomic<LogLevel> g_level{LogLevel::kError};
constinit std::array<std::atomic<uint64_t>, 32> g_said{};

bool is_one(const char* name) {
    const char* value = secure_getenv(name);
    return value != nullptr && std::strcmp(value, "1") == 0;
}

// A name that does not fit is no name at all: cut, it could be somebody else's.
void copy_name(const char* name, char (&out)[65]) {
    const char* value = secure_getenv(name);
    if (value == nullptr || std::strlen(value) >= sizeof out) return;
    std::memcpy(out, value, std::strlen(value) + 1);
}

uint32_t read_reserve() {
    const char* value = secure_getenv("VUDA_RESERVE");
    if (value == nullptr || *value < '0' || *value > '9') return UINT32_MAX;
    char* end = nullptr;
    const unsigned long channels = std::strtoul(value, &end, 10);
    return *end != '\0' || channels == 0 || channels > 128 ? UINT32_MAX : static_cast<uint32_t>(channels);
}

LogLevel read_level() {
    const char* value = secure_getenv("VUDA_LOG");
    if (value == nullptr) return LogLevel::kError;
    if (std::strcmp(value, "off") == 0) return LogLevel::kOff;
    if (std::strcmp(value, "info") == 0) return LogLevel::kInfo;
    if (std::strcmp(value, "debug") == 0) return LogLevel::kDebug;
    return LogLevel::kError;
}

// True the first time. When the table is full the rest stays unsaid: a program's stderr is not ours to fill.
bool first_time(const char* text) {
    uint64_t hash = 1469598103934665603ull;  // FNV-1a
    for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211ull;
    if (hash == 0) hash = 1;
    for (auto& slot : g_said) {
        uint64_t seen = 0;
        if (slot.compare_exchange_strong(seen, hash)) return true;
        if (seen == hash) return false;
    }
    return false;
}

}  // namespace

Settings read_settings() {
    Settings settings;
    if (getauxval(AT_SECURE) != 0 || is_one("VUDA_DISABLE")) return settings;
    settings.off = false;
    settings.log = read_level();
    copy_name("VUDA_REGISTER", settings.wishes.register_name);
    copy_name("VUDA_ATTACH", settings.wishes.attach_name);
    settings.wishes.reserve = read_reserve();
    settings.wishes.share_in_process = is_one("VUDA_SHARE");
    settings.wishes.require = is_one("VUDA_REQUIRE");
    return settings;
}

uint32_t cuda_channels() {
    constexpr uint32_t kUsual = 8;
    const char* value = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (value == nullptr || *value < '0' || *value > '9') return kUsual;
    char* end = nullptr;
    const unsigned long channels = std::strtoul(value, &end, 10);
    return *end != '\0' || channels < 1 || channels > 32 ? kUsual : static_cast<uint32_t>(channels);
}

void set_log_level(LogLevel level) { g_level.store(level); }

void say(LogLevel level, const char* format, ...) {
    if (level > g_level.load(std::memory_order_relaxed)) return;
    const int saved = errno;
    char line[512] = "vuda: ";
    constexpr size_t kPrefix = 6;
    va_list args;
    va_start(args, format);
    const int length = std::vsnprintf(line + kPrefix, sizeof line - kPrefix - 1, format, args);
    va_end(args);
    if (length > 0 && first_time(line)) {
        size_t size = std::strlen(line);
        line[size++] = '\n';
        // One write, so that lines of several processes do not mix; nothing to do when stderr is closed.
        const ssize_t written = write(STDERR_FILENO, line, size);
        static_cast<void>(written);
    }
    errno = saved;
}

}  // namespace vuda::shim
