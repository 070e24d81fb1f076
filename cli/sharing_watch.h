// For `vudactl run --require`: did the program, or one of its descendants, share?
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "cli/daemon_client.h"
#include "cli/run_environment.h"

namespace vuda::cli {

// What the daemon's events say about one tree of processes. Not thread-safe.
class SharingRecord {
 public:
    using IsMember = std::function<bool(pid_t)>;

    // `is_member` tells whether a live process belongs to the tree; it is asked when an event names a process for the
    // first time.
    void take(const v1::Event& event, const IsMember& is_member);

    bool registered() const { return registered_; }
    bool attached() const { return attached_; }
    bool has_open_session() const { return !open_.empty(); }
    bool saw_session() const { return !members_.empty(); }
    const std::string& last_refusal() const { return refusal_; }

 private:
    std::set<uint64_t> members_;  // sessions of the tree, also ended ones
    std::set<uint64_t> open_;
    bool registered_ = false;
    bool attached_ = false;
    std::string refusal_;
};

// Follows vudad's events in a thread of its own while the program runs.
class SharingWatch {
 public:
    SharingWatch() = default;
    ~SharingWatch();
    SharingWatch(const SharingWatch&) = delete;
    SharingWatch& operator=(const SharingWatch&) = delete;

    // Returns when the daemon has confirmed that events are on their way. `client` must outlive this object.
    void start(DaemonClient& client);

    // The program that was started; events before this call are not lost.
    void set_root(pid_t pid);

    // After the program's end: did it do all that `options` ask for? Waits a moment for events that are still under
    // way.
    bool shared(const RunOptions& options);

    // One line for people.
    std::string why_not(const std::string& program);

 private:
    void follow();

    std::mutex mutex_;
    std::condition_variable changed_;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<v1::Event>> reader_;
    std::thread thread_;
    // Guarded by mutex_
    bool subscribed_ = false;
    bool ended_ = false;
    pid_t root_ = 0;
    SharingRecord record_;
};

// Is `pid` `ancestor` or descended from it? False for a process that has ended. Reads /proc.
bool descends_from(pid_t pid, pid_t ancestor);

}  // namespace vuda::cli
