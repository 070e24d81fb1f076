// What libvuda says on stderr of a stranger's program: little, one line at a time, each cause once.
#pragma once

#include <unistd.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace vuda::client {

enum class LogLevel { kOff, kError, kInfo, kDebug };

// Value of VUDA_LOG; kError for NULL and for anything unknown.
LogLevel parse_log_level(const char* text);

class Reporter {
 public:
    explicit Reporter(LogLevel level, int fd = STDERR_FILENO) : level_(level), fd_(fd) {}

    void say(LogLevel level, std::string_view text);
    // As say, but only the first time for this `cause`. True that first time, printed or not.
    bool say_once(LogLevel level, const std::string& cause, std::string_view text);

 private:
    const LogLevel level_;
    const int fd_;
    std::mutex mutex_;
    std::vector<std::string> said_;
};

}  // namespace vuda::client
