// Counts of durations in log-spaced bins: 16 to the octave (6 %), percentiles between the ends of a bin in proportion,
// from one microsecond to 73 minutes.  Fixed size.  Debian 12 has no HDR histogram for C or C++; this is the part of
// one that is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vuda::tuner {

class LogHistogram {
 public:
    static constexpr int kFirstOctave = 10;  // below 2^10 ns all is one bin
    static constexpr int kOctaves = 32;
    static constexpr size_t kBinsPerOctave = 16;
    static constexpr size_t kBins = kOctaves * kBinsPerOctave;

    static size_t bin_of(int64_t duration_ns);
    // The bin's middle and upper end, nanoseconds.
    static double middle_of(size_t bin);
    static int64_t end_of(size_t bin);

    void add(size_t bin, uint32_t n = 1);
    // Takes out what was added before.
    void subtract(const LogHistogram& other);
    void halve();
    void clear();

    uint64_t count() const { return count_; }
    // A duration such that `share` of the counts are not above it, nanoseconds; 0 when empty.
    double quantile(double share) const;
    // Counts in bins that lie above `duration_ns` altogether.
    uint64_t count_above(int64_t duration_ns) const;

 private:
    std::array<uint32_t, kBins> bins_{};
    std::array<uint64_t, kOctaves> octaves_{};  // sums, so that a percentile is found in 32 + 16 steps
    uint64_t count_ = 0;
};

}  // namespace vuda::tuner
