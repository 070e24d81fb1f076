#include "tuner/bursts.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace vuda::tuner {

void Bursts::set_allowed(double fraction) {
    *this = {};
    allowed_ = fraction;
}

size_t Bursts::bin_of(double work) {
    const auto value = static_cast<uint64_t>(std::clamp(work, 0.0, 1e6) * (1 << kScaleBits));
    if (value < (uint64_t{1} << kFirstOctave)) return 0;
    const int octave = static_cast<int>(std::bit_width(value)) - 1;
    if (octave >= kFirstOctave + kOctaves) return kBins - 1;
    const auto sub = static_cast<size_t>(value >> (octave - kSubBits)) & ((1u << kSubBits) - 1);
    return (static_cast<size_t>(octave - kFirstOctave) << kSubBits) + sub;
}

void Bursts::add(double work) {
    if (!(work > 0)) return;
    ++bins_[bin_of(work)];
    if (++count_ < kMemory) return;
    count_ = 0;
    for (uint32_t& bin : bins_) count_ += bin /= 2;
}

void Bursts::forget() {
    bins_.fill(0);
    count_ = 0;
}

void Bursts::observe(double speed, TimeNs now) {
    if (usual_ == 0) usual_ = speed;
    const double deviation = speed / usual_ - 1;
    if (std::abs(deviation) <= kChanged) {
        if (changed_ >= 0) {
            passed(now - changed_);
            alarm_ = -1;
        } else if (alarm_ >= 0 && now - alarm_ > kShort) {
            passed_ = 0;  // that was no burst
            alarm_ = -1;
        }
        changed_ = -1;
        usual_ += kDrift * (speed - usual_);
        return;
    }
    if (changed_ < 0) {
        changed_ = now;
        farthest_ = 0;
    }
    if (std::abs(deviation) > std::abs(farthest_)) farthest_ = deviation;
    if (now - changed_ <= kStays) return;
    usual_ = speed;
    changed_ = alarm_ = -1;
    passed_ = swings_ = 0;
    forget();
}

void Bursts::passed(TimeNs length) {
    if (std::abs(farthest_) < kSwell) return;
    if (length > kShort) {
        swings_ = std::min(swings_ + 1, kMostPassed);
        passed_ = 0;
    } else if (farthest_ < 0) {
        passed_ = std::min(passed_ + 1, kMostPassed);
    }
}

bool Bursts::affords(double bound_work, double share) const {
    // One may be all there is.
    return (passed_ < kRepeated && swings_ < kRepeated) || within(bound_work, share);
}

bool Bursts::within(double bound_work, double share) const {
    if (!(bound_work > 0)) return true;
    uint64_t over = 0;
    for (size_t bin = bin_of(bound_work) + 1; bin < kBins; ++bin) over += bins_[bin];
    return static_cast<double>(over) <= share * allowed_ * (static_cast<double>(count_) + kPrior);
}

bool Bursts::wait(double bound_work, TimeNs now) {
    if (passed_ == 0 || !within(bound_work, kWaitShare)) return false;
    if (alarm_ < 0) alarm_ = now;
    return now - alarm_ <= kShort;
}

}  // namespace vuda::tuner
