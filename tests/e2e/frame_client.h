// A hand-made client of the handle socket, for what libvuda would never send.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/frame_io.h"
#include "base/uuid.h"
#include "vuda/v1/session.pb.h"

namespace vuda::e2e {

class FrameClient {
 public:
    explicit FrameClient(const std::string& path);

    bool connected() const { return fd_.valid(); }
    // False: the daemon closed the connection or time is up.
    bool send(const v1::Frame& frame, const std::vector<int>& fds = {});
    bool send_bytes(std::string_view bytes);
    std::optional<v1::Frame> receive();
    std::vector<UniqueFd> take_fds(size_t count);
    // Until the daemon has closed the connection; frames on the way are dropped.
    bool closed_by_peer();
    // No more input from here, but the answer is still read.
    void shut_down_writing();

    // A whole session's worth of small talk. The answer's frame; nothing if the connection ended.
    std::optional<v1::ServerMessage> hello(std::string_view program, std::string_view driver = "580.159.04");
    std::optional<v1::ServerMessage> ask(const v1::ClientMessage& message);
    std::optional<v1::ServerMessage> register_name(std::string_view name, const Uuid& gpu);
    // Waits for a message of the daemon's own (ExportRequest, DetachCommand).
    std::optional<v1::ServerMessage> next_message();

 private:
    UniqueFd fd_;
    std::optional<FrameReader> reader_;
    uint64_t last_id_ = 0;
};

v1::ClientMessage attach_request(std::string_view name, const Uuid& gpu, uint32_t channels = 8);
Uuid test_gpu(uint8_t number);

}  // namespace vuda::e2e
