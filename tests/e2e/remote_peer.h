// A FrameClient in a process of its own: vudad keeps one session a process, and gives tokens to processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace vuda::e2e {

// Forks without exec: the test program must have no threads.
class RemotePeer {
 public:
    // Connects as `uid` (needs root if it is not our own).
    explicit RemotePeer(const std::string& handle_socket, uid_t uid);
    explicit RemotePeer(const std::string& handle_socket);
    ~RemotePeer();  // ends the process
    RemotePeer(const RemotePeer&) = delete;
    RemotePeer& operator=(const RemotePeer&) = delete;

    pid_t pid() const { return pid_; }

    // Each is carried out in the other process; "ok", or the daemon's error text, or "closed".
    std::string open_session();
    std::string register_name(const std::string& name);
    std::string start_attach(const std::string& name);
    std::string attach_done(uint32_t channels);
    // Waits for the daemon's ExportRequest: the token as text, "" if there is none.
    std::string export_token();
    // Waits for AttachReply: the token as text; else the error.
    std::string attach_token();
    // Pushes a TSG and a control buffer.
    std::string push(const std::string& token);
    // Number of descriptors that a pull brings.
    size_t pull(const std::string& token);

 private:
    std::string ask(const std::string& command);

    pid_t pid_ = -1;
    UniqueFd line_;
};

}  // namespace vuda::e2e
