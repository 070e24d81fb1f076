// How the GPU is split for one TSG: what somebody asked for, what is known, and what follows. Pure.
//
// Which TPCs a level leaves to compute is the levels library's business (shim/partition); here is who may ask for what
// and what an unspoken wish means.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/peer.h"
#include "proto/page/session_page.h"
#include "shim/partition/levels.h"
#include "vuda/v1/session.pb.h"

namespace vuda::daemon {

struct Quota {
    enum class Kind {
        kNone,       // no limit beyond what the mode implies
        kAutomatic,  // the tuner decides; as kNone until it has
        kTpcs,
        kPercent,  // of the TPCs, or of the time where compute takes turns
    };
    Kind kind = Kind::kNone;
    uint32_t amount = 0;  // 1..partition::kMaxTpcs with kTpcs, 1..99 with kPercent, else 0

    bool operator==(const Quota&) const = default;
};

inline constexpr uint32_t kMaxPercent = 99;

// "auto", "none", a number from 1 to partition::kMaxTpcs, or "1%" to "99%".
std::optional<Quota> parse_quota(std::string_view text);

// [partition] of vudad.toml.
struct PartitionSettings {
    std::optional<v1::Mode> mode;  // of a name for which nobody chose; nullopt: by what the GPU and the programs can
    Quota quota;                   // likewise
    std::optional<gid_t> admin_group;  // may change every split; resolved from kPartitionAdmins
};
inline constexpr const char* kPartitionAdmins = "vuda-admin";

// The owner's user, root, and members of the group of administrators.
bool may_split(const Peer& caller, const Peer& owner, const PartitionSettings& settings);

// What somebody asked for.
struct SplitWish {
    std::optional<v1::Mode> mode;  // nullopt: nobody chose
    std::optional<Quota> quota;
};

// What is known about the GPU and the programs of one name.
struct SplitFacts {
    v1::Topology topology;  // no TPCs: unknown
    bool backend = false;   // a program here can put a quota into force
    // Why none can: the first program that said so. Empty when no program has spoken.
    std::string no_backend;
    std::optional<uint32_t> tuned;  // TPCs that the tuner chose; percent of the time in mode sliced
    bool paced = false;             // the renderer's frames can be held back
    uint64_t frame_ns = 0;          // its target; 0: none
};

// What the tuner may choose from in mode sliced: percent of the GPU's time for compute.
std::vector<uint32_t> sliced_levels();

// What the programs are told.
struct Split {
    v1::Mode mode = v1::MODE_INTRA_SM;
    Quota quota;
    uint32_t applied_tpcs = 0;  // 0: topology unknown
    partition::TpcMask disable{};
    std::vector<uint32_t> order;            // TPCs that compute may use, as growing levels take them
    std::vector<uint32_t> levels;           // of `mode`, ascending
    std::vector<uint32_t> inter_sm_levels;  // of mode inter-sm, whatever the mode is; empty: it has none
    uint32_t compute_percent = 0;           // mode sliced: of the GPU's time; 0: no share was asked for
    uint64_t frame_ns = 0;                  // mode sliced: frames come no oftener than this wants
    std::string note;

    bool same_effect(const Split& other) const {
        return mode == other.mode && applied_tpcs == other.applied_tpcs && disable == other.disable &&
               compute_percent == other.compute_percent && frame_ns == other.frame_ns;
    }
};

Split decide(const SplitWish& wish, const SplitFacts& facts, const PartitionSettings& settings);

// Whether a new wish for mode or quota can be met. INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED.
Status check_mode(v1::Mode mode, const SplitFacts& facts);
Status check_quota(const Quota& quota, const SplitFacts& facts, v1::Mode mode);

// The Topology message of a process; an empty one is fine. INVALID_ARGUMENT.
Status check_topology(const v1::Topology& topology);
partition::Topology layout_of(const v1::Topology& topology);

// "inter-sm, quota none, compute on 64 of 66 TPCs": for events and notes.
std::string describe(const Split& split, const v1::Topology& topology);
const char* mode_text(v1::Mode mode);
std::string quota_text(const Quota& quota);

// What one of several processes may use of Split::order: `count` TPCs from `first` on, wrapping round. 0: all of it.
struct Portion {
    uint32_t first = 0;
    uint32_t count = 0;
    bool operator==(const Portion&) const = default;
};

page::Split to_page(const Split& split, uint64_t generation, Portion portion = {});

}  // namespace vuda::daemon
