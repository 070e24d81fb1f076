// What the daemon's tests share: folders that vanish, clients that speak frames, counting of descriptors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/frame_io.h"
#include "base/unique_fd.h"
#include "daemon/peer.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

// Long enough for a busy machine; tests wait for events and reach it only when they fail.
inline constexpr std::chrono::seconds kPatience(20);

class TempDir {
 public:
    TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir();
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
    std::string path_;
};

// Of this process, but for eventfds and epolls: gRPC makes and drops those as its threads come and go.
size_t open_fd_count();

// A file descriptor that can be told from others.
UniqueFd memfd(const std::string& content);
std::string memfd_content(int fd);

// Connections of a test that plays several processes: the client binds its end to an abstract name that says who it
// wants to be, and test_peer_reader() believes it. Only tests link this.
struct Role {
    pid_t pid = 0;  // 0: the test process itself, as the kernel says
    uid_t uid = 1000;
};
Result<Peer> test_peer_reader(int socket);
Result<UniqueFd> connect_as(const std::string& path, const Role& role);

// A process on the handle socket.
class FrameClient {
 public:
    explicit FrameClient(std::string path, Role role = {}) : path_(std::move(path)), role_(role) {}

    void set_program(const std::string& program) { program_ = program; }
    void set_features(uint64_t features) { features_ = features; }

    // Connects and says Hello. Returns the answer, or the error that took its place.
    Result<v1::HelloReply> open(const std::string& driver = "580.159.04");
    Status send(v1::ClientMessage message);
    // The next message from vudad. UNAVAILABLE: the connection ended.
    Result<v1::ServerMessage> receive(std::chrono::milliseconds patience = kPatience);
    // Sends with a new id and returns the message that answers it; others are kept for receive().
    Result<v1::ServerMessage> call(v1::ClientMessage message);

    Result<v1::ServerMessage> register_name(const std::string& name);
    Result<v1::ServerMessage> attach(const std::string& name, uint32_t channels = 8, uint32_t deadline_ms = 20'000);
    uint64_t send_attach(const std::string& name, uint32_t channels = 8, uint32_t deadline_ms = 20'000);
    Result<v1::ServerMessage> done(uint32_t moved = 8);
    // Waits for the ExportRequest and returns its token.
    Result<std::string> export_token();

    // Pushes a TSG and `buffers` control buffers as memfds "PREFIX0", "PREFIX1", ...; returns what vudad had to say:
    // nothing, or an error.
    Status push(const std::string& token, size_t buffers, const std::string& prefix);
    struct Pulled {
        std::vector<v1::Handle> handles;
        std::vector<UniqueFd> fds;
    };
    Result<Pulled> pull(const std::string& token);

    // Descriptors that came with the frames read so far.
    Result<std::vector<UniqueFd>> take_fds(size_t count) { return reader_->take_fds(count); }

    void close() { reader_.reset(), socket_.reset(); }
    int fd() const { return socket_.get(); }
    uint64_t session() const { return session_; }
    const std::string& path() const { return path_; }
    const Role& role() const { return role_; }

 private:
    std::string path_;
    Role role_;
    std::string program_;
    uint64_t features_ = v1::FEATURE_SHARE;
    UniqueFd socket_;
    std::optional<FrameReader> reader_;
    std::vector<v1::ServerMessage> kept_;
    uint64_t last_id_ = 0;
    uint64_t session_ = 0;
};

inline const std::string kTestGpu(16, '\x11');

}  // namespace vuda::daemon
