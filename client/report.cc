#include "client/report.h"

#include <algorithm>
#include <cerrno>

#include "client/names.h"

namespace vuda::client {
namespace {

constexpr size_t kLineLimit = 500;
// After that many different causes a program has bigger problems than a missing line.
constexpr size_t kCauseLimit = 64;

}  // namespace

LogLevel parse_log_level(const char* text) {
    const std::string_view name = text != nullptr ? text : "";
    if (name == "off") return LogLevel::kOff;
    if (name == "info") return LogLevel::kInfo;
    if (name == "debug") return LogLevel::kDebug;
    return LogLevel::kError;
}

void Reporter::say(LogLevel level, std::string_view text) {
    if (level == LogLevel::kOff || level > level_) return;
    const std::string line = "vuda: " + plain_text(text, kLineLimit) + "\n";
    const int saved = errno;
    // One write, no stdio: the program may hold stderr's lock. A lost line is no reason to fail.
    if (::write(fd_, line.data(), line.size()) < 0) errno = saved;
    errno = saved;
}

bool Reporter::say_once(LogLevel level, const std::string& cause, std::string_view text) {
    {
        const std::lock_guard lock(mutex_);
        if (said_.size() >= kCauseLimit || std::find(said_.begin(), said_.end(), cause) != said_.end()) return false;
        said_.push_back(cause);
    }
    say(level, text);
    return true;
}

}  // namespace vuda::client
