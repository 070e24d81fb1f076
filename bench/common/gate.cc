#include "bench/common/gate.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace vuda::bench {

Status StartGate::ready() {
    const std::lock_guard lock(mutex_);
    if (--waiting_for_ != 0) return {};
    deadline_ = Clock::now() + from_seconds(options_.start_timeout);
    if (options_.ready_file.empty()) return {};
    const UniqueFd fd(::open(options_.ready_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!fd) return errno_error(errno, "create the ready file " + options_.ready_file);
    return {};
}

void StartGate::abandon(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    abandoned_ = reason;
}

Result<bool> StartGate::started() {
    if (started_.load(std::memory_order_relaxed)) return true;
    const std::lock_guard lock(mutex_);
    if (!abandoned_.empty())
        return Error{Code::kAborted, "not started, because the other side failed: " + abandoned_, ""};
    if (waiting_for_ > 0) return false;
    if (options_.start_file.empty() || ::access(options_.start_file.c_str(), F_OK) == 0) {
        started_.store(true, std::memory_order_relaxed);
        return true;
    }
    if (Clock::now() > deadline_)
        return Error{Code::kDeadlineExceeded, "the start file " + options_.start_file + " did not appear in time",
                     "create it, or raise --start-timeout"};
    return false;
}

}  // namespace vuda::bench
