// The state behind tuner/tuner.h.  Members are spread over several files by what they do: inputs and the tick
// (inputs.cc), what the samples say (observe.cc), what each level would bring (forecast.cc), where to go (alarm.cc,
// optimise.cc, move.cc), sweeps without a target (sweep.cc), reports (report.cc).
#pragma once

#include <deque>
#include <map>

#include "tuner/level_curve.h"
#include "tuner/shares.h"
#include "tuner/stream.h"
#include "tuner/tuner.h"

namespace vuda::tuner {

inline constexpr size_t kNoLevel = SIZE_MAX;

// What a level would bring, by the curves.
struct Forecast {
    double graphics = 0;    // expected tail / bound; at most 1 when the frame target holds; 0 without a target
    double compute = 0;     // the worst of latency / bound and floor / rate
    double utility = 0;     // what the regime maximises; the best known level is near 1
    bool judged = false;    // all that the targets ask about was measured here, not too long ago
    bool measured = false;  // and so was what the regime maximises
    bool guessed = false;   // some of it rests on one neighbour only
    double worst() const { return graphics > compute ? graphics : compute; }
};

inline constexpr TimeNs kForgotten =
    20 * kSecond;  // a level left longer ago may be looked at again when this one fails

// What experience says against a level.
struct Ban {
    uint32_t fails = 0;          // misses at this level, less one for each 30 s without
    TimeNs until = 0;            // not to be entered before
    TimeNs early = 0;            // or from here on, when the load has become lighter since
    double graphics_factor = 0;  // load when it failed; 0: the frames were not at fault
    SessionId session = kGraphicsSide;
    double compute_factor = 0;
    TimeNs left = -kForgotten;  // when the level was left last
    TimeNs good_for = 0;        // time at this level since the last fail
};

struct Session {
    explicit Session(SessionId id)
        : stream(static_cast<TimeNs>(id % kMaxSessions) *
                 (SlidingWindow::kBucket / static_cast<TimeNs>(kMaxSessions))) {}

    double weight = 1;
    ComputeTarget target;
    Stream stream;
    LevelCurve latency;  // 1 / median duration, 1/ns
    LevelCurve rate;     // steps/s
    double share = 0;    // of the level, at which the curves hold; 0: none yet
    TimeNs added = 0;
    bool counted = false;
    bool paced = false;  // waits between its steps, so that a faster step brings no more of them
    bool rate_low = false;
    TimeNs low_since = -1;
    double rate_now = 0;  // steps/s, lately
    TargetState latency_state = TargetState::kNoData;
    TargetState rate_state = TargetState::kNoData;
    TimeNs latency_alarm = -1, rate_alarm = -1;
};

class Tuner::Impl {
 public:
    Impl(Ladder ladder, TimeNs now, size_t start, Settings settings);

    Status set_ladder(Ladder ladder, TimeNs now);
    Status set_graphics_target(const GraphicsTarget& target, TimeNs now);
    Status set_compute_target(SessionId id, const ComputeTarget& target, TimeNs now);
    Status add_session(SessionId id, TimeNs now, double weight);
    Status remove_session(SessionId id, TimeNs now);
    Status set_weight(SessionId id, double weight, TimeNs now);
    void add(TimeNs now, std::span<const Sample> samples);
    const Decision& tick(TimeNs now);
    void force_level(uint32_t tpcs, TimeNs now);
    void note_applied(TimeNs now);
    std::vector<Event> take_events();
    size_t memory_bytes() const;

    Ladder ladder_;
    GraphicsTarget graphics_target_;
    std::map<SessionId, Session> sessions_;
    Decision decision_;
    Counters counters_;

 private:
    struct Alarm {
        bool graphics = false, compute = false;
        SessionId session = kGraphicsSide;  // the compute side's worst
        TargetKind kind = TargetKind::kFrame;
    };

    // inputs.cc
    void advance_clock(TimeNs now);
    void target_changed();
    Event event(EventKind kind) const;
    void push(Event event);
    size_t nearest(uint32_t tpcs) const;
    void reset_curves(Session& session) const;
    std::vector<double> graphics_capacity() const;
    std::vector<double> compute_capacity() const;

    // observe.cc
    void refresh_sessions();
    void update_shares();
    void observe(const Alarm& alarm);
    void watch_for_bursts(Stream& stream, const LevelCurve& curve) const;
    void refresh_rates(Session& session);
    Alarm alarms();
    bool graphics_usable() const;
    bool settled(bool calm = true) const;

    // forecast.cc
    Regime regime() const;
    void forecast_all();
    double sum_up(Session& session);
    static double tail_here(const Stream& stream);
    bool banned(size_t level) const;
    bool holds(size_t level, double room_judged, double room_guessed) const;

    // alarm.cc, optimise.cc, move.cc
    void handle_alarm(const Alarm& alarm);
    bool waits_for_the_end(const Alarm& alarm);
    void leave_tight_level();
    void ban_current(const Alarm& alarm);
    size_t feasible_level() const;
    size_t search_level() const;
    size_t search_first_priority() const;
    bool failed_first(size_t level) const;
    std::pair<double, double> priorities(size_t level) const;
    size_t compromise_level() const;
    void optimise();
    void improve_compromise();
    bool affords_bursts(size_t level) const;
    size_t better_known() const;
    size_t better_probe() const;
    size_t more_margin() const;
    void move(size_t to, Event why);
    void describe_alarm(const Alarm& alarm, Event& event) const;
    void describe_slack(Event& event) const;
    void describe_expected(size_t to, Event& event) const;
    void credit_good_time();

    // sweep.cc
    void sweep();
    void start_sweep();
    bool measured_here() const;

    // report.cc
    void report();
    TargetState state_of(const Stream& stream, TimeNs last_alarm, TargetState before, double miss) const;
    void set_state(TargetState& state, TargetState next, const TargetReport& report);

    const Settings settings_;
    TimeNs now_ = 0;      // own time, never goes back
    TimeNs raw_now_ = 0;  // the caller's
    TimeNs last_clock_event_ = 0;
    std::deque<Event> events_;

    Stream frames_;
    LevelCurve frame_speed_;  // 1 / median duration, 1/ns
    LevelCurve frame_rate_;   // frames/s
    TargetState frame_state_ = TargetState::kNoData;
    TimeNs frame_alarm_ = -1;

    size_t level_ = 0;
    TimeNs level_since_ = 0;
    int last_direction_ = 0;
    uint32_t reversal_steps_ = 0;  // dwell time doubles with each, less one for each 30 s without a reversal
    TimeNs last_reversal_ = 0;
    bool probing_ = false;        // the present level was entered to learn about it
    double probe_tokens_ = 10;    // late frames or steps that probes may still cost
    uint64_t tokens_frames_ = 0;  // frames that were credited
    std::vector<Ban> bans_;
    std::vector<Forecast> forecasts_;
    std::vector<double> rates_;  // of one process at each level, while forecasts are made
    // Of all processes together, likewise, one of each level: the least speed against what the targets need, the sum of
    // rates, and what is known worst of that which the targets and the sum rest on.
    struct Sums {
        std::vector<double> speed, rate;
        std::vector<Knowledge> judged, rated;
    } sums_;
    TimeNs optimised_ = -1;
    // Observing, optimising and reporting each look at everything: not all in the same tick, unless ticks are rare.
    bool busy_ = false;
    std::vector<Claim> claims_;
    std::vector<SessionShare> shares_;

    bool infeasible_ = false;
    TimeNs infeasible_since_ = 0;
    uint32_t searched_ = 0;  // levels tried since the search began
    TimeNs last_alarm_ = -1;
    TimeNs observed_ = -1, reported_ = -1;
    TimeNs good_credited_ = 0;

    TimeNs target_changed_ = 0;
    uint32_t target_changes_ = 0;  // lately; less one for each 5 s without

    enum class Sweep : uint8_t { kIdle, kRunning, kDone };
    Sweep sweep_ = Sweep::kIdle;
    std::vector<size_t> sweep_levels_;
    uint32_t sweeps_ = 0;
    TimeNs next_sweep_ = 0;
    double sweep_graphics_ = 0, sweep_compute_ = 0;  // rates at the chosen level
    TimeNs sweep_off_since_ = -1;
};

}  // namespace vuda::tuner
