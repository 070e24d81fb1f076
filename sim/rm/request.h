// One ioctl on its way through the simulator.
//
// A real kernel copies from the caller's memory as it goes. Here the caller is another process, so the server asks for
// what it needs (next_need) until the request is complete, runs it, and sends back what changed. Asking has no side
// effects.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/rm/layout.h"
#include "sim/rm/objects.h"

namespace vuda::sim {

struct Blob {
    uint64_t address = 0;  // in the caller
    std::vector<uint8_t> bytes;
};

struct Need {
    enum class Kind : uint8_t {
        kNothing,  // the request is complete
        kRead,     // `length` bytes at `address` of the caller
        kFile,     // which simulated file is behind the caller's `fd`?
        kError,    // refuse at once with errno `error`
    };
    Kind kind = Kind::kNothing;
    uint64_t address = 0;
    uint32_t length = 0;
    int fd = -1;
    int error = 0;
};

struct Request {
    FileId file = 0;
    unsigned long number = 0;
    uint64_t address = 0;  // of the argument in the caller
    std::vector<uint8_t> argument;
    std::vector<Blob> blobs;
    std::vector<std::pair<int, FileId>> files;  // answers to kFile; 0: not a simulated file

    // The answer to a kRead.
    void supply(uint64_t at, std::span<const uint8_t> bytes);
    // The blob read from `address`, or nullptr.
    Blob* blob(uint64_t at);
    std::optional<FileId> file_of(int fd) const;
};

struct Caller {
    pid_t pid = 0;
    uid_t uid = 0;
    std::string name;  // comm, for the kernel log
};

// Largest parameter block that any known call has, with room to spare; longer ones are refused as the kernel does.
inline constexpr uint32_t kMaxBlob = 64 * 1024;

// `kind`: of request.file. Pure.
Need next_need(const Request& request, FileKind kind, const Layout& layout);

// Resolves NV_ESC_XFER_CMD: the escape and the argument that the call is really about.
struct Call {
    unsigned escape = 0;
    std::span<uint8_t> argument;
};
std::optional<Call> resolve_call(Request& request);

// Fields of unaligned wire structs.
template <typename T>
T load(std::span<const uint8_t> bytes, size_t offset = 0) {
    T value{};
    if (bytes.size() > offset)
        std::memcpy(&value, bytes.data() + offset, std::min(sizeof value, bytes.size() - offset));
    return value;
}
template <typename T>
void store(std::span<uint8_t> bytes, const T& value, size_t offset = 0) {
    if (bytes.size() > offset)
        std::memcpy(bytes.data() + offset, &value, std::min(sizeof value, bytes.size() - offset));
}

}  // namespace vuda::sim
