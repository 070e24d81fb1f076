#include "daemon/fd_reaper.h"

#include <iterator>
#include <utility>

#include "base/fault_point.h"

namespace vuda::daemon {

FdReaper::FdReaper(Close close) : close_(std::move(close)), thread_([this] { run(); }) {}

FdReaper::~FdReaper() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void FdReaper::close(UniqueFd fd) {
    if (!fd) return;
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(fd));
    }
    changed_.notify_all();
}

void FdReaper::close(std::vector<UniqueFd> fds) {
    if (fds.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        std::move(fds.begin(), fds.end(), std::back_inserter(queue_));
    }
    changed_.notify_all();
    // Nothing is left in `fds`: its destructor closes none here.
}

size_t FdReaper::backlog() const {
    const std::lock_guard lock(mutex_);
    return queue_.size() + closing_;
}

bool FdReaper::drain(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return queue_.empty() && closing_ == 0; });
}

void FdReaper::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        std::vector<UniqueFd> batch = std::exchange(queue_, {});
        closing_ = batch.size();
        for (UniqueFd& fd : batch) {
            lock.unlock();
            VUDA_FAULT_POINT(daemon_fd_reaped);
            if (close_) {
                close_(std::move(fd));
            } else {
                fd.reset();
            }
            lock.lock();
            --closing_;
        }
        changed_.notify_all();
    }
}

}  // namespace vuda::daemon
