// Tells "more than the allowed fraction is late" from chance, after as few samples as the evidence needs.
//
// Two CUSUM tests (Page, Continuous Inspection Schemes, Biometrika 41, 1954) on the indicator "late": one for gross
// misses (30 % or more), which needs about three late samples in a row at 1 % allowed, and one for mild ones (three
// times what is allowed). A sample later than twice the bound counts twice.  Old good samples do not delay an alarm, as
// they would in an average.
#pragma once

#include <cstdint>

namespace vuda::tuner {

class MissDetector {
 public:
    void set_allowed(double fraction);  // [0, 1); resets
    void reset();
    void add(bool late, bool very_late);

    bool alarm() const { return gross_.sum >= kGrossThreshold || mild_.sum >= kMildThreshold; }
    // More than half way to an alarm: no time to take risks.
    bool uneasy() const { return gross_.sum >= kGrossThreshold / 2 || mild_.sum >= kMildThreshold / 2; }
    // Late ones and all since the evidence of the test that is nearest to its threshold began to grow.
    uint64_t misses() const { return leading().misses; }
    uint64_t samples() const { return leading().samples; }

 private:
    static constexpr double kGrossThreshold = 8;
    static constexpr double kMildThreshold = 3;

    struct Test {
        double on_late = 0, on_time = 0;  // log likelihood ratios
        double sum = 0;
        uint64_t misses = 0, samples = 0;
        void set(double allowed, double suspected);
        void add(bool late, int times);
    };
    const Test& leading() const { return gross_.sum / kGrossThreshold >= mild_.sum / kMildThreshold ? gross_ : mild_; }
    Test gross_, mild_;
};

}  // namespace vuda::tuner
