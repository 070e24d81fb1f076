// vuda-simd's loop: sockets, time and signals around the simulated GPU.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sim/rm/resource_manager.h"
#include "sim/simd/session.h"

namespace vuda::sim {

struct ServerOptions {
    std::string socket;  // path of the control socket; replaced if a dead server left one
    ResourceManager::Config simulated;
    bool virtual_time = false;  // jump to the next event instead of waiting for it
    std::vector<std::string> broken_rules;
    std::vector<std::string> injections;  // ResourceManager::inject
    bool quiet = false;                   // keep the kernel log off stderr
};

class Server : public SessionHost {
 public:
    // Listens. Errors: kAlreadyExists when a live server owns the socket, kInvalidArgument for an unknown rule or
    // injection.
    static Result<std::unique_ptr<Server>> make(ServerOptions options);
    ~Server() override;

    // Serves until SIGTERM or SIGINT (both must be blocked in every thread), or until stop_fd is readable. -1: no such
    // fd.
    Status run(int stop_fd = -1);

    ResourceManager& rm() { return *rm_; }

 private:
    struct OpenFile {
        UniqueFd end;  // ours of the pair
        int gpu = -1;  // for doorbells
    };
    struct Connection {
        UniqueFd socket;
        std::unique_ptr<Session> session;
    };

    explicit Server(ServerOptions options) : options_(std::move(options)) {}

    UniqueFd publish(FileId file, FileKind kind, int minor) override;
    void doorbell_mapped() override { doorbell_mapped_ = true; }
    std::optional<std::string> status() override;

    void accept_all();
    // False when the connection is over.
    bool serve(Connection& connection);
    // Doorbells and closes of simulated files that happened so far.
    void drain_files();
    TimeNs wall() const;
    void catch_up();
    void count_replays();
    void arm_timer();
    int wait_ms();

    ServerOptions options_;
    std::unique_ptr<ResourceManager> rm_;
    UniqueFd listener_;
    UniqueFd epoll_;
    UniqueFd files_epoll_;  // nested: files are looked at before each call, so that a close is seen in order
    UniqueFd timer_;
    UniqueFd signals_;
    std::map<int, Connection> connections_;  // by socket
    std::map<FileId, OpenFile> files_;
    std::string instance_;
    bool bound_ = false;
    TimeNs replayed_ns_ = 0;  // wall(): until when replays were counted
    bool doorbell_mapped_ = false;
    bool settling_ = false;  // virtual time: a program was just released and may submit more before time moves
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::vector<uint8_t> buffer_;
};

}  // namespace vuda::sim
