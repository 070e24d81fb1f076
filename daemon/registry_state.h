// The registry's records. Included by its sources only.
#pragma once

#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "daemon/registry.h"

namespace vuda::daemon {

struct Registry::Session {
    SessionId id = 0;
    Peer peer;
    Transport transport = Transport::kFrames;
    SessionSink* sink = nullptr;
    std::string program;
    std::string client_version;
    std::string driver_version;
    uint64_t features = 0;  // that both sides offer
    TimePoint since;
    TimePoint heard;                 // when it last said anything
    std::optional<TimePoint> asked;  // Ping went out, and nothing came since
    bool silent = false;             // an owner that did not answer

    std::string owned;  // name it registered; empty: none
    v1::SharingState state = v1::SHARING_STATE_IDLE;
    std::optional<Error> reason;

    // As attacher. `tsg` outlives the name: channels stay in a TSG whose owner went away.
    std::string attached_name;
    uint64_t tsg = 0;      // 0: not attached
    bool compute = false;  // has asked to attach at least once
    uint32_t channels_moved = 0;
    uint32_t veid = 0;
    uint32_t control_buffers = 0;
    uint32_t attach_us = 0;

    // Mirrors of control buffers. Of which TSG it was given the set; the newest change it was sent; it missed a
    // deadline, and did not catch up yet.
    uint64_t mirror_of = 0;
    uint64_t mirror_sent = 0;
    uint64_t mirror_done = 0;  // of these, the newest that it answered
    // A whole set that it was sent: its number, and how many parts of it are not answered.
    uint64_t mirror_set = 0;
    uint32_t mirror_parts = 0;
    bool mirror_late = false;

    std::string attach_name;  // that it will attach to, as it said at first
    uint32_t va_slot = 0;     // among those that said the same
    uint64_t va_base = 0;     // where CUDA's addresses begin (AttachRequest); 0: not known
    std::string pending;      // name it waits for or has its turn on; empty: none
    // A turn that was taken away after AttachReply: the import may finish all the same, and then its channels count.
    struct Overdue {
        std::string name;
        uint64_t tsg = 0;
        uint32_t channels = 0;
    };
    std::optional<Overdue> overdue;
    // What a program said that attached to an earlier life of this daemon, or has in a TSG whose owner lost its name.
    // Its channels count once the name is there (again).
    struct Claim {
        std::string name;
        uint32_t channels = 0;
        uint64_t veids = 0;
        TimePoint until;
        // Of a name that was lost: its owner, which may bring it back, and what we called the TSG.
        ProcessKey owner{};
        uint64_t tsg = 0;
    };
    std::optional<Claim> claim;

    // Its TSG died, and this is what it was called. Until it shares or owns one again.
    std::string dead_name;
    // It shares, and says that the GPU repeats page faults. Until it leaves.
    struct Stuck {
        TimePoint since;
        std::string text;
    };
    std::optional<Stuck> stuck;
    uint32_t fault_reports = 0;  // within the window
    uint32_t stuck_reports = 0;  // likewise: one that is stuck again and again can still say that its TSG died
    TimePoint fault_window;

    // The split, as far as this process can follow it.
    std::unique_ptr<SessionPage> page;
    v1::Backend backend = v1::BACKEND_UNSPECIFIED;
    std::optional<Error> backend_reason;
    uint32_t shared_limit = 0;  // its kernels that want more shared memory a block are refused; 0: none is
    v1::OverLimit over_limit = v1::OVER_LIMIT_UNSPECIFIED;  // what becomes of those
    uint64_t native_launches = 0;                           // they ran in a TSG of CUDA's own
    std::string native_reason;                              // why they cannot
    v1::Topology topology;
    uint64_t lost_seen = 0;  // of the page's lost samples, told to the tuner

    // As owner: keeps to the split for all who share (SCG methods, on a channel of its own), or has CUDA that shares.
    bool splits_its_tsg() const { return backend == v1::BACKEND_SCG || state == v1::SHARING_STATE_SHARING; }
    // The name whose split is meant when this process names none.
    const std::string& split_name() const { return attached_name.empty() ? owned : attached_name; }

    v1::SharingState shown_state() const {
        if (tsg != 0 && state != v1::SHARING_STATE_FAULTED) return v1::SHARING_STATE_SHARING;
        if (!pending.empty()) return v1::SHARING_STATE_WAITING;
        if (!owned.empty() && state != v1::SHARING_STATE_FAULTED) return v1::SHARING_STATE_REGISTERED;
        return state;
    }
    v1::Role role() const {
        if (!owned.empty()) return v1::ROLE_RENDERER;
        return compute ? v1::ROLE_COMPUTE : v1::ROLE_TOOL;
    }
};

struct Registry::Waiter {
    SessionId session = 0;  // 0: nobody, an export made ahead
    uint64_t request = 0;
    uint32_t channels = 0;
    Uuid gpu;
    TimePoint deadline;
    bool unshares = false;  // where its kernels do not fit
    bool fitted = false;    // it was told how large they may be
};

struct Registry::Turn {
    enum class Phase { kExport, kImport };  // until AttachReply; until AttachDone
    uint64_t serial = 0;
    Waiter waiter;
    Phase phase = Phase::kExport;
    Token token{};
    TimePoint deadline;
    PullTicket pull{};  // kImport: what AttachReply announced
};

// A change of control buffers on its way to those who share.
struct Registry::Mirroring {
    uint64_t id = 0;  // the owner's request
    uint64_t to = 0;
    bool adds = false;  // something that they need
    TimePoint deadline;
    std::set<SessionId> waits_for;
    uint32_t mirrored = 0;
    uint32_t late = 0;
};

// Kept by name until the daemon ends, so that a renderer that comes back finds what was chosen for it.
struct Registry::NamedSplit {
    uid_t uid = 0;
    Uuid gpu;
    SplitWish wish;
    Split split;
    uint64_t generation = 0;                // of `split`; 0: the split was never anything but the default of a page
    v1::Topology topology;                  // empty: unknown
    bool backend = false;                   // a program that shares can follow a split, or the last one could
    std::string writer;                     // who chose last; empty: nobody
    std::optional<uint32_t> tuned;          // the tuner's level, while the quota is left to it
    bool tuned_for_targets = false;         // and that is so because somebody set targets
    std::map<SessionId, Portion> portions;  // of those that get a part of compute's TPCs only, meanwhile
    TimePoint used;
};

// Somebody with channels in a TSG, or who had some a moment ago.
struct Registry::Sharer {
    SessionId session = 0;
    Suspect who;
    pid_t pid = 0;
    TimePoint joined;
    TimePoint since;                 // it joined, or changed what it has there
    TimePoint left;                  // or time zero: is in it
    bool own = false;                // says that it did it
    std::optional<TimePoint> stuck;  // since when it is, or was when it left
};

struct Registry::Ended {
    uint64_t tsg = 0;
    std::string name;
    uid_t uid = 0;  // the owner's
    TimePoint at;
    bool written_down = false;  // as a fault
    std::vector<Sharer> sharers;
};

struct Registry::Tsg {
    uint64_t id = 0;
    std::string name;
    Uuid gpu;
    SessionId owner = 0;
    AllowList allow;
    TimePoint since;
    bool faulted = false;
    std::vector<Sharer> left;  // those who went, lately
    // A sharer said that the TSG is dead, which the owner has not confirmed.
    struct Said {
        v1::Fault fault;
        SessionId by = 0;
        TimePoint at;
    };
    std::optional<Said> said;

    LiveSet live;            // what the owner exported
    bool following = false;  // the owner was asked to send what changes
    std::deque<Mirroring> mirroring;
    uint32_t owner_channels = 0;
    struct Attached {
        uint32_t channels = 0;
        uint64_t veids = 0;  // bit N: subcontext N is its
        TimePoint joined;    // or time zero: before this daemon, or before its owner lost the name
        TimePoint since;     // it joined, or changed what it has there
    };
    std::map<SessionId, Attached> attached;
    uint64_t computed = 0;     // bit N: a program computed in subcontext N, which may be gone
    uint64_t unknown = 0;      // bit N: one may have, before this vudad
    bool again = false;        // its owner had registered it before
    uint64_t owner_veids = 0;  // bit N: subcontext N is a CUDA context's in the owner's process
    // What the owner was told (taken, stale).
    std::optional<std::pair<uint64_t, uint64_t>> told;

    std::deque<Waiter> queue;
    std::optional<Turn> turn;

    uint32_t channels_in_use() const {
        uint32_t sum = owner_channels;
        for (const auto& [id, one] : attached) sum += one.channels;
        return sum;
    }
    uint32_t veids_used() const {
        uint32_t sum = 0;
        for (const auto& [id, one] : attached) sum += static_cast<uint32_t>(std::popcount(one.veids));
        sum += static_cast<uint32_t>(std::popcount(owner_veids));
        return sum;
    }
    uint64_t veids_taken() const {
        uint64_t taken = 0;
        for (const auto& [id, one] : attached) taken |= one.veids;
        return taken;
    }
    // Those that computed and that nobody has any more.
    uint64_t stale_veids() const { return computed & ~veids_taken() & ~owner_veids; }
    void take_veids(Attached& by, uint64_t veids) {
        by.veids |= veids;
        computed_in(veids);
    }
    void computed_in(uint64_t veids) {
        computed |= veids;
        unknown &= ~veids;
    }
    // None is known: the TSG is another one.
    void forget_veids() {
        computed = unknown = owner_veids = 0;
        told.reset();
    }
};

// Those who follow the split of `tsg`: programs with channels in it or with their turn to move some, and the owner
// where it has a part in that.
template <typename Visit>
void Registry::each_sharer(Tsg& tsg, Visit visit) {
    for (const auto& [id, attached] : tsg.attached) {
        if (Session* session = find(id)) visit(*session);
    }
    if (tsg.turn && tsg.turn->phase == Turn::Phase::kImport && !tsg.attached.contains(tsg.turn->waiter.session)) {
        if (Session* session = find(tsg.turn->waiter.session)) visit(*session);
    }
    if (Session* owner = find(tsg.owner); owner != nullptr && owner->splits_its_tsg()) visit(*owner);
}

}  // namespace vuda::daemon
