// The image that every frame must equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/render/expected.h"
#include "bench/render/frame_slot.h"

namespace vuda::bench {

class Reference {
 public:
    Reference() = default;
    // Takes a whole frame, after comparing a lattice of its pixels with what the CPU computes. DATA_LOSS is not used
    // here: a wrong pixel is INTERNAL and names its place and both values.
    static Result<Reference> from_frame(const PushConstants& push, RenderLoad load, std::span<const uint8_t> image);

    // True when these rows are identical to the reference's.
    bool matches(RowSet rows, std::span<const uint8_t> pixels) const;

    // FNV-1a of the image, 16 hex digits; "" before there is one.
    std::string checksum() const;

 private:
    uint32_t width_ = 0;
    uint32_t height_ = 0;
    std::vector<uint8_t> image_;
};

}  // namespace vuda::bench
