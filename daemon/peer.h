// Who is at the other end of a Unix socket, in the kernel's words.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace vuda::daemon {

// Names one process for good, where a pid alone is used again. `unique` is the pidfd's inode number where the kernel
// gives each process its own (pidfs, Linux 6.9), otherwise the process's start time in clock ticks (/proc/PID/stat,
// field 22).
struct ProcessKey {
    pid_t pid = 0;
    uint64_t unique = 0;

    // NOLINTNEXTLINE(modernize-use-nullptr): it sees a 0 in what is generated
    auto operator<=>(const ProcessKey&) const = default;
};

struct Peer {
    ProcessKey process;
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;  // supplementary
    std::string program;        // /proc/PID/comm: set by the process itself, so for display only
    // /proc/PID/exe when the peer connected; empty where the kernel shows it to its own user only (vudad has a user of
    // its own and no capability).
    std::string exe;
    // Readable once the process has ended, zombies included. Shared, since a Peer is copied around; null only in tests.
    std::shared_ptr<const UniqueFd> pidfd;

    pid_t pid() const { return process.pid; }
    // "pid 4711 (python3), uid 1000"
    std::string describe() const;
};

// Reads SO_PEERCRED, SO_PEERGROUPS and SO_PEERPIDFD (Linux 6.5). Before 6.5 pidfd_open stands in; then a pid that was
// used again while the connection waited to be accepted is not noticed. UNAVAILABLE when the process has already ended;
// FAILED_PRECONDITION when it lives in a PID namespace that this process cannot see and the kernel offers no pidfd.
Result<Peer> read_peer(int socket);

// `pid` must be the live process that `pidfd` refers to.
Result<ProcessKey> process_key(pid_t pid, int pidfd);

}  // namespace vuda::daemon
