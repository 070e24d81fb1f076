// Framed I/O on Unix stream sockets: what the handle socket speaks, below any message schema.
//
// Wire format: a 4-byte little-endian length (1..kFrameLimit), then that many bytes, the body. File descriptors of a
// frame travel as SCM_RIGHTS with the frame's first byte, so they have always arrived when the frame is complete. One
// receive may complete several frames; therefore the body must say how many descriptors belong to it, and the receiver
// takes them in order.
//
// Nothing here throws, blocks past its deadline, raises SIGPIPE, or leaves a received descriptor without an owner.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace vuda {

inline constexpr size_t kFrameHeaderSize = 4;
inline constexpr size_t kFrameLimit = 65536;  // bytes of body
// Descriptors with one frame. The kernel's own limit is 253 (SCM_MAX_FD); 64 keeps one transfer below the default
// RLIMIT_NOFILE of 1024 many times over.
inline constexpr size_t kFrameFdLimit = 64;

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline deadline_in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

// Appends header and body to `out`. INVALID_ARGUMENT for an empty body, RESOURCE_EXHAUSTED for one above kFrameLimit;
// `out` is then unchanged.
Status append_frame(std::string& out, std::string_view body);

// Splits a byte stream into frames, however it was cut. Does no I/O and holds at most what was fed and not yet taken.
class FrameDecoder {
 public:
    FrameDecoder() = default;
    // `limit`: the largest body that is taken, at most kFrameLimit.
    explicit FrameDecoder(size_t limit) : limit_(limit < kFrameLimit ? limit : kFrameLimit) {}

    void feed(std::string_view bytes);

    // The next complete body, or nullopt when more bytes are needed. A length outside 1..limit (DATA_LOSS) ends
    // the stream: where the next frame would start is unknown, so every later call returns the same error.
    Result<std::optional<std::string>> next();

    // Bytes fed but not returned. Non-zero at end of stream: the peer stopped inside a frame.
    size_t buffered() const { return buffer_.size() - taken_; }

 private:
    size_t limit_ = kFrameLimit;
    std::string buffer_;
    size_t taken_ = 0;
    std::optional<Error> broken_;
};

// What one non-blocking read found.
struct Received {
    enum class Kind { kData, kWouldBlock, kEnd };
    Kind kind = Kind::kWouldBlock;
    size_t bytes = 0;       // > 0 for kData only
    bool fds_lost = false;  // the bytes came with descriptors for which this process's table has no room
};

// Reads once without waiting. Descriptors are appended to `fds`, close-on-exec, all of a read or none (fds_lost). More
// than kFrameFdLimit of them in one read is INVALID_ARGUMENT and leaves `fds` as it was. A peer that vanished is kEnd.
// Descriptors that came but were refused go to `refused` when it is not null, so that the
// caller chooses where they are closed: close() of a file on a hung network or FUSE mount can block for as long as
// whoever serves that mount likes.
Result<Received> receive_some(int socket, std::span<char> buffer, std::vector<UniqueFd>& fds,
                              std::vector<UniqueFd>* refused = nullptr);

// What Received::fds_lost means, for whoever needs them.
Error fds_lost_error();

// Writes once without waiting; returns the bytes accepted, 0 when the socket is full. `fds` (borrowed) go with the
// first byte, so pass them again only while nothing was accepted. UNAVAILABLE when the peer is gone.
Result<size_t> send_some(int socket, std::string_view bytes, std::span<const int> fds = {});

// Waits until `socket` is readable (or at its end). DEADLINE_EXCEEDED when it is not.
Status wait_readable(int socket, Deadline deadline);
Status wait_writable(int socket, Deadline deadline);

// Sends one frame with its descriptors (borrowed). After an error the stream may hold half a frame: close it.
Status send_frame(int socket, std::string_view body, std::span<const int> fds, Deadline deadline);

// Receiving half of a connection that reads frames in sequence, waiting with a deadline.
class FrameReader {
 public:
    explicit FrameReader(int socket) : socket_(socket) {}  // borrowed

    // The next body. UNAVAILABLE when the peer closed the connection between frames, DATA_LOSS inside one.
    Result<std::string> read(Deadline deadline);

    // The next `count` descriptors, in the order sent. DATA_LOSS when fewer have come with the frames read so far.
    Result<std::vector<UniqueFd>> take_fds(size_t count);

    // Descriptors that nobody took yet. Non-zero after the last frame: the peer sent more than it announced.
    size_t pending_fds() const { return fds_.size(); }

 private:
    int socket_;
    FrameDecoder decoder_;
    std::deque<UniqueFd> fds_;
};

// Connects to the stream socket at `path` and makes it non-blocking and close-on-exec. The last component must be a
// socket itself: a symbolic link is refused (FAILED_PRECONDITION), because whoever could put it there would choose who
// gets our descriptors. NOT_FOUND: nothing there; UNAVAILABLE: nobody listens; PERMISSION_DENIED.
Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline);

}  // namespace vuda
