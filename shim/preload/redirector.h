// Decides what happens to every ioctl that a process makes on NVIDIA's device files, so that CUDA's graphics-engine
// channels end up in a renderer's TSG. Pure: no I/O, no clock, no globals, not thread-safe (its owner locks around each
// call and never across an ioctl). The rules and their reasons: README.md in this folder.
//
// One ioctl goes through like this (call_runner.h is the loop):
//
//     plan = before(call)
//       kAttach  -> ask vudad for the TSG, then plan = attached(plan, call, offer)
//       kWait    -> another thread merges in the same address space: when it is through, start over; after too long,
//                   plan = attached(plan, call, {})
//       kForward -> run plan.before; a failure: undo, plan = refused(plan, call, ...), start over
//                   forward with plan.edits applied to a private copy; follow = after(plan, call, outcome)
//       kAnswer  -> run plan.before; the caller gets plan.status (or the first failure); follow = after(...)
//     follow is a plan again, until it is kDone
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/uuid.h"
#include "rm/driver_table.h"
#include "shim/preload/action.h"
#include "shim/preload/mirror_rule.h"
#include "shim/preload/mirror_table.h"
#include "shim/preload/reason.h"
#include "shim/preload/told_buffers.h"
#include "shim/preload/turn_slice.h"

namespace vuda::shim {

enum class FileRole : uint8_t { kOther, kControl, kGpu, kUvm };  // other, nvidiactl, nvidiaN, nvidia-uvm

// An ioctl as the program made it. The spans hold copies of the caller's memory; `params` is the block that the
// argument points to (allocation or control parameters), empty when there is none or its size is not known.
struct Call {
    FileId file = 0;
    FileRole role = FileRole::kOther;
    uint32_t request = 0;  // as passed to ioctl(2)
    uint64_t now_ns = 0;   // CLOCK_MONOTONIC
    std::span<const uint8_t> arg;
    std::span<const uint8_t> params;
    // The calling thread makes a context that is to share with nobody, whatever was asked for.
    bool unshared = false;
    bool* maps_control = nullptr;  // out: after() sets it when the call mapped a control buffer of a renderer
};

// What the kernel made of it: same sizes as in the Call, after the ioctl.
struct Outcome {
    int result = 0;  // ioctl's return value
    std::span<const uint8_t> arg;
    std::span<const uint8_t> params;
};

// One field of the private copy that the kernel sees changed. The caller's own memory gets back, for this field,
// (kernel's value & ~keep) | (caller's value & keep): the caller sees what RM reported and nothing of ours.
struct Edit {
    enum class Where : uint8_t { kArg, kParams };
    Where where = Where::kArg;
    uint16_t offset = 0;  // bytes; offset + size lies within the block
    uint8_t size = 4;     // 4 or 8
    uint64_t value = 0;
    uint64_t keep = ~uint64_t{0};
};

// A TSG with its control buffers, offered by vudad. fds stay the caller's.
struct Offer {
    bool ok = false;  // false: nothing to attach to; the program runs natively
    int tsg_fd = -1;
    uint32_t channels_in_use = 0;
    std::vector<OfferedBuffer> buffers;
    uint64_t stale_veids = 0;    // bit N: subcontext N is to be taken
    uint64_t unknown_veids = 0;  // bit N: likewise, if it can be had
};

struct AttachWish {
    Uuid gpu;
    uint32_t channels = 0;    // GR channels that will move, 1..128
    uint64_t started_ns = 0;  // when the program's call began: patience counts from there
    uint64_t va_base = 0;     // lowest GPU virtual address that CUDA uses; 0: none seen
};

struct Subdevice {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t object = 0;
};

// Where the driver writes that a channel of a shared TSG died: an rm::Notification, `offset` bytes into a memory
// object.
struct Notifier {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t memory = 0;
    uint64_t offset = 0;
    uint64_t order = 0;  // of the channel, never used again
    uint64_t tsg = 0;    // order of its TSG in this process
    bool host = false;   // the TSG is this process's renderer's; else one that vudad handed over

    bool operator==(const Notifier&) const = default;
};

// Sent to the owner of the redirector, outside of any plan: things that libvuda.so or stderr should know.
struct Notice {
    enum class Kind : uint8_t {
        kHost,        // this process has a renderer TSG now: look up the GPU's UUID and register the name
        kAttachDone,  // channels moved and run (`moved`, `veid`, `buffers`), or an attach turn failed (refusal)
        kDetached,    // a CUDA context went away, or sharing ended; `moved`, `veids`: of those that go on in that TSG
        kUnshared,    // this process was asked to share and does not: refusal says why
        kNote,        // shares, with a remark (refusal)
    };
    Kind kind = Kind::kNote;
    FileId file = 0;         // kHost
    uint32_t client = 0;     // kHost
    uint32_t subdevice = 0;  // kHost; 0 when the client has none
    bool turn = false;       // kAttachDone: vudad admitted this attach and waits for its end
    bool attach = false;     // kDetached: the TSG is one that vudad handed over
    uint32_t moved = 0;
    uint32_t veid = 0;
    uint64_t veids = 0;  // bit N: subcontext N is its: that one, and those taken besides
    uint32_t buffers = 0;
    uint64_t started_ns = 0;  // kAttachDone: when the attach began
    Refusal refusal;
};

// What this process was asked to do (environment and vuda.h); read again before each decision.
struct Wishes {
    bool share_renderer = false;    // offer the renderer's TSG to others: VUDA_REGISTER
    bool share_in_process = false;  // move CUDA's channels into this process's own renderer TSG
    bool attach = false;            // move them into a TSG that vudad knows
    bool require = false;           // a CUDA context that cannot share fails instead of running natively
    uint32_t reserve = UINT32_MAX;  // GR channels to move; UINT32_MAX = all, 0 = none
    uint32_t cuda_channels = 8;     // GR channels that CUDA is about to make: 8, or CUDA_DEVICE_MAX_CONNECTIONS (1..32)
    Refusal unfit;                  // why nothing of this process can share (surroundings.h)
    bool any() const { return share_renderer || share_in_process || attach; }
    bool operator==(const Wishes&) const = default;
};

struct Options {
    // A part of CUDA's channels may move only where CUDA's start-up compute methods can be repeated on the new
    // subcontext (bootstrap.h). Without that, a partial reservation moves all channels and says so.
    bool bootstrap = false;
    // UVM_REGISTER_CHANNEL of a channel moved alone: a window is shared within one TSG only, so it needs another than
    // CUDA's.
    uint64_t partial_window = 0x3'8000'0000;
    uint32_t tsg_channels_max = 128;  // kchangrpAddChannel's limit
    MirrorRule mirror_rule;
    uint64_t settle_ns = 250'000'000;  // a renderer that made no new TSG, channel or 3D object for this long is set up
    uint32_t first_handle =
        0x5ada0000;  // handles that the shim makes: a range that neither NVIDIA's user-mode drivers nor RM use
};

// The redirector's own memory of a plan; opaque to others.
struct Intent {
    enum class Kind : uint8_t { kNone, kMerge, kMoveCtxshare, kMoveChannel, kInject, kSchedule, kFree, kOldWay };
    Kind kind = Kind::kNone;
    bool transfer = false;  // kMerge: control buffers go through an export, since RM denied the direct way
    bool attach = false;    // kMerge: the TSG came from vudad, whose turn must be ended
    bool partial = false;   // kMerge
    bool legacy = false;    // kMerge: CUDA's TSG has no context share of its own; ctxshare is ours
    uint32_t client = 0;
    uint32_t tsg = 0;
    uint32_t va_space = 0;  // kMerge: CUDA's
    uint32_t shared = 0;    // kMerge: the renderer's TSG in CUDA's client
    uint32_t ctxshare = 0;  // kMerge, kInject: made by us
    uint32_t buffers = 0;
    uint32_t limit = UINT32_MAX;
    uint64_t started_ns = 0;
};

struct Plan {
    enum class Disposition : uint8_t { kForward, kAnswer, kAttach, kWait, kDone };
    enum class OnFailure : uint8_t {
        kUndo,    // undo what `before` did so far, then ask refused()
        kIgnore,  // clean-up: go on
        kAnswer,  // the rest still runs, then the caller gets the first failing status and nothing is forwarded
    };
    Disposition disposition = Disposition::kForward;
    OnFailure on_failure = OnFailure::kIgnore;
    uint32_t status = 0;         // kAnswer: NV_STATUS for the caller
    uint16_t status_offset = 0;  // kAnswer: where the argument block holds it
    AttachWish attach;           // kAttach
    std::vector<Action> before;
    std::vector<Edit> edits;
    std::vector<Action> after;  // clean-up once the call was forwarded; failures are ignored
    Intent intent;

    bool passes_through() const {
        return disposition == Disposition::kForward && before.empty() && edits.empty() && after.empty();
    }
};

// The renderer's side of an export: what to export through which file.
struct Host {
    FileId file = 0;
    uint32_t client = 0;
    uint32_t device = 0;
    uint32_t device_instance = 0;  // RM's number; equal for all clients of one GPU
    uint32_t subdevice = 0;        // 0: the client has none
    uint32_t va_space = 0;
    uint32_t tsg = 0;
    uint32_t ctxshare = 0;         // VEID 0; 0: it has none
    uint64_t order = 0;            // number of the TSG, never used again
    Reason unfit = Reason::kNone;  // why it cannot be shared
    uint32_t channels = 0;         // in the TSG, moved ones of this process included
    uint64_t settled_at_ns = 0;    // export not before this time (0: now)
    std::vector<HostBuffer> buffers;

    // An export of one is as good as an export of the other, if their buffers are.
    bool same_tsg(const Host& other) const {
        return client == other.client && order == other.order && channels == other.channels;
    }
};

// One address space that takes a MirrorUpdate over: what is to be done, step by step.
struct MirrorWork {
    enum class State : uint8_t {
        kNone,   // no address space needs it (any more)
        kBusy,   // one does, and a merge or the end of a merge is at work there: when that has ended, ask again
        kReady,  // run each step's actions in order, undo those of a step that fails, go on; then end_mirror
    };
    struct Step {
        bool drop = false;
        MirrorRange range;
        std::vector<Action> actions;
    };
    State state = State::kNone;
    std::shared_ptr<void> space;
    std::vector<Step> steps;
};
using MirroredSpaces = std::vector<std::shared_ptr<void>>;

class Redirector {
 public:
    // `abi` outlives the redirector (rm/driver_table.h has constants).
    explicit Redirector(const rm::DriverAbi& abi, Options options = {});
    ~Redirector();
    Redirector(const Redirector&) = delete;
    Redirector& operator=(const Redirector&) = delete;

    // Wishes apply from the next decision on; contexts that share already keep sharing.
    void set_wishes(const Wishes& wishes);
    const Wishes& wishes() const;
    // The name to register has changed: kHost again, for the TSG that exists.
    void announce_again();

    Plan before(const Call& call);
    Plan attached(const Plan& plan, const Call& call, const Offer& offer);
    // `failed` = index into plan.before; results holds one entry for each action that ran. The runner has undone them.
    Plan refused(const Plan& plan, const Call& call, size_t failed, std::span<const ActionResult> results);
    Plan after(const Plan& plan, const Call& call, const Outcome& outcome, std::span<const ActionResult> results);

    // The owner gives a plan up half-way (its own failure, e.g. out of memory) and forwards the call as it came.
    void abandoned(const Plan& plan);

    // The last descriptor of a file was closed: RM frees the clients that were made through it. What comes back is
    // clean-up for the files that are still open.
    std::vector<Action> file_closed(FileId file);

    // The Vulkan layer saw vkCreateDevice return: the newest TSG with a 3D object is the queue's.
    void device_created();
    // Sharing stops for contexts made from now on (vudad's DetachCommand).
    void stop_sharing(const Refusal& why);

    // The renderer TSG to share, or client == 0. Buffers are those mapped now.
    Host host() const;
    // The same without the buffers, which may be thousands.
    Host host_only() const;

    // ---- telling other processes of the renderer's control buffers ----
    // They hold exactly `buffers` of the TSG of that order (Host::order). What changes from then on is kept for them,
    // until they are told of another TSG.
    void told(uint64_t order, const std::vector<HostBuffer>& buffers);
    // That TSG without its buffers; client == 0 when it is gone.
    Host told_host();
    // ToldBuffers' functions; nothing, and false, when the TSG is gone.
    HostDelta untold(size_t added, size_t removed);
    HostDelta untold_rest(size_t removed);
    bool is_untold(const HostBuffer& buffer);
    bool all_told();
    void told(const HostDelta& change);

    // ---- following the renderer's control buffers while channels are in its TSG ----
    // The next address space that takes `update` over. `handled`: those that did. `local`: the update is of this
    // process's own renderer, fds are its memory handles; else it came from vudad.
    MirrorWork begin_mirror(const MirrorUpdate& update, const MirroredSpaces& handled, bool local);
    // `done[i]`: step i succeeded. What comes back is clean-up: the address space left meanwhile.
    std::vector<Action> end_mirror(const MirrorWork& work, const std::vector<bool>& done);
    // No context shares in that address space any more.
    static bool has_left(const MirrorWork& work);
    // A context is about to share a TSG that vudad hands over: what comes meanwhile must be kept for it.
    bool attaching() const;
    // CUDA's channels are in the TSG of this process's own renderer.
    bool shares_locally() const;
    // What this process's renderer mapped and not all of those have, as an update for them, and that they took it over.
    MirrorUpdate local_update(HostDelta* change);
    void local_told(const HostDelta& change);

    // ---- subcontexts (VEIDs), bit N for subcontext N ----
    // Of the TSG of this process's renderer: other processes have `taken`, and `stale` are nobody's.
    void others_subcontexts(uint64_t taken, uint64_t stale);
    // Likewise: what this process's own contexts have, and what nobody has in which somebody computed.
    std::pair<uint64_t, uint64_t> own_subcontexts() const;

    // The renderer's TSG, and whether anybody shares it.
    TurnSlice::Tsg turn_tsg() const;

    // The subdevice of a context whose channels are in a shared TSG, or client == 0.
    Subdevice sharing_subdevice() const;

    // Of the channels that are in a shared TSG or in the renderer's.
    std::vector<Notifier> notifiers() const;
    // The renderer's TSG, the one of that order, is dead: the next one is registered again.
    void host_died(uint64_t order);

    std::vector<Notice> take_notices();

    // Number of tracked objects of every kind; 0 once everything was freed.
    size_t tracked() const;
    // How often a mapping was looked at so far, to see whether it is a control buffer; for tests.
    uint64_t looks() const;

 private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace vuda::shim
