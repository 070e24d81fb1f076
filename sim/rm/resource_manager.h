// The simulated resource manager: answers the ioctls of /dev/nvidiactl, /dev/nvidiaN, /dev/nvidia-uvm and
// /dev/nvidia-uvm-tools as the real one does.
//
// A library without I/O and threads: the caller (vuda-simd, or a test) opens files, hands in complete requests and
// closes files. Every check that a real driver makes is one rule of rm/rules.h, cited where it is made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/gpu/gpu.h"
#include "sim/rm/kernel_log.h"
#include "sim/rm/layout.h"
#include "sim/rm/objects.h"
#include "sim/rm/request.h"
#include "sim/rm/rules.h"

namespace vuda::sim {

// What an ioctl returns. error 0: the call returns 0, and its status field in the argument says the rest.
struct Outcome {
    int error = 0;
};

// What mmap of a simulated file maps.
struct MapOutcome {
    int error = 0;  // errno
    std::shared_ptr<SharedMemory> memory;
    uint64_t offset = 0;
};

class ResourceManager {
 public:
    struct Config {
        Layout layout;
        std::vector<std::string> presets = {"h200"};  // one GPU each (sim/model/topology.h)
    };

    // Errors: kNotFound for an unknown preset.
    static Result<std::unique_ptr<ResourceManager>> make(Config config);
    ~ResourceManager();
    ResourceManager(const ResourceManager&) = delete;
    ResourceManager& operator=(const ResourceManager&) = delete;

    Rules& rules() { return rules_; }
    KernelLog& log() { return log_; }
    const Layout& layout() const { return config_.layout; }
    size_t gpu_count() const { return gpus_.size(); }
    Gpu& gpu(size_t index) { return *gpus_[index]; }

    // `minor`: the GPU for kGpu, else ignored. 0 when there is no such GPU.
    FileId open(FileKind kind, int minor, const Caller& caller);
    // The last reference to the open file is gone.
    void close(FileId file);
    const File* file(FileId id) const;

    // `request` must be complete (next_need). Arguments and blobs are updated in place.
    Outcome ioctl(const Caller& caller, Request& request);
    // mmap(2) of `length` bytes of the file.
    MapOutcome map(FileId file, uint64_t length);

    // A doorbell was rung with this token.
    void doorbell(size_t gpu, uint32_t token);
    // Looks at every scheduled channel for new work: for programs that only write the doorbell.
    void poll_channels();

    // Makes later calls fail: "alloc:CLASS=STATUS", "ctl:COMMAND=STATUS" or "esc:ESCAPE=STATUS" (hexadecimal), with
    // "@N" behind it the Nth such call only, else every one; "clear" forgets all. False when the text is none of these.
    bool inject(std::string_view text);

    // A kernel of that process repeats its page faults from now on, or no longer: who counts replays sees it, and when
    // the process ends the GPU ends its TSGs with Xid 31. False: it has no graphics-engine channel; it was not stuck.
    bool set_stuck(pid_t pid, bool stuck);
    bool any_stuck() const { return !stuck_.empty(); }
    void count_replays(uint64_t replays);

    // Everything allocated by clients, and what is kept alive behind their backs; all 0 when no file is open.
    struct Counts {
        size_t clients = 0;
        size_t objects = 0;  // clients not counted
        size_t tsgs = 0;
        size_t channels = 0;
        size_t memories = 0;
        size_t files = 0;
        bool operator==(const Counts&) const = default;
    };
    Counts counts() const;
    // Handles and classes of a client's objects, itself included; empty for an unknown client.
    std::vector<std::pair<Handle, uint32_t>> objects_of(Handle client) const;
    // Looks whether the bookkeeping is consistent: "" or what is not. For tests.
    std::string audit() const;

 private:
    friend class RmCall;
    explicit ResourceManager(Config config) : config_(std::move(config)) {}

    Config config_;
    Rules rules_;
    KernelLog log_;
    std::vector<std::unique_ptr<Gpu>> gpus_;
    std::map<FileId, File> files_;
    std::map<Handle, std::unique_ptr<Client>> clients_;
    FileId next_file_ = 1;
    Handle next_client_ = 0xc1d00001;
    uint32_t next_tsg_ = 1;
    struct Injection {
        char kind = 'a';  // a: RM_ALLOC by class, c: RM_CONTROL by command, e: any other escape by number
        uint32_t number = 0;
        uint32_t status = 0;
        uint32_t nth = 0;  // 0: every call
        uint32_t seen = 0;
    };
    std::optional<uint32_t> injected(char kind, uint32_t number);
    void end_stuck(const File& closing);
    std::vector<Injection> injections_;
    std::set<pid_t> stuck_;
    std::shared_ptr<size_t> live_memories_ = std::make_shared<size_t>(0);
};

}  // namespace vuda::sim
