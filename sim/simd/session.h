// The server's side of one control connection: packets in, packets out. No I/O of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sim/protocol/protocol.h"
#include "sim/rm/resource_manager.h"

namespace vuda::sim {

// What the session needs from the server around it.
class SessionHost {
 public:
    virtual ~SessionHost() = default;
    // Makes the pair of sockets for a file that the resource manager opened; the program's end, or invalid.
    virtual UniqueFd publish(FileId file, FileKind kind, int minor) = 0;
    virtual void doorbell_mapped() = 0;
    // The text of a query that is the server's to answer; nullopt for an unknown one.
    virtual std::optional<std::string> status() = 0;
};

struct Packet {
    std::vector<uint8_t> bytes;
    int fd = -1;     // to attach; stays the owner's
    UniqueFd owned;  // to attach, and to close after sending
};

class Session {
 public:
    Session(ResourceManager& rm, SessionHost& host, Caller caller) : rm_(rm), host_(host), caller_(std::move(caller)) {}

    // The answer to a packet; nullopt when the packet is malformed or out of place: close the connection.
    std::optional<Packet> handle(std::span<const uint8_t> packet);

 private:
    std::optional<Packet> open(std::span<const uint8_t> packet);
    std::optional<Packet> start_ioctl(std::span<const uint8_t> packet);
    std::optional<Packet> supply(std::span<const uint8_t> packet, protocol::Type type);
    std::optional<Packet> map(std::span<const uint8_t> packet);
    std::optional<Packet> query(std::span<const uint8_t> packet);
    // Asks for the next missing piece, or runs the request.
    Packet advance();
    Packet done(int error);

    static constexpr int kMostNeeds = 8;  // more than any call has; bounds what a hostile argument can ask for

    ResourceManager& rm_;
    SessionHost& host_;
    Caller caller_;
    std::optional<Request> request_;  // an ioctl that waits for the caller's memory
    Need need_;
    int needs_ = 0;
};

}  // namespace vuda::sim
