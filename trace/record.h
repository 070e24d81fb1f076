// What a trace holds: the calls that one process made on NVIDIA's device files. docs/trace-format.md describes the text
// form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vuda::trace {

// Limits of the format, which both sides enforce.
inline constexpr size_t kMaxBlock = 64 * 1024;  // bytes of one block
inline constexpr size_t kMaxLine = 512 * 1024;  // characters of one line
inline constexpr size_t kMaxName = 31;          // characters of a device file's name
inline constexpr size_t kMaxHeaderText = 200;   // characters of a header value
inline constexpr size_t kMaxRecords = 4'000'000;

// A block of the caller's memory, before and after the call.
struct Block {
    uint32_t size = 0;            // bytes the caller passed
    std::vector<uint8_t> before;  // the first before.size() of them were captured; never more than size
    std::vector<uint8_t> after;   // as many as before

    bool operator==(const Block&) const = default;
    bool whole() const { return before.size() == size; }
    bool empty() const { return size == 0; }
};

enum class Kind : uint8_t { kOpen, kClose, kDup, kMmap, kIoctl };

struct Record {
    uint64_t time_us = 0;  // since the start of the recording
    int32_t fd = -1;
    std::string device;  // base name of the device file: nvidiactl, nvidia0, nvidia-uvm, ...
    Kind kind = Kind::kIoctl;

    int32_t new_fd = -1;  // kDup

    uint64_t address = 0;  // kMmap
    uint64_t length = 0;   // kMmap
    uint64_t offset = 0;   // kMmap
    uint32_t prot = 0;     // kMmap
    uint32_t flags = 0;    // kMmap

    uint64_t request = 0;  // kIoctl: as passed to ioctl(2)
    int32_t error = 0;     // kIoctl, kMmap, kOpen: 0, or the errno value with which the call failed
    Block arg;             // kIoctl
    Block params;          // kIoctl: the block that arg points to; empty when there is none, or none that was captured

    bool operator==(const Record&) const = default;
    bool is_uvm() const { return device == "nvidia-uvm"; }
    bool is_control() const { return device == "nvidiactl"; }
    bool is_gpu() const {  // nvidia0, nvidia1, ...
        return device.size() > 6 && device.compare(0, 6, "nvidia") == 0 && device[6] >= '0' && device[6] <= '9';
    }
};

struct Header {
    std::string driver;  // "580.159.04"; empty when not known
    std::string program;
    uint32_t pid = 0;
    std::vector<std::string> notes;

    bool operator==(const Header&) const = default;
};

struct Trace {
    Header header;
    std::vector<Record> records;

    bool operator==(const Trace&) const = default;
};

}  // namespace vuda::trace
