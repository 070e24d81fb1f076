// Closes file descriptors that came from a peer, off the serving loop.
//
// close() calls the file's flush operation, and whoever serves a FUSE or network mount decides how long that takes: a
// peer could stop the whole daemon by sending one descriptor. Here it stops one thread that nobody waits for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace vuda::daemon {

class FdReaper {
 public:
    using Close = std::function<void(UniqueFd)>;

    // `close` replaces the closing itself, in tests.
    explicit FdReaper(Close close = {});
    FdReaper(const FdReaper&) = delete;
    FdReaper& operator=(const FdReaper&) = delete;
    // Closes what is queued and joins; waits for a close that hangs. See drain().
    ~FdReaper();

    // Never block; any thread.
    void close(UniqueFd fd);
    void close(std::vector<UniqueFd> fds);

    // Descriptors not closed yet. A large number that does not fall means that a peer's file system hangs: take no more
    // descriptors.
    size_t backlog() const;

    // Waits until everything handed over is closed; false when that takes longer than `patience`.
    bool drain(std::chrono::milliseconds patience);

 private:
    void run();

    Close close_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<UniqueFd> queue_;
    size_t closing_ = 0;
    bool stop_ = false;
    std::thread thread_;  // last: starts when all above exists
};

}  // namespace vuda::daemon
