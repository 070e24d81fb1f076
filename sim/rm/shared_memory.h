// Memory of the simulated GPU that programs map: a memfd, made on first use so that memory nobody maps costs nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "base/unique_fd.h"

namespace vuda::sim {

class SharedMemory {
 public:
    // `bytes` > 0.
    explicit SharedMemory(uint64_t bytes) : bytes_(bytes) {}
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();

    uint64_t bytes() const { return bytes_; }

    // The memfd, or -1 when the system has no more of them.
    int fd();

    // The page-aligned mapping of the whole memory, or nullptr.
    uint8_t* data();

    // Programs write concurrently, so everything is copied word-wise through volatile: no tearing below 4 bytes, no
    // caching.
    bool read(uint64_t offset, void* out, uint64_t length);
    bool write(uint64_t offset, const void* in, uint64_t length);

 private:
    bool inside(uint64_t offset, uint64_t length) const { return offset <= bytes_ && length <= bytes_ - offset; }

    uint64_t bytes_;
    UniqueFd fd_;
    uint8_t* data_ = nullptr;
};

}  // namespace vuda::sim
