#include "bench/compute/holes.h"

#include <algorithm>

#include "bench/common/samples.h"

namespace vuda::bench {
namespace {

constexpr double kUsual = 25;  // percentile
constexpr double kLongerMs = 0.05;
constexpr double kLongerFraction = 0.1;

// Signed: clocks of two multiprocessors may differ by a step.
double clock_ms(uint64_t from, uint64_t to) { return static_cast<double>(static_cast<int64_t>(to - from)) / 1e6; }

bool is_hole(double ms, double usual_ms) { return ms - usual_ms > std::max(kLongerMs, kLongerFraction * usual_ms); }

}  // namespace

Holes find_holes(const std::vector<LaunchTime>& launches, size_t most) {
    Samples gaps;
    Samples kernels;
    for (size_t i = 0; i < launches.size(); ++i) {
        kernels.add(clock_ms(launches[i].begin_ns, launches[i].end_ns));
        if (i > 0) gaps.add(clock_ms(launches[i - 1].end_ns, launches[i].begin_ns));
    }
    Holes found;
    found.usual_gap_ms = gaps.percentile(kUsual);
    found.usual_kernel_ms = kernels.percentile(kUsual);
    for (size_t i = 0; i < launches.size() && found.holes.size() < most; ++i) {
        const uint64_t start = launches.front().begin_ns;
        const auto& [begin, end] = launches[i];
        if (i > 0) {
            const uint64_t before = launches[i - 1].end_ns;
            const double gap = clock_ms(before, begin);
            if (is_hole(gap, found.usual_gap_ms)) found.holes.push_back({clock_ms(start, before), gap});
        }
        const double kernel = clock_ms(begin, end);
        if (is_hole(kernel, found.usual_kernel_ms) && found.holes.size() < most)
            found.holes.push_back({clock_ms(start, begin), kernel - found.usual_kernel_ms});
        found.launches = i + 1;
        found.ms = clock_ms(start, end);
    }
    return found;
}

}  // namespace vuda::bench
