// Messages between a program's simulator preload (sim/preload) and vuda-simd: one SOCK_SEQPACKET packet each, host byte
// order, both ends from one build. A header, a fixed part by type, then bytes.
//
//   open   kOpen                                  -> kOpened, with the file's fd attached
//   ioctl  kIoctl, then while the answer is kNeedRead or kNeedFile: kSupplyRead or kSupplyFile
//                                                 -> kDone: what to return, what to write where
//   mmap   kMap                                   -> kMapped, with the memory's fd attached
//   other  kQuery                                 -> kAnswer: text
//
// Which simulated file a descriptor stands for is written in the name of the socket's peer (file_name below), so that
// it travels with the descriptor through dup, fork, exec and SCM_RIGHTS.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vuda::sim::protocol {

inline constexpr uint32_t kMagic = 0x31646d73;  // "smd1"
inline constexpr size_t kMaxPacket = 128 * 1024;

enum class Type : uint32_t {
    kOpen = 1,
    kOpened,
    kIoctl,
    kNeedRead,
    kNeedFile,
    kSupplyRead,
    kSupplyFile,
    kDone,
    kMap,
    kMapped,
    kQuery,
    kAnswer,
};

struct Header {
    uint32_t magic;
    Type type;
};

struct Open {
    Header header;
    uint32_t kind;  // 0 nvidiactl, 1 nvidiaN, 2 nvidia-uvm, 3 nvidia-uvm-tools
    int32_t minor;
};

struct Opened {
    Header header;
    int32_t error;  // errno, 0 with an fd attached
    uint32_t pad;
};

struct Ioctl {  // followed by the argument's bytes when the request's number gives its size
    Header header;
    uint64_t file;
    uint64_t number;
    uint64_t address;
};

struct NeedRead {
    Header header;
    uint64_t address;
    uint32_t length;
    uint32_t pad;
};

struct NeedFile {
    Header header;
    int32_t fd;
    uint32_t pad;
};

struct SupplyRead {  // followed by the bytes
    Header header;
    int32_t error;  // EFAULT: the address is not readable
    uint32_t pad;
};

struct SupplyFile {
    Header header;
    uint64_t file;  // 0: not a simulated file
};

struct Done {  // followed by `writes` times a Write with its bytes
    Header header;
    int32_t error;
    uint32_t writes;
};

struct Write {
    uint64_t address;
    uint32_t length;
    uint32_t pad;
};

struct Map {
    Header header;
    uint64_t file;
    uint64_t length;
};

struct Mapped {
    Header header;
    int32_t error;
    uint32_t pad;
    uint64_t offset;
};

enum class What : uint32_t {
    kVersionText = 1,  // /proc/driver/nvidia/version
    kLog,              // the simulated kernel log
    kCounts,           // "clients=... objects=... tsgs=... channels=... memories=... files=..."
    kGpus,             // number of GPUs
    kRules,            // one line a rule
    kReset,            // unwedge every GPU
    kBreakRule,        // text: a rule's name
    kFixRule,
    kInject,  // text: see ResourceManager::inject
    kStatus,  // "virtual_ns=... xids=... wedged=..."
    kFault,   // text: "XID@PID": ends every graphics-engine TSG that the process has a channel in; "stuck@PID",
              // "free@PID": ResourceManager::set_stuck
};

struct Query {  // followed by text
    Header header;
    What what;
    uint32_t pad;
};

struct Answer {  // followed by text
    Header header;
    int32_t error;
    uint32_t pad;
};

// Abstract socket names "\0vuda-sim:<instance>:<kind>:<minor>:<id>".
inline constexpr char kNamePrefix[] = "vuda-sim:";

struct FileName {
    uint32_t kind;
    int32_t minor;
    uint64_t id;
};

// Parses a peer name as getpeername() gave it (`length` bytes of sun_path). False when it is something else.
inline bool parse_file_name(const char* name, size_t length, FileName* out) {
    constexpr size_t kPrefix = sizeof kNamePrefix - 1;
    if (length < 1 + kPrefix || name[0] != '\0') return false;
    for (size_t i = 0; i < kPrefix; i++) {
        if (name[1 + i] != kNamePrefix[i]) return false;
    }
    size_t at = 1 + kPrefix;
    uint64_t fields[4] = {};
    for (int field = 0; field < 4; field++) {
        size_t digits = 0;
        while (at < length && name[at] >= '0' && name[at] <= '9' && digits < 20) {
            fields[field] = fields[field] * 10 + static_cast<uint64_t>(name[at] - '0');
            at++;
            digits++;
        }
        if (digits == 0) return false;
        if (field < 3) {
            if (at >= length || name[at] != ':') return false;
            at++;
        }
    }
    if (at != length || fields[1] > 3) return false;
    out->kind = static_cast<uint32_t>(fields[1]);
    out->minor = static_cast<int32_t>(fields[2]);
    out->id = fields[3];
    return true;
}

}  // namespace vuda::sim::protocol
