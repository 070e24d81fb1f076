// One controller through one history.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/tuner/controller.h"
#include "bench/tuner/scenario.h"

namespace vuda::tuner::eval {

struct Fraction {
    uint64_t good = 0, all = 0;
    void add(bool is_good) {
        ++all;
        if (is_good) ++good;
    }
    double value() const { return all == 0 ? 1.0 : static_cast<double>(good) / static_cast<double>(all); }
};

// What came out over one stretch of time.
struct Outcome {
    double seconds = 0;
    Fraction frames;               // within the target
    double frame_ms = 0;           // sum of all durations
    std::vector<Fraction> steps;   // of each client, within its latency target
    std::vector<Fraction> floors;  // of each client: seconds in which the floor was kept, to 5 %
    double weighted_steps = 0;     // steps times the client's weight

    // Least of all targets' fractions.
    double attainment(const Workload& workload) const;
    // Least of the fractions, each against that of `other`; a target that `other` held in less than a twentieth does
    // not count: a ratio of two accidents.
    double against(const Outcome& other, const Workload& workload) const;
    // All targets hold, with `times` the misses that are allowed.
    bool meets(const Workload& workload, double times = 1) const;
    double compute_rate() const { return seconds > 0 ? weighted_steps / seconds : 0; }
    double frame_rate() const { return seconds > 0 ? static_cast<double>(frames.all) / seconds : 0; }
};

inline constexpr TimeNs kLearning = 10 * kSecond;  // likewise, in which reversals are not steady state
inline constexpr TimeNs kGrace = 2 * kSecond;      // after the start and after each step, not counted

struct Run {
    Outcome counted;  // without the times of grace
    Outcome all;
    std::vector<Outcome> segments;                    // between steps, without the grace
    std::vector<std::pair<TimeNs, uint32_t>> levels;  // changes; first at 0
    uint32_t reversals = 0;                           // in steady state
    double steady_seconds = 0;
    std::vector<std::string> events;                     // kept when `trace`
    std::vector<std::pair<TimeNs, TimeNs>> frame_times;  // end, duration; likewise
};

// Stationary stretches: starts of the segments and the end.
std::vector<TimeNs> segment_bounds(const Scenario& scenario);
// The split a tuner starts from.
uint32_t start_level(const Scenario& scenario, const Ladder& ladder);
History history_of(const Scenario& scenario, uint64_t seed);

Run run(const Scenario& scenario, const History& history, Plant& plant, Controller& controller, uint64_t seed,
        bool trace = false);

}  // namespace vuda::tuner::eval
