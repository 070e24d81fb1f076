#include "tuner/miss_detector.h"

#include <algorithm>
#include <cmath>

namespace vuda::tuner {
namespace {

// "None may be late" would make one late sample infinite evidence; two in a thousand is as strict as a test can be.
constexpr double kLeastAllowed = 0.002;
constexpr double kMostAllowed = 0.95;

}  // namespace

void MissDetector::Test::set(double allowed, double suspected) {
    on_late = std::log(suspected / allowed);
    on_time = std::log((1 - suspected) / (1 - allowed));
}

void MissDetector::Test::add(bool late, int times) {
    sum = std::max(0.0, sum + (late ? on_late * times : on_time));
    if (sum == 0) {
        misses = samples = 0;
        return;
    }
    ++samples;
    if (late) ++misses;
}

void MissDetector::set_allowed(double fraction) {
    const double allowed = std::clamp(fraction, kLeastAllowed, kMostAllowed);
    gross_.set(allowed, std::min(0.99, std::max(0.3, allowed + 0.25)));
    mild_.set(allowed, std::min(0.98, std::min(1.6 * allowed, allowed + 0.15)));
    reset();
}

void MissDetector::reset() {
    for (Test* test : {&gross_, &mild_}) {
        test->sum = 0;
        test->misses = test->samples = 0;
    }
}

void MissDetector::add(bool late, bool very_late) {
    gross_.add(late, very_late ? 2 : 1);
    mild_.add(late, very_late ? 2 : 1);
}

}  // namespace vuda::tuner
