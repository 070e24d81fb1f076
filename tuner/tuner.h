// The SLO tuner: one object for each named TSG finds the split of TPCs that meets its targets.
//
// A pure state machine: no I/O, no threads, the clock is passed in.  The caller
//   * passes on every sample that the sharing processes report (add), and
//   * calls tick() regularly, every 10 to 50 ms, and puts the level and the shares of the Decision into force;
//   * takes the events for the journal (take_events).
// Tick costs a few microseconds (tuner_bench), a sample some ten nanoseconds; memory is bounded (docs/tuner.md).
//
// `now` is a monotonic clock in nanoseconds.  A clock that goes backwards is survived: time stands still for that one
// call and goes on from there.  Samples that end after `now` count as ending now; those older than the window (10 s)
// are dropped.
//
// How it decides: docs/tuner.md.  Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tuner/decision.h"
#include "tuner/event.h"
#include "tuner/settings.h"
#include "tuner/types.h"

namespace vuda::tuner {

struct Counters {
    uint64_t frames = 0;           // samples taken in
    uint64_t steps = 0;            // likewise, kStep and the counts of kSteps
    uint64_t dropped_old = 0;      // older than the window
    uint64_t dropped_bad = 0;      // duration or count <= 0, or of an unknown session
    uint64_t clamped_future = 0;   // ended after `now`
    uint64_t clock_backwards = 0;  // calls with a `now` before an earlier one
    uint64_t level_changes = 0;
    uint64_t reversals = 0;    // level changes against the direction of the one before
    uint64_t events_lost = 0;  // take_events() was not called often enough
};

class Tuner {
 public:
    // Starts at the level next to `start_tpcs` (the split in force), or at the lowest.  Errors: Ladder::validate().
    static Result<Tuner> make(Ladder ladder, TimeNs now, std::optional<uint32_t> start_tpcs = {},
                              Settings settings = {});
    Tuner(Tuner&&) noexcept;
    Tuner& operator=(Tuner&&) noexcept;
    ~Tuner();

    // What was learned is kept for levels that are in both ladders.
    Status set_ladder(Ladder ladder, TimeNs now);
    const Ladder& ladder() const;

    // An empty target clears.  An invalid one changes nothing.  Errors: validate(); kNotFound for an unknown session.
    Status set_graphics_target(const GraphicsTarget& target, TimeNs now);
    Status set_compute_target(SessionId session, const ComputeTarget& target, TimeNs now);
    const GraphicsTarget& graphics_target() const;
    std::optional<ComputeTarget> compute_target(SessionId session) const;

    // kAlreadyExists; kInvalidArgument for kGraphicsSide or a bad weight; kResourceExhausted above kMaxSessions.
    Status add_session(SessionId session, TimeNs now, double weight = 1);
    Status remove_session(SessionId session, TimeNs now);  // kNotFound
    Status set_weight(SessionId session, double weight, TimeNs now);

    // Never fails: what cannot be used is counted.
    void add(TimeNs now, std::span<const Sample> samples);

    // The reference is good until the next call of any member.
    const Decision& tick(TimeNs now);
    const Decision& decision() const;

    // Somebody set the split by hand; tuning goes on from the level next to it.
    void force_level(uint32_t tpcs, TimeNs now);
    // The level of the last decision came into force only now: what was sampled before counts as transient.
    void note_applied(TimeNs now);

    // Since the last call, oldest first; at most kMaxEvents are kept.
    std::vector<Event> take_events();
    static constexpr size_t kMaxEvents = 256;

    const Counters& counters() const;
    size_t memory_bytes() const;  // all that this object holds, allocations included

 private:
    class Impl;
    explicit Tuner(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace vuda::tuner
