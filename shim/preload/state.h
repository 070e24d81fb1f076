// What the redirector remembers. Handles mean something only together with their client, as in RM.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "rm/abi.h"
#include "shim/preload/redirector.h"

namespace vuda::shim {

using Bytes = std::span<const uint8_t>;

inline constexpr uint64_t kPage = 4096;  // what addresses and lengths of mappings are multiples of

// An address space; DUP_OBJECT makes several handles name one.
struct VaSpace {
    bool external = false;  // page tables belong to UVM: a CUDA client's
    FileId uvm = 0;         // the file it is registered with; 0 = not (any more)
    uint64_t base = 0;      // where CUDA's own memory begins; 0: it has none yet
    Uuid gpu;
    // Control buffers of a renderer that are mapped here, by address. They serve every context in this address space
    // that shares; the last of these takes them away.
    MirrorTable mirrors;
    unsigned mirror_users = 0;
    unsigned leaving = 0;  // of these, on their way out: planned and not yet ended
    // One merge or end of a merge at a time: between its plan and its outcome the mirrors are being made or taken away,
    // and who counts users meanwhile counts wrong.
    bool merging = false;
    bool awaiting = false;     // merging, and nothing is done yet: vudad is being asked
    bool updating = false;     // the mirrors are following the renderer's
    bool by_transfer = false;  // the renderer is in this process, and its buffers come by an export all the same

    bool busy() const { return merging || updating; }
};

struct Ctxshare {
    uint32_t tsg = 0;
    uint32_t va_space = 0;
    uint32_t flags = 0;  // as the program gave them
    uint32_t veid = 0;   // as RM reported
    bool moved = false;
};

struct Channel {
    uint32_t tsg = 0;
    bool moved = false;
    uint32_t error_notifier = 0;  // memory, or a context DMA over some; 0: none
    uint64_t order = 0;           // of creation, over all clients
};

// Part of a memory object with a handle of its own: how Vulkan names error notifiers.
struct ContextDma {
    uint32_t memory = 0;
    uint64_t offset = 0;
};

// CUDA's TSG whose channels run in a renderer's.
struct Merge {
    uint32_t shared = 0;    // the renderer's TSG, in CUDA's client
    uint32_t ctxshare = 0;  // made by us (partial, legacy); 0 in the usual case, where CUDA's own one moves
    bool partial = false;   // only the first `limit` channels move
    uint32_t limit = UINT32_MAX;
    uint32_t moved = 0;  // channels moved so far, freed ones included
    uint32_t veid = 0;
    uint64_t veids = 0;           // bit N: taken besides, so that none is nobody's (take_stale)
    std::vector<uint32_t> taken;  // their context shares
    uint32_t buffers = 0;
    bool attach = false;     // the TSG came from vudad
    bool turn_open = false;  // the channels were not scheduled yet
    bool bootstrapped = false;
    uint64_t started_ns = 0;
    FileId uvm = 0;
    std::shared_ptr<VaSpace> va_space;

    uint64_t veids_had() const { return veids | uint64_t{1} << veid; }
};

struct Tsg {
    enum class Stage : uint8_t { kOpen, kMerging, kMerged, kNative };
    uint32_t device = 0;
    uint32_t va_space = 0;
    uint32_t error_notifier = 0;
    uint64_t order = 0;  // of creation, over all clients
    bool graphics_engine = false;
    bool has_3d = false;
    bool legacy = false;           // first channel came without a context share: RM takes no further one
    bool saves_zcull = false;      // its zcull buffer is saved per context switch: CUDA's first kernel would fault
    uint32_t injected = 0;         // our VEID 0 context share in a TSG that would have been legacy
    uint32_t injected_thread = 0;  // and VEID 1
    Stage stage = Stage::kOpen;
    std::unique_ptr<Merge> merge;
};

struct DmaMapping {
    uint32_t device = 0;
    uint32_t dma = 0;
    uint32_t memory = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    std::shared_ptr<const VaSpace> space = nullptr;  // that it is in; null: not known
    uint64_t order = 0;  // of mapping, over all clients: handles and addresses are used again, this is not
};

// By GPU virtual address, and by the objects that a mapping ends with.
class DmaMappings {
 public:
    const std::map<uint64_t, DmaMapping>& by_address() const { return by_address_; }
    auto begin() const { return by_address_.begin(); }
    auto end() const { return by_address_.end(); }
    size_t size() const { return by_address_.size(); }
    bool empty() const { return by_address_.empty(); }

    // Takes the place of what is there: RM maps nothing over another mapping, so its end went by unseen.
    const DmaMapping& put(uint64_t va, DmaMapping mapping);
    bool erase(uint64_t va);
    // Addresses of the mappings of that memory, or through that DMA object.
    std::vector<uint64_t> of(uint32_t object) const;

 private:
    std::map<uint64_t, DmaMapping> by_address_;
    std::set<std::pair<uint32_t, uint64_t>> by_object_;  // memory and DMA objects, address
};

struct Client {
    FileId file = 0;
    std::map<uint32_t, uint32_t> devices;     // handle -> RM's device instance
    std::map<uint32_t, uint32_t> subdevices;  // handle -> device
    std::map<uint32_t, std::shared_ptr<VaSpace>> va_spaces;
    std::map<uint32_t, uint32_t> va_space_device;
    std::map<uint32_t, Tsg> tsgs;
    std::map<uint32_t, Ctxshare> ctxshares;
    std::map<uint32_t, Channel> channels;
    std::map<uint32_t, ContextDma> context_dmas;
    std::set<uint32_t> partitions;                // MIG instances that it works in
    std::set<uint32_t> virtual_gpus;              // devices that are a guest's part of a GPU
    std::map<uint32_t, uint32_t> virtual_memory;  // addresses that were reserved: handle -> VA space
    DmaMappings mappings;                         // GPU virtual addresses below the mirror rule's limit

    bool has_handle(uint32_t handle) const;
    size_t size() const;
};

// A renderer TSG whose control buffers others hold.
struct Followed {
    uint32_t client = 0;
    uint32_t tsg = 0;
    uint64_t order = 0;                    // of the TSG; 0: none is followed
    std::shared_ptr<const VaSpace> space;  // that it runs in; null: not known
    ToldBuffers buffers;
};

struct Redirector::State {
    const rm::DriverAbi* abi = nullptr;
    Options options;
    Wishes wishes;
    Refusal stopped;
    std::map<uint32_t, Client> clients;
    // Of the renderer's TSG in this process, which is this one (Host): bit N: somebody computed in subcontext N; and
    // another process has it.
    uint64_t computed = 0;
    uint64_t others_have = 0;
    uint64_t computed_order = 0;
    std::vector<Notice> notices;
    uint32_t handles_made = 0;
    uint64_t tsgs_made = 0;
    uint64_t channels_made = 0;
    uint64_t mappings_made = 0;
    uint64_t last_change_ns = 0;
    bool settled = false;
    bool confidential = false;      // RM said that confidential computing is on
    uint32_t announced_client = 0;  // kHost was sent for it
    uint64_t dead_host = 0;         // order of the renderer's TSG that died; 0: none did
    Followed exported;              // what other processes hold
    Followed local;                 // what this process's own CUDA contexts hold
    mutable uint64_t looks = 0;     // calls of covers()

    // --- looking up (state.cc) ---
    Client* client(uint32_t handle);
    Tsg* tsg(uint32_t client, uint32_t handle);
    VaSpace* va_space(uint32_t client, uint32_t handle);
    uint32_t fresh_handle(const Client& client);
    const Tsg* host_tsg(uint32_t* client, uint32_t* handle) const;
    Host host() const;
    Host host_only() const;
    Host host_of(uint32_t client, uint32_t handle, const Tsg& tsg) const;  // without buffers
    bool covers(const Client& owner, const Tsg& tsg, uint64_t va, const DmaMapping& mapping) const;
    // What `mapping` adds to control buffers that end at `end`: whole pages; nothing if it is none, or adds none.
    std::optional<HostBuffer> control_buffer(const Client& owner, const Tsg& tsg, uint64_t va,
                                             const DmaMapping& mapping, uint64_t end) const;
    Subdevice sharing_subdevice() const;
    std::vector<Notifier> notifiers() const;
    uint32_t channels_in(uint32_t client, uint32_t tsg) const;
    void host_changed(uint64_t now_ns);
    void announce_host();
    void notice(Notice::Kind kind, const Refusal& refusal);

    // --- remembering what RM did (track.cc) ---
    void track(const Call& call, const Outcome& outcome);
    void track_alloc(const Call& call, const Outcome& outcome);
    void track_control(const Call& call, const Outcome& outcome);
    void track_uvm(const Call& call, const Outcome& outcome);
    void unmapped(uint32_t client, uint64_t va);
    void forget_object(uint32_t client, uint32_t object);
    void forget_tsg(Client& client, uint32_t handle);
    void forget_client(uint32_t client);

    // --- deciding (merge.cc) ---
    Plan merge(const Call& call, uint32_t client, uint32_t tsg, uint32_t va_space, bool legacy);
    // Why nothing of this client may share, whoever the renderer is.
    Refusal unfit(const Client& client, const Tsg& tsg) const;
    Plan merge_with(const Call& call, Plan plan, const Host* host, const Offer* offer);
    bool finish_merge(const Plan& plan, std::span<const ActionResult> results);
    void mark_moved(const Call& call, const Outcome& outcome, const Intent& intent);
    void scheduled(const Intent& intent, uint32_t status);
    // What the caller gets instead of sharing: its own call, or an error where sharing is required.
    Plan decline(const Call& call, const Intent& intent, const Refusal& why, bool turn_open);
    void stop_merging(const Intent& intent);
    void end_merge(Tsg* tsg, const Refusal& why);
    Plan back_to_native(const Call& call, uint32_t client, uint32_t tsg, const Refusal& why);
    void clean_up(uint32_t client, uint32_t tsg, std::vector<Action>* objects, std::vector<Action>* ranges);

    // --- what others hold of a renderer's control buffers (follow.cc) ---
    void follow(Followed& followed, uint64_t order);
    // Its TSG, with everything that changed; null when it is gone.
    const Tsg* current(Followed& followed);
    // The mapping at `va` came or went.
    void mapping_changed(uint32_t client, uint64_t va);
    void mapping_changed(Followed& followed, uint64_t va);

    // --- following (mirror.cc) ---
    MirrorWork begin_mirror(const MirrorUpdate& update, const MirroredSpaces& handled, bool local);
    std::vector<Action> mirror_actions(const Client& owner, uint32_t client, const Tsg& tsg, const VaSpace& space,
                                       const OfferedBuffer& buffer, const Host* host);
    std::vector<Action> end_mirror(const MirrorWork& work, const std::vector<bool>& done);

    // --- subcontexts (veids.cc) ---
    std::optional<uint32_t> take_stale(Client& owner, uint64_t stale, uint64_t unknown, Plan& plan);
    uint64_t host_order() const;
    void same_host();
    // Of contexts that share this process's renderer's TSG, or the one that was attached to.
    uint64_t sharing_veids(bool attached) const;
    uint32_t sharing_channels(bool attached) const;
    uint64_t stale_veids() const;

    // --- rewriting (rewrite.cc) ---
    Plan answer_ok(const Call& call) const;
    Plan before_alloc(const Call& call);
    Plan before_control(const Call& call);
    // `impatient`: another merge in the same address space took too long; go on beside it.
    Plan before_free(const Call& call, bool impatient = false);
    Plan before_uvm(const Call& call);
    static bool frees(const rm::FreeArgs& args, uint32_t tsg_handle, const Tsg& tsg);
    void forget_freed(const rm::FreeArgs& args);
    Plan inject(const Call& call, uint32_t client, uint32_t tsg);
    Plan per_channel(const Call& call, const rm::ControlArgs& args, uint32_t tsg_handle, Tsg& tsg);
    void move_ctxshare(uint32_t shared, std::optional<uint32_t> veid, Bytes params, Plan* plan) const;
    void move_channel(const Tsg& tsg, uint32_t shared, uint32_t ctxshare, Bytes params, Plan* plan) const;
};

}  // namespace vuda::shim
