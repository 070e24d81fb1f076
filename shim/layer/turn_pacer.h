// When a renderer's next frame may begin, where compute takes turns with it (mode `sliced`). Pure.
//
// A draw that runs is not interrupted and a renderer that runs free leaves no gap, so the turn is given by holding the
// frame back before it is submitted. Two things can ask for that:
//
//   a share        a frame that takes g on the GPU comes every g / share: the rest of the time is compute's
//   a frame target frames come as often as it wants and no oftener; what is left of each is compute's
//
// With both, whichever lets the frame go earlier: none is held past its deadline. A renderer that is slower than its
// terms by itself is never held; one that is as fast is not either, as long as its frames come within kSlack of evenly
// (GCRA, the leaky bucket of ITU-T I.371, with that tolerance).
//
// A TSG whose timeslice ends within a frame is switched away from when the draw that is under way has ended, before the
// rest of the frame, little as that is: compute's turn is then interrupted by two switches more. So the timeslice wants
// to be longer than a frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vuda::layer {

class TurnPacer {
 public:
    struct Terms {
        uint32_t graphics_permille = 0;  // of the GPU's time, 1..999; anything else: no share is asked for
        uint64_t frame_ns = 0;           // 0: no target
        bool operator==(const Terms&) const = default;
    };

    static constexpr uint64_t kSlackNs = 2'000'000;        // at most; and an eighth of the period
    static constexpr uint64_t kLongestNs = 1'000'000'000;  // period

    // Nanoseconds from one frame to the next; 0: as it likes. A share needs some frames of which the GPU time is known.
    uint64_t period_ns(const Terms& terms) const;
    // When a frame that is ready now may begin: now or later, by one period at most. CLOCK_MONOTONIC.
    uint64_t release_ns(const Terms& terms, uint64_t now_ns) const;
    // It begins now.
    void began(const Terms& terms, uint64_t now_ns);
    // The timeslice that the renderer's TSG should have from now on, microseconds: a power of two of milliseconds that
    // a usual frame fits into with a quarter to spare. 0: as the driver gave it; frames' GPU time is not known, or
    // there is none to spare between them.
    uint32_t slice_us(const Terms& terms);
    // Work of some frame, or of a part of one, took so long on the GPU. May come a few frames late.
    void worked(uint64_t gpu_ns);

 private:
    static constexpr size_t kKept = 16;
    static constexpr size_t kEnough = 4;

    uint64_t usual_ns() const;

    uint64_t due_ns_ = 0;  // when the next frame would begin if frames came evenly
    // GPU time that became known between the beginnings of two frames, of the last of them.
    std::array<uint64_t, kKept> worked_{};
    size_t frames_ = 0;  // since the first whose work is known
    uint64_t working_ = 0;
    uint32_t slice_us_ = 0;  // the last answer
};

}  // namespace vuda::layer
