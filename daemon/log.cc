#include "daemon/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace vuda::daemon {
namespace {

bool to_journal = false;

// systemd.exec(5): JOURNAL_STREAM is "device:inode" of the stream; a redirected stderr no longer matches.
bool stderr_is_journal() {
    const char* stream = std::getenv("JOURNAL_STREAM");
    unsigned long long device = 0;
    unsigned long long inode = 0;
    struct stat st {};
    return stream != nullptr && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           ::fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

}  // namespace

void start_log(const std::string& level) {
    std::shared_ptr<spdlog::logger> logger;
    to_journal = stderr_is_journal();
    if (to_journal) {
        logger = std::make_shared<spdlog::logger>("vudad", std::make_shared<spdlog::sinks::systemd_sink_mt>("vudad"));
    } else {
        logger = std::make_shared<spdlog::logger>("vudad", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z vudad[%P] %^%l%$: %v");
    }
    // A log line must not be lost with the process.
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
    set_log_level(level);
}

bool log_is_journal() { return to_journal; }

void set_log_level(const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); }

}  // namespace vuda::daemon
