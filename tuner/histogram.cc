#include "tuner/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace vuda::tuner {

size_t LogHistogram::bin_of(int64_t duration_ns) {
    if (duration_ns < (int64_t{1} << kFirstOctave)) return 0;
    const auto value = static_cast<uint64_t>(duration_ns);
    const int octave = static_cast<int>(std::bit_width(value)) - 1;
    if (octave >= kFirstOctave + kOctaves) return kBins - 1;
    const auto sub = static_cast<size_t>(value >> (octave - 4)) & (kBinsPerOctave - 1);
    return static_cast<size_t>(octave - kFirstOctave) * kBinsPerOctave + sub;
}

int64_t LogHistogram::end_of(size_t bin) {
    const int octave = kFirstOctave + static_cast<int>(bin / kBinsPerOctave);
    const auto sub = static_cast<int64_t>(bin % kBinsPerOctave);
    return ((int64_t{1} << 4) + sub + 1) << (octave - 4);
}

double LogHistogram::middle_of(size_t bin) {
    const int octave = kFirstOctave + static_cast<int>(bin / kBinsPerOctave);
    return static_cast<double>(end_of(bin)) - 0.5 * static_cast<double>(int64_t{1} << (octave - 4));
}

void LogHistogram::add(size_t bin, uint32_t n) {
    uint32_t& slot = bins_[bin];
    n = std::min(n, std::numeric_limits<uint32_t>::max() - slot);
    slot += n;
    octaves_[bin / kBinsPerOctave] += n;
    count_ += n;
}

void LogHistogram::subtract(const LogHistogram& other) {
    count_ = 0;
    octaves_.fill(0);
    for (size_t bin = 0; bin < kBins; ++bin) {
        bins_[bin] -= std::min(bins_[bin], other.bins_[bin]);  // a full slot took fewer than were added
        octaves_[bin / kBinsPerOctave] += bins_[bin];
    }
    for (const uint64_t sum : octaves_) count_ += sum;
}

void LogHistogram::halve() {
    count_ = 0;
    octaves_.fill(0);
    for (size_t bin = 0; bin < kBins; ++bin) {
        bins_[bin] /= 2;
        octaves_[bin / kBinsPerOctave] += bins_[bin];
    }
    for (const uint64_t sum : octaves_) count_ += sum;
}

void LogHistogram::clear() {
    if (count_ == 0) return;
    // Most durations lie in one octave or two.
    for (size_t octave = 0; octave < kOctaves; ++octave) {
        if (octaves_[octave] == 0) continue;
        std::fill_n(bins_.begin() + static_cast<std::ptrdiff_t>(octave * kBinsPerOctave), kBinsPerOctave, 0);
        octaves_[octave] = 0;
    }
    count_ = 0;
}

double LogHistogram::quantile(double share) const {
    if (count_ == 0) return 0;
    const double wanted = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(count_));
    uint64_t left = std::max<uint64_t>(1, static_cast<uint64_t>(wanted));
    size_t octave = 0;
    while (octave + 1 < kOctaves && left > octaves_[octave]) left -= octaves_[octave++];
    size_t bin = octave * kBinsPerOctave;
    const size_t last = bin + kBinsPerOctave - 1;
    while (bin < last && left > bins_[bin]) left -= bins_[bin++];
    // The counts of a bin as if spread evenly over it.
    const double place = bins_[bin] > 0 ? (static_cast<double>(left) - 0.5) / bins_[bin] : 0.5;
    return middle_of(bin) + (std::min(place, 1.0) - 0.5) * 2 * (static_cast<double>(end_of(bin)) - middle_of(bin));
}

uint64_t LogHistogram::count_above(int64_t duration_ns) const {
    uint64_t above = 0;
    for (size_t bin = bin_of(duration_ns) + 1; bin < kBins; ++bin) above += bins_[bin];
    return above;
}

}  // namespace vuda::tuner
