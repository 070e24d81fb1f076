#include "shim/layer/turn_pacer.h"

#include <algorithm>
#include <utility>

namespace vuda::layer {
namespace {

// Of the target: the rest is for the timer that wakes the renderer, so that a frame on time is seen to be on time.
constexpr uint64_t kOfTarget = 99;

constexpr uint32_t kShortestSliceUs = 1000;
// One that was right stays, as long as frames do not become much shorter: each change is a call of the driver.
constexpr uint64_t kTooLong = 8;

}  // namespace

// The lower quartile: a frame that had to wait for the end of compute's turn took longer than it costs. Times become
// known late, so that one number may hold two frames' and another none; those are left out.
uint64_t TurnPacer::usual_ns() const {
    std::array<uint64_t, kKept> sorted;
    const auto last = worked_.begin() + static_cast<std::ptrdiff_t>(std::min(frames_, kKept));
    const auto end = std::copy_if(worked_.begin(), last, sorted.begin(), [](uint64_t ns) { return ns != 0; });
    const auto known = static_cast<size_t>(end - sorted.begin());
    if (known < kEnough) return 0;
    const auto quartile = sorted.begin() + static_cast<std::ptrdiff_t>(known / 4);
    std::nth_element(sorted.begin(), quartile, end);
    return *quartile;
}

uint64_t TurnPacer::period_ns(const Terms& terms) const {
    uint64_t period = 0;
    if (terms.graphics_permille >= 1 && terms.graphics_permille <= 999) {
        // 1 s at most each, so that nothing overflows.
        period = std::min(std::min(usual_ns(), kLongestNs) * 1000 / terms.graphics_permille, kLongestNs);
    }
    if (terms.frame_ns != 0) {
        const uint64_t target = std::min(terms.frame_ns, kLongestNs) * kOfTarget / 100;
        period = period == 0 ? target : std::min(period, target);
    }
    return period;
}

uint64_t TurnPacer::release_ns(const Terms& terms, uint64_t now_ns) const {
    const uint64_t period = period_ns(terms);
    const uint64_t slack = std::min(period / 8, kSlackNs);
    if (period == 0 || due_ns_ <= now_ns + slack) return now_ns;
    return std::min(due_ns_ - slack, now_ns + period);
}

void TurnPacer::began(const Terms& terms, uint64_t now_ns) {
    if (frames_ > 0 || working_ > 0) worked_[frames_++ % kKept] = std::min(std::exchange(working_, 0), kLongestNs);
    const uint64_t period = period_ns(terms);
    // Longer terms that ended are nobody's debt.
    due_ns_ = std::max(std::min(due_ns_, now_ns + std::min(period / 8, kSlackNs)), now_ns) + period;
}

uint32_t TurnPacer::slice_us(const Terms& terms) {
    const uint64_t usual = usual_ns();
    if (usual == 0 || usual >= period_ns(terms)) return slice_us_ = 0;
    const uint64_t enough_us = usual / 1000 + usual / 4000;
    if (slice_us_ < enough_us || slice_us_ > kTooLong * enough_us) {
        slice_us_ = kShortestSliceUs;
        while (slice_us_ < enough_us) slice_us_ *= 2;
    }
    return slice_us_;
}

void TurnPacer::worked(uint64_t gpu_ns) { working_ += std::min(gpu_ns, kLongestNs); }

}  // namespace vuda::layer
