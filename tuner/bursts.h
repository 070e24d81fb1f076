// Loads that swell for a moment and pass by themselves: whether to wait for the end of one instead of changing the
// level twice, and at which levels that can be afforded.
//
// Keeps the work of all samples, whatever the level they ran at, since the load was last another for good.  So it tells
// for each level which fraction would have been late there, bursts and all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tuner/settings.h"

namespace vuda::tuner {

class Bursts {
 public:
    void set_allowed(double fraction);  // of samples that may be late; starts over
    // Each sample.  `work`: duration times the shape of the level it ran at; 0: that is not known.
    void add(double work);
    // `speed`: of the side under its load, whatever the level (LevelCurve::factor); about every 100 ms.
    void observe(double speed, TimeNs now);
    // An alarm at a level.  True: wait, by experience this will pass, and too many were not late so far.  False: act.
    // `bound_work`: what the bound is worth there, the bound times the level's shape.
    bool wait(double bound_work, TimeNs now);
    bool waiting() const { return alarm_ >= 0; }
    // By what is known of bursts, the fraction late at that level is within what is allowed.
    bool affords(double bound_work, double share) const;

 private:
    static constexpr TimeNs kShort = 700 * kMs;    // a burst, which is worth waiting for the end of
    static constexpr TimeNs kStays = 4 * kSecond;  // from here on the load is another for good
    static constexpr double kChanged = 0.08;       // of the speed
    static constexpr double kSwell = 0.15;         // likewise, at its farthest; less is no burst
    static constexpr double kDrift = 0.05;         // of a difference, each observation
    static constexpr uint32_t kMostPassed = 4;
    static constexpr uint32_t kRepeated = 2;  // before more of them are expected
    // As many good samples are taken for granted, so that one burst just after the load changed is not all there is.
    static constexpr double kPrior = 600;
    static constexpr double kWaitShare = 0.75;
    static constexpr uint64_t kMemory = 5400;  // samples; then all count half: one to two minutes of frames

    static constexpr int kSubBits = 6;  // 64 bins to the octave, 1.1 %
    static constexpr int kOctaves = 6;
    static constexpr int kScaleBits = 20;
    static constexpr int kFirstOctave = kScaleBits - 3;
    static constexpr size_t kBins = static_cast<size_t>(kOctaves) << kSubBits;
    static size_t bin_of(double work);
    void forget();
    bool within(double bound_work, double share) const;
    void passed(TimeNs length);

    double usual_ = 0;     // speed
    TimeNs changed_ = -1;  // since when it has been another; -1: it is not
    double farthest_ = 0;  // deviation since then
    uint32_t passed_ = 0;  // short ones, since the last that was not
    uint32_t swings_ = 0;  // longer ones, up or down
    double allowed_ = 0;
    TimeNs alarm_ = -1;  // the first of this burst
    std::array<uint32_t, kBins> bins_{};
    uint64_t count_ = 0;
};

}  // namespace vuda::tuner
