// Everything that libvuda keeps for this process, behind one pointer: a child of fork starts with a new one and leaves
// the old one alone, because a thread of the parent may have held any of its locks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "client/report.h"
#include "client/session.h"
#include "client/session_abi.h"
#include "client/wishes.h"

namespace vuda::client {

// The preload's callbacks as the session calls them.
class CallbackHost : public SessionHost {
 public:
    CallbackHost(const vuda_private_callbacks& callbacks, Wishes& wishes) : callbacks_(callbacks), wishes_(wishes) {}
    Result<HandleSet> export_host(uint64_t held) override;
    void detach_command(const Error& reason) override;
    void guard_fd(int fd, bool guarded) override;
    void register_failed(const Error& error) override;

 private:
    const vuda_private_callbacks callbacks_;
    Wishes& wishes_;
};

class ProcessState {
 public:
    ProcessState();

    // The calling process's state. Never destroyed: the session's thread and the preload may use it until the process
    // is gone.
    static ProcessState& get();
    // Child of fork: forget the parent's.
    static void abandon_in_child();

    Wishes& wishes() { return wishes_; }
    Reporter& reporter() { return reporter_; }

    // The first call decides; later ones change nothing.
    void start(const vuda_private_callbacks& callbacks, const std::string& driver_version);
    // NULL before start.
    Session* session() { return session_.load(std::memory_order_acquire); }

 private:
    const pid_t pid_;
    ProcessState* older_ = nullptr;  // an ancestor's, kept reachable
    Reporter reporter_;
    Wishes wishes_;
    std::mutex start_mutex_;
    std::unique_ptr<CallbackHost> host_;
    std::unique_ptr<Session> owned_session_;
    std::atomic<Session*> session_{nullptr};
};

void fill_error(vuda_private_error* out, const Error& error);
// kOk when `in` is NULL or says no error.
Error read_error(const vuda_private_error* in);

}  // namespace vuda::client
