// What the simulated resource manager keeps behind the handles of a client.
//
// A handle names an Object; what several handles can share (through DUP_OBJECT, import, UVM) is a payload held by
// shared_ptr, so that the payload lives exactly as long as the real one: a TSG until its last duplicate, a VEID until
// its last context share.
#pragma once

#include <sys/types.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rm/abi.h"
#include "sim/model/engine.h"
#include "sim/rm/shared_memory.h"

namespace vuda::sim {

using rm::Handle;
using FileId = uint64_t;  // serial number of an open file; 0 is none

class Gpu;
struct Channel;
struct Client;

// Physical memory, mapped by programs and by VA spaces.
struct Memory {
    uint64_t bytes = 0;
    bool vidmem = false;
    bool doorbell = false;  // a usermode page: the GPU's own doorbell memory
    int gpu = -1;           // index; -1 for memory without a GPU
    std::shared_ptr<SharedMemory> store;
    std::shared_ptr<void> counted;  // while it lives, ResourceManager::counts() sees it
};

struct VaMapping {
    uint64_t length = 0;
    uint64_t offset = 0;  // into the memory
    std::shared_ptr<Memory> memory;
    std::weak_ptr<Memory> weak;  // instead of `memory`, only with rule uvm.map-keeps-memory switched off
    std::shared_ptr<Memory> held() const { return memory != nullptr ? memory : weak.lock(); }
};

struct VaSpace {
    int gpu = 0;
    bool external = false;    // page tables belong to UVM
    bool registered = false;  // with UVM: the page directory is set
    uint64_t base = 0;
    uint64_t limit = 0;                      // last address
    std::map<uint64_t, VaMapping> mappings;  // by address; RM's and UVM's
    std::map<uint64_t, uint64_t> reserved;   // address -> length, virtual memory objects of a VA space

    // First free, aligned address in [lo, hi] that holds `length` bytes, or nullopt.
    std::optional<uint64_t> find_free(uint64_t lo, uint64_t hi, uint64_t length, uint64_t alignment) const;
    bool overlaps(uint64_t address, uint64_t length) const;  // with a mapping
    bool overlaps_reserved(uint64_t address, uint64_t length) const;
    // The mapping that holds [address, address + length), or nullptr.
    const VaMapping* lookup(uint64_t address, uint64_t length, uint64_t* offset_in_memory) const;
};

// NV50_MEMORY_VIRTUAL or a virtual VID_HEAP allocation: where MAP_MEMORY_DMA puts things.
struct VirtualMemory {
    std::shared_ptr<VaSpace> vas;
    uint64_t base = 0;
    uint64_t length = 0;
    bool whole = false;  // the whole VA space, addresses are chosen per mapping
    ~VirtualMemory();
};

enum class ZcullMode : uint8_t { kUnbound, kNoCtxsw, kSeparateBuffer };

// A buffer in the VA space of VEID 0 that graphics state points at; the front end reads it for every subcontext.
struct ControlBuffer {
    uint64_t address = 0;
    uint64_t length = 0;
};

struct ErrorNotifier {
    std::shared_ptr<Memory> memory;
    uint64_t offset = 0;
};

struct Tsg {
    static constexpr size_t kVeids = 64;
    static constexpr size_t kMaxChannels = 128;

    uint32_t id = 0;
    int gpu = 0;
    Handle creator = 0;  // client that made it
    uint32_t engine = 0;
    std::bitset<kVeids> veids;          // taken
    std::bitset<kVeids> compute_ready;  // VEIDs that ran the compute set-up methods
    // Subcontexts beside VEID 0 and 1 that computed at some time: whose address space their VEID has now.
    struct Computed {
        std::weak_ptr<VaSpace> vas;
        bool ran = false;  // by whoever has the VEID now
    };
    std::map<uint32_t, Computed> computed;
    bool legacy = false;
    bool scheduled = false;
    bool dead = false;
    bool has_graphics = false;
    ZcullMode zcull = ZcullMode::kUnbound;
    std::vector<ControlBuffer> control_buffers;
    std::vector<Channel*> channels;   // of every client; each removes itself
    uint64_t timeslice_us = 1024;     // what RM gives; CUDA asks for twice as much
    std::optional<TsgId> engine_tsg;  // GR only
    std::shared_ptr<VaSpace> vas;     // legacy mode's; may be null
    std::optional<ErrorNotifier> notifier;
    Gpu* executor = nullptr;
    std::shared_ptr<struct ContextShare> legacy_shares[2];

    ~Tsg();
};

struct ContextShare {
    std::weak_ptr<Tsg> tsg;  // weak: the TSG keeps its legacy shares alive
    uint32_t veid = 0;
    std::shared_ptr<VaSpace> vas;
    bool returns_veid = true;
    ~ContextShare();
};

struct EngineObject {
    uint32_t cls = 0;
};

struct Channel {
    uint32_t id = 0;  // ChID, the token's low bits
    uint32_t runlist = 0;
    pid_t owner_pid = 0;
    Handle client = 0;
    Handle handle = 0;
    std::string owner_name;
    std::shared_ptr<Tsg> tsg;
    std::shared_ptr<ContextShare> share;
    std::shared_ptr<VaSpace> vas;
    uint32_t flags = 0;
    bool runqueue1 = false;
    bool scheduled = false;
    bool bound = false;  // UVM bound its context buffers
    bool dead = false;
    bool stopped = false;  // by UVM or its owner, before what it uses went away
    bool has_3d = false;
    bool has_compute = false;
    uint64_t gpfifo = 0;  // GPU VA
    uint32_t gpfifo_entries = 0;
    uint32_t gp_get = 0;
    std::shared_ptr<Memory> userd;
    uint64_t userd_offset = 0;
    std::optional<ErrorNotifier> notifier;
    std::optional<ChannelId> engine_channel;
    ChannelKind engine_kind = ChannelKind::kCompute;
    std::array<uint32_t, 8> subchannel_class{};  // SET_OBJECT
    struct {
        uint64_t address = 0;
        uint64_t payload = 0;
    } semaphore;

    uint32_t token() const { return (runlist << 16) | id; }
    ~Channel();
};

struct DeviceObject {
    int gpu = 0;
    std::shared_ptr<VaSpace> default_vas;  // made on first use
};

struct SubdeviceObject {
    int gpu = 0;
};

struct NoState {};  // classes that only exist: events, copy objects, display and profiler objects

using Payload = std::variant<NoState, DeviceObject, SubdeviceObject, std::shared_ptr<VaSpace>, std::shared_ptr<Memory>,
                             std::shared_ptr<VirtualMemory>, std::shared_ptr<Tsg>, std::shared_ptr<ContextShare>,
                             std::shared_ptr<Channel>, EngineObject, ErrorNotifier>;

struct Object {
    Handle handle = 0;
    Handle parent = 0;
    uint32_t cls = 0;
    Payload payload;
    std::vector<Handle> children;  // in order of allocation
};

struct Client {
    Handle handle = 0;
    FileId file = 0;
    pid_t pid = 0;
    uid_t uid = 0;
    std::string process_name;
    bool shared = false;                // RM_SHARE was called
    uint32_t next_handle = 0xcaf00000;  // RM's choice for hObjectNew == 0
    std::map<Handle, Object> objects;   // the client itself is objects[handle]
};

enum class FileKind : uint8_t { kControl, kGpu, kUvm, kUvmTools };

struct UvmExternalRange {
    uint64_t length = 0;
};

struct UvmChannel {
    Handle client = 0;
    Handle channel = 0;
    uint64_t base = 0;
    uint64_t length = 0;
    int gpu = 0;
    std::shared_ptr<Tsg> tsg;  // what UVM's retainer holds
    std::shared_ptr<ContextShare> share;
    std::weak_ptr<Channel> live;
};

// State behind one /dev/nvidia-uvm file.
struct UvmSpace {
    bool initialized = false;
    std::vector<int> gpus;
    std::map<int, std::shared_ptr<VaSpace>> vas;  // by GPU
    std::map<uint64_t, UvmExternalRange> ranges;  // by base
    std::vector<UvmChannel> channels;
    uint64_t range_groups = 0;
};

// Behind one /dev/nvidia-uvm-tools file.
struct EventQueue {
    std::shared_ptr<SharedMemory> control;  // the program's control page; null: none yet
    uint32_t places = 0;                    // events; one stays free
    uint64_t types = 0;                     // bit N: events of type N are wanted
};

struct File {
    FileId id = 0;
    FileKind kind = FileKind::kControl;
    int minor = 255;  // GPU index for kGpu
    pid_t opener = 0;
    FileId control = 0;  // REGISTER_FD
    std::vector<Handle> clients;
    std::optional<Payload> exported;
    uint32_t exported_class = 0;
    int exported_gpu = -1;
    std::pair<Handle, Handle> exported_from;  // only with rule export.keeps-alive switched off
    // What mmap of this file maps: set by MAP_MEMORY.
    struct {
        std::shared_ptr<Memory> memory;
        uint64_t offset = 0;
        uint64_t length = 0;
    } mapping;
    UvmSpace uvm;
    EventQueue events;
};

}  // namespace vuda::sim
