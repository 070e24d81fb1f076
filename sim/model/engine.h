// Timing model of one GPU's graphics engine: TSGs, time slices, channels, SCG modes, TPC quotas.
//
// A pure state machine on a virtual clock: no I/O, no threads, no wall clock.  The caller drives it:
//
//     while (engine.next_event_time() <= until) {
//         engine.advance_to(engine.next_event_time());
//         for (const Completion& done : engine.take_completions()) ...   // may submit the next work, at this very time
//     }
//     engine.advance_to(until);
//
// Real time is the caller's loop: sleep until next_event_time(), then advance_to(the time now).  Every call acts at
// now(). The same calls with the same parameters and seed give the same completions, bit for bit.
//
// What it models (sources: docs/simulator-model.md):
//  * TSGs that have work take turns, round robin; one without work is skipped, and one that runs dry gives its slice
//  away.
//  * A slice ends at a work-unit boundary only: a running draw ends first, a kernel stops after its current wave of
//  blocks.
//  * All channels of the loaded TSG run together, each in order; there is one 3D pipe.
//  * Intra-SM mode: both kinds on the same SMs, slowed by CoResidency.  Inter-SM mode: compute on the quota's TPCs and
//  never
//    outside them; graphics on the others while compute runs.
//  * GPUs with few graphics TPCs (GH100): compute keeps off those while a draw runs, unless a kernel carries a mask:
//  then
//    its blocks there stand still until that draw is over.  Blocks that a draw finds on them finish first.
//  * Shared memory over the SCG limit kills the TSG.
//
// All figures are simulated: good for logic and control, not for statements about speed.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/model/params.h"
#include "sim/model/topology.h"
#include "sim/model/work.h"

namespace vuda::sim {

// Never reused within one engine; 0 is never handed out.
enum class TsgId : uint32_t {};
enum class ChannelId : uint32_t {};

enum class ChannelKind : uint8_t {
    kGraphics,  // frames, kernels and markers
    kCompute,   // kernels and markers
};

struct ChannelOptions {
    ChannelKind kind = ChannelKind::kCompute;
    uint8_t veid = 0;      // kept for channel_info(); whether it is allowed is the resource manager's business
    uint8_t runqueue = 0;  // likewise
    bool enabled = true;   // a channel that is not scheduled keeps its work and runs nothing
};

enum class WorkStatus : uint8_t {
    kDone,
    kAborted,  // its channel or TSG was destroyed first
    kFaulted,  // its TSG faulted before it ended
};

struct Completion {
    uint64_t cookie = 0;  // as given to submit()
    TsgId tsg{};
    ChannelId channel{};
    WorkStatus status = WorkStatus::kDone;
    TimeNs submitted = 0;
    TimeNs start = -1;  // first draw or first wave; -1 when it never started
    TimeNs end = 0;
    SmSet sms;  // SMs that ran any part of it; for a frame those that graphics could use
};

enum class FaultKind : uint8_t {
    kSharedMemory,   // SCG limit: on hardware "Xid 13 ... Graphics Exception"
    kNoEligibleTpc,  // mask and quota leave the kernel no TPC
    kInjected,       // fault_tsg()
};

struct Fault {
    FaultKind kind = FaultKind::kInjected;
    TsgId tsg{};
    ChannelId channel{};  // the culprit; ChannelId{0} when none is known
    uint64_t cookie = 0;  // its work; 0 when none
    TimeNs time = 0;
};

struct TsgInfo {
    bool faulted = false;
    bool loaded = false;  // owns the engine now
    ScgMode mode = ScgMode::kIntraSm;
    std::optional<int> quota;  // TPCs, as clamped
    TpcSet compute_tpcs;       // where compute may run at all in this TSG's mode
    TimeNs timeslice_ns = 0;
    uint32_t channels = 0;
    uint64_t queued = 0;  // works submitted and not ended
    TimeNs run_time = 0;  // time for which it owned the engine, switches not counted
};

struct ChannelInfo {
    TsgId tsg{};
    ChannelOptions options;
    uint64_t queued = 0;
};

// Counters since the engine was made.
struct Stats {
    uint64_t slice_switches = 0;
    uint64_t slice_expiries = 0;  // ends of a slice with another TSG waiting
    uint64_t draw_starts = 0, draw_ends = 0;
    uint64_t frame_starts = 0, frame_ends = 0;
    uint64_t kernel_starts = 0, kernel_ends = 0;
    uint64_t waves = 0;  // groups of blocks placed at one moment
    uint64_t faults = 0;
    // SM time given to each side (SM count x nanoseconds x speed).  Their sum never exceeds sm_count x now().
    double compute_sm_ns = 0;
    double graphics_sm_ns = 0;
    // Slice switches, frame and kernel starts and ends: what "scheduling events per second" counts.
    uint64_t scheduling_events() const {
        return slice_switches + frame_starts + frame_ends + kernel_starts + kernel_ends;
    }
};

class Engine {
 public:
    // `params` must be valid for `topology`; errors: kInvalidArgument.
    static Result<Engine> make(Topology topology, Params params);
    // The preset's topology with the parameters fitted to it.  Errors: kNotFound.
    static Result<Engine> make(std::string_view preset);

    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) noexcept;
    ~Engine();

    const Topology& topology() const;
    const Params& params() const;

    // Errors of the calls below: kNotFound for an id that is not alive, kInvalidArgument for a value outside its range,
    // kFailedPrecondition for a faulted TSG (destroying it and asking about it still work).

    // `timeslice_ns` 0: the default, which follows from whether the TSG holds a graphics channel.
    TsgId create_tsg(TimeNs timeslice_ns = 0);
    // Ends every work of every channel with kAborted at now(), also running draws.
    Status destroy_tsg(TsgId tsg);
    Result<ChannelId> create_channel(TsgId tsg, const ChannelOptions& options);
    // Ends every work of the channel with kAborted at now(); the TSG's other channels run on.  Works on a faulted TSG.
    Status destroy_channel(ChannelId channel);
    // GPFIFO_SCHEDULE.  Disabling lets the running draw or wave end and then holds the rest.
    Status set_channel_enabled(ChannelId channel, bool enabled);

    // `cookie` comes back in the completion and need not be unique.  kInvalidArgument: a frame on a compute channel, no
    // blocks, a mask without a TPC, a value outside its range.
    Status submit(ChannelId channel, Work work, uint64_t cookie);

    // kUnimplemented where the GPU has no SCG control (ScgControl::kNone).  Waves that run keep their TPCs until they
    // end.
    Status set_mode(TsgId tsg, ScgMode mode);
    // Compute quota in TPCs, used in inter-SM mode; nullopt: the default split.  Clamped to [1, max_compute_quota()].
    Status set_quota(TsgId tsg, std::optional<int> tpcs);
    // > 0, or 0 for the default.  A running slice keeps its end.
    Status set_timeslice(TsgId tsg, TimeNs timeslice_ns);

    // What a bad memory access or an illegal method does: the TSG stops, each of its works ends with kFaulted.
    Status fault_tsg(TsgId tsg, FaultKind kind = FaultKind::kInjected, ChannelId culprit = ChannelId{0});

    Result<TsgInfo> tsg_info(TsgId tsg) const;
    // Of all TSGs that hold channels, in order of creation.
    std::vector<TimeNs> timeslices() const;
    Result<ChannelInfo> channel_info(ChannelId channel) const;

    TimeNs now() const;
    // Time of the next thing that happens by itself, >= now(); kNever when nothing will.
    TimeNs next_event_time() const;
    // Runs everything up to and including time `t`; a `t` in the past does nothing.
    void advance_to(TimeNs t);

    // What ended since the last call, in order of time.
    std::vector<Completion> take_completions();
    std::vector<Fault> take_faults();
    // Likewise into a buffer that the caller reuses (cleared first).
    void take_completions(std::vector<Completion>& out);

    Stats stats() const;

 private:
    class Impl;
    explicit Engine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace vuda::sim
