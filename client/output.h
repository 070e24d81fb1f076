// Frames on their way to vudad, and the descriptors that go with some of them.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/frame_io.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace vuda::client {

class Output {
 public:
    // At most kFrameFdLimit descriptors. Errors: append_frame().
    Status add(std::string_view body, std::vector<UniqueFd> fds = {});

    bool empty() const { return pieces_.empty(); }
    size_t bytes() const { return bytes_; }    // that no socket took yet
    bool has_fds() const { return fds_ > 0; }  // descriptors likewise
    // Sends once without waiting. False: the socket is full. Only when not empty().
    Result<bool> send(int socket);
    void clear();

 private:
    // Bytes that go out together; the descriptors with the first of them.
    struct Piece {
        std::string bytes;
        size_t sent = 0;
        std::vector<UniqueFd> fds;
        bool carries = false;  // a frame with descriptors, and no other
    };
    std::deque<Piece> pieces_;
    size_t bytes_ = 0;
    size_t fds_ = 0;
};

}  // namespace vuda::client
