// The session schema (proto/vuda/v1/session.proto) as plain values. Hides protobuf-c; checks everything that a peer can
// get wrong. Encoders return the body of one frame (base/frame_io.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/uuid.h"
#include "client/allow_list.h"
#include "client/handles.h"
#include "shim/partition/levels.h"
#include "shim/partition/partition_state.h"

namespace vuda::client {

inline constexpr uint64_t kFeatureShare = 1;
inline constexpr uint64_t kFeatureExportRefresh = 2;
inline constexpr uint64_t kFeatureSharedPage = 4;
inline constexpr uint64_t kFeatureQuota = 8;
inline constexpr uint64_t kFeatureHeartbeat = 32;
inline constexpr uint64_t kFeatureSlo = 16;
inline constexpr uint64_t kFeatureFaults = 64;
inline constexpr uint64_t kFeatureLiveMirror = 4096;
inline constexpr uint64_t kFeatureUnshare = 8192;
inline constexpr uint64_t kFeatureSubcontexts = 16384;
inline constexpr uint64_t kFeatureStuck = 32768;

// vuda.v1.SharingState
enum class SharingState : uint32_t {
    kUnspecified = 0,
    kIdle = 1,
    kRegistered = 2,
    kWaiting = 3,
    kSharing = 4,
    kUnshared = 5,
    kFaulted = 6,
};

struct AttachOutcome {
    SharingState state = SharingState::kUnshared;
    uint32_t channels_moved = 0;
    uint32_t veid = 0;
    uint32_t control_buffers = 0;
    uint32_t attach_us = 0;  // microseconds
    Error reason;            // left out when the code is kOk
    uint64_t veids = 0;      // bit N: it has subcontext N
};

// vuda.v1.Subcontexts: bit N stands for subcontext N.
struct Subcontexts {
    std::string name;
    uint64_t taken = 0;
    uint64_t stale = 0;
    uint32_t channels = 0;  // to vudad, of a program that shares: those that are left
};

// How a program takes it that some kernels are too large to share.
struct LimitTerms {
    limits::OverLimit over_limit = limits::kDefaultOverLimit;
    bool fitted = false;  // it was told how large they may be (libvuda_fit.so)
};

// A kernel that was; bytes of shared memory a block.
struct LargeKernel {
    uint32_t bytes = 0;
    uint32_t limit = 0;  // that may run beside graphics
    bool fitted = false;
};

// What compute may use: a number of TPCs, what the tuner finds, or no limit.
struct QuotaWish {
    enum class Kind { kTpcs, kAutomatic, kNone };
    Kind kind = Kind::kNone;
    uint32_t tpcs = 0;
};

// All targets of this process; 0: none.
struct TargetsWish {
    double frame_ms = 0, frame_miss = 0;
    double latency_ms = 0, latency_miss = 0;
    double throughput = 0;  // steps a second
    double weight = 0;
};

// What it will attach to, and where CUDA's addresses lie.
struct AttachPlace {
    std::string name;
    uint32_t held = 0;  // one more than the slot that an earlier vudad gave; 0: none
};
std::string encode_hello(uint64_t id, uint64_t features, const std::string& client_version,
                         const std::string& driver_version, const std::string& program,
                         const std::string& executable = "", const AttachPlace& place = {});
// `again`: an earlier vudad said yes to it.
std::string encode_register(uint64_t id, const std::string& name, const Uuid& gpu, const AllowList& allow,
                            bool again = false);
std::string encode_unregister(uint64_t id, const std::string& name);
std::string encode_attach(uint64_t id, const std::string& name, const Uuid& gpu, uint32_t channels,
                          uint32_t deadline_ms, const LimitTerms& terms = {}, uint64_t va_base = 0);
std::string encode_attach_done(uint64_t id, const AttachOutcome& outcome);
std::string encode_detach_notice(const Error& reason);
std::string encode_state_report(SharingState state, const Error& reason);
// SHARING, with what a vudad that was restarted does not know: the TSG's name and what of `outcome` still holds.
// `va_base`: where CUDA's addresses begin; 0: not known.
std::string encode_sharing_report(const std::string& name, const AttachOutcome& outcome, uint64_t va_base);
std::string encode_export_refused(const Token& token, const Error& error);
std::string encode_export_current(const Token& token);
// `generation` goes into the last part only.
std::string encode_push(const Token& token, std::span<const HandleInfo> handles, bool last, uint32_t channels_in_use,
                        uint64_t generation);
std::string encode_pull(const Token& token);
// The descriptors of change.added go with it.
std::string encode_mirror_update(uint64_t id, const MirrorChange& change);
std::string encode_subcontexts(const Subcontexts& now);
std::string encode_mirror_done(uint64_t to, const Error& reason);
std::string encode_partition_report(const partition::PartitionState& state);
std::string encode_pong();
// A TSG died. `xid` 0: the API said so and no notifier did.
std::string encode_fault(uint64_t id, const std::string& name, uint32_t xid);
// Nothing died, but the GPU repeats page faults, so many a second, for so long; `over`: no longer.
std::string encode_stuck(uint64_t id, const std::string& name, uint32_t replays, uint32_t age_ms, bool over);
// The program wishes to run unshared from its next context on.
std::string encode_does_not_fit(uint64_t id, const std::string& name, const LargeKernel& kernel);
std::string encode_set_mode(uint64_t id, partition::Mode mode);
std::string encode_set_quota(uint64_t id, const QuotaWish& quota);
std::string encode_set_targets(uint64_t id, const TargetsWish& targets);

struct HelloReply {
    uint64_t features = 0;
    std::string daemon_version;
    uint64_t session_id = 0;
    bool simulated = false;
    uint32_t page_bytes = 0;  // > 0: a descriptor came with this frame
    uint32_t va_slot = 0;     // where CUDA's addresses are to lie
};
struct RegisterReply {};
struct UnregisterReply {};
struct AttachReply {
    Token token{};
    uint32_t handles = 0;  // 1..kHandleLimit
    uint64_t stale_veids = 0;
    uint64_t unknown_veids = 0;
};
struct AttachDoneReply {};
struct ExportRequest {
    Token token{};
    uint32_t deadline_ms = 0;
    uint64_t held = 0;     // generation of the set that vudad holds; 0 = none
    uint32_t live_ms = 0;  // > 0: changes are wanted from now on, and mapping calls wait this long at most
};
struct DetachCommand {
    Error reason;
};
struct SetModeReply {
    uint32_t applied = 0;  // vuda.v1.Mode
    uint32_t applied_tpcs = 0;
    std::string note;
};
struct SetQuotaReply {
    uint32_t applied_tpcs = 0;
    uint64_t generation = 0;
    std::string note;
};
struct SetTargetsReply {
    std::string note;
};

// Its descriptors come with the frame, in this order.
struct MirrorUpdate {
    uint64_t from = 0;
    uint64_t to = 0;
    std::vector<MirrorRange> removed;
    std::vector<HandleInfo> added;
};
struct MirrorUpdateReply {
    uint32_t mirrored = 0;
    uint32_t late = 0;
};
struct MirrorIdle {};
struct DoesNotFitReply {
    uint64_t held_ms = 0;  // 0: this vudad holds nobody off
};

struct Ping {};
struct FaultNotice {
    std::string name;
    std::string text;
    bool culprit = false;  // it is this program
    bool look = false;     // nothing is certain: look
};

// monostate: something that a newer vudad says and that this library does not know.
using ServerBody =
    std::variant<std::monostate, Error, HelloReply, RegisterReply, UnregisterReply, AttachReply, AttachDoneReply,
                 ExportRequest, DetachCommand, SetModeReply, SetQuotaReply, SetTargetsReply, Ping, FaultNotice,
                 MirrorUpdate, MirrorUpdateReply, MirrorIdle, DoesNotFitReply, Subcontexts>;

struct ServerMessage {
    uint64_t id = 0;
    ServerBody body;
};

// From a session connection. A frame that is itself an error comes back as Error with id 0. DATA_LOSS: not a frame that
// vudad may send here.
Result<ServerMessage> decode_server_message(std::string_view frame);

struct Bundle {
    std::vector<HandleInfo> handles;
    bool last = false;
    uint32_t channels_in_use = 0;
    uint64_t generation = 0;  // with `last`
};

// From a pull connection. An error frame becomes the result's error.
Result<Bundle> decode_bundle(std::string_view frame, const Token& token);

}  // namespace vuda::client
