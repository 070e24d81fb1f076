// One learned quantity against the level: the speed (1 / duration, or a rate) of one side.
//
// What was measured at each level is kept as a shape times one common factor.  While a level is held, the factor
// follows what is measured there, so that a load which grows or shrinks moves the forecast for all levels at once; when
// a level is entered, its shape is learned.  What was never measured is interpolated, or guessed in proportion to the
// TPCs.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/settings.h"

namespace vuda::tuner {

enum class Knowledge : uint8_t {
    kNone,          // no level was ever measured
    kGuess,         // one neighbour: in proportion to its TPCs
    kExtrapolated,  // two levels on one side
    kInterpolated,  // between two measured ones
    kStale,         // measured, too long ago
    kMeasured,
};

struct Estimate {
    double speed = 0;
    Knowledge knowledge = Knowledge::kNone;
};

// One of each level.
struct Estimates {
    std::vector<double> speed;
    std::vector<Knowledge> knowledge;
    void resize(size_t levels) {
        speed.resize(levels);
        knowledge.resize(levels);
    }
    size_t memory_bytes() const { return speed.capacity() * sizeof(double) + knowledge.capacity() * sizeof(Knowledge); }
};

class LevelCurve {
 public:
    static constexpr TimeNs kStaleAfter = 300 * kSecond;

    // `capacity`: what the side has at each level, for guesses; graphics: total - level, compute: level.  At least a
    // little above 0.  Forgets everything.
    void reset(std::vector<double> capacity);
    // Takes over what `from` knows about level from_index[i] as level i; npos: nothing.
    void adopt(const LevelCurve& from, const std::vector<size_t>& from_index);

    // `level` was entered.  `calm`: under an unchanged load, so that its shape can be learned anew.
    void enter(size_t level, TimeNs now, bool calm = false);
    // What is measured at the present level.  Teaches its shape until that is known well, then moves the factor.
    // True when that was a change of load by more than noise.
    bool observe(size_t level, double speed, TimeNs now);
    // A short median says that the load has changed a little: worth a longer one, since among many looks the farthest
    // of a short median's errors would be taken for a load.
    bool doubtful(size_t level, double speed) const;
    // The same when it is bad news.  Soon after entering, the forecast was wrong: the shape.  Later the load grew: the
    // factor.
    void observe_miss(size_t level, double speed, TimeNs now);
    // All levels by the same factor (a process got another share).
    void scale(double factor);

    Estimate at(size_t level, TimeNs now) const;
    // at() of every level; the speeds are at factor 1.  Kept, and made anew only where something was learned since.
    const Estimates& all(TimeNs now);
    double factor() const { return factor_; }
    bool known(size_t level) const { return shape_[level] > 0; }
    // Speed at a level under load 1; 0: never measured.
    double shape(size_t level) const { return shape_[level]; }
    double best_known() const { return factor_ * best_shape_; }
    size_t memory_bytes() const {
        return shape_.capacity() * sizeof(double) * 2 + known_at_.capacity() * sizeof(TimeNs) * 2 +
               known_.capacity() * sizeof(uint16_t) + all_.memory_bytes();
    }

 private:
    static constexpr TimeNs kLearning = 600 * kMs;  // time spent at a level until its shape is known well
    static constexpr TimeNs kSurprise = kSecond;    // a miss sooner than this after entering refutes the forecast
    static constexpr TimeNs kDoubt = 5 * kSecond;   // after a miss, its factor may have been a passing burst
    static constexpr double kShift = 0.08;
    static constexpr double kDoubtful = 0.12;  // no noise of a short median is larger
    static constexpr double kFollow = 0.04;    // deviation that the factor ignores: noise of a short median

    std::vector<double> capacity_;
    std::vector<double> shape_;    // 0: never measured
    std::vector<uint16_t> known_;  // levels that were measured, ascending
    std::vector<TimeNs> known_at_;
    std::vector<TimeNs> learned_;  // time for which its shape was taught
    double factor_ = 1;
    size_t anchor_ = SIZE_MAX;  // level that is held
    TimeNs entered_ = 0;
    bool arriving_ = false;  // not observed since it was entered
    bool forced_ = false;    // it was entered because of a miss
    bool taught_ = false;    // its shape was, since then
    TimeNs observed_ = 0;
    double factor_before_ = 0;  // before the last miss moved it; 0: none
    TimeNs missed_ = 0;

    Estimates all_;
    size_t changed_from_ = 0, changed_to_ = 0;  // levels whose estimates all_ does not have yet
    TimeNs stale_at_ = 0;                       // the first of the measured ones
    double best_shape_ = 0;

    Knowledge measured(size_t level, TimeNs now) const;
    // Levels in a row of which none was measured, at factor 1: speed = offset + slope x capacity, within what the side
    // allows.
    struct Gap {
        Knowledge knowledge = Knowledge::kNone;
        double offset = 0, slope = 0;
        double same = 0;        // speed of the nearest measured level, for those beyond all of them
        double proportion = 0;  // of speed to capacity there
    };
    Gap gap(const size_t (&below)[2], const size_t (&above)[2]) const;
    Gap around(size_t next) const;
    Estimate guess(size_t level, const Gap& gap) const;
    void guess(size_t from, size_t to, const Gap& gap);
    void set_shape(size_t level, double shape);
    void renew(size_t from, size_t to);
    bool teach(size_t level, double speed, TimeNs now);
    void doubt_factor(size_t level, double speed, TimeNs now);
};

}  // namespace vuda::tuner
